// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers of x87 and SSE (AMD APM vol. 1, chapters 4 and 6), by FXSAVE and FXRSTOR.

use core::arch::asm;

use super::word;

/// What FXSAVE stores (vol. 2, section 11.4.4), as words of 64 bits.
#[repr(C, align(64))]
struct Image([u64; 64]);

/// The control word, and the mask of tags, after a reset by INIT or FNINIT is not the one of a power-up; MXCSR is.
const MXCSR_RESET: u64 = 0x1f80;
const ST: usize = 4;
const XMM: usize = 20;

fn save() -> Image {
    let mut image = Image([0; 64]);
    // SAFETY: FXSAVE64 writes the 512 bytes of the image.
    unsafe { asm!("fxsave64 [{}]", in(reg) &raw mut image, options(nostack)) };
    image
}

/// Gives x87 and SSE registers values of their own.
pub fn fill(seed: u64) {
    let mut image = save();
    let Image(words) = &mut image;
    // Control word 0x37f or 0x27f, all tags valid; MXCSR with another way of rounding.
    words[0] = 0x37f | (seed & 1) << 10 | 0xff << 32;
    words[3] = MXCSR_RESET | (seed & 3) << 13 | 0xffff << 32;
    for register in 0..8 {
        // 64 bits of fraction, then sign and exponent.
        words[ST + 2 * register] = word(seed, register as u64) | 1 << 63;
        words[ST + 2 * register + 1] = 0x3fff;
    }
    for register in 0..32 {
        words[XMM + register] = word(seed, 100 + register as u64);
    }
    // SAFETY: nothing of this program is in these registers, and no bit is set that must not be.
    unsafe { asm!("fxrstor64 [{}]", in(reg) &raw const image, options(nostack)) };
}

/// Says whether they hold the values of a seed; after a reset, SSE's are zero.
pub fn holds(seed: u64) -> bool {
    let Image(words) = save();
    let vectors = (0..32).all(|register| {
        let expected = if seed == 0 { 0 } else { word(seed, 100 + register as u64) };
        words[XMM + register] == expected
    });
    if seed == 0 {
        return vectors && words[3] & 0xffff_ffff == MXCSR_RESET;
    }
    let floats = (0..8).all(|register| words[ST + 2 * register] == word(seed, register as u64) | 1 << 63);
    let control = words[0] & 0xffff == 0x37f | (seed & 1) << 10;
    vectors && floats && control && words[3] & 0xffff_ffff == MXCSR_RESET | (seed & 3) << 13
}
