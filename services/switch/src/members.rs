// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the switch reaches of its members.

use turnstile_nic::card::Bus;
use turnstile_service_virtio::World;
use turnstile_virtio::transfer::Transfer;

/// How many members there are at most.
pub const MEMBERS: usize = turnstile_service_rt::MEMBERS as usize;

/// How many ports the switch has: the last one is that of the uplink.
pub const PORTS: usize = MEMBERS + 1;

/// What the switch reaches. Tests have their own.
pub trait Members {
    /// The memory of a VM, or of the uplink's port.
    type Memory: Transfer;
    /// How the uplink's card is reached.
    type Bus: Bus;

    /// What the function of a member reaches.
    fn world(&self, member: usize) -> impl World<Memory = Self::Memory>;

    /// The memories of all ports. Nothing is in that of one that is not attached.
    fn memories(&self) -> &[Self::Memory; PORTS];

    /// How the uplink's card is reached.
    fn bus(&self) -> &Self::Bus;

    /// The memory that the card reaches: its first address for the card, and how many bytes.
    fn shared(&self) -> (u64, u64);

    /// Writes to the hypervisor's log.
    fn log(&self, text: &str);

    /// Sends the messages that functions have sent, now: otherwise the last one goes with the answer.
    fn flush(&self);

    /// The time in nanoseconds.
    fn time(&self) -> u64;

    /// Sets the alarm to a time in nanoseconds, or off (`u64::MAX`).
    fn alarm(&self, at: u64);
}
