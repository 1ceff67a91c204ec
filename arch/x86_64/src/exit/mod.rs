// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits: the light tier, and what it hands to the full tier.
//!
//! A light handler is a function of the C ABI, so the compiler preserves RBX, RBP and R12–R15 of the guest; the run loop has
//! stored RCX and RDI, and the handler stores what else it changes (`keep`). It leaves every other register of the guest where
//! it is, does not touch the local APIC unless the exit is about it, and returns to the guest after one look at the attention
//! word. What it cannot finish it leaves, with nothing done, to [`full`].
//!
//! | file | exits |
//! |---|---|
//! | `halt` | HLT, light |
//! | `hypercall` | VMMCALL |
//! | `cpuid` | CPUID |
//! | `control` | writes of CR8, on QEMU's TCG alone |
//! | `apic` | the local APIC's MSRs and page |
//! | `msr` | RDMSR, WRMSR, XSETBV |
//! | `port` | IN, OUT and their string forms |
//! | `interrupt` | physical interrupts and NMIs |
//! | `memory` | nested page faults: devices in memory, and what is not there |
//! | `access`, `bus` | what an instruction that is carried out does in the guest's memory |
//! | `service` | devices that a service serves |
//! | `server` | a CPU that runs services and no vCPU |
//! | `crash` | why the hypervisor stops a VM |
//! | `attend` | what the attention word asks for, and the waiting room |
//! | `full` | everything else, and what light exits leave |
//! | `tier`, `table` | what light handlers are, and which exits have one |
//! | `keep` | which registers they store |
//! | `naive` | what exits would do without the techniques; only in images for ablation (feature `ablation`) |
//! | `wait` | where CPUs and threads begin; HLT, and what comes before an entry |

mod access;
mod apic;
mod attend;
mod bus;
mod control;
mod cpuid;
pub mod crash;
pub mod full;
mod halt;
mod hypercall;
mod interrupt;
mod keep;
mod memory;
mod msr;
#[cfg(feature = "ablation")]
pub mod naive;
mod pci;
mod port;
pub mod server;
mod service;
pub mod table;
pub mod tier;
pub mod wait;

use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::Frame;
use crate::vcpu::next::{Known, Named};

/// Full tier: `why` is what the light tier returned. Returns when the guest is to be entered.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub extern "C" fn turnstile_full_exit(frame: &mut Frame, _: *mut Vmcb, why: u32) {
    full::exit::<Known>(frame, why);
}

/// [`turnstile_full_exit`] on CPUs that name the next instruction.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub extern "C" fn turnstile_full_exit_named(frame: &mut Frame, _: *mut Vmcb, why: u32) {
    full::exit::<Named>(frame, why);
}

#[cfg(test)]
pub(crate) mod tests;
