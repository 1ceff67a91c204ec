// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits ask of the hypervisor.

use spin::Once;
use turnstile_arch_common::monitor::{CommonMonitor, Nobody};
use turnstile_vm::lifecycle::Stop;

use super::objects::{Vcpu, Vm};

/// What full exits need of the hypervisor: what they need everywhere, and this.
pub trait Monitor: CommonMonitor<Vm> {
    /// Reads `size` bytes of a port of `vm`; `None` if there is no device.
    fn port_read(&self, vm: &'static Vm, port: u16, size: u8) -> Option<u64>;
    /// A vCPU writes a port; false if there is no device.
    fn port_write(&self, vcpu: &'static Vcpu, port: u16, size: u8, value: u64) -> bool;
    /// The first vCPU of `vm` has got an INIT: does what the firmware would, and says whether the vCPU is to go on at the address
    /// at 40h:67h. If not, it waits for a startup IPI.
    fn resumes(&self, vm: &'static Vm) -> bool;
    /// A processor has shut down (APM vol. 2, 8.2.9): does what the chip set does, and stops or resets all of its VM.
    fn shut_down(&self, vcpu: &'static Vcpu);
}

impl Monitor for Nobody {
    fn port_read(&self, _: &'static Vm, _: u16, _: u8) -> Option<u64> {
        None
    }

    fn port_write(&self, _: &'static Vcpu, _: u16, _: u8, _: u64) -> bool {
        false
    }

    fn resumes(&self, _: &'static Vm) -> bool {
        false
    }

    fn shut_down(&self, vcpu: &'static Vcpu) {
        vcpu.vm.stop(Stop::Reset);
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
