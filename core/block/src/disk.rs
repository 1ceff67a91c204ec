// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a disk does.

use core::fmt;

use turnstile_virtio::device::{Place, Span};
use turnstile_virtio::memory::Outside;

/// How many bytes a sector has, whatever the size of a block.
pub const SECTOR: u64 = 512;

/// Why a disk does not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It cannot: a sector is bad, no room is left, or it is behind the end.
    Io,
    /// It does not do such things.
    Unsupported,
    /// Not yet. The same call again, later, goes on with it.
    Busy,
    /// The other end of a copy is not memory. A guest's buffers were checked, so its memory has changed.
    Outside(u64),
}

impl From<Outside> for Failure {
    fn from(outside: Outside) -> Self {
        Self::Outside(outside.address)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io => f.write_str("the disk cannot do it"),
            Self::Unsupported => f.write_str("the disk does not do such things"),
            Self::Busy => f.write_str("the disk has not done it yet"),
            Self::Outside(address) => write!(f, "{address:#x} is outside memory"),
        }
    }
}

impl core::error::Error for Failure {}

/// A disk: bytes in sectors.
///
/// Positions are in bytes, as buffers may end within a sector; a request as a whole has whole sectors. Every call may be repeated, and may
/// be cut off at any instant: then the bytes that it would have changed hold what was there before, what it would have written, or of each
/// something, and others are unchanged. What a call is given is within the disk, as far as [`queue`](crate::queue) calls; a disk checks it
/// nevertheless.
pub trait Disk {
    /// Its size. Below 2^55.
    fn sectors(&self) -> u64;

    /// How many bytes the next call has at most, if it reads or writes from `at`: at least one.
    #[inline] // On the path of every request.
    fn piece(&self, _at: u64) -> u64 {
        PIECE
    }

    /// How many bytes a call has at most that discards, or fills with zeroes.
    fn range_piece(&self) -> u64 {
        PIECE
    }

    /// Makes sure that all that was written survives a loss of power.
    fn flush(&mut self) -> Result<(), Failure>;

    /// The bytes are not needed any more; they may hold anything from now on. A hint.
    fn discard(&mut self, at: u64, length: u64) -> Result<(), Failure>;

    /// Fills with zeroes. Room for the bytes may be given up if `may_discard`.
    fn zero(&mut self, at: u64, length: u64, may_discard: bool) -> Result<(), Failure>;
}

/// Bytes that a disk may move itself, straight between where it keeps them and the driver's buffers.
#[derive(Clone, Copy, Debug)]
pub struct Move<'a> {
    /// They go to the disk.
    pub writes: bool,
    /// Where they are on the disk.
    pub at: u64,
    /// How many.
    pub length: u64,
    /// The buffers, and where among their bytes the first one is.
    pub spans: &'a [Span],
    /// See `spans`.
    pub place: Place,
}

/// A disk whose bytes come from such memory, and go there.
pub trait DiskFor<M>: Disk {
    /// Moves the first of these bytes without a copy, and says how many: at least one. `None` if it cannot: then [`DiskFor::read`] and
    /// [`DiskFor::write`] copy them.
    #[inline] // On the path of every request.
    fn direct(&mut self, _: &Move<'_>) -> Result<Option<u64>, Failure> {
        Ok(None)
    }

    /// Copies bytes from `at` to the driver's memory.
    fn read(&mut self, at: u64, memory: &M, to: Span) -> Result<(), Failure>;

    /// Copies bytes from the driver's memory to `at`.
    fn write(&mut self, at: u64, memory: &M, from: Span) -> Result<(), Failure>;
}

/// How many bytes are done at once, where a disk says nothing else.
pub const PIECE: u64 = 1 << 16;

/// The index of a byte in a slice, if `length` bytes from there are within `size`.
pub(crate) fn inside(at: u64, length: u64, size: u64) -> Result<(), Failure> {
    match at.checked_add(length) {
        Some(end) if end <= size => Ok(()),
        _ => Err(Failure::Io),
    }
}
