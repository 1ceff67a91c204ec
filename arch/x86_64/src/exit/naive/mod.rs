// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits as they would be without the techniques that make them cheap, to measure what each of those is worth.
//!
//! Only images built with the feature `ablation` contain this. Without `without=` on the command line they use the usual
//! loops. With it ([`take_off`]), every vCPU uses that of `naive.S`, which calls [`NAIVE_CHAIN`] on each exit: what the
//! techniques taken off would save. State of the guest goes to memory and comes back before the handler runs, so that it
//! finds it where it always is. A hypervisor that switches would have its handler in between; it would execute the same
//! instructions.

pub(crate) mod handlers;
mod hooks;

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

pub use turnstile_techniques::{Set, Technique};

use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::Frame;

/// A link of the chain: takes the exit frame and the control block of the resident vCPU.
type Hook = extern "C" fn(&mut Frame, &mut Vmcb);

/// More than all hooks together, and the zero at the end.
const LINKS: usize = 16;

/// What `naive.S` calls on each exit, up to a zero.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub static NAIVE_CHAIN: [AtomicUsize; LINKS] = [const { AtomicUsize::new(0) }; LINKS];

/// Whether the naive loop is to be used.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Takes techniques off: at boot, before any guest runs. With an empty set the naive loop is used all the same: that is
/// what the others are to be compared with.
pub fn take_off(off: Set) {
    for (link, hook) in NAIVE_CHAIN.iter().zip(chain(off)) {
        // Relaxed, here and below: other CPUs read this only after they have found the system built.
        link.store(hook as usize, Ordering::Relaxed);
    }
    handlers::take_off(off);
    IN_USE.store(true, Ordering::Relaxed);
}

/// Says whether vCPUs use the naive loop.
pub fn is_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed)
}

/// What a set of techniques would save, in the order of a world switch.
fn chain(off: Set) -> impl Iterator<Item = Hook> {
    use Technique as T;
    let links: [(Technique, Hook); 7] = [
        (T::GifConstant, hooks::open_gif),
        (T::SegmentsResident, hooks::switch_segments),
        (T::FpResident, hooks::switch_extended),
        (T::DecodeCache, hooks::forget_instructions),
        (T::AttentionWord, hooks::look_through),
        (T::CleanBits, hooks::nothing_is_clean),
        (T::TranslationsResident, hooks::flush),
    ];
    links.into_iter().filter(move |(technique, _)| off.contains(*technique)).map(|(_, hook)| hook)
}

#[cfg(test)]
mod tests;
