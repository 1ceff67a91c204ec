// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What XSAVE covers beyond SSE: the upper halves of AVX's registers, and XCR0 (AMD APM vol. 2, section 11.5).

use core::arch::asm;

use super::word;
use crate::cpu::{self, feature};
use crate::{read_control, write_control};

const OSXSAVE: u64 = 1 << 18;
/// XCR0: x87, SSE, AVX.
const AVX: u64 = 7;

#[repr(C, align(64))]
struct Area([u64; 128]);

/// Where the upper halves of YMM0 to YMM15 are in the standard format.
const YMM: usize = 576 / 8;

/// Says whether there is AVX to be saved.
pub fn exists() -> bool {
    let [low, ..] = if cpu::has(feature::XSAVE) { cpu::cpuid(0xd, 0) } else { [0; 4] };
    let [size, offset, ..] = if cpu::has(feature::XSAVE) { cpu::cpuid(0xd, 2) } else { [0; 4] };
    u64::from(low) & AVX == AVX && size == 256 && offset == 576
}

/// Lets XSAVE be used.
pub fn enable() {
    write_control!("cr4", read_control!("cr4") | OSXSAVE);
}

/// Reads XCR0.
pub fn xcr0() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: changes two registers only; XSAVE is switched on.
    unsafe { asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes XCR0.
pub fn set_xcr0(value: u64) {
    // SAFETY: this program is compiled without what it switches; a bad value is an exception, which the caller expects.
    unsafe {
        asm!("xsetbv", in("ecx") 0, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack))
    };
}

/// Lets this CPU use all of it that Linux uses where it is there: AVX, AVX-512, protection keys.
pub fn use_all() {
    const LINUX: u64 = AVX | 7 << 5 | 1 << 9;
    enable();
    let [low, _, _, high] = cpu::cpuid(0xd, 0);
    set_xcr0((u64::from(high) << 32 | u64::from(low)) & LINUX);
}

/// Gives the upper halves values, and XCR0 that of AVX.
pub fn fill(seed: u64) {
    enable();
    set_xcr0(AVX);
    let mut area = Area([0; 128]);
    let Area(words) = &mut area;
    // XSTATE_BV: AVX alone is restored from here.
    words[64] = 4;
    for register in 0..32 {
        words[YMM + register] = word(seed, 200 + register as u64);
    }
    // SAFETY: the area is aligned, of full size and in the standard format.
    unsafe { asm!("xrstor64 [{}]", in(reg) &raw const area, in("eax") 4, in("edx") 0, options(nostack)) };
}

/// Says whether they hold the values of a seed; after a reset, XCR0 has x87 alone.
pub fn holds(seed: u64) -> bool {
    if seed == 0 {
        let on = read_control!("cr4") & OSXSAVE != 0;
        enable();
        return !on && xcr0() == 1;
    }
    let mut area = Area([0; 128]);
    // SAFETY: as above.
    unsafe { asm!("xsave64 [{}]", in(reg) &raw mut area, in("eax") 4, in("edx") 0, options(nostack)) };
    let Area(words) = area;
    xcr0() == AVX && (0..32).all(|register| words[YMM + register] == word(seed, 200 + register as u64))
}
