// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a driver must not do to a disk.

use super::driver::{AVAILABLE, DATA, Disk, READ, SIZE};
use crate::random::Random;
use crate::virtio::attacks::{Attack, configuration, places};
use crate::virtio::{FIRST, Machine};

/// How many rings that make no sense are shown.
const RINGS: u32 = 100;
/// How often it is rung while it is reset.
const RESETS: u64 = 300;

/// All attacks.
pub const ALL: [Attack; 4] =
    [("configuration", configuration), ("places", places), ("rings", rings), ("resets", resets)];

/// Shows it rings that make no sense.
fn rings(machine: &Machine, slot: u8, random: &mut Random) {
    let mut disk = Disk::place(machine, slot, machine.window.base + FIRST);
    for _ in 0..RINGS {
        if !disk.start() {
            return;
        }
        for index in 0..u64::from(SIZE) {
            // Where it may write, it finds nothing but the page of the data.
            let nowhere = [!0, !0xfff, 1 << 52, machine.window.base];
            let place = nowhere.get(random.number() as usize % 6).copied();
            let (address, length) = match place {
                Some(address) => (address, random.number() as u32),
                None => (machine.memory + DATA + random.number() % 0x800, random.number() as u32 % 0x800),
            };
            disk.describe(index, address, length, random.number() as u16 & 7, random.number() as u16 % 20);
            let entry = machine.memory + AVAILABLE + 4 + 2 * index;
            (machine.write)(entry, 2, random.number() % 18);
        }
        (machine.write)(machine.memory + AVAILABLE + 2, 2, random.number() % 40);
        disk.ring();
        disk.ring();
    }
}

/// Rings while it resets it.
fn resets(machine: &Machine, slot: u8, random: &mut Random) {
    let mut disk = Disk::place(machine, slot, machine.window.base + FIRST);
    for _ in 0..RESETS {
        disk.function.set_status(random.number() & 0xff);
        disk.ring();
        disk.function.set_status(0);
        disk.ring();
        if random.number().is_multiple_of(8) && disk.start() {
            disk.request(READ, 0, 512);
            machine.config.set_enabled(slot, false);
            machine.config.set_enabled(slot, true);
            disk.ring();
        }
    }
}
