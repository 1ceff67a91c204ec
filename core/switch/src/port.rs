// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a port may do, and what it did.

use crate::rate::Rate;

/// What a port may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// The only address from which it may send, which no other port may use.
    pub mac: Option<[u8; 6]>,
    /// It exchanges packets only with ports that are not isolated.
    pub isolated: bool,
    /// How much it may send.
    pub rate: Option<Rate>,
    /// It waits for no receiver: many send by it, and those that one holds up would be held up for all. What has no room is lost.
    pub impatient: bool,
}

/// What a port did. Numbers only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets that it sent, and their bytes. A segment is one.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that it received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets of its own that make no sense.
    pub malformed: u64,
    /// Packets of its own with an address that it may not use.
    pub spoofed: u64,
    /// Packets for it for which it had no buffers.
    pub overrun: u64,
    /// Packets of its own that nobody may have.
    pub unwanted: u64,
}

/// A port.
#[derive(Clone, Copy, Debug)]
pub struct Port {
    /// What it may do.
    pub rules: Rules,
    /// What it did.
    pub counters: Counters,
    /// It is connected.
    pub(crate) is_up: bool,
    /// The address of the rules; 0 if there is none, which nobody sends from.
    pub(crate) own: u64,
}

impl Port {
    /// A port that is not connected.
    pub(crate) const NEW: Self = Self {
        rules: Rules { mac: None, isolated: false, rate: None, impatient: false },
        counters: Counters {
            sent: 0,
            sent_bytes: 0,
            received: 0,
            received_bytes: 0,
            malformed: 0,
            spoofed: 0,
            overrun: 0,
            unwanted: 0,
        },
        is_up: false,
        own: 0,
    };
}
