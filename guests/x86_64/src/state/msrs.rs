// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-specific registers that only this program writes, and that a hypervisor may leave in the CPU.

use super::word;
use crate::cpu::{self, msr};

/// Which, the bits that hold a value, and the value after a reset.
const REGISTERS: [(u32, u64, u64); 9] = [
    // STAR, LSTAR, CSTAR, SFMASK.
    (0xc000_0081, !0, 0),
    (0xc000_0082, 0x7fff_ffff_ffff, 0),
    (0xc000_0083, 0x7fff_ffff_ffff, 0),
    (0xc000_0084, 0xffff_ffff, 0),
    (msr::FS_BASE, 0x7fff_ffff_ffff, 0),
    (msr::KERNEL_GS_BASE, 0x7fff_ffff_ffff, 0),
    // SYSENTER_CS, _ESP, _EIP.
    (0x174, 0xffff, 0),
    (0x175, 0x7fff_ffff, 0),
    (0x176, 0x7fff_ffff, 0),
];
/// The attributes of memory after a reset.
const PAT_RESET: u64 = 0x0007_0406_0007_0406;

/// Gives them values.
pub fn fill(seed: u64) {
    for (register, (number, mask, _)) in (0..).zip(REGISTERS) {
        cpu::write_msr(number, word(seed, 400 + register) & mask);
    }
    cpu::write_msr(msr::PAT, pat(seed));
}

/// An attribute for the last of the eight kinds, which no page of this program has.
fn pat(seed: u64) -> u64 {
    PAT_RESET & !(0xff << 56) | [0, 1, 4, 5, 6, 7][seed as usize % 6] << 56
}

/// Says whether they hold the values of a seed.
pub fn holds(seed: u64) -> bool {
    let all = (0..).zip(REGISTERS).all(|(register, (number, mask, reset))| {
        let expected = if seed == 0 { reset } else { word(seed, 400 + register) & mask };
        cpu::read_msr(number) == expected
    });
    all && cpu::read_msr(msr::PAT) == if seed == 0 { PAT_RESET } else { pat(seed) }
}
