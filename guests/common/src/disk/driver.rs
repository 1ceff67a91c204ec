// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of a virtio block device behind PCI (virtio 1.2, sections 4.1 and 5.2), with one request at a time.

use core::sync::atomic::{Ordering, fence};

use super::machine::Machine;
use crate::clock;

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
/// How long a request may take, in microseconds.
const PATIENCE: u64 = 5_000_000;

/// Offsets of the common configuration (section 4.1.4.3).
mod common {
    pub const DRIVER_FEATURE_SELECT: u64 = 0x08;
    pub const DRIVER_FEATURE: u64 = 0x0c;
    pub const STATUS: u64 = 0x14;
    pub const QUEUE_SELECT: u64 = 0x16;
    pub const QUEUE_SIZE: u64 = 0x18;
    pub const QUEUE_VECTOR: u64 = 0x1a;
    pub const QUEUE_ENABLE: u64 = 0x1c;
    pub const QUEUE_NOTIFY_OFFSET: u64 = 0x1e;
    pub const QUEUE_DESCRIPTORS: u64 = 0x20;
    pub const QUEUE_DRIVER: u64 = 0x28;
    pub const QUEUE_DEVICE: u64 = 0x30;
}

/// Bits of the device's status: acknowledged, driver; these and features chosen; all that, and the driver is ready.
const BEGUN: u64 = 3;
const CHOSEN: u64 = 11;
const READY: u64 = 15;
/// Identifiers of capabilities.
const VENDOR: u8 = 9;
const MSIX: u8 = 0x11;
/// MSI-X's control: enable.
const ENABLE: u32 = 1 << 15;

/// Where the parts of a device are.
#[derive(Clone, Copy, Default)]
pub struct Places {
    /// The common configuration.
    pub common: u64,
    /// The first doorbell, and how far they are from each other.
    pub notify: u64,
    multiplier: u64,
    /// The configuration.
    pub config: u64,
    /// The table of MSI-X, and where its capability is.
    pub table: u64,
    /// See [`Places::table`].
    pub msix: u16,
}

/// A disk.
pub struct Disk<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Where its parts are.
    pub places: Places,
    /// Where it is rung.
    pub doorbell: u64,
    slot: u8,
    /// How many requests it has had.
    requests: u16,
}

impl<'a> Disk<'a> {
    /// Places the function in a slot from this address on.
    pub fn place(machine: &'a Machine, slot: u8, at: u64) -> Self {
        let bars = machine.config.place_all(slot, at);
        let read = |at, size| (machine.config.read)(slot, at, size);
        let place = |bar: u32, offset: u32| bars.get(bar as usize).map_or(0, |base| base + u64::from(offset));
        let mut places = Places::default();
        for (id, at) in machine.config.capabilities(slot) {
            let found = place(read(at + 4, 1), read(at + 8, 4));
            match (id, read(at + 3, 1)) {
                (VENDOR, 1) => places.common = found,
                (VENDOR, 2) => (places.notify, places.multiplier) = (found, read(at + 16, 4).into()),
                (VENDOR, 4) => places.config = found,
                (MSIX, _) => {
                    let table = read(at + 4, 4);
                    (places.table, places.msix) = (place(table & 7, table & !7), at);
                }
                _ => {}
            }
        }
        Self { machine, places, doorbell: places.notify, slot, requests: 0 }
    }

    fn common(&self, offset: u64, size: u8) -> u64 {
        (self.machine.read)(self.places.common + offset, size)
    }

    fn set_common(&self, offset: u64, size: u8, value: u64) {
        (self.machine.write)(self.places.common + offset, size, value);
    }

    /// The device's status.
    pub fn status(&self) -> u64 {
        self.common(common::STATUS, 1)
    }

    /// Sets the device's status.
    pub fn set_status(&self, status: u64) {
        self.set_common(common::STATUS, 1, status);
    }

    /// Says whether nobody has used the device since it was reset.
    pub fn is_new(&self) -> bool {
        let vector = |offset| (self.machine.read)(self.places.table + offset, 4);
        let enabled = (self.machine.config.read)(self.slot, self.places.msix + 2, 2) & ENABLE;
        let queue = self.common(common::QUEUE_ENABLE, 2) | self.common(common::QUEUE_DESCRIPTORS, 4);
        self.status() == 0 && queue == 0 && enabled == 0 && [0, 4, 8, 12].map(vector) == [0, 0, 0, 1]
    }

    /// How many bytes it has.
    pub fn capacity(&self) -> u64 {
        (self.machine.read)(self.places.config, 8) * SECTOR
    }

    /// Resets it and begins to use it: the first queue, with the first vector. Says whether the device agrees.
    pub fn start(&mut self) -> bool {
        self.set_status(0);
        if !clock::wait(PATIENCE, || self.status() == 0) {
            return false;
        }
        self.connect();
        (0..DATA).step_by(8).for_each(|at| self.store(at, 8, 0));
        self.requests = 0;
        self.set_status(BEGUN);
        // Features 32 and up: VIRTIO_F_VERSION_1 alone.
        for (select, features) in [(0, 0), (1, 1)] {
            self.set_common(common::DRIVER_FEATURE_SELECT, 4, select);
            self.set_common(common::DRIVER_FEATURE, 4, features);
        }
        self.set_status(CHOSEN);
        if self.status() != CHOSEN {
            return false;
        }
        self.set_common(common::QUEUE_SELECT, 2, 0);
        self.set_common(common::QUEUE_SIZE, 2, SIZE.into());
        self.set_common(common::QUEUE_VECTOR, 2, 0);
        let parts = [
            (common::QUEUE_DESCRIPTORS, RING),
            (common::QUEUE_DRIVER, AVAILABLE),
            (common::QUEUE_DEVICE, USED),
        ];
        for (offset, part) in parts {
            let address = self.machine.memory + part;
            self.set_common(offset, 4, address & 0xffff_ffff);
            self.set_common(offset + 4, 4, address >> 32);
        }
        self.doorbell =
            self.places.notify + self.common(common::QUEUE_NOTIFY_OFFSET, 2) * self.places.multiplier;
        self.set_common(common::QUEUE_ENABLE, 2, 1);
        self.set_status(READY);
        self.status() == READY
    }

    /// Gives the first vector its message.
    fn connect(&self) {
        let Machine { config, write, .. } = self.machine;
        let (address, data) = (self.machine.message)();
        let Places { table, msix, .. } = self.places;
        (config.write)(self.slot, msix + 2, 2, ENABLE);
        write(table, 4, address & 0xffff_ffff);
        write(table + 4, 4, address >> 32);
        write(table + 8, 4, data.into());
        write(table + 12, 4, 0);
    }

    fn store(&self, at: u64, size: u8, value: u64) {
        (self.machine.write)(self.machine.memory + at, size, value);
    }

    fn load(&self, at: u64, size: u8) -> u64 {
        (self.machine.read)(self.machine.memory + at, size)
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
        (self.machine.write)(self.doorbell, 2, 0);
    }

    /// Has it read or write sectors, from or to [`DATA`], and waits for its interrupt. Says whether it was done.
    pub fn request(&mut self, kind: u32, sector: u64, bytes: u64) -> bool {
        let [next, writable] = [1, 2];
        let before = (self.machine.interrupts)();
        self.store(HEADER, 8, kind.into());
        self.store(HEADER + 8, 8, sector);
        self.store(STATUS, 1, 0xff);
        let of_data = next | if kind == READ { writable } else { 0 };
        self.describe(0, self.machine.memory + HEADER, 16, next, 1);
        self.describe(1, self.machine.memory + DATA, bytes.min(MOST) as u32, of_data, 2);
        self.describe(2, self.machine.memory + STATUS, 1, writable, 0);
        self.store(AVAILABLE + 4 + 2 * u64::from(self.requests % SIZE), 2, 0);
        self.requests = self.requests.wrapping_add(1);
        fence(Ordering::SeqCst);
        self.store(AVAILABLE + 2, 2, self.requests.into());
        self.ring();
        let done = clock::wait(PATIENCE, || (self.machine.interrupts)() != before);
        fence(Ordering::SeqCst);
        done && self.load(USED + 2, 2) == self.requests.into() && self.load(STATUS, 1) == 0
    }
}
