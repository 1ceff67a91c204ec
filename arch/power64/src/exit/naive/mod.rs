// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exits as they would be without the techniques that make them cheap, to measure what each of those is worth.
//!
//! Only images built with the feature `ablation` contain this. Without `without=` on the command line they use the usual
//! entries. With it ([`take_off`]), the frame of every vCPU leads to others, which carry out [`chain`] on each exit: what the
//! techniques taken off would save. State of the guest goes to memory and comes back before the handler runs, so that it
//! finds it where it always is. A hypervisor that switches would have its handler in between; it would execute the same
//! instructions.

mod hooks;

pub use crate::state::techniques::{Set, Technique, is_in_use, take_off};

use super::entry;
use super::{Code, resident};
use crate::state::saved::Saved;
use crate::state::techniques::is_off;
use crate::vcpu::frame::Frame;

type Hook = fn(&mut Saved);

/// What the techniques save, in the order of a world switch.
const HOOKS: [(Technique, Hook); 10] = [
    (Technique::IndexedDispatch, hooks::search),
    (Technique::FewTimebase, hooks::read_time),
    (Technique::FewBarriers, hooks::announce),
    (Technique::SprsResident, hooks::switch_registers),
    (Technique::DemandMonitor, hooks::switch_monitor),
    (Technique::DemandTransactions, hooks::switch_transactions),
    (Technique::DemandBranches, hooks::switch_branches),
    (Technique::FpResident, hooks::switch_vectors),
    (Technique::DeferredTlbsync, hooks::wait_for_invalidations),
    (Technique::PartitionResident, hooks::switch_partition),
];

/// Carries out what is taken off. `number` is that of a call, or beyond all.
fn chain(frame: &mut Frame, number: u64) {
    let vcpu = resident(frame);
    // SAFETY: the chain runs before the handler, on the CPU where the vCPU is resident, and is done before anything else.
    let saved = unsafe { vcpu.saved() };
    saved.number = number;
    for (_, hook) in HOOKS.iter().filter(|(technique, _)| is_off(*technique)) {
        hook(saved);
    }
    if is_off(Technique::AttentionWord) {
        hooks::look_through(vcpu, saved);
    }
}

/// Before the handler of a call (`naive.S`): carries out what is taken off. Says whether the call goes through the full tier.
#[cfg_attr(target_os = "none", unsafe(no_mangle))]
pub extern "C" fn turnstile_naive_chain(frame: &mut Frame, number: u64) -> u64 {
    chain(frame, number);
    u64::from(is_off(Technique::LightExit))
}

/// In the place of the light handler of all other interrupts.
pub(crate) extern "C" fn light(frame: &mut Frame, vector: u32) -> u32 {
    chain(frame, u64::MAX);
    let light = if resident(frame).thread.is_some() { entry::shared_light } else { entry::light };
    if !is_off(Technique::LightExit) {
        return light(frame, vector);
    }
    if resident(frame).thread.is_some() {
        super::listen(frame, vector);
    }
    Code::FULL
}
