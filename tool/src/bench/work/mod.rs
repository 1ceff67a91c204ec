// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole work in Debian's Linux: all instructions of all CPUs, in the guest and outside, beside what the same kernel takes for the
//! same work on the same machine without a hypervisor.
//!
//! | file | what |
//! |---|---|
//! | `rows` | the kinds of work, and the most that each may cost |
//! | `machines` | one boot that does the work, on a hypervisor or on none |
//! | `count` | from the counts of several boots to figures |
//! | `table` | the figures as text |

mod count;
mod machines;
pub mod rows;
mod table;

pub use count::{Counted, hold, measure};
pub use table::{Sheet, text};
