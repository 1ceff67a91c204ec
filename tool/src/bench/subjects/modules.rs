// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the modules of a Linux host have their code. `nokaslr` does not say: it depends on what the kernel has freed by
//! then of the modules before, and so differs between two boots.

use std::collections::BTreeMap;

/// Addresses of modules' code in one boot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules(BTreeMap<String, u64>);

impl Modules {
    /// How a line `@module name address` begins, which the monitor writes for each module when all are loaded.
    pub const LINE: &str = "@module ";

    /// Finds them in what a host said.
    pub fn find(said: &str) -> Self {
        let module = |line: &str| {
            let (name, address) = line.trim_end().strip_prefix(Self::LINE)?.split_once(' ')?;
            let address = u64::from_str_radix(address.strip_prefix("0x")?, 16).ok()?;
            Some((name.to_owned(), address))
        };
        Modules(said.lines().filter_map(module).collect())
    }

    /// A kernel's table of functions (`address type name [module]`, and the lines of its own boot's modules) as it is in
    /// this boot. A function of which that cannot be said is left out: no name is better than a wrong one.
    pub fn place(&self, table: &str) -> String {
        let asked = Modules::find(table);
        let placed = |line: &str| {
            let Some((function, module)) = line.trim_end().rsplit_once('[') else {
                return Some(format!("{line}\n"));
            };
            let module = module.strip_suffix(']')?;
            let (address, rest) = function.split_once(' ')?;
            let address = u64::from_str_radix(address, 16).ok()?;
            let moved = self.0.get(module)?.wrapping_sub(*asked.0.get(module)?);
            Some(format!("{:016x} {rest}[{module}]\n", address.wrapping_add(moved)))
        };
        table.lines().filter_map(placed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "@module kvm 0xffffffffc0100000\nffffffff81000000 T _text\n\
                         ffffffffc0100040 t kvm_init\t[kvm]\nffffffffc0900000 t bpf_prog\t[bpf]\n";

    #[test]
    fn functions_of_modules_move_with_them() {
        let modules = Modules::find("[ 0.5] Run /init\r\n@module kvm 0xffffffffc0080000\r\n@bench\r\n");
        let placed = modules.place(TABLE);
        assert!(placed.contains("ffffffffc0080040 t kvm_init\t[kvm]\n"), "{placed}");
        assert!(placed.contains("ffffffff81000000 T _text\n"), "{placed}");
        assert!(!placed.contains("bpf_prog"), "{placed}");
    }

    #[test]
    fn functions_of_a_module_that_was_not_told_have_no_name() {
        for said in ["", "@module kvm\n", "@module kvm 100\n", "@module other 0x1\n"] {
            let placed = Modules::find(said).place(TABLE);
            assert!(placed.contains("_text") && !placed.contains("kvm_init"), "{said}: {placed}");
        }
    }
}
