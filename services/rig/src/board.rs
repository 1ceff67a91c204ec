// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What calls of a service with one member reach.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use turnstile_pci::msix::Message;
use turnstile_rig::{DOORBELL, ECAM, Fuse, Ram, WINDOW};
use turnstile_service_rt::{BARS, CONFIGURATION, Doorbells, Event, MMIO};
use turnstile_service_virtio::World;
use turnstile_virtio::mmio::LENGTH;

use crate::bars::{Bars, find};

/// Where firmware places BARs.
pub const FIRMWARE: u64 = 0x1008_0000;
/// How many queues of a member the hypervisor can name.
const QUEUES: u64 = 32;

/// A VM's memory, and what the hypervisor keeps for a service.
pub struct Board {
    /// The VM's memory.
    pub ram: Ram,
    /// Nothing leaves a trace once it is blown.
    pub fuse: Fuse,
    kept: RefCell<Vec<u64>>,
    /// Where BARs are decoded.
    pub decoded: RefCell<Bars>,
    /// Another function decodes this.
    pub other: Range<u64>,
    /// The data of messages that have come.
    pub messages: RefCell<Vec<u32>>,
    /// Where the registers of the device are, if it is behind MMIO.
    pub registers: Option<u64>,
    /// The time.
    pub clock: Cell<u64>,
    /// How much later it is whenever somebody asks for it.
    pub tick: Cell<u64>,
}

impl Board {
    /// One with so many bytes of memory, which keeps so many words.
    pub fn new(memory: usize, words: usize) -> Self {
        let fuse = Fuse::default();
        Self {
            ram: Ram::new(memory, fuse.clone()),
            fuse,
            kept: RefCell::new(vec![0; words]),
            decoded: RefCell::default(),
            other: 0..0,
            messages: RefCell::default(),
            registers: None,
            clock: Cell::new(0),
            tick: Cell::new(1000),
        }
    }

    /// Returns the event that a guest's load is, if something is there.
    pub fn load(&self, address: u64, size: u64) -> Option<Event> {
        let (device, offset) = self.find(address)?;
        Some(Event::Read { device, offset, size })
    }

    /// Returns the event that a guest's store is, if something is there: a device with these doorbells, perhaps one of them.
    pub fn store(&self, doorbells: Doorbells, address: u64, size: u64, value: u64) -> Option<Event> {
        let (device, offset) = self.find(address)?;
        let bell = match self.registers {
            Some(_) => doorbells.behind_mmio().queue(offset, value),
            None => doorbells.queue(offset, value).filter(|_| device == BARS + 4),
        };
        Some(match bell {
            Some(queue) => Event::Doorbell { queues: 1 << (queue % QUEUES), now: 0 },
            None => Event::Write { device, offset, size, value },
        })
    }

    /// Returns what the service is told of where its device is.
    pub fn bars(&self) -> u64 {
        self.registers.map_or(FIRMWARE, |registers| MMIO | registers)
    }

    /// Returns the device at an address, and the offset in it.
    fn find(&self, address: u64) -> Option<(u64, u64)> {
        match self.registers {
            Some(base) => {
                let offset = address.checked_sub(base).filter(|offset| *offset < LENGTH);
                offset.map(|offset| (CONFIGURATION, offset))
            }
            None => find(ECAM, &self.decoded.borrow(), address),
        }
    }
}

impl World for Board {
    type Memory = Ram;

    fn memory(&self) -> &Ram {
        &self.ram
    }

    fn message(&self, Message { address, data }: Message) {
        if self.fuse.step() && address == self.registers.unwrap_or(DOORBELL) {
            self.messages.borrow_mut().push(data);
        }
    }

    fn flush(&self) {}

    fn decode(&self, bar: u8, address: u64, size: u64) -> bool {
        if !self.fuse.step() {
            return true;
        }
        let mut all = self.decoded.borrow_mut();
        all[usize::from(bar)] = None;
        let end = address.saturating_add(size);
        let overlaps = |begin: u64, last: u64| address < last && begin < end;
        let taken = overlaps(self.other.start, self.other.end)
            || all.iter().flatten().any(|(base, size)| overlaps(*base, base + size));
        let inside = WINDOW.start <= address && end <= WINDOW.end;
        if size == 0 {
            return true;
        }
        let good = inside && !taken && address.is_multiple_of(size);
        if good {
            all[usize::from(bar)] = Some((address, size));
        }
        good
    }

    fn time(&self) -> u64 {
        self.clock.set(self.clock.get() + self.tick.get());
        self.clock.get()
    }

    fn get(&self, at: usize) -> u64 {
        self.kept.borrow().get(at).copied().unwrap_or(0)
    }

    fn set(&self, at: usize, word: u64) {
        if self.fuse.step() {
            self.kept.borrow_mut()[at] = word;
        }
    }
}
