// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits ask of the hypervisor.

use alloc::boxed::Box;
use core::sync::atomic::{AtomicPtr, Ordering};

use turnstile_arch_common::monitor::{CommonMonitor, Nobody};

use super::objects::Vm;
use crate::memory::flash;

/// What full exits need of the hypervisor: what they need everywhere, and this.
pub trait Monitor: CommonMonitor<Vm> {
    /// Accesses the flash of `vm`; returns what was read. `None` if the access is to be repeated.
    fn flash(&self, vm: &'static Vm, access: flash::Access) -> Option<u64>;
}

impl Monitor for Nobody {
    fn flash(&self, _: &'static Vm, _: flash::Access) -> Option<u64> {
        Some(0)
    }
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

/// Returns the hypervisor that full exits call; until it is named, nobody.
#[inline(always)] // A few loads.
pub(crate) fn monitor() -> &'static dyn Monitor {
    // SAFETY: a reference that is there for ever, and that nobody writes. Relaxed: who runs a guest has found the system built,
    // which is ordered behind naming it; and the address that is loaded from was loaded.
    unsafe { *MONITOR.load(Ordering::Relaxed) }
}
