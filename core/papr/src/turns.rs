// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is counted of a vCPU's turns on a shared processor.

/// The end of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// The time base.
    pub now: u64,
    /// The ticks that the vCPU was ready and did not run, ever.
    pub stolen: u64,
}

/// The turns of a vCPU, since its area was registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Turns {
    /// The last one's end; `None` if it was before the area was registered.
    pub(crate) left: Option<Left>,
    /// Ticks that the vCPU was ready and did not run.
    pub(crate) ready: u64,
    /// Ticks that it waited.
    pub(crate) waited: u64,
    /// The processor of the last one.
    pub(crate) processor: Option<u16>,
    /// Entries of the log.
    pub(crate) logged: u64,
}

impl Turns {
    /// The log is another one, or none: its entries are counted anew.
    pub(crate) fn begin_log(&mut self) {
        self.logged = 0;
    }
}
