// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What light handlers are, and what they have in common.
//!
//! A light handler is a leaf without a stack frame, and changes only registers that its vector has stored: `images/hot-path`
//! follows every instruction of it. `vectors.S` says which those are. What takes more is in wide handlers.

use turnstile_vm::attention::{Posted, Reasons};

use crate::cpu::regs;
use crate::irq::Gic;
use crate::vcpu::frame::{Frame, Left};
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
    /// The exit is light, but takes more registers: `vectors.S`, which knows this bit, stores x0–x18 and x30 and calls the
    /// wide handler, which finds in [`Frame::left`] what the exit is about. Nothing is done yet.
    pub const WIDE: u32 = Self::FULL | 1 << 30;
    /// The same for a data abort that is no light handler's, of a VM that has services: it may be an access of a device that one of
    /// them serves. `vectors.S`, which knows its bit 24, calls the handlers of `service.rs`.
    pub const SERVICE: u32 = Self::WIDE | 1 << 24;
    /// The same for the end of an SGI's exit: its target, whose number is left, is to be woken.
    pub const WAKE: u32 = Self::WIDE | 1;
    /// The same for an acknowledged interrupt of a timer, whose number is left.
    pub const TIMER: u32 = Self::WIDE | 2;
    /// The same for a read where there is nothing.
    pub const ABSENT: u32 = Self::WIDE | 3;
}

/// No attention word, which light exits return as it is, is taken for a code: its reasons are in the bits that codes
/// have for an INTID.
const _: () = assert!(Reasons::all().bits() <= 0xff_ffff);

/// Returns what comes of a data abort that is no light handler's: [`Frame::aborts`] of a vCPU.
pub(super) fn aborts(vcpu: &Vcpu) -> u32 {
    if vcpu.vm.services().is_some() { Code::SERVICE } else { Code::SYNC }
}

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

/// The value of a read, as registers of the C ABI hold it.
#[repr(C)]
pub struct Read {
    /// What the transfer register gets, if the exit is done; for [`Code::SERVICE`] the address that is read.
    pub value: u64,
    /// The attention word or a [`Code`] in the low half. In the high half, if the exit is done, the syndrome: the vector takes
    /// the transfer register from it.
    pub code: u64,
}

impl Read {
    /// Ends a read that is done.
    #[inline(always)] // The end of every light read.
    pub(super) fn done(vcpu: &Vcpu, esr: u64, value: u64) -> Self {
        Self { value, code: u64::from(done(vcpu)) | esr << 32 }
    }

    /// Leaves a read that is not.
    #[inline(always)] // A constant.
    pub(super) fn left(code: u32) -> Self {
        Self::left_at(code, 0)
    }

    /// The same with the address that is read.
    #[inline(always)] // Two registers.
    pub(super) fn left_at(code: u32, address: u64) -> Self {
        Self { value: address, code: code.into() }
    }
}

/// Leaves an exit to its wide handler.
#[inline(always)] // Two instructions.
pub(super) fn leave(frame: &mut Frame, code: u32, esr: u64, value: u64) -> u32 {
    frame.left = Left { esr, value };
    code
}

/// Wakes the one target of an SGI, where it is parked.
#[inline(never)] // Wide handlers of SGIs have a better use for their registers.
pub(super) fn wake<G: Gic>(frame: &Frame) -> u32 {
    let vcpu = resident(frame);
    if let Some(target) = vcpu.vm.vcpu(frame.left.value as usize) {
        target.notify::<G>(Posted::Wake);
    }
    done(vcpu)
}
