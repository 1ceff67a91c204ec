// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Expected exceptions: run something, skip what traps, and say what the trap was.

use core::fmt;
use core::sync::atomic::{Ordering::Relaxed, compiler_fence};

use crate::cpu;
use crate::frame::Frame;

/// Exception classes (Arm ARM D24.2.40, ESR_ELx.EC) that the guests look for.
pub mod class {
    /// Unknown reason: an UNDEFINED instruction.
    pub const UNKNOWN: u64 = 0x00;
    /// An access to a trapped FP or SIMD register.
    pub const FP: u64 = 0x07;
    /// SVC from AArch64.
    pub const SVC: u64 = 0x15;
    /// A trapped MSR, MRS or system instruction.
    pub const SYSTEM: u64 = 0x18;
    /// Instruction abort without a change of exception level.
    pub const INSTRUCTION_ABORT: u64 = 0x21;
    /// PC alignment fault.
    pub const PC_ALIGNMENT: u64 = 0x22;
    /// Data abort without a change of exception level.
    pub const DATA_ABORT: u64 = 0x25;
    /// SP alignment fault.
    pub const SP_ALIGNMENT: u64 = 0x26;
    /// BRK instruction.
    pub const BRK: u64 = 0x3c;
}

/// An exception that was expected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Trap {
    /// ESR_EL1.
    pub esr: u64,
    /// FAR_EL1.
    pub far: u64,
    /// ELR_EL1: the instruction that trapped.
    pub elr: u64,
    /// Whether it came as an SError.
    pub serror: bool,
    /// How many exceptions were taken; the other fields are of the last.
    pub taken: u64,
}

impl Trap {
    /// Returns the exception class.
    pub fn class(&self) -> u64 {
        self.esr >> 26 & 0x3f
    }

    /// Returns the fault status code of an abort.
    pub fn status(&self) -> u64 {
        self.esr & 0x3f
    }

    /// Returns whether it is an UNDEFINED instruction.
    pub fn is_undefined(&self) -> bool {
        !self.serror && self.class() == class::UNKNOWN
    }
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.class() {
            _ if self.serror => "SError",
            class::UNKNOWN => "UNDEFINED",
            class::SVC => "SVC",
            class::SYSTEM => "trapped system access",
            class::INSTRUCTION_ABORT => "instruction abort",
            class::PC_ALIGNMENT => "PC alignment",
            class::DATA_ABORT => "data abort",
            class::SP_ALIGNMENT => "SP alignment",
            class::BRK => "BRK",
            _ => "exception",
        };
        write!(f, "{name} esr={:#x} far={:#x}", self.esr, self.far)
    }
}

/// Runs `body`, in which every synchronous exception skips the instruction that raised it; an instruction
/// abort returns to the link register instead, as if the function at the bad address had returned.
pub fn expect<R>(body: impl FnOnce() -> R) -> (R, Option<Trap>) {
    let slot = &cpu::this().trap;
    slot.taken.store(0, Relaxed);
    slot.armed.store(1, Relaxed);
    compiler_fence(core::sync::atomic::Ordering::SeqCst);
    let result = body();
    compiler_fence(core::sync::atomic::Ordering::SeqCst);
    slot.armed.store(0, Relaxed);
    let taken = slot.taken.load(Relaxed);
    let trap = (taken != 0).then(|| Trap {
        esr: slot.esr.load(Relaxed),
        far: slot.far.load(Relaxed),
        elr: slot.elr.load(Relaxed),
        serror: slot.serror.load(Relaxed) != 0,
        taken,
    });
    (result, trap)
}

/// Runs `body` and returns the last exception it raised, if any; see [`expect`].
pub fn caught(body: impl FnOnce()) -> Option<Trap> {
    expect(body).1
}

fn record(frame: &Frame, serror: bool) -> bool {
    let slot = &cpu::this().trap;
    if slot.armed.load(Relaxed) == 0 {
        return false;
    }
    slot.taken.store(slot.taken.load(Relaxed) + 1, Relaxed);
    slot.esr.store(frame.esr, Relaxed);
    slot.far.store(frame.far, Relaxed);
    slot.elr.store(frame.elr, Relaxed);
    slot.serror.store(u64::from(serror), Relaxed);
    true
}

/// Handles a synchronous exception if one is expected; the vectors call it.
pub fn on_synchronous(frame: &mut Frame) -> bool {
    if !record(frame, false) {
        return false;
    }
    match frame.esr >> 26 & 0x3f {
        // These report where the program would have gone on anyway.
        class::SVC => {}
        class::INSTRUCTION_ABORT | class::PC_ALIGNMENT => frame.elr = frame.x[30],
        _ => frame.elr += 4,
    }
    true
}

/// Handles an SError if an exception is expected; the vectors call it.
pub fn on_serror(frame: &mut Frame) -> bool {
    record(frame, true)
}
