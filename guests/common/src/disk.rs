// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that drives a disk: finds the function, places it, writes and reads, and has each request answered by one interrupt. In its
//! first life it attacks the device, too, and then leaves behind what the second one must not find; the disk says which life it is.
//! With `row=` it measures instead.

mod attacks;
mod driver;
mod rows;

use core::fmt::Write;

use crate::random::{self, Random};
use crate::virtio::{FIRST, Machine, THIRD, VENDOR};
use crate::{options, row};
use driver::{DATA, DEVICE, Disk, MOST, READ, SECTOR, WRITE};

pub use driver::MEMORY;

/// Where BARs are left for the next life, in the window.
const SECOND: u64 = 0x20_0000;
/// How many pieces are written, and how far they are from each other, in sectors.
const PIECES: u64 = 24;
const STRIDE: u64 = 100;
/// In the first piece: there was a life before. What follows is the configuration space that it has found.
const MARK: u64 = 0x6c69_6665_2d6f_6e65;
const HEADER: u64 = 64;
/// Where it is written what is read from memory that nobody has touched: between the last pieces.
const UNTOUCHED: u64 = (PIECES - 1) * STRIDE + STRIDE / 2;
/// Bytes of memory that a hypervisor may map at once, at its first touch.
const BLOCK: u64 = 2 << 20;

/// Does it all; returns whether the machine is to be reset for the second life.
pub fn run(console: &mut impl Write, machine: &Machine) -> bool {
    if let Some(row) = options::get("row") {
        row::end(console, rows::measure(machine, row));
        return false;
    }
    let mut run = Run { failed: 0, random: random::stream(0) };
    let mut slots = machine.config.find(VENDOR, DEVICE);
    let Some(slot) = slots.next() else {
        let _ = writeln!(console, "@error there is no disk");
        return false;
    };
    let mut other = slots.next().map(|other| Disk::place(machine, other, machine.window.base + THIRD));
    let first = run.life(console, machine, slot, &mut other);
    if first && run.failed == 0 {
        // Left for the next life: another one's place, a queue that runs, a vector with a message.
        let _ = Disk::place(machine, slot, machine.window.base + SECOND).start();
        let _ = writeln!(console, "@disk first life ends");
        return true;
    }
    let _ = writeln!(console, "@done disk failed={}", run.failed);
    false
}

struct Run {
    failed: u32,
    random: Random,
}

impl Run {
    fn that(&mut self, console: &mut impl Write, right: bool, what: &str) {
        if !right {
            self.failed += 1;
            let _ = writeln!(console, "@error wrong: {what}");
        }
    }

    /// Returns whether it is the first one.
    fn life(
        &mut self,
        console: &mut impl Write,
        machine: &Machine,
        slot: u8,
        other: &mut Option<Disk<'_>>,
    ) -> bool {
        let found: [u32; HEADER as usize / 4] =
            core::array::from_fn(|word| (machine.config.read)(slot, 4 * word as u16, 4));
        let mut disk = Disk::place(machine, slot, machine.window.base + FIRST);
        self.that(console, disk.function.is_new(), "the device was used");
        let right = disk.capacity() > PIECES * STRIDE * SECTOR;
        self.that(console, right, "the size");
        let right = disk.start() && disk.request(READ, 0, SECTOR);
        self.that(console, right, "the first request");
        let word = |at| (machine.read)(machine.memory + DATA + at, 8);
        let first = word(0) != MARK;
        let _ = writeln!(console, "@boot disk first={first} bytes={}", disk.capacity());
        if first {
            self.attack(console, machine, slot, other);
            disk = Disk::place(machine, slot, machine.window.base + FIRST);
            let right = disk.start();
            self.that(console, right, "a start after all attacks");
            self.pieces(console, &mut disk, WRITE);
            (machine.write)(machine.memory + DATA, 8, MARK);
            for (at, value) in (DATA + 8..).step_by(4).zip(found) {
                (machine.write)(machine.memory + at, 4, value.into());
            }
            let right = disk.request(WRITE, 0, SECTOR);
            self.that(console, right, "the mark");
        } else {
            let same = (8..).step_by(4).zip(found);
            let same = same
                .into_iter()
                .all(|(at, value)| (machine.read)(machine.memory + DATA + at, 4) == u64::from(value));
            self.that(console, same, "the configuration space is not as it was at first");
        }
        self.pieces(console, &mut disk, READ);
        self.untouched(console, &mut disk);
        first
    }

    /// Has the disk be the first that reads and writes some memory: it is zero, whatever the life before has left there, and what the disk
    /// writes stays.
    fn untouched(&mut self, console: &mut impl Write, disk: &mut Disk<'_>) {
        let machine = disk.machine();
        let block = |number| (machine.memory & !(BLOCK - 1)) + number * BLOCK;
        let words = || (0..MOST).step_by(8);
        let write = |place: u64, value: fn(u64) -> u64| {
            words().for_each(|at| (machine.write)(place + at, 8, value(at)));
        };
        let is =
            |place: u64, value: fn(u64) -> u64| words().all(|at| (machine.read)(place + at, 8) == value(at));
        let data = machine.memory + DATA;
        write(data, |at| !at);
        let right = disk.request_at(block(2), WRITE, UNTOUCHED, MOST)
            && disk.request(READ, UNTOUCHED, MOST)
            && is(data, |_| 0);
        self.that(console, right, "memory that the disk has read first");
        write(data, |at| !at);
        // Some of it before a block's end, and the rest behind.
        let place = block(4) - SECTOR;
        let right = disk.request(WRITE, UNTOUCHED, MOST)
            && disk.request_at(place, READ, UNTOUCHED, MOST)
            && is(place, |at| !at)
            && is(place - MOST, |_| 0)
            && is(place + MOST, |_| 0);
        self.that(console, right, "memory that the disk has written first");
        // What the next life must not find.
        [block(2), place - MOST, place + MOST].into_iter().for_each(|place| write(place, |_| MARK));
    }

    /// Writes or reads all pieces; each has an interrupt of its own.
    fn pieces(&mut self, console: &mut impl Write, disk: &mut Disk<'_>, kind: u32) {
        let machine = disk.machine();
        let before = (machine.interrupts)();
        for piece in 1..PIECES {
            let bytes = (piece * SECTOR).min(MOST);
            let places = || (0..bytes).step_by(8).map(|at| (machine.memory + DATA + at, piece << 32 | at));
            places().for_each(|(at, value)| (machine.write)(at, 8, if kind == WRITE { value } else { 0 }));
            let done = disk.request(kind, piece * STRIDE, bytes);
            let right = done && places().all(|(at, value)| (machine.read)(at, 8) == value);
            self.that(console, right, "what a piece says");
        }
        let count = u64::from((machine.interrupts)().wrapping_sub(before));
        self.that(console, count == PIECES - 1, "the number of interrupts");
    }

    /// Does all attacks; after each the device works, and the other one where it was.
    fn attack(
        &mut self,
        console: &mut impl Write,
        machine: &Machine,
        slot: u8,
        other: &mut Option<Disk<'_>>,
    ) {
        for (name, attack) in attacks::ALL {
            let _ = writeln!(console, "@attack {name}");
            attack(machine, slot, &mut self.random);
            let mut disk = Disk::place(machine, slot, machine.window.base + FIRST);
            let right = disk.start() && disk.request(READ, STRIDE, SECTOR);
            // They have the ring in common: one at a time.
            let beside = |other: &mut Disk<'_>| {
                other.start() && other.request(READ, STRIDE, SECTOR) && other.function.reset()
            };
            let right = right && disk.function.reset() && other.as_mut().is_none_or(beside);
            self.that(console, right, name);
        }
    }
}
