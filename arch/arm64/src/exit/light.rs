// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What light handlers are, and what they have in common.

use turnstile_vm::attention::{Posted, Reasons};

use crate::cpu::regs;
use crate::irq::Gic;
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;

/// Why the light tier did not re-enter the guest: [`Code::SYNC`] and so on, or, without [`Code::FULL`], the
/// attention word is not zero.
pub struct Code;

impl Code {
    /// The exit itself is not finished.
    pub const FULL: u32 = 1 << 31;
    /// A synchronous exception, described by ESR_EL2.
    pub const SYNC: u32 = Self::FULL;
    /// A physical interrupt; its INTID is in the low 24 bits, already acknowledged.
    pub const IRQ: u32 = Self::FULL | 1 << 28;
    /// An SError from the guest.
    pub const SERROR: u32 = Self::FULL | 2 << 28;
    /// The interrupt model has to be settled before the guest is entered.
    pub const SETTLE: u32 = Self::FULL | 3 << 28;
    /// The exit is light, but is about the value of a register that compiled code preserves and that is still in the
    /// CPU: `vectors.S`, which knows this bit, stores x19–x29 and calls [`turnstile_light_preserved`].
    pub const PRESERVED: u32 = Self::FULL | 1 << 30;
}

/// No attention word, which light exits return as it is, is taken for a code: its reasons are in the bits that codes
/// have for an INTID.
const _: () = assert!(Reasons::all().bits() <= 0xff_ffff);

/// Moves past the instruction that exited.
///
/// PSTATE.SS and BTYPE stay as they are: a guest that single-steps over a trapped instruction sees the step
/// one instruction later (CAVEATS.md).
#[inline(always)] // Three instructions of most light exits.
pub(super) fn skip() {
    // SAFETY: trapped instructions of AArch64 are four bytes long; the guest's own PC advances.
    unsafe { regs::ELR_EL2.write(regs::ELR_EL2.read().wrapping_add(4)) };
}

/// Ends a light exit that is done: what the vector branches on is the attention word itself.
#[inline(always)] // One load: the end of every light exit.
pub(super) fn done(vcpu: &Vcpu) -> u32 {
    vcpu.attention.word()
}

/// Returns the resident vCPU.
#[inline(always)] // One load.
pub(crate) fn resident(frame: &Frame) -> &'static Vcpu {
    // SAFETY: the run loop stores a vCPU that lives for ever before the guest is first entered.
    unsafe { &*frame.vcpu }
}

/// A light handler of synchronous exceptions: takes the frame and ESR_EL2, returns zero to re-enter, the
/// attention word, or a [`Code`].
///
/// The frequent handlers are leaves without a stack frame of their own; what needs one is behind a tail call.
pub(super) type Handler = extern "C" fn(&mut Frame, u64) -> u32;

/// Wakes the one target of an SGI, where it is parked.
#[cold]
pub(super) fn wake<G: Gic>(vcpu: &Vcpu, target: &'static Vcpu) -> u32 {
    target.notify::<G>(Posted::Wake);
    done(vcpu)
}
