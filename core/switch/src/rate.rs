// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much a port may send: a bucket of tokens, as the time at which it is full (the generic cell rate algorithm, ITU-T I.371).

/// A limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Picoseconds for a byte.
    cost: u64,
    /// How far the port may be ahead, in nanoseconds.
    ahead: u64,
    /// When everything that was sent is paid for, in nanoseconds.
    paid: u64,
}

impl Rate {
    /// A rate in bits per second, at least 1000, and what may be sent at once beyond it, in bytes.
    pub const fn new(bits_per_second: u64, burst: u32) -> Self {
        let bits = if bits_per_second < 1000 { 1000 } else { bits_per_second };
        let cost = 8_000_000_000_000 / bits;
        Self { cost, ahead: burst as u64 * cost / 1000, paid: 0 }
    }

    /// How many nanoseconds from `now` the next packet must wait; 0 if it may go.
    #[inline] // On the path of every packet.
    pub const fn wait(&self, now: u64) -> u64 {
        self.paid.saturating_sub(now).saturating_sub(self.ahead)
    }

    /// A packet of `bytes` has gone.
    #[inline] // On the path of every packet.
    pub fn pay(&mut self, now: u64, bytes: u32) {
        self.paid = self.paid.max(now).saturating_add(u64::from(bytes).saturating_mul(self.cost) / 1000);
    }
}
