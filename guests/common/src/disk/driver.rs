// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of a virtio block device (virtio 1.2, section 5.2), with one request at a time.

use core::sync::atomic::{Ordering, fence};

use crate::clock;
use crate::virtio::{Function, Machine, PATIENCE, VERSION_1};

/// A block device.
pub const DEVICE: u16 = 0x1042;
/// Bytes of memory that the guest needs for what the disk reads and writes.
pub const MEMORY: u64 = 0x2_0000;
/// Bytes of a sector.
pub const SECTOR: u64 = 512;
/// What a request does.
pub const READ: u32 = 0;
/// See [`READ`].
pub const WRITE: u32 = 1;
/// Where the request's data are in [`Machine::memory`], and how many there may be.
pub const DATA: u64 = 0x1000;
/// See [`DATA`].
pub const MOST: u64 = 0x4000;
/// Where the parts of the ring are in [`Machine::memory`], and header and status of the request.
pub const RING: u64 = 0;
/// See [`RING`].
pub const AVAILABLE: u64 = 0x400;
const USED: u64 = 0x800;
const HEADER: u64 = 0xc00;
const STATUS: u64 = 0xc10;
/// Descriptors of the ring.
pub const SIZE: u16 = 16;

/// A disk.
pub struct Disk<'a> {
    /// What it is for PCI.
    pub function: Function<'a>,
    /// Where it is rung.
    doorbell: u64,
    /// How many requests it has had.
    requests: u16,
}

impl<'a> Disk<'a> {
    /// Places the function in a slot from this address on.
    pub fn place(machine: &'a Machine, slot: u8, at: u64) -> Self {
        let function = Function::place(machine, slot, at);
        let doorbell = function.doorbell(0);
        Self { function, doorbell, requests: 0 }
    }

    /// The machine.
    pub fn machine(&self) -> &'a Machine {
        self.function.machine
    }

    /// How many bytes it has.
    pub fn capacity(&self) -> u64 {
        self.function.config(0, 8) * SECTOR
    }

    /// Resets it and begins to use it: the first queue, with the first vector. Says whether the device agrees.
    pub fn start(&mut self) -> bool {
        if !self.function.reset() {
            return false;
        }
        (0..DATA).step_by(8).for_each(|at| self.store(at, 8, 0));
        self.requests = 0;
        if self.function.agree(VERSION_1).is_none() {
            return false;
        }
        let areas = [RING, AVAILABLE, USED].map(|part| self.machine().memory + part);
        self.doorbell = self.function.enable(0, SIZE, 0, areas);
        self.function.ready()
    }

    fn store(&self, at: u64, size: u8, value: u64) {
        (self.machine().write)(self.machine().memory + at, size, value);
    }

    fn load(&self, at: u64, size: u8) -> u64 {
        (self.machine().read)(self.machine().memory + at, size)
    }

    /// Writes a descriptor; what it says need not make sense.
    pub fn describe(&self, index: u64, address: u64, length: u32, flags: u16, next: u16) {
        self.store(RING + 16 * index, 8, address);
        self.store(
            RING + 16 * index + 8,
            8,
            u64::from(next) << 48 | u64::from(flags) << 32 | u64::from(length),
        );
    }

    /// Rings.
    pub fn ring(&self) {
        // The ring is visible before the device looks.
        fence(Ordering::SeqCst);
        (self.machine().write)(self.doorbell, 2, 0);
    }

    /// Has it read or write sectors, from or to [`DATA`], and waits for its interrupt. Says whether it was done.
    pub fn request(&mut self, kind: u32, sector: u64, bytes: u64) -> bool {
        self.request_at(self.machine().memory + DATA, kind, sector, bytes)
    }

    /// The same from or to this address.
    pub fn request_at(&mut self, data: u64, kind: u32, sector: u64, bytes: u64) -> bool {
        let [next, writable] = [1, 2];
        let before = (self.machine().interrupts)();
        self.store(HEADER, 8, kind.into());
        self.store(HEADER + 8, 8, sector);
        self.store(STATUS, 1, 0xff);
        let of_data = next | if kind == READ { writable } else { 0 };
        self.describe(0, self.machine().memory + HEADER, 16, next, 1);
        self.describe(1, data, bytes.min(MOST) as u32, of_data, 2);
        self.describe(2, self.machine().memory + STATUS, 1, writable, 0);
        self.store(AVAILABLE + 4 + 2 * u64::from(self.requests % SIZE), 2, 0);
        self.requests = self.requests.wrapping_add(1);
        fence(Ordering::SeqCst);
        self.store(AVAILABLE + 2, 2, self.requests.into());
        self.ring();
        let done = clock::wait(PATIENCE, || (self.machine().interrupts)() != before);
        fence(Ordering::SeqCst);
        done && self.load(USED + 2, 2) == self.requests.into() && self.load(STATUS, 1) == 0
    }
}
