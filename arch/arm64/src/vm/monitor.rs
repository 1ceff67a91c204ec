// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits ask of the hypervisor.

use spin::Once;
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

static MONITOR: Once<&'static dyn Monitor> = Once::new();

/// Names the hypervisor that full exits call; once, before any guest runs.
pub fn set_monitor(monitor: &'static dyn Monitor) {
    MONITOR.call_once(|| monitor);
}

/// Returns the hypervisor that full exits call; until it is named, nobody.
pub(crate) fn monitor() -> &'static dyn Monitor {
    MONITOR.get().copied().unwrap_or(&Nobody)
}
