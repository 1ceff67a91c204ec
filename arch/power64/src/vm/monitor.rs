// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits ask of the hypervisor.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, Ordering};

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

/// Nobody, until somebody is named.
static NOBODY: &dyn Monitor = &Nobody;
/// Where the reference is to the hypervisor that full exits call. A pointer and no `Once`: each full exit would pay for the order of
/// its loads.
static MONITOR: AtomicPtr<&'static dyn Monitor> = AtomicPtr::new((&raw const NOBODY).cast_mut());

/// Names the hypervisor that full exits call; once, before any guest runs.
pub fn set_monitor(monitor: &'static dyn Monitor) {
    // Release: what it is comes before where it is.
    MONITOR.store(Box::leak(Box::new(monitor)), Ordering::Release);
}

/// Returns the hypervisor that full exits call.
#[inline(always)] // A few loads.
pub(crate) fn monitor() -> &'static dyn Monitor {
    // SAFETY: a reference that is there for ever, and that nobody writes. Relaxed: who runs a guest has found the system built,
    // which is ordered behind naming it; and the address that is loaded from was loaded.
    unsafe { *MONITOR.load(Ordering::Relaxed) }
}
