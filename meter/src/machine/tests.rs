// SPDX-License-Identifier: Apache-2.0 OR MIT
use super::*;
use crate::block::{Code, Raw};

/// A machine whose registers are what a test says.
#[derive(Debug, Default)]
pub struct Fake {
    /// Register values; others do not exist.
    pub values: Vec<(Register, u64)>,
    /// Words of memory by their addresses; there are no others.
    pub memory: Vec<(u64, u64)>,
    /// The CPU that runs.
    pub cpu: u64,
    /// How often the CPU was asked for.
    pub asked: u32,
}

impl Fake {
    /// Sets a register.
    pub fn set(&mut self, register: Register, value: u64) {
        self.values.retain(|&(known, _)| known != register);
        self.values.push((register, value));
    }
}

impl Machine for Fake {
    fn read(&mut self, register: Register) -> Option<u64> {
        self.values.iter().find(|&&(known, _)| known == register).map(|&(_, value)| value)
    }

    fn memory(&mut self, address: u64) -> Option<u64> {
        self.memory.iter().find(|&&(known, _)| known == address).map(|&(_, word)| word)
    }

    fn cpu(&mut self) -> u64 {
        self.asked += 1;
        self.cpu
    }
}

/// A block of A64 instructions.
pub fn block(code: &mut Code, start: u64, level: u8, words: &[u32]) -> &'static Block {
    let raw = words.iter().enumerate().map(|(index, word)| Raw {
        pc: start + 4 * index as u64,
        bytes: word.to_le_bytes().to_vec(),
        text: None,
    });
    code.block(level, true, raw.collect()).0
}

fn fake(values: &[(Register, u64)]) -> Fake {
    Fake { values: values.to_vec(), ..Fake::default() }
}

#[test]
fn a_guest_is_behind_stage_2() {
    let side = |el: u64, hcr: u64, ranges: &[Range<u64>]| {
        let mut machine = fake(&[(Register::Cpsr, el << 2), (Register::HcrEl2, hcr)]);
        side(Isa::Arm64, &mut machine, ranges, None, 0x8000_0000).guest
    };
    const TGE: u64 = 1 << 27;
    assert!(side(1, 1, &[]) && side(0, 1, &[]), "the guest");
    assert!(!side(2, 1, &[]), "the hypervisor");
    assert!(!side(1, 0, &[]), "a host in EL1");
    assert!(!side(0, TGE | 1, &[]), "a host's user");
    let ranges = std::slice::from_ref(&(0x8000_0000..0x8100_0000));
    assert!(side(1, 1, ranges) && !side(2, 1, ranges) && !side(1, 0, ranges));
    assert!(!side(1, 1, &[0..0x1000, 0x2000..0x3000]), "elsewhere");
}

#[test]
fn a_virtual_machine_of_the_hypervisors_is_no_guest() {
    let side = |el: u64, vmid: u64, host| {
        let vttbr = vmid << 48 | 0x4000_0000;
        let values = [(Register::Cpsr, el << 2), (Register::HcrEl2, 1), (Register::VttbrEl2, vttbr)];
        side(Isa::Arm64, &mut fake(&values), &[], host, 0x8000_0000).guest
    };
    assert!(!side(1, 1, Some(1)) && !side(0, 1, Some(1)), "its kernel and its programs");
    assert!(side(1, 2, Some(1)) && side(0, 257, Some(1)), "others");
    assert!(side(1, 1, None), "nobody says so");
    assert!(!side(2, 2, Some(1)), "the hypervisor");
}

#[test]
fn without_el2_the_ranges_decide() {
    let mut machine = fake(&[(Register::Cpsr, 1 << 2)]);
    assert!(!side(Isa::Arm64, &mut machine, &[], None, 16).guest);
    assert!(side(Isa::Arm64, &mut machine, &[0..32, 64..128], None, 16).guest);
}

#[test]
fn power_tells_by_its_hypervisor_bit() {
    let mut host = fake(&[(Register::Msr, 1 << 60 | 1)]);
    assert_eq!(side(Isa::Power64, &mut host, &[], None, 0), Side { guest: false, level: 1, little: true });
    let mut guest = fake(&[(Register::Msr, 1 << 63)]);
    assert_eq!(side(Isa::Power64, &mut guest, &[], None, 0), Side { guest: true, level: 0, little: false });
    let service = Side { guest: false, level: 0, little: false };
    assert_eq!(side(Isa::Power64, &mut guest, &[], None, 0xf_0000_0000_0040), service);
}

#[test]
fn amd64_tells_services_by_their_place() {
    let mut machine = fake(&[]);
    let mut at = |pc| side(Isa::X86, &mut machine, &[], None, pc);
    assert_eq!(at(0x6000_0000_1000), Side { guest: false, level: 0, little: true });
    assert_eq!(at(0x10_0000), Side { guest: true, level: 1, little: true });
}

#[test]
fn exits_have_reasons() {
    let mut code = Code::new(Isa::Arm64);
    let mut machine = fake(&[(Register::EsrEl2, 0x16 << 26 | 5), (Register::ElrEl2, 0x4004)]);
    let mut at = |offset: u64| {
        let block = block(&mut code, 0x1_0800 + offset, 2, &[0xd503_201f]);
        exit(Isa::Arm64, &mut machine, block)
    };
    let expected = Exit { reason: Reason::Class(0x16), pc: 0x4004, vectors: 0x1_0800, synchronous: true };
    assert_eq!(at(0x400), expected);
    assert_eq!(at(0x480), Exit { reason: Reason::Irq, synchronous: false, ..expected });
    assert_eq!((at(0x500).reason, at(0x580).reason), (Reason::Fiq, Reason::Serror));
    assert_eq!(at(0x600).reason, Reason::Class(0x16), "from AArch32");
    assert_eq!(at(0x404).reason, Reason::Exit, "not by an exception");
}

#[test]
fn exceptions_outside_are_at_the_vectors() {
    let mut code = Code::new(Isa::Arm64);
    let mut machine = fake(&[(Register::VbarEl1, 0x800), (Register::ElrEl1, 0x44)]);
    let host = block(&mut code, 0x800 + 0x200, 1, &[0xd503_201f]);
    let expected = Some(Exception { pc: 0x44, synchronous: true });
    assert_eq!(exception(Isa::Arm64, &mut machine, host), expected);
    let irq = block(&mut code, 0x800 + 0x280, 1, &[0xd503_201f]);
    assert_eq!(exception(Isa::Arm64, &mut machine, irq).map(|it| it.synchronous), Some(false));
    let elsewhere = block(&mut code, 0x1800 + 0x200, 1, &[0xd503_201f]);
    assert_eq!(exception(Isa::Arm64, &mut machine, elsewhere), None);
}

#[test]
fn reasons_have_the_manuals_names() {
    let names: Vec<String> = [
        Reason::Class(0x16),
        Reason::Class(0x01),
        Reason::Class(0x3c),
        Reason::Class(0x06),
        Reason::Vector(0xc00),
        Reason::Exit,
    ]
    .iter()
    .map(Reason::to_string)
    .collect();
    assert_eq!(names, ["hvc64", "wfx", "ec-0x3c", "ec-0x06", "hcall", "exit"]);
}
