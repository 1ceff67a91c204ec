// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the driver needs of the machine, and why it fails.

use core::fmt;

use turnstile_paging::Tables;

/// How many streams can have memory.
pub const MAX_STREAMS: usize = 64;

/// An SMMU's registers, and memory for its tables and queues. [`Tables::invalidate`] need do nothing: no valid entry of a table in use is changed.
pub trait Platform: Tables {
    /// Reads a register of 32 bits at this offset from the SMMU's base, at once.
    fn get32(&self, offset: u32) -> u32;
    /// Writes a register of 32 bits, at once.
    fn set32(&mut self, offset: u32, value: u32);
    /// Writes a register of 64 bits, at once.
    fn set64(&mut self, offset: u32, value: u64);
    /// The SMMU sees what was written to tables and queues before it sees what is written to its registers afterwards. What is read of queues
    /// afterwards is as new as what was read of registers before.
    fn synchronize(&self);
}

/// Why an SMMU is not used, or a stream gets no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// It lacks this, or is set up in a way that cannot be changed.
    Feature(&'static str),
    /// It has not done in time what this register asks for.
    Stuck(&'static str),
    /// It refuses a command.
    Refused,
    /// It has no stream with this number.
    NoStream(u32),
    /// The stream with this number has memory.
    Taken(u32),
    /// As many streams as can have memory have some.
    TooMany,
    /// Its tables.
    Paging(turnstile_paging::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature(what) => write!(f, "it has no {what}"),
            Self::Stuck(what) => write!(f, "it does not take what is written to {what}"),
            Self::Refused => f.write_str("it refuses a command"),
            Self::NoStream(stream) => write!(f, "it has no stream {stream:#x}"),
            Self::Taken(stream) => write!(f, "stream {stream:#x} is another function's, too"),
            Self::TooMany => write!(f, "it has more than {MAX_STREAMS} streams in use"),
            Self::Paging(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for Error {}

impl From<turnstile_paging::Error> for Error {
    fn from(error: turnstile_paging::Error) -> Self {
        Self::Paging(error)
    }
}
