// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits: the light tier, and what it hands to the full tier.
//!
//! Handlers are ordinary functions of the C ABI, so the compiler preserves R14 to R31 and CR2 to CR4 of the guest, and does not
//! use R13. A call to the hypervisor (`sc 1`) may change the others by PAPR's rules, but for R1, R2 and LR; other interrupts
//! store what compiled code may clobber. A light handler leaves every other register of the guest where it is, and returns to
//! the guest after one look at the attention word. What it cannot finish it leaves to [`full`], where R13 to R31 still are in
//! the CPU: they are stored only for an instruction that names one of them, and loaded only for a vCPU that begins anew.
//!
//! The light handlers of calls are leaves that neither call a function nor use the table of contents: R2 stays the guest's, and
//! each has an entry in `calls.S` that clears what it uses and no more. What needs a function has a [`Code`]. The built image is
//! checked for that (`suite/src/registers_power.rs`).
//!
//! | file | exits |
//! |---|---|
//! | `vectors.S`, `image.S` | the vectors, and what of them stays in the image |
//! | `calls.S` | the entries of the light handlers of calls |
//! | `guards.S` | what they do against speculation, where that is needed |
//! | `entry` | what the vectors call |
//! | `hcall` | calls to the hypervisor: one indexed load leads to the handler |
//! | `interrupts`, `xics` | calls about interrupts: waiting and waking, XIVE's, those of XICS |
//! | `service`, `service.S` | what services handle |
//! | `doorbell` | stores to services' devices that need no answer |
//! | `inside` | what a vCPU does while it is inside a service |
//! | `calls` | what other calls do that need the vCPU |
//! | `storage` | what has no memory behind it: devices, memory that is mapped on demand |
//! | `walk`, `instruction` | what an instruction that reached a device was |
//! | `illegal` | instructions and facilities that the guest does not have |
//! | `inject` | interrupts that a guest is given by software |
//! | `full` | everything else, and what light exits leave |
//! | `attend` | the attention word, and vCPUs that do not run |
//! | `wait` | how a vCPU comes to run on a CPU; CPUs that have none |
//! | `server` | a CPU that runs services and no vCPU |
//! | `crash` | why the hypervisor stops a VM |
//! | `naive` | what exits would do without the techniques; only in images for ablation (feature `ablation`) |

mod attend;
mod calls;
pub mod crash;
mod doorbell;
mod entry;
mod full;
mod hcall;
pub mod illegal;
mod inject;
mod inside;
mod instruction;
mod interrupts;
#[cfg(feature = "ablation")]
pub mod naive;
pub mod server;
mod service;
mod storage;
pub mod wait;
mod walk;
mod xics;

use turnstile_vm::attention::{Attention, Posted, Reasons};

use crate::cpu::{self, vector};
use crate::irq::Left;
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
    /// The exit is finished but for what [`Left`] has.
    pub const LEFT: u32 = Self::FULL | 3 << 28;
    /// The bits that tell codes apart.
    pub const KIND: u32 = 0xf << 28;
}

/// No attention word is taken for a code, also where both are in one word.
const _: () = assert!(Reasons::all().bits() <= 0xff_ffff);
/// `calls.S` loads both by one instruction: the word is the lower half, in the byte order of the hypervisor.
const _: () = assert!(Attention::WORD_OFFSET == 0 && Attention::NOTE_OFFSET == 4);

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

    /// This answer, after which comes what a [`Code`] says.
    #[inline(always)] // One store.
    pub fn and(self, vcpu: &Vcpu, code: u32) -> Self {
        vcpu.attention.note(code);
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

/// Posts a reason to another vCPU, which is not resident here.
#[inline(always)] // The end of two calls.
fn post(vcpu: &'static Vcpu, other: &'static Vcpu, reason: Reasons) -> Answer {
    match other.attention.post_light(reason) {
        Some(Posted::Kick(token)) => cpu::ring_behind_post(token),
        Some(_) => {}
        None => {
            vcpu.owned(|owned| owned.irq.leave(Left::Absent(other.index)));
            return Answer::SUCCESS.and(vcpu, Code::LEFT);
        }
    }
    Answer::SUCCESS
}

#[cfg(test)]
mod tests;
