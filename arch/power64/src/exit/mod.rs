// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits: the light tier, and what it hands to the full tier.
//!
//! A light handler is an ordinary function of the C ABI, so the compiler preserves R14 to R31 and CR2 to CR4 of the guest. A
//! call to the hypervisor (`sc 1`) may change the others by PAPR's rules, so for that most frequent exit nothing is stored but
//! R1, R2 and LR; other interrupts store what compiled code may clobber. A light handler leaves every other register of the
//! guest where it is, and returns to the guest after one look at the attention word. What it cannot finish it leaves, with
//! nothing done, to [`full`].
//!
//! | file | exits |
//! |---|---|
//! | `vectors.S`, `image.S` | the vectors, and what of them stays in the image |
//! | `guards.S` | what they do against speculation, where that is needed |
//! | `entry` | what the vectors call |
//! | `hcall` | calls to the hypervisor: one indexed load leads to the handler |
//! | `interrupts`, `xics` | calls about interrupts: waiting and waking, XIVE's, those of XICS |
//! | `calls` | what other calls do that need the vCPU |
//! | `storage` | what has no memory behind it: devices, memory that is mapped on demand |
//! | `walk`, `instruction` | what an instruction that reached a device was |
//! | `illegal` | instructions and facilities that the guest does not have |
//! | `inject` | interrupts that a guest is given by software |
//! | `full` | everything else, and what light exits leave |
//! | `attend` | the attention word, and vCPUs that do not run |
//! | `wait` | how a vCPU comes to run on a CPU; CPUs that have none |
//! | `crash` | why the hypervisor stops a VM |
//! | `naive` | what exits would do without the techniques; only in images for ablation (feature `ablation`) |

mod attend;
mod calls;
pub mod crash;
mod entry;
mod full;
mod hcall;
pub mod illegal;
mod inject;
mod instruction;
mod interrupts;
#[cfg(feature = "ablation")]
pub mod naive;
mod storage;
pub mod wait;
mod walk;
mod xics;

use turnstile_vm::attention::Reasons;

use crate::cpu::vector;
use crate::vcpu::frame::Frame;
use crate::vm::Vcpu;

/// Why the light tier did not re-enter the guest: a code with [`Code::FULL`], or, without it, the attention word is not
/// zero.
pub struct Code;

impl Code {
    /// The exit itself is not finished. `vectors.S` has the same number.
    pub const FULL: u32 = 1 << 31;
    /// The exit is finished, and the vCPU has ceded its CPU.
    pub const WAIT: u32 = Self::FULL | 1 << 28;
    /// The exit is finished, and the vCPU lets others run.
    pub const GIVE_WAY: u32 = Self::FULL | 2 << 28;
    /// The bits that tell codes apart.
    pub const KIND: u32 = 0xf << 28;
}

/// No attention word is taken for a code, also where both are in one word.
const _: () = assert!(Reasons::all().bits() <= 0xff_ffff);

/// What a call to the hypervisor is given: R4 to R10, where the ABI has the doublewords of an aggregate that follows one other
/// argument (64-Bit ELF V2 ABI 2.2.3.3).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arguments(pub [u64; 7]);

/// What a call to the hypervisor answers: R3 and R4.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// What PAPR calls the return code.
    pub code: u64,
    /// The first value; zero if there is none.
    pub value: u64,
}

impl Answer {
    /// Success, and nothing else.
    pub const SUCCESS: Self = Self::code(0);

    /// A return code alone.
    #[inline(always)] // A constant where it is used.
    pub const fn code(code: u64) -> Self {
        Self { code, value: 0 }
    }

    /// Leaves a call to the full tier, which finds its number in R3 and its arguments in R4 to R10.
    #[inline(always)] // A few stores.
    pub fn leave(frame: &mut Frame, number: u64, arguments: [u64; 7]) -> Self {
        frame.set_arguments(arguments);
        frame.why = Code::FULL;
        Self { code: number, value: arguments[0] }
    }

    /// This answer, after which the vCPU waits ([`Code::WAIT`]) or lets others run ([`Code::GIVE_WAY`]).
    #[inline(always)] // One store.
    pub fn and(self, frame: &mut Frame, code: u32) -> Self {
        frame.why = code;
        self
    }
}

/// Returns the resident vCPU.
#[inline(always)] // One load.
pub(crate) fn resident(frame: &Frame) -> &'static Vcpu {
    // SAFETY: a vCPU that lives for ever is stored before the guest is first entered.
    unsafe { &*frame.vcpu }
}

/// Ends a light exit that is done, but for a call: what the vector branches on is the attention word itself.
#[inline(always)] // Two loads.
pub(crate) fn done(frame: &Frame) -> u32 {
    resident(frame).attention.word()
}

/// Lets the vCPU that runs look at its CPU's run queue, if that is what the doorbell is for: who kicks a vCPU sets a reason in
/// its attention word first; but who rings for a run queue does not know whose word that is.
#[inline(always)] // A comparison of exits on shared CPUs.
pub(crate) fn listen(frame: &Frame, vector: u32) {
    if vector == vector::HYPERVISOR_DOORBELL {
        resident(frame).attention.raise(Reasons::RESCHEDULE);
    }
}

#[cfg(test)]
mod tests;
