// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the program reaches of the machine.

use core::fmt;

use turnstile_service_virtio::World;
use turnstile_virtio::driver::Bus;
use turnstile_virtio::transfer::Transfer;

/// How many members there are at most.
pub const MEMBERS: usize = turnstile_service_rt::MEMBERS as usize;

/// What the program reaches. Tests have their own.
pub trait Machine: 'static {
    /// The memory of a VM, and that of the stages.
    type Memory: Transfer;
    /// How the controller is reached.
    type Bus: Bus;

    /// What the function of a member reaches.
    fn world(&self, member: usize) -> impl World<Memory = Self::Memory>;

    /// The memory of a member. Nothing is in that of one that is not attached.
    fn memory(&self, member: usize) -> &Self::Memory;

    /// The time in nanoseconds.
    fn time(&self) -> u64;

    /// How the controller is reached.
    fn bus(&self) -> &Self::Bus;

    /// The memory that the controller reaches, for copies: ordered with what the controller does by who asks it.
    fn shared(&self) -> &Self::Memory;

    /// Where that is for the controller, and how many bytes.
    fn range(&self) -> (u64, u64);

    /// Where the controller reaches bytes of a member's memory, which lie together there, too. `None` if it does not reach them.
    fn on_bus(&self, member: usize, address: u64, length: u64) -> Option<u64>;

    /// Writes a line to the hypervisor's log.
    fn log(&self, line: fmt::Arguments<'_>);

    /// Sets the alarm to a time in nanoseconds.
    fn alarm(&self, at: u64);
}
