// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The buffers of a network device's queues: a descriptor has one.

use turnstile_virtio::ring::Buffer;

use crate::virtio::ring::{self, Wrong};

/// Descriptors of each queue.
pub const SIZE: u16 = 128;
/// The queues: those of the first pair, and the one of the second that receives.
pub const RECEIVE: u16 = 0;
pub const SEND: u16 = 1;
pub const RECEIVE_ALSO: u16 = 2;
/// Where the buffers of a queue are in [`Machine::memory`](crate::virtio::Machine::memory), and how many bytes they have together.
const BUFFERS: u64 = 0x1_0000;
pub const ROOM: u64 = 0x3_8000;
/// Bytes of a buffer: Linux takes those of 1536 bytes for packets of the usual size.
pub const BUFFER: u64 = 1536;
/// Where the payload of a segment that is sent is: there is one at a time. With two pairs of queues nobody sends segments.
pub const PAYLOAD: u64 = BUFFERS + 2 * ROOM;
/// Where that memory ends.
pub const END: u64 = 0x9_0000;

const _: () = assert!(BUFFER * SIZE as u64 <= ROOM, "buffers are in memory");

/// A queue.
pub type Ring<'a> = ring::Ring<'a, { SIZE as usize }>;

/// Where a buffer of a queue is, of which each has so many bytes.
pub fn buffer(ring: &Ring<'_>, index: u16, bytes: u64) -> u64 {
    let first = if ring.number == RECEIVE_ALSO { PAYLOAD } else { BUFFERS + ROOM * u64::from(ring.number) };
    ring.ram.0.memory + first + bytes * u64::from(index)
}

/// Offers so many bytes of memory. Returns the descriptor.
pub fn offer(ring: &mut Ring<'_>, address: u64, length: u64) -> Result<u16, Wrong> {
    let writable = ring.number.is_multiple_of(2);
    let buffer = Buffer { address, length: length as u32, writable };
    ring.queue.add(&ring.ram, &[buffer]).map_err(|_| "no descriptor is free")
}
