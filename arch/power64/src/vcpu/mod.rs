// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is done with one vCPU.
//!
//! | file | what |
//! |---|---|
//! | `frame` | where exits store a guest's registers, and find what they need |
//! | `facility` | what of a vCPU stays in registers until another one needs them |
//! | `interrupts` | its interrupts |
//! | `idle` | what its CPU does while no guest runs |
//! | `switch` | registers that are set once, and when it starts |
//! | `statistics` | what its exits cost |

pub mod facility;
pub mod frame;
pub(crate) mod idle;
pub(crate) mod interrupts;
pub mod statistics;
pub mod switch;
