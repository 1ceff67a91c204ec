// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What exits ask of the hypervisor on every architecture.

use turnstile_vm::lifecycle::Stop;

/// What full exits need of the hypervisor, whatever the architecture is that VMs `V` are of. The architecture's `Monitor` adds the
/// rest.
pub trait CommonMonitor<V: 'static>: Sync {
    /// Reads `size` bytes of a device register of `vm` at a guest physical address; `None` if there is no device.
    fn mmio_read(&self, vm: &'static V, address: u64, size: u8) -> Option<u64>;
    /// Writes a device register; false if there is no device.
    fn mmio_write(&self, vm: &'static V, address: u64, size: u8, value: u64) -> bool;
    /// Handles a physical interrupt that belongs to no guest.
    fn interrupt(&self, number: u32);
    /// A deadline that devices have set on this CPU (`time::set_deadline`) has passed.
    fn deadline(&self);
    /// The first vCPU of `vm` waits on its CPU: starts the VM if that is wanted. Only this CPU starts it.
    fn waiting(&self, vm: &'static V);
    /// All vCPUs of `vm` have stopped: takes it down.
    fn stopped(&self, vm: &'static V, stop: Stop);
    /// All vCPUs of `vm` have left their guests because it is being paused: stops its clock.
    fn paused(&self, vm: &'static V);
    /// A vCPU of `vm`, on its own CPU, has waited for the end of a pause, and goes on: what devices were to do meanwhile is done.
    fn resumed(&self, vm: &'static V);
    /// The pool has no memory for `vm`, which waits, for the `number`th time: says so.
    fn short_of_memory(&self, vm: &'static V, number: u32);
}

/// Who is asked as long as there is no hypervisor: it has no devices, and nothing to do.
#[derive(Clone, Copy, Debug)]
pub struct Nobody;

impl<V: 'static> CommonMonitor<V> for Nobody {
    fn mmio_read(&self, _: &'static V, _: u64, _: u8) -> Option<u64> {
        None
    }

    fn mmio_write(&self, _: &'static V, _: u64, _: u8, _: u64) -> bool {
        false
    }

    fn interrupt(&self, _: u32) {}

    fn deadline(&self) {}

    fn waiting(&self, _: &'static V) {}

    fn stopped(&self, _: &'static V, _: Stop) {}

    fn paused(&self, _: &'static V) {}

    fn resumed(&self, _: &'static V) {}

    fn short_of_memory(&self, _: &'static V, _: u32) {}
}
