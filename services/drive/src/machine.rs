// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program reaches of the machine.

use core::fmt;

use turnstile_service_virtio::World;
use turnstile_virtio::driver::Bus;
use turnstile_virtio::transfer::Transfer;

/// What the program reaches. Tests have their own.
pub trait Machine: 'static {
    /// The memory of the VM, and that of the stages.
    type Memory: Transfer;
    /// How the controller is reached.
    type Bus: Bus;

    /// What the function reaches.
    fn world(&self) -> impl World<Memory = Self::Memory>;

    /// How the controller is reached.
    fn bus(&self) -> &Self::Bus;

    /// The memory that the controller reaches, for copies: ordered with what the controller does by who asks it.
    fn shared(&self) -> &Self::Memory;

    /// Where that is for the controller, and how many bytes.
    fn range(&self) -> (u64, u64);

    /// Where the controller reaches bytes of the VM's memory, which lie together there, too. `None` if it does not reach them.
    fn on_bus(&self, address: u64, length: u64) -> Option<u64>;

    /// Writes a line to the hypervisor's log.
    fn log(&self, line: fmt::Arguments<'_>);

    /// Sets the alarm to a time in nanoseconds.
    fn alarm(&self, at: u64);
}
