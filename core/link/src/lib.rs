// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Frames on the serial line: consoles, events and commands between the hypervisor and the tool.
//!
//! One line carries plain text (the hypervisor's boot messages, a panic) and frames:
//!
//! ```text
//! frame   = 0x00 START cobs(payload crc) 0x00      no 0x00 within
//! payload = a message, by postcard                 at most 256 bytes
//! crc     = CRC-32 (ISO HDLC) of the payload       4 bytes, least significant first
//! ```
//!
//! Every other byte is text, and is passed on at once. [`START`] never occurs in UTF-8, so one byte after a 0x00 tells a frame from
//! text. Whatever was lost before, the reader resynchronizes at the next 0x00. Text never contains 0x00. Whoever may have been
//! interrupted within a frame and continues with text, as a panic does, sends [`RESYNC`] first.
//!
//! Neither side allocates. [`send`] and [`encode`] write, [`Decoder`] reads one byte at a time.
#![no_std]
#![forbid(unsafe_code)]

mod decode;
mod encode;
mod mark;
mod message;

pub use decode::{Decoder, Direction, DownLink, Item, UpLink};
pub use encode::{EncodeError, encode, send};
pub use mark::{marked_version, version_of};
pub use message::{
    Command, Down, Event, Events, Exits, Memory, Message, Outcome, Pool, Statistics, StopReason, Up, VmState,
    clip,
};

/// The version of the messages, in [`Up::Hello`]: it changes when any message changes.
pub const VERSION: u16 = 11;
/// The most bytes of a message, before checksum and stuffing.
pub const MAX_PAYLOAD: usize = 256;
/// The most bytes of [`Up::Console`], [`Down::Input`] and the bytes of a port in one frame.
pub const MAX_BYTES: usize = 240;
/// How many buckets of a histogram one [`Up::Exits`] carries, and how many counts one [`Up::Events`].
pub const MAX_BUCKETS: usize = 16;
/// The most bytes of a text in a message; [`clip`] shortens one to this.
pub const MAX_TEXT: usize = 240;
/// The most bytes of a frame on the line, with the delimiters.
pub const MAX_FRAME: usize = 3 + MAX_STUFFED;
/// The byte between a frame's first 0x00 and its stuffed bytes.
pub const START: u8 = 0xfd;
/// What puts the reader back to text, in a frame or not: send it before text that may interrupt one.
pub const RESYNC: [u8; 2] = [0, 0];

/// The bytes of the checksum.
const CRC_SIZE: usize = 4;
/// The most bytes that payload and checksum take when stuffed: one more for each 254, and one.
const MAX_STUFFED: usize = MAX_PAYLOAD + CRC_SIZE + (MAX_PAYLOAD + CRC_SIZE) / 254 + 1;

/// The checksum, by the same table on both sides.
const CRC: crc::Crc<u32> = crc::Crc::<u32>::new(&crc::CRC_32_ISO_HDLC);
