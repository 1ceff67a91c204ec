// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits ask of the hypervisor.

use spin::Once;
use turnstile_vm::lifecycle::Stop;

use super::Vm;

/// What full exits need of the hypervisor.
pub trait Monitor: Sync {
    /// Reads `size` bytes of a device register of `vm` at a guest real address; `None` if there is no device.
    fn mmio_read(&self, vm: &'static Vm, address: u64, size: u8) -> Option<u64>;
    /// Writes a device register; false if there is no device.
    fn mmio_write(&self, vm: &'static Vm, address: u64, size: u8, value: u64) -> bool;
    /// Takes characters that `vm` writes to its terminal.
    fn terminal_write(&self, vm: &'static Vm, characters: &[u8]);
    /// Moves what was typed for `vm` to `room`; returns how many characters those are.
    fn terminal_read(&self, vm: &'static Vm, room: &mut [u8]) -> usize;
    /// Returns the wall clock of `vm`: nanoseconds since 1970.
    fn clock(&self, vm: &'static Vm) -> u64;
    /// Sets the wall clock of `vm`.
    fn set_clock(&self, vm: &'static Vm, nanoseconds: u64);
    /// Handles a physical interrupt that belongs to no guest.
    fn interrupt(&self, number: u32);
    /// A deadline set by [`crate::time::set_deadline`] on this CPU has passed.
    fn deadline(&self);
    /// The first vCPU of `vm` waits on its CPU: starts the VM if that is wanted. Only this CPU starts it.
    fn waiting(&self, vm: &'static Vm);
    /// All vCPUs of `vm` have stopped: takes it down.
    fn stopped(&self, vm: &'static Vm, stop: Stop);
}

static MONITOR: Once<&'static dyn Monitor> = Once::new();

/// Names the hypervisor that full exits call; once, before any guest runs.
pub fn set_monitor(monitor: &'static dyn Monitor) {
    MONITOR.call_once(|| monitor);
}

/// Returns it; until it is named, nobody.
pub(crate) fn monitor() -> &'static dyn Monitor {
    struct Nobody;
    impl Monitor for Nobody {
        fn mmio_read(&self, _: &'static Vm, _: u64, _: u8) -> Option<u64> {
            None
        }
        fn mmio_write(&self, _: &'static Vm, _: u64, _: u8, _: u64) -> bool {
            false
        }
        fn terminal_write(&self, _: &'static Vm, _: &[u8]) {}
        fn terminal_read(&self, _: &'static Vm, _: &mut [u8]) -> usize {
            0
        }
        fn clock(&self, _: &'static Vm) -> u64 {
            0
        }
        fn set_clock(&self, _: &'static Vm, _: u64) {}
        fn interrupt(&self, _: u32) {}
        fn deadline(&self) {}
        fn waiting(&self, _: &'static Vm) {}
        fn stopped(&self, _: &'static Vm, _: Stop) {}
    }
    MONITOR.get().copied().unwrap_or(&Nobody)
}
