// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side of a virtio function behind PCI (virtio 1.2, section 4.1). What it writes need not make sense.

pub mod attacks;
mod machine;
pub mod ring;

pub use machine::{FIRST, Machine, THIRD};

use crate::clock;

/// virtio's vendor.
pub const VENDOR: u16 = 0x1af4;
/// VIRTIO_F_VERSION_1.
pub const VERSION_1: u64 = 1 << 32;
/// No vector of MSI-X.
pub const NO_VECTOR: u16 = 0xffff;
/// How long a device may take to answer, in microseconds.
pub const PATIENCE: u64 = 5_000_000;

/// Offsets of the common configuration (section 4.1.4.3).
mod common {
    pub const DEVICE_FEATURE_SELECT: u64 = 0x00;
    pub const DEVICE_FEATURE: u64 = 0x04;
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
const VIRTIO: u8 = 9;
const MSIX: u8 = 0x11;
/// MSI-X's control: enable.
const ENABLE: u32 = 1 << 15;

/// Where the parts of a function are.
#[derive(Clone, Copy, Default)]
struct Places {
    common: u64,
    /// The first doorbell, and how far they are from each other.
    notify: u64,
    multiplier: u64,
    config: u64,
    /// The table of MSI-X, and where its capability is.
    table: u64,
    msix: u16,
}

/// A function.
pub struct Function<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Its slot.
    pub slot: u8,
    places: Places,
}

impl<'a> Function<'a> {
    /// Places the function in a slot from this address on.
    pub fn place(machine: &'a Machine, slot: u8, at: u64) -> Self {
        let bars = machine.config.place_all(slot, at);
        let read = |at, size| (machine.config.read)(slot, at, size);
        let place = |bar: u32, offset: u32| bars.get(bar as usize).map_or(0, |base| base + u64::from(offset));
        let mut places = Places::default();
        for (id, at) in machine.config.capabilities(slot) {
            let found = place(read(at + 4, 1), read(at + 8, 4));
            match (id, read(at + 3, 1)) {
                (VIRTIO, 1) => places.common = found,
                (VIRTIO, 2) => (places.notify, places.multiplier) = (found, read(at + 16, 4).into()),
                (VIRTIO, 4) => places.config = found,
                (MSIX, _) => {
                    let table = read(at + 4, 4);
                    (places.table, places.msix) = (place(table & 7, table & !7), at);
                }
                _ => {}
            }
        }
        Self { machine, slot, places }
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

    /// Reads of the device's own configuration.
    pub fn config(&self, offset: u64, size: u8) -> u64 {
        (self.machine.read)(self.places.config + offset, size)
    }

    /// The doorbell of the queue that has this number among them.
    pub fn doorbell(&self, number: u64) -> u64 {
        self.places.notify + number * self.places.multiplier
    }

    /// Resets it, and gives the first vector its message. Says whether the device agrees.
    pub fn reset(&self) -> bool {
        self.set_status(0);
        if !clock::wait(PATIENCE, || self.status() == 0) {
            return false;
        }
        self.connect();
        true
    }

    fn connect(&self) {
        let Machine { config, write, .. } = self.machine;
        let message = (self.machine.message)(self.slot);
        let Places { table, msix, .. } = self.places;
        (config.write)(self.slot, msix + 2, 2, ENABLE);
        if let Some((address, data)) = message {
            write(table, 4, address & 0xffff_ffff);
            write(table + 4, 4, address >> 32);
            write(table + 8, 4, data.into());
        }
        write(table + 12, 4, 0);
    }

    /// Begins to use it, with those of these features that it has. Returns which, if the device agrees.
    pub fn agree(&self, wanted: u64) -> Option<u64> {
        self.set_status(BEGUN);
        let mut features = 0;
        for select in [0, 1] {
            self.set_common(common::DEVICE_FEATURE_SELECT, 4, select);
            let both = self.common(common::DEVICE_FEATURE, 4) & (wanted >> (32 * select)) & 0xffff_ffff;
            self.set_common(common::DRIVER_FEATURE_SELECT, 4, select);
            self.set_common(common::DRIVER_FEATURE, 4, both);
            features |= both << (32 * select);
        }
        self.set_status(CHOSEN);
        (self.status() == CHOSEN).then_some(features)
    }

    /// Enables a queue of so many descriptors, with its three areas and its vector. Returns its doorbell.
    pub fn enable(&self, number: u16, size: u16, vector: u16, areas: [u64; 3]) -> u64 {
        self.set_common(common::QUEUE_SELECT, 2, number.into());
        self.set_common(common::QUEUE_SIZE, 2, size.into());
        self.set_common(common::QUEUE_VECTOR, 2, vector.into());
        let offsets = [common::QUEUE_DESCRIPTORS, common::QUEUE_DRIVER, common::QUEUE_DEVICE];
        for (offset, address) in offsets.into_iter().zip(areas) {
            self.set_common(offset, 4, address & 0xffff_ffff);
            self.set_common(offset + 4, 4, address >> 32);
        }
        let doorbell = self.doorbell(self.common(common::QUEUE_NOTIFY_OFFSET, 2));
        self.set_common(common::QUEUE_ENABLE, 2, 1);
        doorbell
    }

    /// The driver is ready. Says whether the device is, too.
    pub fn ready(&self) -> bool {
        self.set_status(READY);
        self.status() == READY
    }
}
