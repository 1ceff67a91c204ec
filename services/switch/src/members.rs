// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the switch reaches of its members.

use turnstile_service_virtio::World;
use turnstile_virtio::transfer::Transfer;

/// How many members there are at most.
pub const MEMBERS: usize = turnstile_service_rt::MEMBERS as usize;

/// What the switch reaches. Tests have their own.
pub trait Members {
    /// The memory of a VM.
    type Memory: Transfer;

    /// What the function of a member reaches.
    fn world(&self, member: usize) -> impl World<Memory = Self::Memory>;

    /// The memories of all members. Nothing is in that of one that is not attached.
    fn memories(&self) -> &[Self::Memory; MEMBERS];

    /// Sends the messages that functions have sent, now: otherwise the last one goes with the answer.
    fn flush(&self);

    /// The time in nanoseconds.
    fn time(&self) -> u64;

    /// Sets the alarm to a time in nanoseconds, or off (`u64::MAX`).
    fn alarm(&self, at: u64);
}
