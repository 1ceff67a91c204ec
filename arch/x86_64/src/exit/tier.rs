// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The light tier: what its handlers are, how they end, and what they say if they have not.

use turnstile_vm::attention::Reasons;

use crate::cpu::regs::flags;
use crate::cpu::svm::Vmcb;
use crate::cpu::svm::vmcb::event;
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::next::Next;

/// Why the light tier did not re-enter the guest: a code with [`Code::FULL`], or, without it, the attention word is not
/// zero.
pub struct Code;

impl Code {
    /// The exit itself is not finished; the control block says what it is.
    pub const FULL: u32 = 1 << 31;
    /// The exit is finished, and the vCPU waits for an interrupt.
    pub const WAIT: u32 = Self::FULL | 1 << 28;
    /// Physical interrupts have been taken that have to be served; the low bits say which.
    pub const ARRIVED: u32 = Self::FULL | 2 << 28;
    /// The exit is finished, and the next VMRUN delivers an event, which is to be counted.
    pub const SETTLE: u32 = Self::FULL | 3 << 28;
    /// The instruction is finished, but for what comes of RFLAGS.TF and RF ([`crate::cpu::svm::event::executed`]).
    pub const STEPPED: u32 = Self::FULL | 4 << 28;
    /// The bits that tell codes apart.
    pub const KIND: u32 = 0xf << 28;
}

/// No attention word, which light exits return as it is, is taken for a code.
const _: () = assert!(Reasons::all().bits() <= 0xff_ffff);

/// Ends a light exit that is done: what the run loop branches on is the attention word itself.
#[inline(always)] // Two loads: the end of every light exit.
pub(crate) fn done<N: Next>(frame: &Frame, vmcb: &Vmcb) -> u32 {
    let word = resident(frame).attention.word();
    if N::COUNTS && word == 0 && vmcb.event() & event::VALID != 0 {
        return settle();
    }
    word
}

/// The same behind the instruction that exited, whose length is given. What is rare is left to the full tier.
#[inline(always)] // Seven instructions of most light exits.
pub(crate) fn executed<N: Next>(frame: &Frame, vmcb: &mut Vmcb, length: u64) -> u32 {
    let next = N::address(vmcb, length);
    executed_to::<N>(frame, vmcb, next)
}

/// The same with the address of the next instruction.
#[inline(always)] // Part of it.
pub(crate) fn executed_to<N: Next>(frame: &Frame, vmcb: &mut Vmcb, next: u64) -> u32 {
    vmcb.set_rip(next);
    vmcb.set_interrupt_shadow(0);
    if is_stepped(vmcb) {
        return stepped();
    }
    done::<N>(frame, vmcb)
}

/// Says whether something comes of the end of an instruction: RFLAGS.TF or RF is set.
#[inline(always)] // One instruction, which is what the bit is for that is always zero: without it the compiler loads what it tests.
pub(super) fn is_stepped(vmcb: &Vmcb) -> bool {
    const ALWAYS_ZERO: u64 = 1 << 31;
    vmcb.rflags() & (flags::TRAP | flags::RESUME | ALWAYS_ZERO) != 0
}

#[cold]
#[inline(never)] // As below.
extern "C" fn settle() -> u32 {
    Code::SETTLE
}

#[cold]
#[inline(never)] // So that the usual end does not load the code.
extern "C" fn stepped() -> u32 {
    Code::STEPPED
}

/// A light handler: takes the frame, and the guest's RSI and RDX, which are where the C ABI has its second and third argument;
/// returns zero to re-enter, the attention word, or a [`Code`]. Which registers it may change: `keep.rs`.
pub type Handler = extern "C" fn(&mut Frame, u64, u64) -> u32;

/// Returns the control block of the resident vCPU, for a light handler.
#[inline(always)] // One load.
pub(crate) fn control(frame: &Frame) -> &'static mut Vmcb {
    // SAFETY: the run loop stores a control block that lives for ever before the guest is first entered. It belongs to the CPU
    // where the vCPU is resident, and a light handler, which nothing interrupts, gets it once.
    unsafe { &mut *frame.vmcb }
}
