// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side of a virtio device behind PCI or MMIO (virtio 1.2, sections 4.1 and 4.2). What it writes need not make sense.

pub mod attacks;
mod machine;
pub mod ring;
#[cfg(test)]
pub mod silent;

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

/// A register: its offset, and its bytes.
type Register = (u64, u8);

/// Where the registers are that both transports have.
struct Registers {
    device_select: Register,
    device_features: Register,
    driver_select: Register,
    driver_features: Register,
    status: Register,
    queue_select: Register,
    queue_size: Register,
    queue_enable: Register,
    /// The lower halves of a queue's three addresses, each of 4 bytes; the upper ones follow.
    areas: [u64; 3],
}

/// Those of the common configuration (section 4.1.4.3).
static PCI: Registers = Registers {
    device_select: (0x00, 4),
    device_features: (0x04, 4),
    driver_select: (0x08, 4),
    driver_features: (0x0c, 4),
    status: (0x14, 1),
    queue_select: (0x16, 2),
    queue_size: (0x18, 2),
    queue_enable: (0x1c, 2),
    areas: [0x20, 0x28, 0x30],
};
/// Those that PCI alone has.
const QUEUE_VECTOR: Register = (0x1a, 2);
const QUEUE_NOTIFY_OFFSET: Register = (0x1e, 2);

/// Those behind MMIO (section 4.2.2).
static MMIO: Registers = Registers {
    device_select: (0x14, 4),
    device_features: (0x10, 4),
    driver_select: (0x24, 4),
    driver_features: (0x20, 4),
    status: (0x70, 4),
    queue_select: (0x30, 4),
    queue_size: (0x38, 4),
    queue_enable: (0x44, 4),
    areas: [0x80, 0x90, 0xa0],
};
/// Those that MMIO alone has.
const DEVICE_ID: u64 = 0x08;
const NOTIFY: u64 = 0x50;
const INTERRUPT_STATUS: u64 = 0x60;
const INTERRUPT_ACK: u64 = 0x64;
const CONFIG: u64 = 0x100;
/// What a device's type is added to for the identifier of its function.
const FUNCTION: u16 = 0x1040;

/// Bits of the device's status: acknowledged, driver; these and features chosen; all that, and the driver is ready.
const BEGUN: u64 = 3;
const CHOSEN: u64 = 11;
const READY: u64 = 15;
/// Identifiers of capabilities.
const VIRTIO: u8 = 9;
const MSIX: u8 = 0x11;
/// MSI-X's control: enable.
const ENABLE: u32 = 1 << 15;

/// Where the parts of a device are.
struct Places {
    registers: &'static Registers,
    common: u64,
    /// The first doorbell, and how far they are from each other.
    notify: u64,
    multiplier: u64,
    config: u64,
    /// The table of MSI-X, and where its capability is.
    table: u64,
    msix: u16,
}

impl Places {
    /// Those of a function about which nothing is known yet.
    const PCI: Self =
        Self { registers: &PCI, common: 0, notify: 0, multiplier: 0, config: 0, table: 0, msix: 0 };
}

/// A function, or a device behind MMIO.
pub struct Function<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// Its slot.
    pub slot: u8,
    places: Places,
}

impl<'a> Function<'a> {
    /// Returns the first device of this type, behind MMIO if the machine has such devices.
    pub fn find(machine: &'a Machine, kind: u16) -> Option<Self> {
        let Some(base) = machine.mmio else {
            let slot = machine.config.find(VENDOR, FUNCTION + kind).next()?;
            return Some(Self::place(machine, slot, machine.window.base + FIRST));
        };
        let (notify, config) = (base + NOTIFY, base + CONFIG);
        let places = Places { registers: &MMIO, common: base, notify, config, ..Places::PCI };
        ((machine.read)(base + DEVICE_ID, 4) == kind.into()).then_some(Self { machine, slot: 0, places })
    }

    /// Places the function in a slot from this address on.
    pub fn place(machine: &'a Machine, slot: u8, at: u64) -> Self {
        let bars = machine.config.place_all(slot, at);
        let read = |at, size| (machine.config.read)(slot, at, size);
        let place = |bar: u32, offset: u32| bars.get(bar as usize).map_or(0, |base| base + u64::from(offset));
        let mut places = Places::PCI;
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

    fn is_behind_mmio(&self) -> bool {
        self.machine.mmio.is_some()
    }

    fn common(&self, (offset, size): Register) -> u64 {
        (self.machine.read)(self.places.common + offset, size)
    }

    fn set_common(&self, (offset, size): Register, value: u64) {
        (self.machine.write)(self.places.common + offset, size, value);
    }

    /// The device's status.
    pub fn status(&self) -> u64 {
        self.common(self.places.registers.status)
    }

    /// Sets the device's status.
    pub fn set_status(&self, status: u64) {
        self.set_common(self.places.registers.status, status);
    }

    /// Says whether nobody has used the device since it was reset.
    pub fn is_new(&self) -> bool {
        let vector = |offset| (self.machine.read)(self.places.table + offset, 4);
        let enabled = (self.machine.config.read)(self.slot, self.places.msix + 2, 2) & ENABLE;
        let queue = self.common(PCI.queue_enable) | self.common((PCI.areas[0], 4));
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

    /// How many bytes are written to a doorbell.
    pub fn bell(&self) -> u8 {
        if self.is_behind_mmio() { 4 } else { 2 }
    }

    /// Resets it, and gives the first vector its message. Says whether the device agrees.
    pub fn reset(&self) -> bool {
        self.set_status(0);
        if !clock::wait(PATIENCE, || self.status() == 0) {
            return false;
        }
        if !self.is_behind_mmio() {
            self.connect();
        }
        true
    }

    /// Tells a device behind MMIO that its interrupt has been seen, as Linux does; messages need nothing.
    pub fn acknowledge(&self) {
        if self.is_behind_mmio() {
            let reasons = self.common((INTERRUPT_STATUS, 4));
            self.set_common((INTERRUPT_ACK, 4), reasons);
        }
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
        let registers = self.places.registers;
        self.set_status(BEGUN);
        let mut features = 0;
        for select in [0, 1] {
            self.set_common(registers.device_select, select);
            let both = self.common(registers.device_features) & (wanted >> (32 * select)) & 0xffff_ffff;
            self.set_common(registers.driver_select, select);
            self.set_common(registers.driver_features, both);
            features |= both << (32 * select);
        }
        self.set_status(CHOSEN);
        (self.status() == CHOSEN).then_some(features)
    }

    /// Enables a queue of so many descriptors, with its three areas and, behind PCI, its vector. Returns its doorbell.
    pub fn enable(&self, number: u16, size: u16, vector: u16, areas: [u64; 3]) -> u64 {
        let registers = self.places.registers;
        self.set_common(registers.queue_select, number.into());
        self.set_common(registers.queue_size, size.into());
        if !self.is_behind_mmio() {
            self.set_common(QUEUE_VECTOR, vector.into());
        }
        for (offset, address) in registers.areas.into_iter().zip(areas) {
            self.set_common((offset, 4), address & 0xffff_ffff);
            self.set_common((offset + 4, 4), address >> 32);
        }
        let doorbell = match self.is_behind_mmio() {
            true => self.doorbell(0),
            false => self.doorbell(self.common(QUEUE_NOTIFY_OFFSET)),
        };
        self.set_common(registers.queue_enable, 1);
        doorbell
    }

    /// The driver is ready. Says whether the device is, too.
    pub fn ready(&self) -> bool {
        self.set_status(READY);
        self.status() == READY
    }
}
