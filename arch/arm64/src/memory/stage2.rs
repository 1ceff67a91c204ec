// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How stage 2 walks its tables.

use turnstile_paging::Stage2;

use crate::cpu::regs;

/// Returns VTCR_EL2 for tables of this format.
pub(super) fn control(format: &Stage2) -> u64 {
    let parange = (regs::ID_AA64MMFR0_EL1.read() & 0xf).min(5);
    // RES1, PS, TG0 = 4 KiB, SH0 = inner, ORGN0 = IRGN0 = write-back (Arm ARM D24.2.203).
    1 << 31 | parange << 16 | 0b11 << 12 | 0b01 << 10 | 0b01 << 8 | format.sl0() << 6 | format.t0sz()
}
