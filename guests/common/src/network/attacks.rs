// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a driver must not do to a network device.

use core::sync::atomic::{Ordering, fence};

use super::buffers::SIZE;
use super::driver::FEATURES;
use crate::random::Random;
use crate::virtio::attacks::{Attack, configuration, places};
use crate::virtio::ring::areas;
use crate::virtio::{FIRST, Function, Machine};

/// All attacks.
pub const ALL: [Attack; 5] = [
    ("configuration", configuration),
    ("places", places),
    ("rings", rings),
    ("doorbells", doorbells),
    ("resets", resets),
];

/// How many rings that make no sense are shown.
const RINGS: u32 = 100;
/// How often it is rung where nothing is to ring.
const BELLS: u32 = 300;
/// How often it is rung while it is reset.
const RESETS: u32 = 300;
/// Queues: those of packets, that of commands, and one that does not exist.
const QUEUES: u16 = 4;

/// Begins to use the function: all queues in memory of which nothing is known.
fn start<'a>(machine: &'a Machine, slot: u8) -> (Function<'a>, [u64; QUEUES as usize]) {
    let function = Function::place(machine, slot, machine.window.base + FIRST);
    function.reset();
    function.agree(FEATURES.bits());
    let bells = [0, 1, 2, 3].map(|number| function.enable(number, SIZE.min(64), 0, areas(machine, number)));
    function.ready();
    (function, bells)
}

/// Rings, with a number that need not be the queue's.
fn ring(machine: &Machine, bell: u64, number: u64) {
    // The rings are visible before the device looks.
    fence(Ordering::SeqCst);
    (machine.write)(bell, 2, number);
}

/// Shows it rings that make no sense, of all queues.
fn rings(machine: &Machine, slot: u8, random: &mut Random) {
    for _ in 0..RINGS {
        for number in 0..QUEUES {
            scribble(machine, areas(machine, number), random);
        }
        let (_, bells) = start(machine, slot);
        for (number, bell) in (0..).zip(bells) {
            ring(machine, bell, number);
            ring(machine, bell, number);
        }
    }
}

/// Fills the parts of a queue that the driver writes.
fn scribble(machine: &Machine, [descriptors, available, _]: [u64; 3], random: &mut Random) {
    let write = machine.write;
    for index in 0..64 {
        // Where the device may write, it finds nothing but a page of what no ring has.
        let nowhere = [!0, !0xfff, 1 << 52, machine.window.base];
        let (address, length) = match nowhere.get(random.number() as usize % 6) {
            Some(address) => (*address, random.number() & 0xffff_ffff),
            None => (machine.memory + PAGE + random.number() % 0x800, random.number() % 0x800),
        };
        let (flags, next) = (random.number() & 7, random.number() % 80);
        write(descriptors + 16 * index, 8, address);
        write(descriptors + 16 * index + 8, 8, next << 48 | flags << 32 | length);
        write(available + 4 + 2 * index, 2, random.number() % 66);
    }
    write(available + 2, 2, random.number() % 80);
}

/// The page that rings which make no sense name.
const PAGE: u64 = 0x7_f000;

/// Rings queues that are not there or have nothing, by their numbers and by others, and places beside all doorbells.
fn doorbells(machine: &Machine, slot: u8, random: &mut Random) {
    let (function, bells) = start(machine, slot);
    for round in 0..BELLS {
        let bell = bells.into_iter().nth(random.number() as usize % 6);
        let bell = bell.unwrap_or_else(|| function.doorbell(random.number() % 32));
        ring(machine, bell, random.number());
        (machine.write)(bell, 4, random.number());
        if round % 64 == 0 {
            function.set_status(0);
        }
    }
}

/// Rings while it resets it, and while it decodes nothing.
fn resets(machine: &Machine, slot: u8, random: &mut Random) {
    let (function, bells) = start(machine, slot);
    let ring_all = || (0..).zip(bells).for_each(|(number, bell)| ring(machine, bell, number));
    for _ in 0..RESETS {
        function.set_status(random.number() & 0xff);
        ring_all();
        function.set_status(0);
        ring_all();
        if random.number().is_multiple_of(8) {
            start(machine, slot);
            ring_all();
            machine.config.set_enabled(slot, false);
            machine.config.set_enabled(slot, true);
            ring_all();
        }
    }
}
