// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Open files.

/// An open file: its number.
#[derive(Clone, Copy, Debug)]
pub struct File(pub(super) i32);
