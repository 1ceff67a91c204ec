// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the built image for PCs must not contain: memory that is written and executed, a register of the guest's
//! floating-point state, and a way from the light tier of an exit into a panic.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction, OpKind, Register};
use object::{Object, ObjectSection, ObjectSegment, ObjectSymbol, SegmentFlags, elf};

use super::reach::{Functions, Pointer};

/// The tables of the light handlers, one entry for each exit code.
const TABLES: [&str; 4] =
    ["LIGHT_HANDLERS", "LIGHT_HANDLERS_NAMED", "LIGHT_HANDLERS_TIMED", "LIGHT_HANDLERS_NAMED_TIMED"];
/// The entries of a table.
const ENTRIES: u64 = 256;
/// So many different light handlers there are at least: fewer were not found.
const FEWEST_HANDLERS: usize = 6;
/// So many instructions the image has at least: fewer were not decoded.
const FEWEST_INSTRUCTIONS: usize = 10_000;

/// A section with its bytes.
struct Section {
    base: u64,
    bytes: Vec<u8>,
}

/// The code of an image, and where things are.
pub(super) struct Program {
    sections: Vec<Section>,
    functions: Functions,
    symbols: BTreeMap<String, u64>,
}

impl Program {
    pub(super) fn load(elf: &Path) -> Result<Self, String> {
        let bytes = fs::read(elf).map_err(|error| format!("{}: {error}", elf.display()))?;
        let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", elf.display()))?;
        let section = |section: object::Section<'_, '_>| {
            Some(Section { base: section.address(), bytes: section.data().ok()?.to_vec() })
        };
        let sections = file.sections().filter(|section| section.address() != 0).filter_map(section).collect();
        let named = || file.symbols().filter_map(|symbol| Some((symbol.name().ok()?.to_owned(), symbol)));
        let is_code = |symbol: &object::Symbol<'_, '_>| {
            let section = symbol.section_index().and_then(|index| file.section_by_index(index).ok());
            section.is_some_and(|section| section.kind() == object::SectionKind::Text)
        };
        let functions = named()
            .filter(|(_, symbol)| is_code(symbol))
            .map(|(name, symbol)| (symbol.address(), (symbol.size(), name)))
            .collect();
        let functions = Functions::new(functions, None);
        let symbols = named().map(|(name, symbol)| (name, symbol.address())).collect();
        Ok(Program { sections, functions, symbols })
    }

    /// The address of a symbol.
    pub(super) fn symbol(&self, name: &str) -> Option<u64> {
        self.symbols.get(name).copied()
    }

    /// The bytes from an address on; none if they are in no section.
    pub(super) fn bytes(&self, start: u64, size: u64) -> &[u8] {
        let inside = |section: &&Section| {
            start.checked_sub(section.base).is_some_and(|offset| offset < section.bytes.len() as u64)
        };
        let Some(section) = self.sections.iter().find(inside) else { return &[] };
        let offset = (start - section.base) as usize;
        section.bytes.get(offset..offset + size as usize).unwrap_or_default()
    }

    /// The name of the function that begins there.
    pub(super) fn name(&self, start: u64) -> &str {
        self.functions.name(start)
    }

    /// The function that an address is in.
    pub(super) fn containing(&self, address: u64) -> Option<u64> {
        self.functions.containing(address)
    }

    /// The instructions of a function.
    pub(super) fn body(&self, start: u64) -> Vec<Instruction> {
        let body = self.bytes(start, self.functions.size(start));
        Decoder::with_ip(64, body, start, DecoderOptions::NONE).into_iter().collect()
    }

    /// Where a call in a function leads through a word of the global offset table, which the linker has filled: at once,
    /// or through a register that the function loads with one such word and no other.
    pub(super) fn linked(&self, function: u64, call: &Instruction) -> Option<u64> {
        if call.op0_kind() == OpKind::Register {
            let loads = self.body(function).into_iter().filter(|instruction| {
                let is_load =
                    instruction.code() == Code::Mov_r64_rm64 && instruction.is_ip_rel_memory_operand();
                is_load && instruction.op0_register() == call.op0_register()
            });
            let targets: BTreeSet<Option<u64>> = loads.map(|load| self.word(&load)).collect();
            return targets.iter().next().copied().flatten().filter(|_| targets.len() == 1);
        }
        self.word(call)
    }

    /// The function that a word of the image names, which an instruction reads.
    fn word(&self, instruction: &Instruction) -> Option<u64> {
        let word = instruction.is_ip_rel_memory_operand().then(|| instruction.ip_rel_memory_address())?;
        let bytes: [u8; 8] = self.bytes(word, 8).try_into().ok()?;
        let target = u64::from_le_bytes(bytes);
        self.functions.begins(target).then_some(target)
    }

    /// The ways into services.
    fn ways(&self) -> Result<Vec<u64>, String> {
        let start = self.symbol(WAYS).ok_or_else(|| format!("the image has no {WAYS}"))?;
        let ways: Vec<u64> = self
            .bytes(start, WAY_COUNT * 8)
            .as_chunks::<8>()
            .0
            .iter()
            .map(|way| u64::from_le_bytes(*way))
            .collect();
        match ways.iter().all(|way| self.functions.begins(*way)) && ways.len() as u64 == WAY_COUNT {
            true => Ok(ways),
            false => Err(format!("{WAYS} names what is no function")),
        }
    }

    /// The light handlers: what the tables name.
    pub(super) fn handlers(&self) -> Result<BTreeSet<u64>, String> {
        let mut handlers = BTreeSet::new();
        for table in TABLES {
            let start = *self.symbols.get(table).ok_or_else(|| format!("the image has no {table}"))?;
            let entries = self.bytes(start, ENTRIES * 8).as_chunks::<8>().0;
            if entries.len() as u64 != ENTRIES {
                return Err(format!("{table} is in no section"));
            }
            handlers.extend(entries.iter().map(|entry| u64::from_le_bytes(*entry)));
        }
        let unknown = handlers.iter().find(|handler| !self.functions.begins(**handler));
        match unknown {
            Some(handler) => Err(format!("the handler at {handler:#x} is no function")),
            None if handlers.len() < FEWEST_HANDLERS => {
                Err(format!("{} light handlers in the image, expected more", handlers.len()))
            }
            None => Ok(handlers),
        }
    }
}

/// The functions that enter services, and jump to the way in that this CPU needs (`arch/x86_64/src/service/entry.S`).
const ENTRIES_OF_SERVICES: [&str; 4] =
    ["4port6served", "5Found12access_fully", "5Found4ring", "6memory11ring_within"];
/// The table of the ways, as many as there are guards, and where a service has the address of its own.
const WAYS: &str = "turnstile_service_ways";
const WAY_AT: u64 = 128;
const WAY_COUNT: u64 = 16;
/// What is no part of a light exit any more: a service is begun anew, asks the hypervisor for something, keeps its CPU from the guest,
/// or has something to handle before it is left. Each hypervisor does other things then, by pointers.
const BEYOND: [&str; 5] = [
    "Service$LT$S$GT$$GT$11handle_long",
    "16Service$LT$S$GT$4wait",
    "Service$LT$S$GT$$GT$5print",
    "Service$LT$S$GT$$GT$6settle",
    "Service$LT$S$GT$$GT$9set_lines",
];

/// Follows every call and jump out of the light tier's handlers, also the ways into services, and fails if one leads to the panic
/// machinery, or through a pointer.
///
/// # Errors
/// Names the function, or says why the image cannot be read.
pub fn hot_path(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    let ways = program.ways()?;
    let left = RefCell::new(BTreeSet::from(BEYOND));
    program.functions.follow(program.handlers()?.into_iter().chain(ways), |start| {
        let name = program.name(start);
        if let Some(beyond) = BEYOND.iter().find(|beyond| name.contains(**beyond)) {
            left.borrow_mut().remove(beyond);
            return Ok(Vec::new());
        }
        let enters = ENTRIES_OF_SERVICES.iter().any(|entry| name.contains(entry));
        let targets = program.body(start).into_iter().map(|instruction| match instruction.flow_control() {
            FlowControl::IndirectCall if enters && is_way(&instruction) => Ok(None),
            FlowControl::IndirectCall => program.linked(start, &instruction).map(Some).ok_or(Pointer),
            _ => Ok(target(&instruction)),
        });
        targets.filter_map(Result::transpose).collect()
    })?;
    match left.into_inner().first() {
        None => Ok(()),
        Some(name) => Err(format!("the light tier does not reach {name}: this looks at the wrong thing")),
    }
}

/// Says whether an instruction calls the way into a service, which is in the service's registers.
fn is_way(instruction: &Instruction) -> bool {
    instruction.code() == Code::Call_rm64
        && instruction.memory_base() == Register::RAX
        && instruction.memory_index() == Register::None
        && instruction.memory_displacement64() == WAY_AT
}

/// Where a direct call or jump leads.
pub(super) fn target(instruction: &Instruction) -> Option<u64> {
    match instruction.flow_control() {
        FlowControl::Call | FlowControl::UnconditionalBranch | FlowControl::ConditionalBranch => {
            let near = [OpKind::NearBranch16, OpKind::NearBranch32, OpKind::NearBranch64];
            near.contains(&instruction.op0_kind()).then(|| instruction.near_branch_target())
        }
        _ => None,
    }
}

/// Fails if code names a register of the floating-point and vector state, which is the guest's while it is resident.
/// What saves and loads the whole state names none.
///
/// # Errors
/// Names the function and the instruction's address.
pub fn no_vectors(elf: &Path) -> Result<(), String> {
    let program = Program::load(elf)?;
    let mut seen = 0;
    for (start, name) in program.functions.iter() {
        for instruction in program.body(start) {
            seen += 1;
            if operands(&instruction).any(is_vector) {
                let name = rustc_demangle::demangle(name);
                let place = instruction.ip();
                return Err(format!("{name:#} has {:?} at {place:#x}", instruction.mnemonic()));
            }
        }
    }
    match seen {
        FEWEST_INSTRUCTIONS.. => Ok(()),
        _ => Err(format!("only {seen} instructions were found")),
    }
}

fn operands(instruction: &Instruction) -> impl Iterator<Item = Register> {
    let kinds = (0..instruction.op_count()).filter(|&index| instruction.op_kind(index) == OpKind::Register);
    kinds.map(|index| instruction.op_register(index))
}

fn is_vector(register: Register) -> bool {
    register.is_vector_register()
        || register.is_mm()
        || register.is_st()
        || register.is_k()
        || register.is_tmm()
}

/// Fails if a part of the image is loaded to be written and executed, or none is only executed.
///
/// # Errors
/// Names the part's address.
pub fn permissions(elf: &Path) -> Result<(), String> {
    let bytes = fs::read(elf).map_err(|error| format!("{}: {error}", elf.display()))?;
    let file = object::File::parse(&*bytes).map_err(|error| format!("{}: {error}", elf.display()))?;
    let mut executed = 0;
    for segment in file.segments() {
        let SegmentFlags::Elf { p_flags, .. } = segment.flags() else { continue };
        let (write, execute) = (p_flags.0 & elf::PF_W.0 != 0, p_flags.0 & elf::PF_X.0 != 0);
        if write && execute {
            return Err(format!("the part at {:#x} is written and executed", segment.address()));
        }
        executed += usize::from(execute);
    }
    match executed {
        0 => Err("no part of the image is executed".to_owned()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Instruction {
        Decoder::with_ip(64, bytes, 0x20_0000, DecoderOptions::NONE).decode()
    }

    #[test]
    fn vector_registers_are_seen() {
        let vectors: [&[u8]; 3] = [
            &[0x0f, 0x10, 0x07], // movups xmm0, [rdi]
            &[0x0f, 0x6f, 0x07], // movq mm0, [rdi]
            &[0xd8, 0xc1],       // fadd st, st(1)
        ];
        let others: [&[u8]; 3] = [
            &[0x0f, 0xae, 0x27], // xsave [rdi]
            &[0x48, 0x89, 0x07], // mov [rdi], rax
            &[0x0f, 0x01, 0xd8], // vmrun rax
        ];
        for bytes in vectors {
            assert!(operands(&decode(bytes)).any(is_vector), "{bytes:x?}");
        }
        for bytes in others {
            assert!(!operands(&decode(bytes)).any(is_vector), "{bytes:x?}");
        }
    }

    #[test]
    fn branches_are_followed() {
        assert_eq!(target(&decode(&[0xe8, 0x10, 0, 0, 0])), Some(0x20_0015)); // call
        assert_eq!(target(&decode(&[0x74, 0xfe])), Some(0x20_0000)); // je
        assert_eq!(target(&decode(&[0xff, 0xd0])), None); // call rax
        assert_eq!(decode(&[0xff, 0xd0]).flow_control(), FlowControl::IndirectCall);
        assert_eq!(target(&decode(&[0xc3])), None); // ret
    }

    #[test]
    fn only_the_way_into_a_service_is_one() {
        assert!(is_way(&decode(&[0xff, 0x90, 0x80, 0, 0, 0])), "call [rax + 128]");
        let others: [&[u8]; 4] = [
            &[0xff, 0xd0],                // call rax
            &[0xff, 0x93, 0x80, 0, 0, 0], // call [rbx + 128]
            &[0xff, 0x50, 0x78],          // call [rax + 120]
            &[0xff, 0xa0, 0x80, 0, 0, 0], // jmp [rax + 128]
        ];
        for bytes in others {
            assert!(!is_way(&decode(bytes)), "{bytes:x?}");
        }
    }
}
