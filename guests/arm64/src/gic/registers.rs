// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers that GICv2 and GICv3 share.

use crate::mmio::{read32, write32};
use crate::platform::platform;

/// The priority that all interrupts get at first.
pub const PRIORITY: u8 = 0xa0;

/// Register offsets in the distributor; the banked ones are at the same offsets in SGI_base.
pub mod offset {
    /// GICD_CTLR.
    pub const CTLR: u64 = 0x0000;
    /// GICD_TYPER.
    pub const TYPER: u64 = 0x0004;
    /// GICD_IGROUPR0.
    pub const IGROUPR: u64 = 0x0080;
    /// GICD_ISENABLER0.
    pub const ISENABLER: u64 = 0x0100;
    /// GICD_ICENABLER0.
    pub const ICENABLER: u64 = 0x0180;
    /// GICD_ISPENDR0.
    pub const ISPENDR: u64 = 0x0200;
    /// GICD_ICPENDR0.
    pub const ICPENDR: u64 = 0x0280;
    /// GICD_ISACTIVER0.
    pub const ISACTIVER: u64 = 0x0300;
    /// GICD_ICACTIVER0.
    pub const ICACTIVER: u64 = 0x0380;
    /// GICD_IPRIORITYR0.
    pub const IPRIORITYR: u64 = 0x0400;
    /// GICD_ICFGR0.
    pub const ICFGR: u64 = 0x0c00;
    /// GICD_ITARGETSR0 (GICv2).
    pub const ITARGETSR: u64 = 0x0800;
    /// GICD_SGIR (GICv2).
    pub const SGIR: u64 = 0x0f00;
    /// GICD_CPENDSGIR0 (GICv2).
    pub const CPENDSGIR: u64 = 0x0f10;
    /// GICD_SPENDSGIR0 (GICv2).
    pub const SPENDSGIR: u64 = 0x0f20;
    /// GICD_IROUTER0.
    pub const IROUTER: u64 = 0x6000;
    /// GICR_WAKER.
    pub const WAKER: u64 = 0x0014;
    /// GICR_TYPER.
    pub const GICR_TYPER: u64 = 0x0008;
    /// Distance from a redistributor's RD_base to its SGI_base.
    pub const SGI_BASE: u64 = 0x1_0000;
}

/// Returns the address of the distributor.
///
/// # Panics
/// When the device tree has none.
pub fn distributor() -> u64 {
    platform().gicd.expect("the device tree has no interrupt controller").base
}

/// Returns how many INTIDs below 1020 the distributor has.
pub fn interrupts() -> u32 {
    let lines = read32(distributor() + offset::TYPER) & 0x1f;
    (32 * (lines + 1)).min(1020)
}

/// Makes an interrupt edge-triggered or level-sensitive, in the bank at this address.
pub fn set_edge(bank: u64, intid: u32, edge: bool) {
    let address = bank + offset::ICFGR + u64::from(intid / 16) * 4;
    let mask = 2 << (intid % 16 * 2);
    let old = read32(address);
    write32(address, if edge { old | mask } else { old & !mask });
}
