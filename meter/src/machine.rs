// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of the machine, as far as the accounting needs them.

mod power64;
mod svm;

use std::fmt;
use std::ops::Range;

use crate::block::Block;
use crate::isa::Isa;
use crate::power64_interrupts;

/// The registers that are read, by QEMU's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Register {
    /// arm64: the processor's state, with the exception level.
    Cpsr,
    /// arm64: whether there is a stage 2, and whose EL0 is.
    HcrEl2,
    /// arm64: which virtual machine stage 2 is that of.
    VttbrEl2,
    /// arm64: syndromes of EL2 and EL3.
    EsrEl2,
    /// EL3's.
    EsrEl3,
    /// arm64: where an exception came from.
    ElrEl1,
    /// EL2's.
    ElrEl2,
    /// EL3's.
    ElrEl3,
    /// arm64: where the exception vectors are.
    VbarEl1,
    /// EL2's.
    VbarEl2,
    /// EL3's.
    VbarEl3,
    /// arm64: tells CPUs apart, where hypervisors keep what is theirs per CPU.
    TpidrEl2,
    /// POWER: the machine state.
    Msr,
    /// POWER: where an interrupt came from.
    Srr0,
    /// POWER: where an interrupt of the hypervisor's own came from.
    Hsrr0,
    /// x86: the operand of VMRUN, which #VMEXIT restores.
    Rax,
}

impl Register {
    /// How many there are.
    pub const COUNT: usize = Register::Rax as usize + 1;

    /// All of them. QEMU's name of VBAR_EL1 is AArch32's.
    pub const NAMES: [(Register, &'static str); 17] = [
        (Register::Cpsr, "cpsr"),
        (Register::HcrEl2, "HCR_EL2"),
        (Register::VttbrEl2, "VTTBR_EL2"),
        (Register::EsrEl2, "ESR_EL2"),
        (Register::EsrEl3, "ESR_EL3"),
        (Register::ElrEl1, "ELR_EL1"),
        (Register::ElrEl2, "ELR_EL2"),
        (Register::ElrEl3, "ELR_EL3"),
        (Register::VbarEl1, "VBAR"),
        (Register::VbarEl1, "VBAR_EL1"),
        (Register::VbarEl2, "VBAR_EL2"),
        (Register::VbarEl3, "VBAR_EL3"),
        (Register::TpidrEl2, "TPIDR_EL2"),
        (Register::Msr, "msr"),
        (Register::Srr0, "srr0"),
        (Register::Hsrr0, "hsrr0"),
        (Register::Rax, "rax"),
    ];
}

/// The CPU that runs now.
pub trait Machine {
    /// Reads a register, if the machine has it.
    fn read(&mut self, register: Register) -> Option<u64>;
    /// Reads eight bytes of memory at an address as the CPU sees it now, if there is memory.
    fn memory(&mut self, address: u64) -> Option<u64>;
    /// A number that tells the CPU from the others.
    fn cpu(&mut self) -> u64;
}

/// Why the guest was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Reason {
    /// arm64: a synchronous exception of this class (ESR_ELx.EC).
    Class(u8),
    /// arm64: an interrupt.
    Irq,
    /// arm64: a fast interrupt.
    Fiq,
    /// arm64: an SError.
    Serror,
    /// POWER: the interrupt with this offset.
    Vector(u16),
    /// x86: #VMEXIT with this EXITCODE.
    Vmexit(u64),
    /// Nothing that says more than that the guest was left.
    Exit,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Reason::Class(0x01) => "wfx",
            Reason::Class(0x07) => "fp",
            Reason::Class(0x16) => "hvc64",
            Reason::Class(0x17) => "smc64",
            Reason::Class(0x18) => "sysreg",
            Reason::Class(0x19) => "sve",
            Reason::Class(0x20) => "instruction-abort",
            Reason::Class(0x24) => "data-abort",
            Reason::Class(other) => return write!(f, "ec-0x{other:02x}"),
            Reason::Irq => "irq",
            Reason::Fiq => "fiq",
            Reason::Serror => "serror",
            Reason::Vector(offset) => match power64_interrupts::name(*offset) {
                Some(name) => name,
                None => return write!(f, "vector-{offset:#x}"),
            },
            Reason::Vmexit(code) => match svm::name(*code) {
                Some(name) => name,
                None => return write!(f, "exit-{code:#x}"),
            },
            Reason::Exit => "exit",
        };
        f.write_str(name)
    }
}

/// How the guest was left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exit {
    /// Why.
    pub reason: Reason,
    /// Where, as the architecture reports it; zero if it does not.
    pub pc: u64,
    /// Where the vectors are; zero where there are none.
    pub vectors: u64,
    /// Whether an instruction of the guest caused it, which then is at `pc` or before.
    pub synchronous: bool,
}

/// An exception outside the guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exception {
    /// Where execution is to go on.
    pub pc: u64,
    /// Whether an instruction caused it.
    pub synchronous: bool,
}

/// The size of an arm64 vector table, less one.
const TABLE: u64 = 0x7ff;
/// The vectors for exceptions from lower levels are its second half.
const LOWER: u64 = 0x400;

/// Asks how the guest was left, at the first block outside.
pub fn exit(isa: Isa, machine: &mut impl Machine, block: &Block) -> Exit {
    let unknown = Exit { reason: Reason::Exit, pc: 0, vectors: 0, synchronous: false };
    match isa {
        Isa::X86 => svm::exit(machine).unwrap_or(unknown),
        Isa::Power64 => power64::exit(machine, block.start).unwrap_or(unknown),
        Isa::Arm64 if !block.may_be_vector || block.start & LOWER == 0 => unknown,
        Isa::Arm64 => {
            let (esr, elr) = match block.level {
                3 => (Register::EsrEl3, Register::ElrEl3),
                _ => (Register::EsrEl2, Register::ElrEl2),
            };
            let reason = match block.start >> 7 & 3 {
                0 => Reason::Class((machine.read(esr).unwrap_or(0) >> 26 & 0x3f) as u8),
                1 => Reason::Irq,
                2 => Reason::Fiq,
                _ => Reason::Serror,
            };
            Exit {
                reason,
                pc: machine.read(elr).unwrap_or(0),
                vectors: block.start & !TABLE,
                synchronous: matches!(reason, Reason::Class(_)),
            }
        }
    }
}

/// Asks whether a block outside the guest is the first of an exception's handler.
pub fn exception(isa: Isa, machine: &mut impl Machine, block: &Block) -> Option<Exception> {
    if !block.may_be_vector {
        return None;
    }
    match isa {
        Isa::Arm64 => {}
        Isa::Power64 => return power64::exception(machine, block.start),
        Isa::X86 => return None,
    }
    let (vbar, elr) = match block.level {
        3 => (Register::VbarEl3, Register::ElrEl3),
        2 => (Register::VbarEl2, Register::ElrEl2),
        _ => (Register::VbarEl1, Register::ElrEl1),
    };
    if machine.read(vbar)? != block.start & !TABLE {
        return None;
    }
    Some(Exception { pc: machine.read(elr)?, synchronous: block.start >> 7 & 3 == 0 })
}

/// Whose code the CPU is about to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Side {
    /// Whether it is the guest's.
    pub guest: bool,
    /// The privilege.
    pub level: u8,
    /// Whether instructions are little-endian.
    pub little: bool,
}

/// Where Turnstile has the code of services on POWER (`arch/power64/src/memory/service.rs`): no guest's process is there.
const SERVICES: Range<u64> = 0xf_0000_0000_0000..0xf_0000_0020_0000;
/// The same on AMD64 (`arch/x86_64/src/service/pages.rs`).
const SERVICES_X86: Range<u64> = 0x6000_0000_0000..0x6000_0020_0000;

/// Asks whose code at `pc` is, by the CPU's state. That state belongs to the translation, so the answer holds
/// for as long as the translation does. The virtual machine `host` is no guest; its translations are its own, because they
/// belong to memory, and no two virtual machines execute the same.
pub fn side(isa: Isa, machine: &mut impl Machine, ranges: &[Range<u64>], host: Option<u16>, pc: u64) -> Side {
    let in_range = ranges.is_empty() || ranges.iter().any(|range| range.contains(&pc));
    match isa {
        Isa::Arm64 => {
            let level = (machine.read(Register::Cpsr).unwrap_or(0) >> 2 & 3) as u8;
            let guest = level <= 1
                && in_range
                && runs_guest(machine.read(Register::HcrEl2), level, ranges)
                && host.is_none_or(|host| vmid(machine) != Some(host));
            Side { guest, level, little: true }
        }
        Isa::Power64 => {
            const HV: u64 = 1 << 60;
            let msr = machine.read(Register::Msr).unwrap_or(HV);
            // A service is a partition, too, and known by its address.
            let guest = msr & HV == 0 && in_range && !SERVICES.contains(&pc);
            Side { guest, level: u8::from(msr & HV != 0), little: msr & 1 != 0 }
        }
        // No register tells guest mode: VMRUN and where it goes on do (`Meter::in_guest_mode`). A service is in it, too, and known by
        // its address.
        Isa::X86 => {
            let service = SERVICES_X86.contains(&pc);
            Side { guest: in_range && !service, level: u8::from(!service), little: true }
        }
    }
}

/// The virtual machine that stage 2 is that of.
fn vmid(machine: &mut impl Machine) -> Option<u16> {
    Some((machine.read(Register::VttbrEl2)? >> 48) as u16)
}

/// Whether EL1 and EL0 belong to a guest: there is a stage 2, and EL0 is not the host's. A machine without
/// EL2 has none of this; there the ranges alone decide.
fn runs_guest(hcr: Option<u64>, level: u8, ranges: &[Range<u64>]) -> bool {
    const VM: u64 = 1;
    const DC: u64 = 1 << 12;
    const TGE: u64 = 1 << 27;
    match hcr {
        Some(hcr) => hcr & (VM | DC) != 0 && !(level == 0 && hcr & TGE != 0),
        None => !ranges.is_empty(),
    }
}

#[cfg(test)]
pub mod tests;
