// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POWER9 and POWER10. What a processor needs depends on its firmware's version as much as on itself, so the firmware says it:
//! each feature is a node below `/ibm,opal/fw-features` of the device tree (skiboot, `doc/device-tree/ibm,opal`).
//!
//! | weakness | what a guest uses | remedy |
//! |---|---|---|
//! | targets (variant 2) | its indirect branches are predicted for others (count cache) | flushed on each exit; or firmware has serialised such branches, or switched their prediction off |
//! | returns | its calls are predicted as others' returns (link stack) | flushed on each exit |
//! | stores | loads are served by stores of a more privileged state that have not reached memory | a barrier on each exit and each entry |
//! | data cache (variant 3, L1TF) | what others have left in the first-level data cache | flushed on each entry |
//! | bounds (variant 1) | bounds checks are speculated past | a barrier behind the check of a call's number |
//!
//! If the firmware says nothing, everything except the second is assumed to be needed, as in Linux.

mod characteristics;
mod choice;
mod decision;
mod firmware;

pub use characteristics::Characteristics;
pub use choice::Choice;
pub use decision::{Branches, Cache, Decision, decide};
pub use firmware::{Feature, Features, Machine, Said};
