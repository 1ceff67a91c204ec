// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits ask of the hypervisor.

use spin::Once;
use turnstile_arch_common::monitor::{CommonMonitor, Nobody};

use super::objects::Vm;

/// What full exits need of the hypervisor: what they need everywhere, and this.
pub trait Monitor: CommonMonitor<Vm> {
    /// Takes characters that `vm` writes to its terminal.
    fn terminal_write(&self, vm: &'static Vm, characters: &[u8]);
    /// Moves what was typed for `vm` to `room`; returns how many characters those are.
    fn terminal_read(&self, vm: &'static Vm, room: &mut [u8]) -> usize;
    /// Returns the wall clock of `vm`: nanoseconds since 1970.
    fn clock(&self, vm: &'static Vm) -> u64;
    /// Sets the wall clock of `vm`.
    fn set_clock(&self, vm: &'static Vm, nanoseconds: u64);
}

impl Monitor for Nobody {
    fn terminal_write(&self, _: &'static Vm, _: &[u8]) {}

    fn terminal_read(&self, _: &'static Vm, _: &mut [u8]) -> usize {
        0
    }

    fn clock(&self, _: &'static Vm) -> u64 {
        0
    }

    fn set_clock(&self, _: &'static Vm, _: u64) {}
}

static MONITOR: Once<&'static dyn Monitor> = Once::new();

/// Names the hypervisor that full exits call; once, before any guest runs.
pub fn set_monitor(monitor: &'static dyn Monitor) {
    MONITOR.call_once(|| monitor);
}

/// Returns the hypervisor that full exits call; until it is named, nobody.
pub(crate) fn monitor() -> &'static dyn Monitor {
    MONITOR.get().copied().unwrap_or(&Nobody)
}
