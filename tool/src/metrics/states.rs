// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a machine has said of its VMs.

use std::collections::BTreeMap;

use turnstile_link::StopReason;

use crate::session::{Heard, describe_stop};

/// What is known of all VMs.
#[derive(Clone, Debug, Default)]
pub struct States {
    /// The VMs, in the order of the bundle.
    pub vms: Vec<State>,
    /// The hypervisor's free memory, in bytes, when a VM started last.
    pub free_memory: Option<u64>,
    /// Its free memory for page tables, in pages.
    pub free_tables: Option<u32>,
}

/// What is known of a VM.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Its name.
    pub name: String,
    /// Whether it runs, also if it is paused.
    pub running: bool,
    /// Whether it is paused.
    pub paused: bool,
    /// For how long in all, in microseconds.
    pub paused_microseconds: u64,
    /// How often it has started.
    pub starts: u64,
    /// How often it has stopped, by the reason.
    pub stops: BTreeMap<&'static str, u64>,
}

impl States {
    /// Makes what is known before anything was heard.
    pub fn new(names: Vec<String>) -> Self {
        let vms = names.into_iter().map(|name| State { name, ..State::default() }).collect();
        States { vms, ..States::default() }
    }

    /// Takes what was heard.
    pub fn hear(&mut self, heard: &Heard) {
        let Some(state) = heard.vm().and_then(|vm| self.vms.get_mut(usize::from(vm))) else { return };
        match *heard {
            Heard::Vm { running, paused, .. } => (state.running, state.paused) = (running, paused),
            Heard::Paused { .. } => state.paused = true,
            Heard::Resumed { microseconds, .. } => {
                state.paused = false;
                state.paused_microseconds += microseconds;
            }
            Heard::Started { boots, free_memory, free_tables, .. } => {
                (state.running, state.starts) = (true, boots.into());
                (self.free_memory, self.free_tables) = (Some(free_memory), Some(free_tables));
            }
            Heard::Stopped { reason, .. } => {
                (state.running, state.paused) = (false, false);
                *state.stops.entry(describe_stop(reason)).or_default() += 1;
            }
            _ => {}
        }
    }
}

/// All reasons for a stop, in words: each has a counter, also before it has happened.
pub fn reasons() -> impl Iterator<Item = &'static str> {
    [StopReason::PowerOff, StopReason::Reset, StopReason::Crash, StopReason::Killed]
        .into_iter()
        .map(describe_stop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_counted() {
        let mut states = States::new(vec!["one".into(), "two".into()]);
        let started = |vm, boots| Heard::Started { vm, boots, free_memory: 7, free_tables: 3 };
        states.hear(&started(1, 1));
        states.hear(&Heard::Stopped { vm: 1, reason: StopReason::Crash, restarts: true });
        assert!(!states.vms[1].running);
        states.hear(&Heard::Paused { vm: 0 });
        assert!(states.vms[0].paused);
        states.hear(&Heard::Resumed { vm: 0, microseconds: 5 });
        assert_eq!((states.vms[0].paused, states.vms[0].paused_microseconds), (false, 5));
        states.hear(&Heard::Paused { vm: 0 });
        states.hear(&Heard::Stopped { vm: 0, reason: StopReason::Killed, restarts: false });
        assert!(!states.vms[0].paused, "a life that is over is not paused");
        states.hear(&started(1, 2));
        states.hear(&started(9, 1));
        let state = &states.vms[1];
        assert_eq!((state.running, state.starts, state.stops["crashed"]), (true, 2, 1));
        assert_eq!((states.vms[0].starts, states.free_memory, states.free_tables), (0, Some(7), Some(3)));
    }
}
