// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that counts every interrupt for a long time: accounts, moments that all CPUs have in common, and how they end
//! together.
//!
//! Options: `seconds=` of sending (10), `period=` of each timer in microseconds (250000).

mod account;
mod crew;
mod ledger;

pub use account::{Account, PATIENCE};
pub use crew::{Crew, Grid, Member};
pub use ledger::{Ledger, MAX_CPUS};
