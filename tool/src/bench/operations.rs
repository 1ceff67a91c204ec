// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kinds of hardware operations.
//!
//! The meter's classes overlap: an access to a list register is a system register's, a hardware register's and
//! the interrupt controller's. The kinds here do not: each access belongs to one. Registers that are mere scratch, and
//! the processor's own flags, belong to none.

use std::collections::BTreeMap;

use super::document::Figure;

/// A kind of operations, and the classes that it adds up.
pub struct Kind {
    /// What it is called.
    pub title: &'static str,
    classes: &'static [&'static str],
    /// Which accesses to system registers it does not count, because another kind does.
    without: Option<&'static str>,
}

const fn kind(title: &'static str, classes: &'static [&'static str]) -> Kind {
    Kind { title, classes, without: None }
}

/// All kinds.
pub const KINDS: [Kind; 8] = [
    kind(
        "exceptions taken and returns",
        &["exception_entries", "exception_returns", "vmrun", "vmload", "vmsave", "clgi", "stgi"],
    ),
    Kind {
        title: "system registers read",
        classes: &["hardware_reads", "cpuid", "rdtsc"],
        without: Some("read "),
    },
    Kind { title: "system registers written", classes: &["hardware_writes"], without: Some("write ") },
    kind("interrupt controller", &["irqchip_reads", "irqchip_writes", "doorbells"]),
    kind("other devices", &["mmio_reads", "mmio_writes", "port_reads", "port_writes"]),
    kind("barriers", &["isb", "dsb", "dmb", "fences", "ptesync", "sync", "isync"]),
    kind(
        "TLB, translation, caches",
        &["tlbi", "at", "cache", "invlpg", "invlpga", "tlbie", "tlbiel", "tlbsync", "slb"],
    ),
    kind("atomics", &["atomics"]),
];
/// Prefixes of the interrupt controller's system registers.
const IRQCHIP: [&str; 3] = ["ICC_", "ICH_", "ICV_"];

impl Kind {
    /// How many of them a figure has.
    pub fn count(&self, figure: &Figure) -> f64 {
        let sum: f64 = self.classes.iter().filter_map(|class| figure.classes.get(*class)).sum();
        let elsewhere = self.without.map_or(0.0, |access| {
            let registers = figure.registers.iter().filter(|(name, _)| {
                let register = name.strip_prefix(access);
                register.is_some_and(|name| IRQCHIP.iter().any(|prefix| name.starts_with(prefix)))
            });
            registers.map(|(_, count)| count).sum()
        });
        (sum - elsewhere).max(0.0)
    }
}

/// Hardware operations of a row, each counted once.
pub fn hardware(figure: &Figure) -> f64 {
    KINDS.iter().map(|kind| kind.count(figure)).sum()
}

/// Hardware operations of classes alone, where accesses to the interrupt controller are accesses to system
/// registers, as with GICv3: they are counted as such.
pub fn hardware_of_classes(classes: &BTreeMap<String, f64>) -> f64 {
    let mut classes = classes.clone();
    classes.retain(|class, _| !class.starts_with("irqchip_"));
    hardware(&Figure { classes, ..Figure::default() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(entries: &[(&str, f64)]) -> BTreeMap<String, f64> {
        entries.iter().map(|(name, count)| ((*name).to_owned(), *count)).collect()
    }

    #[test]
    fn nothing_is_counted_twice() {
        let classes = map(&[
            ("instructions", 50.0),
            ("loads", 9.0),
            ("exception_entries", 1.0),
            ("exception_returns", 1.0),
            ("register_reads", 5.0),
            ("hardware_reads", 3.0),
            ("irqchip_reads", 2.0),
            ("isb", 1.0),
        ]);
        let registers = map(&[
            ("read ESR_EL2", 2.0),
            ("read SP_EL0", 2.0),
            ("read ICH_VMCR_EL2", 1.0),
            ("write ICH_HCR_EL2", 7.0),
        ]);
        // One of the interrupt controller's reads is MMIO: two exceptions, two registers, two of the controller's,
        // one barrier.
        assert_eq!(hardware(&Figure { classes: classes.clone(), registers, ..Figure::default() }), 7.0);
        // Without registers all of the controller's are taken for system registers.
        assert_eq!(hardware_of_classes(&classes), 6.0);
    }
}
