// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The device's side of a queue.
//!
//! ```text
//! loop { pop → work → complete } → publish: interrupt, if it says so → arm: again, if it says so → wait for a notification
//! ```

mod chain;
mod cursor;
mod queue;
mod run;
mod segments;

pub use chain::{Chain, Token};
pub use cursor::Cursor;
pub use queue::{One, Queue};
pub use run::{Head, Run};
pub use segments::{Place, Segments, Span};

/// What a device has done in a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "the driver may wait for an interrupt"]
pub struct Turn {
    /// The driver wants an interrupt of the queue.
    pub interrupt: bool,
    /// There is more to do, for which no notification comes: call again.
    pub again: bool,
}
