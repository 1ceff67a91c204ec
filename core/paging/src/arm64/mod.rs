// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMSAv8-64 translation tables with the 4 KiB granule: stage 2, and stage 1 of the hypervisor's
//! own regime, EL2&0 with the Virtualization Host Extensions (VHE) and EL2 without.
//!
//! Descriptor formats: Arm ARM (DDI 0487) section D8.3; stage 2 concatenated root tables: D8.2; memory
//! attributes: D8.6; permissions: D8.4.

mod descriptor;
mod stage1;
mod stage2;

pub use descriptor::Memory;
pub use stage1::{MAIR_EL2, Permission, Stage1Attributes, Stage1El0, Stage1El2, Stage1Regime};
pub use stage2::{Stage2, Stage2Attributes};
