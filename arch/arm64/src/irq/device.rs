// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of the machine's devices that services drive, in the registers that the distributors of both versions have alike
//! (IHI 0048, 4.3; IHI 0069, 12.9).

use turnstile_arch_common::mmio::Registers;

use super::gic::{OWN_PRIORITY, SPURIOUS};
use crate::board::discover::Spi;
use crate::cpu;

const GICD_TYPER: usize = 0x4;
const GICD_ISENABLER: usize = 0x100;
const GICD_ICENABLER: usize = 0x180;
const GICD_IPRIORITYR: usize = 0x400;
const GICD_ICFGR: usize = 0xc00;
/// In the two bits that an interrupt has in GICD_ICFGR: it is edge-triggered.
const EDGE: u32 = 0b10;

/// Gives an SPI, which is disabled, the priority and the trigger of the device's. False if the distributor has none such, or it is the
/// firmware's, or somebody has it already. On the boot CPU.
pub(super) fn take(distributor: &Registers, spi: Spi) -> bool {
    let count = 32 * ((distributor.read32(GICD_TYPER) & 0x1f) + 1);
    if !(32..count.min(SPURIOUS)).contains(&spi.intid) {
        return false;
    }
    let n = spi.intid as usize;
    let priority = GICD_IPRIORITYR + n;
    if distributor.read8(priority) == OWN_PRIORITY {
        return false;
    }
    distributor.write8(priority, OWN_PRIORITY);
    // Those of the secure side read as zero.
    if distributor.read8(priority) != OWN_PRIORITY {
        return false;
    }
    let (register, shift) = (GICD_ICFGR + 4 * (n / 16), 2 * (n % 16));
    let others = distributor.read32(register) & !(EDGE << shift);
    distributor.write32(register, others | if spi.edge { EDGE << shift } else { 0 });
    true
}

/// Disables an SPI, or enables it.
pub(super) fn mask(distributor: &Registers, intid: u32, masked: bool) {
    if !masked {
        // Behind what has let the line fall, at the device.
        cpu::dsb_sy();
    }
    let register = if masked { GICD_ICENABLER } else { GICD_ISENABLER };
    distributor.write32(register + 4 * (intid as usize / 32), 1 << (intid % 32));
}
