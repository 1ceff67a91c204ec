// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts that a guest is given by software: what the CPU would do (Power ISA 3.0B Book III, 6.4.3 and 6.5). No guest has
//! transactions (`crate::vcpu::facility`), so none is suspended.

use crate::cpu::regs::{DAR, DSISR, LPCR, SRR0, SRR1, lpcr, msr};
use crate::cpu::vector;
use crate::vcpu::frame::Frame;
use crate::vcpu::statistics;

/// Why a program interrupt (6.5.9).
pub(crate) mod program {
    /// An instruction that is not there.
    pub const ILLEGAL: u64 = 1 << 19;
}

/// In SRR1 and HSRR1: it was a prefixed instruction (Power ISA 3.1 Book III, 7.5; zero on earlier CPUs).
const PREFIXED: u64 = 1 << 29;

/// The bits of SRR1 that say why: the others are those of the machine state.
const STATUS: u64 = 0x783f_0000;

/// What an interrupt keeps of the machine state: 64-bit mode is always on, the byte order is LPCR's.
const KEPT: u64 = msr::ME;

/// Gives the guest an interrupt at a vector, with `status` in SRR1.
#[inline(never)] // One function, apart from exits that give none.
fn interrupt(frame: &mut Frame, vector: u32, status: u64) {
    statistics::count_exception(frame);
    let lpcr = LPCR.read();
    // SAFETY: the guest's own, which it finds changed as by the CPU.
    unsafe {
        SRR0.write(frame.pc);
        SRR1.write(frame.msr & !STATUS | status);
    }
    let old = frame.msr;
    frame.msr = msr::SF | old & KEPT | if lpcr & lpcr::ILE != 0 { msr::LE } else { 0 };
    frame.pc = vector.into();
    // With relocation on, interrupts may be taken with relocation on, elsewhere (6.4.3, LPCR.AIL); but not those of the
    // machine.
    let relocated = old & (msr::IR | msr::DR) == msr::IR | msr::DR;
    if relocated && vector != vector::SYSTEM_RESET && vector != vector::MACHINE_CHECK {
        let (offset, on) = match lpcr & lpcr::AIL {
            lpcr::AIL_3 => (0xc000_0000_0000_4000, msr::IR | msr::DR),
            lpcr::AIL_2 => (0x1_8000, msr::IR | msr::DR),
            _ => (0, 0),
        };
        frame.pc = frame.pc.wrapping_add(offset);
        frame.msr |= on;
    }
}

/// An interrupt for which the instruction is the reason that has caused the exit.
fn of_instruction(frame: &mut Frame, vector: u32, status: u64) {
    interrupt(frame, vector, status | frame.msr & PREFIXED);
}

/// A program interrupt.
pub(crate) fn program(frame: &mut Frame, status: u64) {
    of_instruction(frame, vector::PROGRAM, status);
}

/// An instruction storage interrupt.
pub(crate) fn instruction_storage(frame: &mut Frame, status: u64) {
    of_instruction(frame, vector::INSTRUCTION_STORAGE, status);
}

/// A data storage interrupt.
pub(crate) fn data_storage(frame: &mut Frame, address: u64, status: u64) {
    // SAFETY: the guest's own.
    unsafe {
        DAR.write(address);
        DSISR.write(status);
    }
    of_instruction(frame, vector::DATA_STORAGE, 0);
}

/// A system reset, as from a button or another vCPU.
pub(crate) fn system_reset(frame: &mut Frame) {
    interrupt(frame, vector::SYSTEM_RESET, 0);
}
