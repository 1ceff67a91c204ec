// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The debug registers (AMD APM vol. 2, section 13.1).

use core::arch::asm;

use super::word;
use crate::trap::{self, Trap};
use crate::{read_control, write_control};

/// DR7 after a reset.
const DR7_RESET: u64 = 0x400;
const DR6_RESET: u64 = 0xffff_0ff0;

/// Gives DR0 to DR3 addresses that nobody executes, and DR7 bits that enable none.
pub fn fill(seed: u64) {
    // Canonical addresses of the lower half.
    let address = |register: u64| word(seed, 300 + register) & 0x7fff_ffff_ffff;
    write_control!("dr7", DR7_RESET);
    write_control!("dr0", address(0));
    write_control!("dr1", address(1));
    write_control!("dr2", address(2));
    write_control!("dr3", address(3));
    write_control!("dr7", DR7_RESET | lengths(seed));
}

/// Kinds and lengths of breakpoints that are not enabled.
fn lengths(seed: u64) -> u64 {
    (seed & 3) << 16 | (seed >> 2 & 1) << 18
}

/// Says whether they hold the values of a seed.
pub fn holds(seed: u64) -> bool {
    let address = |register: u64| word(seed, 300 + register) & 0x7fff_ffff_ffff;
    let found = [read_control!("dr0"), read_control!("dr1"), read_control!("dr2"), read_control!("dr3")];
    let status = seed != 0 || read_control!("dr6") == DR6_RESET;
    status && found == [0, 1, 2, 3].map(address) && read_control!("dr7") == DR7_RESET | lengths(seed)
}

/// Watches writes of four bytes to an address with DR0.
pub fn watch(address: u64) {
    write_control!("dr7", DR7_RESET);
    write_control!("dr0", address);
    write_control!("dr6", DR6_RESET);
    // L0, R/W0 = write, LEN0 = 4.
    write_control!("dr7", DR7_RESET | 1 | 1 << 16 | 3 << 18);
}

/// Watches nothing.
pub fn unwatch() {
    write_control!("dr7", DR7_RESET);
}

/// Writes to an address; returns the debug exception.
pub fn touch(address: u64) -> Option<Trap> {
    trap::caught(|| {
        // SAFETY: the caller's own variable, which keeps its value.
        unsafe {
            asm!("mov {v:e}, [{a}]", "mov [{a}], {v:e}", a = in(reg) address, v = out(reg) _, options(nostack))
        };
    })
}
