// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio console (virtio 1.2, section 5.3) as a pure model: ports, their sizes, and the messages of the control queues.
//!
//! | module | what |
//! |---|---|
//! | [`control`] | which ports there are, and what both sides say about them |
//! | [`data`] | bytes from and to a port |
//!
//! **Crash-only.** Bytes of the driver are passed on before their buffer is completed. A device that is killed passes what it has passed on
//! of one buffer again, unless it knows how much that was ([`Output::resume`](data::Output::resume)). What was said on the control queues is kept by the caller, message by message ([`Journal`](control::Journal)).
#![no_std]
#![forbid(unsafe_code)]

pub mod control;
pub mod data;

/// The queues of a port: the one for what it receives, and the one for what the driver writes.
pub const fn queues(port: u16) -> (u16, u16) {
    match port {
        0 => (0, 1),
        // Behind those of port 0 are those for control.
        port => (2 * port + 2, 2 * port + 3),
    }
}

/// The queues for control: of messages to the driver, and from it.
pub const CONTROL: (u16, u16) = (2, 3);

/// How many buffers a request has at most.
pub const BUFFERS: u32 = 64;
