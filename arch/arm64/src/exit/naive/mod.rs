// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits as they would be without the techniques that make them cheap, to measure what each of those is worth.
//!
//! Only images built with the feature `ablation` contain this. Without `without=` on the command line they use the
//! usual vectors. With it ([`take_off`]), every CPU uses those of `naive.S`, which call [`NAIVE_CHAIN`] on each exit:
//! what the techniques taken off would save. State of the guest goes to memory in the first half of the chain and
//! comes back in the second, so that the handlers and the full tier find it where they always do. A hypervisor that
//! switches would have its handler in between; it would execute the same instructions.

mod handlers;
mod hooks;
#[cfg(test)]
mod tests;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use turnstile_techniques::{Set, Technique};

use crate::vcpu::frame::Frame;

/// A link of the chain: takes the exit frame, whose vCPU is resident.
type Hook = extern "C" fn(&mut Frame);

/// More than all hooks together, and the zero at the end.
const LINKS: usize = 32;

/// What `naive.S` calls on each exit, up to a zero.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static NAIVE_CHAIN: [AtomicUsize; LINKS] = [const { AtomicUsize::new(0) }; LINKS];

/// Whether the naive vectors are to be used.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Takes techniques off: at boot, before any guest runs. With an empty set the naive vectors are used all the same:
/// that is what the others are to be compared with.
pub fn take_off(off: Set) {
    for (link, hook) in NAIVE_CHAIN.iter().zip(chain(off)) {
        // Relaxed, here and below: other CPUs read this only after they have found the system built.
        link.store(hook as usize, Ordering::Relaxed);
    }
    handlers::take_off(off);
    IN_USE.store(true, Ordering::Relaxed);
}

/// Makes this CPU use the naive vectors, if the command line asks for them.
pub fn start_cpu() {
    #[cfg(target_os = "none")]
    if IN_USE.load(Ordering::Relaxed) {
        unsafe extern "C" {
            fn turnstile_use_naive_vectors();
        }
        // SAFETY: the table handles every exception as the usual one does; no guest has been entered yet.
        unsafe { turnstile_use_naive_vectors() };
    }
}

/// What a set of techniques would save, in the order of a world switch: the interrupt model is brought up to date,
/// state goes out, comes back the other way round, and what others posted is looked for once more before the guest
/// runs.
fn chain(off: Set) -> impl Iterator<Item = Hook> {
    use Technique as T;
    let links: [(Technique, Hook); 21] = [
        (T::MitigationsOnDemand, hooks::clear_history),
        (T::NoErrorWindow, hooks::error_window),
        (T::LrReadOnDemand, hooks::read_list_registers),
        (T::AttentionWord, hooks::look_through),
        (T::DebugResident, hooks::debug_out),
        (T::FpResident, hooks::fp_out),
        (T::El1Resident, hooks::el1_out),
        (T::TimerResident, hooks::timers_out),
        (T::InterfaceResident, hooks::interface_out),
        (T::MaintenanceOnDemand, hooks::maintenance_out),
        (T::LrInUse, hooks::list_registers_out),
        (T::TrapsConstant, hooks::traps_out),
        (T::TrapsConstant, hooks::traps_in),
        (T::LrInUse, hooks::list_registers_in),
        (T::MaintenanceOnDemand, hooks::maintenance_in),
        (T::InterfaceResident, hooks::interface_in),
        (T::TimerResident, hooks::timers_in),
        (T::El1Resident, hooks::el1_in),
        (T::FpResident, hooks::fp_in),
        (T::DebugResident, hooks::debug_in),
        (T::AttentionWord, hooks::look_through),
    ];
    links.into_iter().filter(move |(technique, _)| off.contains(*technique)).map(|(_, hook)| hook)
}
