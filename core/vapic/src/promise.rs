// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of a vCPU's paravirtual EOI.

use core::num::NonZeroU64;

/// The paravirtual EOI of one vCPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PvEoi {
    /// Where the word is, as [`Hardware`](crate::Hardware) wants to know it; `None` if it is off.
    pub(crate) place: Option<NonZeroU64>,
    /// The same while the bit was set, and was not yet seen cleared.
    pub(crate) promised: Option<NonZeroU64>,
    /// What the guest wrote.
    pub(crate) value: u64,
}

impl PvEoi {
    pub(crate) const OFF: Self = Self { place: None, promised: None, value: 0 };

    #[inline(always)] // One load.
    pub(crate) fn is_promised(&self) -> bool {
        self.promised.is_some()
    }
}
