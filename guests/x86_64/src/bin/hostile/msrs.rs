// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Every model-specific register, read and written with values of all kinds, and put back.

use core::arch::asm;

use turnstile_guests_x86_64::cpu::{self, msr};
use turnstile_guests_x86_64::random::{self, Random};
use turnstile_guests_x86_64::trap;

use crate::{Tally, is_bare, stride};

/// Where registers are, or somebody's were: Intel's, hypervisors', KVM's, Transmeta's, AMD's.
const RANGES: [(u32, u32); 8] = [
    (0, 0x2000),
    (0x4000_0000, 0x4000_0200),
    (0x4b56_4d00, 0x4b56_4e00),
    (0x8086_8000, 0x8086_8020),
    (0xc000_0000, 0xc000_2000),
    (0xc001_0000, 0xc001_2000),
    (0xc002_0000, 0xc002_0100),
    (0xffff_ff00, 0xffff_ffff),
];

/// All of the ranges.
pub fn ranges(tally: &mut Tally) {
    let mut random = random::stream(1);
    for number in RANGES.into_iter().flat_map(|(first, end)| (first..end).step_by(stride())) {
        attack(tally, number, &mut random);
    }
}

/// Numbers from everywhere.
pub fn random(tally: &mut Tally) {
    let mut random = random::stream(2);
    for _ in 0..20_000 / stride() {
        let number = random.special() as u32;
        attack(tally, number, &mut random);
    }
}

/// Whether the attack would be one on this program itself.
fn is_own(number: u32) -> bool {
    match number {
        // The APIC's command: it would stop this CPU. The others have attacks of their own.
        0x830 => true,
        // Addresses that the hypervisor writes to, as `paravirtual` does with better ones.
        0x11 | 0x12 | 0x4b56_4d00..=0x4b56_4dff => true,
        // On the machine itself, values that switch off what this program runs on.
        msr::EFER | msr::APIC_BASE => is_bare(),
        0xc001_0000..=0xc001_ffff | 0x800..=0x8ff => is_bare(),
        _ => false,
    }
}

fn attack(tally: &mut Tally, number: u32, random: &mut Random) {
    let before = trap::expect(|| cpu::read_msr(number));
    tally.add(before.is_err());
    if is_own(number) {
        return;
    }
    let old = before.unwrap_or(0);
    for value in [old, random.special(), old ^ 1 << random.below(64)] {
        // No instruction between needs what the register decides: GS is put back before anybody uses it.
        let trap = trap::caught(|| {
            // SAFETY: as said.
            unsafe {
                asm!(
                    "wrmsr", "mov eax, esi", "mov edx, edi", "wrmsr",
                    in("ecx") number,
                    inout("eax") value as u32 => _, inout("edx") (value >> 32) as u32 => _,
                    in("esi") old as u32, in("edi") (old >> 32) as u32,
                    options(nostack),
                );
            }
        });
        tally.add(trap.is_some());
    }
    if number == msr::APIC_BASE {
        turnstile_guests_x86_64::apic::init();
    }
}
