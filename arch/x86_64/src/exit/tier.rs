// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The light tier: what its handlers are, how they end, and what they say if they have not.

use turnstile_vm::attention::Reasons;

use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::next::Next;
use crate::vcpu::statistics;

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
    /// The bits that tell codes apart.
    pub const KIND: u32 = 0xf << 28;
}

/// No attention word, which light exits return as it is, is taken for a code.
const _: () = assert!(Reasons::all().bits() <= 0xff_ffff);

/// Ends a light exit that is done: what the run loop branches on is the attention word itself.
#[inline(always)] // Two loads: the end of every light exit.
pub(crate) fn done<N: Next>(frame: &Frame, vmcb: &Vmcb) -> u32 {
    let vcpu = resident(frame);
    let word = vcpu.attention.word();
    if N::COUNTS && word == 0 {
        // Else the full tier does.
        statistics::count_event(vcpu, vmcb);
    }
    word
}

/// A light handler: takes the frame, the control block and the exit code; returns zero to re-enter, the attention word,
/// or a [`Code`].
///
/// The frequent handlers are leaves without a stack frame of their own; what needs one is behind a tail call.
pub type Handler = extern "C" fn(&mut Frame, &mut Vmcb, u32) -> u32;
