// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every leaf of CPUID.

use turnstile_guests_x86_64::{cpu, println, random, trap};

use crate::{Tally, stride};

/// All leaves where some may be, with all small subleaves, and others anywhere.
pub fn all(tally: &mut Tally) {
    let ranges = [
        (0, 0x80),
        (0x2000_0000, 0x2000_0010),
        (0x4000_0000, 0x4000_0120),
        (0x8000_0000, 0x8000_0080),
        (0x8fff_fff0, 0x9000_0000),
        (0xc000_0000, 0xc000_0010),
        (0xffff_fff0, 0xffff_ffff),
    ];
    let mut random = random::stream(3);
    let mut attack = |leaf: u32, subleaf: u32| {
        let answer = trap::expect(|| cpu::cpuid(leaf, subleaf));
        tally.add(answer.is_err());
        if answer.is_err() {
            println!("@error CPUID {leaf:#x}.{subleaf:#x} is an exception");
        }
    };
    for leaf in ranges.into_iter().flat_map(|(first, end)| (first..end).step_by(stride())) {
        (0..40).for_each(|subleaf| attack(leaf, subleaf));
        attack(leaf, u32::MAX);
    }
    for _ in 0..20_000 / stride() {
        attack(random.special() as u32, random.special() as u32);
    }
}
