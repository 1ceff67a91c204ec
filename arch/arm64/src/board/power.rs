// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Powering the machine off, and resetting it: by PSCI, or by the power manager of a BCM2711 (Raspberry Pi 4), whose
//! registers are those of the BCM2835's (Linux, drivers/watchdog/bcm2835_wdt.c).

use spin::Once;
use turnstile_arch_common::mmio::Registers;

use crate::board::psci;

/// Reset control.
const PM_RSTC: usize = 0x1c;
/// Reset status: what the firmware finds after the reset.
const PM_RSTS: usize = 0x20;
/// Watchdog: counts down to the reset.
const PM_WDOG: usize = 0x24;
/// Without it in bits 31 to 24 a write is ignored.
const PASSWORD: u32 = 0x5a << 24;
const RSTC_CONFIGURATION: u32 = 0b11 << 4;
const RSTC_FULL_RESET: u32 = 0b10 << 4;
/// The number of the partition to start from, in every second bit.
const RSTS_PARTITION: u32 = 0x555;
/// Partition 63, to the firmware: stay off.
const RSTS_HALT: u32 = 0x555;
/// Ticks of 16 us until the reset.
const WDOG_TICKS: u32 = 10;

static MANAGER: Once<Registers> = Once::new();

/// Uses the power manager of a BCM2711 from now on.
pub fn set_manager(registers: Registers) {
    MANAGER.call_once(|| registers);
}

/// Powers the machine off. Returns, at once if nothing can do that.
pub fn off() {
    if let Some(manager) = MANAGER.get() {
        reset_into(manager, RSTS_HALT);
    }
    psci::system_off();
}

/// Resets the machine. Returns, at once if nothing can do that.
pub fn reset() {
    if let Some(manager) = MANAGER.get() {
        reset_into(manager, 0);
    }
    psci::system_reset();
}

/// Lets the watchdog reset the machine, so that its firmware starts from a partition.
fn reset_into(manager: &Registers, partition: u32) {
    let status = manager.read32(PM_RSTS) & 0x00ff_ffff & !RSTS_PARTITION;
    manager.write32(PM_RSTS, PASSWORD | status | partition);
    manager.write32(PM_WDOG, PASSWORD | WDOG_TICKS);
    let control = manager.read32(PM_RSTC) & 0x00ff_ffff & !RSTC_CONFIGURATION;
    manager.write32(PM_RSTC, PASSWORD | control | RSTC_FULL_RESET);
}
