// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wall-clock time: the machine's PL031 (DDI 0224) at boot, the physical counter from then on.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::mmio::Registers;
use crate::regs;

/// Seconds since 1970 when the physical counter was zero.
static BASE: AtomicU64 = AtomicU64::new(0);

fn uptime() -> u64 {
    regs::CNTPCT_EL0.read() / regs::CNTFRQ_EL0.read().max(1)
}

/// Takes the time from the clock whose data register is at offset 0 of `rtc`.
pub fn set_from(rtc: Registers) {
    BASE.store(u64::from(rtc.read32(0)).wrapping_sub(uptime()), Ordering::Relaxed);
}

/// Seconds since 1970; since power-on, if the machine has no clock.
pub fn seconds() -> u64 {
    BASE.load(Ordering::Relaxed).wrapping_add(uptime())
}
