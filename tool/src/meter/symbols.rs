// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Names of the functions of whatever is measured: from an ELF file or from a table like System.map.

use std::fs;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

use super::placing::{Code, distances};
use super::reading::Step;
use crate::failure::{Context, Failure, Result};

/// What is farther behind a symbol than this is something else.
const REACH: u64 = 1 << 20;
/// How hypervisors call their exception vectors, the tables of one hypervisor together. Known addresses, with which code
/// that does not run where it was linked is found.
const VECTORS: [&[&str]; 3] = [
    &["__kvm_nvhe___kvm_hyp_vector"],
    &[
        "vectors",
        "vectors_timed",
        "vectors_gicv2",
        "vectors_gicv2_timed",
        "vectors_legacy",
        "vectors_legacy_timed",
    ],
    &["hyp_traps_vector"],
];
/// The part of Linux that runs in EL2 while the rest runs in EL1: it has addresses of its own there.
const NVHE: &str = "__kvm_nvhe_";

/// Functions by address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Symbols {
    /// In ascending order, one for each address.
    all: Vec<(u64, String)>,
    /// The code itself, if the file has it.
    code: Vec<Code>,
}

impl Symbols {
    /// Takes the symbols in code of an ELF file.
    pub fn from_elf(path: &Path) -> Result<Self> {
        let doing = || format!("cannot read symbols from {}", path.display());
        let bytes = fs::read(path).context(doing)?;
        let file = object::File::parse(&*bytes).context(doing)?;
        let is_code = |kind| matches!(kind, SymbolKind::Text | SymbolKind::Label | SymbolKind::Unknown);
        // A function may begin at zero, where a program is linked there.
        let is_one = |symbol: &object::Symbol<'_, '_>| match symbol.address() {
            0 => symbol.kind() == SymbolKind::Text,
            _ => is_code(symbol.kind()),
        };
        let symbols = file.symbols().filter(|symbol| symbol.is_definition() && is_one(symbol));
        let named = symbols.filter_map(|symbol| Some((symbol.address(), symbol.name().ok()?.to_owned())));
        let known = Self::new(named.collect()).ok_or_else(|| nothing(&path.display().to_string()))?;
        let code =
            file.sections().filter(|section| section.kind() == SectionKind::Text).filter_map(|section| {
                Some(Code { address: section.address(), bytes: section.data().ok()?.to_vec() })
            });
        Ok(Symbols { code: code.collect(), ..known })
    }

    /// Takes the functions of a table with lines `address type name`, as of `/proc/kallsyms` and System.map.
    pub fn from_table(text: &str) -> Result<Self> {
        let line = |line: &str| {
            let mut words = line.split_whitespace();
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            let is_code = matches!(words.next()?, "t" | "T" | "w" | "W");
            // A kernel that hides its addresses shows zeros.
            let name = words.next().filter(|_| is_code && address != 0)?;
            Some((address, name.to_owned()))
        };
        Self::new(text.lines().filter_map(line).collect()).ok_or_else(|| nothing("the table of symbols"))
    }

    /// Takes the symbols of a file of either kind.
    pub fn from_file(path: &Path) -> Result<Self> {
        let bytes = fs::read(path).context(|| format!("cannot read symbols from {}", path.display()))?;
        if bytes.starts_with(b"\x7fELF") {
            return Self::from_elf(path);
        }
        Self::from_table(&String::from_utf8_lossy(&bytes)).map_err(|_| nothing(&path.display().to_string()))
    }

    fn new(mut all: Vec<(u64, String)>) -> Option<Self> {
        // `$x` and `$d` say where code and data begin; names with a dot in front are the compiler's own.
        all.retain(|(_, name)| !name.starts_with(['$', '.']) && !name.is_empty());
        // Where several names have one address, those that people wrote are the shorter ones.
        all.sort_by(|one, other| (one.0, one.1.len(), &one.1).cmp(&(other.0, other.1.len(), &other.1)));
        all.dedup_by_key(|(address, _)| *address);
        for (_, name) in &mut all {
            let readable = format!("{:#}", rustc_demangle::demangle(name));
            *name = readable;
        }
        (!all.is_empty()).then_some(Symbols { all, code: Vec::new() })
    }

    /// The function that an address is in, and how far behind its start.
    pub fn name(&self, pc: u64) -> Option<(&str, u64)> {
        let index = self.all.partition_point(|&(address, _)| address <= pc).checked_sub(1)?;
        let (address, name) = self.all.get(index)?;
        let offset = pc - address;
        (offset < REACH).then_some((name, offset))
    }

    /// The address of a function.
    pub fn address(&self, name: &str) -> Option<u64> {
        self.all.iter().find(|(_, known)| known == name).map(|&(address, _)| address)
    }

    /// The symbols of code that runs `by` bytes behind where it was linked.
    pub fn shifted(mut self, by: i64) -> Self {
        for (address, _) in &mut self.all {
            *address = address.wrapping_add_signed(by);
        }
        self.all.sort();
        self
    }

    /// The symbols of code whose exception vectors are at this address: as they are if they know something there, else
    /// shifted by the distance of the vectors. Of Linux only what runs in EL2 is shifted then. Where no vectors are
    /// known, the executed instructions tell where the code is.
    pub fn fitted(self, vectors: u64, executed: &[Step]) -> Self {
        if self.name(vectors).is_some() {
            return self;
        }
        let distance = |name: &&'static str| Some((*name, vectors.wrapping_sub(self.address(name)?)));
        // Code is moved by a round number: of several tables, this tells which one it is.
        let nearest = |names: &&[&'static str]| {
            names.iter().filter_map(distance).max_by_key(|(_, distance)| distance.trailing_zeros())
        };
        let Some((name, distance)) = VECTORS.iter().find_map(nearest) else {
            return self.found(executed);
        };
        let by = distance.cast_signed();
        if !name.starts_with(NVHE) {
            return self.shifted(by);
        }
        let (hypervisor, host) = self.all.into_iter().partition(|(_, name)| name.starts_with(NVHE));
        let part = |all| Symbols { all, code: Vec::new() };
        part(hypervisor).shifted(by).merged(part(host))
    }

    /// The symbols where the executed instructions are: of parts that were moved apart, those that are moved as most of
    /// the instructions are come first.
    fn found(self, executed: &[Step]) -> Self {
        let moved = distances(&self.code, executed).into_iter();
        let placed = moved.map(|distance| self.clone().shifted(distance.cast_signed()));
        placed.reduce(Symbols::merged).unwrap_or(self)
    }

    /// These symbols, and those of programs that run beside: each where the executed instructions are that have no name here.
    pub fn beside(self, programs: Vec<Symbols>, executed: &[Step]) -> Self {
        let unnamed: Vec<Step> =
            executed.iter().filter(|step| self.name(step.pc).is_none()).cloned().collect();
        programs.into_iter().fold(self, |all, program| match distances(&program.code, &unnamed).first() {
            Some(distance) => all.merged(program.shifted(distance.cast_signed())),
            None => all,
        })
    }

    /// These symbols and others; where both have an address, these.
    pub fn merged(mut self, others: Symbols) -> Self {
        self.all.extend(others.all);
        self.all.sort_by_key(|&(address, _)| address);
        self.all.dedup_by_key(|(address, _)| *address);
        self
    }
}

fn nothing(what: &str) -> Failure {
    Failure::failed(format!("{what} has no code symbols")).help(
        "symbols come from an ELF file that is not stripped, or from lines `address type name` as in \
                       /proc/kallsyms (read by root) and System.map",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "\
ffff800080010000 T _text
ffff800080010800 T vectors
ffff800080010800 t a_longer_name_of_it
ffff800080020000 t local\t[module]
ffff800080020010 D data
ffff800080030000 t $x
ffff800080040000 W _ZN4core3fmt5write17h0123456789abcdefE
";

    #[test]
    fn names_what_is_in_a_table() {
        let symbols = Symbols::from_table(TABLE).unwrap();
        assert_eq!(symbols.name(0xffff_8000_8001_0810), Some(("vectors", 0x10)));
        assert_eq!(symbols.name(0xffff_8000_8002_0018), Some(("local", 0x18)));
        assert_eq!(symbols.name(0xffff_8000_8003_0000), Some(("local", 0x1_0000)));
        assert_eq!(symbols.name(0xffff_8000_8004_0000), Some(("core::fmt::write", 0)));
        assert_eq!(symbols.name(0xffff_8000_8000_0000), None, "before everything");
        assert_eq!(symbols.name(u64::MAX), None, "far behind everything");
    }

    #[test]
    fn code_that_runs_elsewhere_is_found_by_its_vectors() {
        let symbols = Symbols::from_table(TABLE).unwrap();
        let same = symbols.clone().fitted(0xffff_8000_8001_0800, &[]);
        assert_eq!(same, symbols);
        let moved = symbols.fitted(0x4020_0800, &[]);
        assert_eq!(moved.name(0x4020_0804), Some(("vectors", 4)));
        assert_eq!(moved.address("local"), Some(0x4021_0000));
    }

    #[test]
    fn without_vectors_the_code_tells_where_it_runs() {
        let bytes: Vec<u8> = (0..0x80_u8).collect();
        let digits = |at: usize| bytes[at..at + 4].iter().map(|byte| format!("{byte:02x}")).collect();
        let run = |from: usize, distance: u64| {
            let step = move |at: usize| (0x1000 + at as u64).wrapping_add(distance);
            (from..from + 0x20).step_by(4).map(move |at| (step(at), at))
        };
        let executed: Vec<Step> = run(0, 0x2001_0000)
            .chain(run(0x40, 0_u64.wrapping_sub(0x1000)))
            .map(|(pc, at)| Step { pc, bytes: digits(at), ..Step::default() })
            .collect();
        let symbols = Symbols::from_table("1000 T handler\n1040 T stubs\n").unwrap();
        let code = vec![Code { address: 0x1000, bytes: bytes.clone() }];
        let symbols = Symbols { code, ..symbols }.fitted(0, &executed);
        assert_eq!(symbols.name(0x2001_1004), Some(("handler", 4)));
        assert_eq!(symbols.name(0x48), Some(("stubs", 8)));
        assert_eq!(symbols.name(0x1_0000_0000), None);
    }

    #[test]
    fn a_program_beside_is_found_by_its_code() {
        let bytes: Vec<u8> = (0..0x40_u8).collect();
        let digits = |at: usize| bytes[at..at + 4].iter().map(|byte| format!("{byte:02x}")).collect();
        let step =
            |at: usize| Step { pc: 0x6000_0000_0000 + at as u64, bytes: digits(at), ..Step::default() };
        let mut executed: Vec<Step> = (0x10..0x30).step_by(4).map(step).collect();
        executed.push(Step { pc: 0x1004, bytes: digits(0), ..Step::default() });
        let program = Symbols::from_table("10 T serve\n").unwrap();
        let program = Symbols { code: vec![Code { address: 0, bytes: bytes.clone() }], ..program };
        let other = Symbols::from_table("20 T other\n").unwrap();
        let own = Symbols::from_table("1000 T light\n").unwrap();
        let all = own.clone().beside(vec![other, program.clone()], &executed);
        assert_eq!((all.name(0x6000_0000_0018), all.name(0x1004)), (Some(("serve", 8)), Some(("light", 4))));
        assert_eq!(all.address("other"), None, "it did not run");
        assert_eq!(
            own.clone().beside(vec![program], &executed[8..]),
            own,
            "what has a name is not looked for"
        );
    }

    #[test]
    fn of_several_tables_of_vectors_the_right_one_is_found() {
        let symbols = Symbols::from_table("800 T vectors\n1100 T light\n1800 T vectors_timed\n").unwrap();
        for vectors in [0x4020_0800, 0x4020_1800] {
            assert_eq!(
                symbols.clone().fitted(vectors, &[]).name(0x4020_1104),
                Some(("light", 4)),
                "{vectors:#x}"
            );
        }
    }

    #[test]
    fn of_linux_only_the_part_in_el2_is_moved() {
        let table = "1000 T vectors\n2000 T __kvm_nvhe___kvm_hyp_vector\n2800 t __kvm_nvhe_handler\n";
        let symbols = Symbols::from_table(table).unwrap().fitted(0x8000_2000, &[]);
        assert_eq!(symbols.address("vectors"), Some(0x1000));
        assert_eq!(symbols.name(0x8000_2804), Some(("__kvm_nvhe_handler", 4)));
    }

    #[test]
    fn several_files_make_one() {
        let one = Symbols::from_table("1000 T one\n2000 T two\n").unwrap();
        let other = Symbols::from_table("2000 T deux\n3000 T trois\n").unwrap();
        let both = one.merged(other);
        assert_eq!((both.address("two"), both.address("deux")), (Some(0x2000), None));
        assert_eq!(both.name(0x3004), Some(("trois", 4)));
    }

    #[test]
    fn says_when_there_are_no_symbols() {
        for text in ["", "hello\n", "0000000000000000 T hidden\n", "1000 D data\n"] {
            let failure = Symbols::from_table(text).unwrap_err();
            assert!(failure.to_string().contains("no code symbols"), "{failure}");
        }
    }

    #[test]
    fn reads_elf_files() {
        let symbols = Symbols::from_elf(&std::env::current_exe().unwrap()).unwrap();
        assert!(symbols.address("main").is_some());
        let failure = Symbols::from_elf(Path::new("/dev/null")).unwrap_err();
        assert!(failure.to_string().contains("/dev/null"), "{failure}");
    }
}
