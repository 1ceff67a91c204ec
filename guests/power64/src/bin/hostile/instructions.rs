// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Words that are executed, instructions or not.

use turnstile_guests_power64::platform::platform;
use turnstile_guests_power64::random;
use turnstile_guests_power64::{cpu, crash, probe};

use crate::{Tally, is_bare, scratch, stride};

/// Instructions that would not come back, or would take from this program what it runs on.
fn is_own(word: u32) -> bool {
    let (operation, extended) = (word >> 26, word >> 1 & 0x3ff);
    let base = word >> 16 & 0x1f;
    match operation {
        // Branches, calls of the system, and what returns from interrupts.
        16..=19 => true,
        // Machine state, special-purpose registers, messages: attacks of their own. wait.
        31 => matches!(extended, 146 | 178 | 467 | 142 | 174 | 206 | 238 | 30 | 62),
        // Without a base register the address is in the first or last 32 KiB, and there this program is.
        32..=62 => base == 0,
        _ => false,
    }
}

/// Any word that is not among those. All registers but two point to memory of nobody, so loads and stores go there.
pub fn random(tally: &mut Tally) {
    if platform().end_of_memory() < 4 * scratch() {
        return;
    }
    let mut random = random::stream(60);
    for round in 0..100_000 / stride() {
        let word = match round % 3 {
            // Operation 31 with all its extended ones, and the others of that kind.
            0 => 31 << 26 | random.number() as u32 & 0x03ff_ffff,
            1 => {
                [4, 19, 30, 56, 57, 59, 60, 61, 62, 63][random.below(10) as usize] << 26
                    | random.number() as u32 & 0x03ff_ffff
            }
            _ => random.number() as u32,
        };
        if is_own(word) {
            continue;
        }
        let place = scratch() + 0x4_0000 + random.below(0x8000) * 8;
        let input = [place; 32];
        // SAFETY: the memory around the place, and around twice of it, is for this.
        tally.add(unsafe { probe::execute(&[word], &input) }.is_err());
        cpu::mask();
        if round % 1024 == 0 {
            crate::end_waits();
            cpu::take_interrupts();
        }
    }
}

/// Loads and stores of all forms with a device's address, or one behind memory: the hypervisor carries out the plain ones.
pub fn device(tally: &mut Tally) {
    if is_bare() {
        return;
    }
    let mut random = random::stream(61);
    for _ in 0..40_000 / stride() {
        let place = match (random.below(3), platform().uart) {
            (0, _) => crash::outside() + random.below(0x1_0000),
            (_, Some(uart)) => uart.base + random.below(16),
            (_, None) => crash::outside(),
        };
        // r5 is the base, r6 an index, r7 what is loaded or stored.
        let word = match random.below(2) {
            0 => (32 + random.below(31) as u32) << 26 | 7 << 21 | 5 << 16 | random.below(8) as u32,
            _ => 31 << 26 | 7 << 21 | 5 << 16 | 6 << 11 | random.below(0x800) as u32,
        };
        let mut input = probe::pattern(1);
        [input[5], input[6]] = [place, random.below(8)];
        if is_own(word) {
            continue;
        }
        // SAFETY: what it can reach is the device, addresses of nobody, and registers.
        tally.add(unsafe { probe::execute(&[word], &input) }.is_err());
        cpu::mask();
    }
}
