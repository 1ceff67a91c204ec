// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the driver needs of the machine, and why it fails.

use core::fmt;

use turnstile_paging::Tables;

/// How many functions can have something.
pub const MAX_FUNCTIONS: usize = 64;
/// How many IOMMUs can be driven.
pub const MAX_UNITS: usize = 8;

/// The registers of IOMMUs, by their numbers, and memory for tables, buffers and logs. [`Tables::invalidate`] need do nothing: no valid entry of a table
/// in use is changed.
pub trait Platform: Tables {
    /// Reads a register of 32 bits at this offset from an IOMMU's base, at once.
    fn get32(&self, unit: usize, offset: u32) -> u32;
    /// Writes a register of 32 bits, at once.
    fn set32(&mut self, unit: usize, offset: u32, value: u32);
    /// IOMMUs see what was written to memory before they see what is written to their registers afterwards. What is read of memory afterwards is as
    /// new as what was read of registers before.
    fn synchronize(&self);
}

/// Why IOMMUs are not used, or a function gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// One lacks this.
    Feature(&'static str),
    /// One has not done this in time.
    Stuck(&'static str),
    /// What has this number as a requester has that already.
    Taken(u16),
    /// As many functions as can have something have something, or there are too many IOMMUs.
    TooMany,
    /// Memory for tables.
    Paging(turnstile_paging::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Feature(what) => write!(f, "it has no {what}"),
            Self::Stuck(what) => write!(f, "it does not answer ({what})"),
            Self::Taken(function) => write!(f, "requester {function:#06x} is another function, too"),
            Self::TooMany => {
                write!(f, "more than {MAX_FUNCTIONS} functions, or {MAX_UNITS} IOMMUs, are used")
            }
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
