// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What becomes of a system call that fails.

/// The kernel refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Error;
