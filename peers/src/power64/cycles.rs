// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor's cycle counter: the crate by which the other architectures' is read does not know POWER.

use anyhow::{Result, bail};

/// Counts the cycles of the thread that made it.
pub enum Cycles {}

impl Cycles {
    /// Prepares the counter.
    ///
    /// # Errors
    /// There is none.
    pub fn new() -> Result<Self> {
        bail!("the processor's cycles cannot be counted on POWER")
    }

    /// Counts from here.
    ///
    /// # Errors
    /// None.
    pub fn start(&mut self) -> Result<()> {
        match *self {}
    }

    /// Ends counting and returns how many cycles there were, if it was counting.
    ///
    /// # Errors
    /// None.
    pub fn stop(&mut self) -> Result<Option<u64>> {
        match *self {}
    }
}
