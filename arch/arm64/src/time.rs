// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Wall-clock time: the machine's PL031 (DDI 0224) at boot, the physical counter from then on. And deadlines of
//! the hypervisor's own, by the EL2 physical timer of the CPU that sets them.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::mmio::Registers;
use crate::regs;

/// Seconds since 1970 when the physical counter was zero.
static BASE: AtomicU64 = AtomicU64::new(0);

/// The physical counter.
pub fn ticks() -> u64 {
    regs::CNTPCT_EL0.read()
}

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

/// Lets [`crate::Monitor::deadline`] be called on this CPU in `seconds`, unless an earlier deadline is set.
pub fn set_deadline(seconds: u64) {
    let ticks = seconds.saturating_mul(regs::CNTFRQ_EL0.read());
    let at = regs::CNTPCT_EL0.read().saturating_add(ticks);
    let set = regs::CNTHP_CTL_EL2.read() & 1 != 0;
    if set && regs::CNTHP_CVAL_EL2.read() <= at {
        return;
    }
    // SAFETY: the hypervisor's own timer; its interrupt is masked while EL2 runs.
    unsafe {
        regs::CNTHP_CVAL_EL2.write(at);
        regs::CNTHP_CTL_EL2.write(1);
    }
    crate::cpu::isb();
}

/// Ends the deadline that has passed, so that its interrupt line falls.
pub(crate) fn end_deadline() {
    // SAFETY: as above.
    unsafe { regs::CNTHP_CTL_EL2.write(0) };
    crate::cpu::isb();
}
