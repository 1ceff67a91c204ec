// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of the machine: virtio behind PCI, as its driver reaches it.

use std::cell::{Cell, RefCell};
use std::ops::Deref;

use turnstile_block::queue::{Queue, Rest};
use turnstile_block::request::Budget;
use turnstile_block::settings::Settings;
use turnstile_virtio::config::{BLOCK, Block};
use turnstile_virtio::features::Features;
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::pci::{BAR_VIRTIO, Kind};
use turnstile_virtio::registers::{Effect, Registers};
use turnstile_virtio::ring::Layout;
use turnstile_virtio::rings::Rings;

use crate::front::Front;
use crate::platter::Platter;
use crate::ram::Ram;
use crate::random::Random;
use crate::slot::{Behind, Dma, Face, Slot};

/// A budget for many requests.
const ENOUGH: u32 = 1 << 24;

/// What it is, if the test wants nothing else.
pub fn disk_settings() -> Settings {
    Settings::new("a disk")
}

/// The order in which a disk takes its requests: any.
#[derive(Debug, Default)]
pub struct Order(RefCell<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Without it, the order is that of the driver.
    random: Option<Random>,
    /// The next entry of the available ring.
    next: u16,
    /// The heads that were there, and were not handed out.
    heads: Vec<u16>,
}

impl Order {
    /// One that is random.
    pub fn random(seed: u64) -> Self {
        Self(RefCell::new(Waiting { random: Some(Random(seed)), ..Waiting::default() }))
    }

    /// The queue begins anew.
    fn renew(&self) {
        let mut waiting = self.0.borrow_mut();
        waiting.next = 0;
        waiting.heads.clear();
    }
}

/// Rings whose requests come in any order.
#[derive(Clone, Copy, Debug)]
struct Shuffled<'a>(Layout, &'a Order);

impl<M: Memory> Rings<M> for Shuffled<'_> {
    fn find(_: &M, _: &Layout) -> Result<Self, Outside> {
        unreachable!("the disk has an order of its own")
    }

    fn size(&self) -> u16 {
        self.0.size()
    }

    fn descriptors(&self) -> u64 {
        self.0.areas().descriptors
    }

    fn load_available(&self, memory: &M) -> Result<u16, Outside> {
        Rings::load_available(&self.0, memory)
    }

    fn available(&self, memory: &M, _: u16) -> Result<u16, Outside> {
        let mut waiting = self.1.0.borrow_mut();
        let end = Rings::load_available(&self.0, memory)?;
        while waiting.next != end {
            let head = Rings::available(&self.0, memory, waiting.next)?;
            waiting.heads.push(head);
            waiting.next = waiting.next.wrapping_add(1);
        }
        let count = waiting.heads.len() as u64;
        let at = waiting.random.as_mut().map_or(0, |random| random.below(count));
        Ok(waiting.heads.remove(at as usize))
    }

    fn available_flags(&self, memory: &M) -> Result<u16, Outside> {
        Rings::available_flags(&self.0, memory)
    }

    fn used_event(&self, memory: &M) -> Result<u16, Outside> {
        Rings::used_event(&self.0, memory)
    }

    fn load_used(&self, memory: &M) -> Result<u16, Outside> {
        Rings::load_used(&self.0, memory)
    }

    fn store_used(&self, memory: &M, value: u16) -> Result<(), Outside> {
        Rings::store_used(&self.0, memory, value)
    }

    fn write_used(&self, memory: &M, index: u16, entry: u64) -> Result<(), Outside> {
        Rings::write_used(&self.0, memory, index, entry)
    }

    fn store_flags(&self, memory: &M, value: u16) -> Result<(), Outside> {
        Rings::store_flags(&self.0, memory, value)
    }

    fn store_event(&self, memory: &M, value: u16) -> Result<(), Outside> {
        Rings::store_event(&self.0, memory, value)
    }
}

/// A disk.
#[derive(Debug)]
pub struct Disk<'a> {
    front: Front<1, Block>,
    settings: Settings,
    queue: RefCell<Option<Queue<40, Shuffled<'a>>>>,
    order: &'a Order,
    /// What is on it.
    pub platter: Platter,
    /// It keeps what it is to do.
    pub holds: Cell<bool>,
}

impl<'a> Disk<'a> {
    /// Makes one of so many sectors, with a queue of up to `most` descriptors, by MSI-X or by its pin. Of what its settings offer, `without` is left
    /// out; `change` has the last word on its configuration.
    pub fn new(
        (settings, sectors, most): (Settings, u64, u16),
        without: Features,
        msix: bool,
        order: &'a Order,
        change: impl FnOnce(&mut Block),
    ) -> Self {
        let kind = Kind { device: BLOCK, class: 0x01_0000, interrupt_pin: true, places: 8 };
        let registers = Registers::new(settings.features().difference(without), &[], [most]);
        let mut config = settings.configuration(sectors);
        change(&mut config);
        order.renew();
        Self {
            front: Front::new(kind, registers, config, msix),
            settings,
            queue: RefCell::default(),
            order,
            platter: Platter::new(sectors),
            holds: Cell::new(false),
        }
    }

    /// Does what its driver wants, for as long as the budget lasts. Returns whether that was all.
    pub fn run(&self, ram: &Ram, budget: u32) -> bool {
        let rules = self.settings.rules(self.features(), true);
        let mut queue = self.queue.borrow_mut();
        let Some(queue) = queue.as_mut().filter(|_| self.runs()) else { return true };
        match queue.serve(&Dma(ram), &mut &self.platter, &rules, &mut Budget(budget)) {
            Ok(served) => {
                self.front.raise(served.interrupt, 0);
                served.rest == Rest::Idle
            }
            Err(_) => {
                self.blame(true);
                self.fail();
                true
            }
        }
    }

    /// Does all that its driver wants.
    pub fn run_all(&self, ram: &Ram) {
        while !self.run(ram, ENOUGH) {}
    }

    /// Does what a write has caused.
    fn act(&self, ram: &Ram, effect: Effect) {
        match effect {
            Effect::Reset => *self.queue.borrow_mut() = None,
            Effect::Enabled(number) => {
                let (layout, options) = self.front.queue(ram, number);
                self.order.renew();
                *self.queue.borrow_mut() = Some(Queue::new(Shuffled(layout, self.order), options));
            }
            Effect::Notified(_) => {
                self.notified.update(|count| count + 1);
                if !self.holds.get() {
                    self.run_all(ram);
                }
            }
            Effect::Started | Effect::QueueReset(_) | Effect::Configured => {}
        }
    }

    /// The disk's registers, while it reaches this memory.
    pub const fn on<'b>(&'b self, ram: &'b Ram) -> Slot<'b, Self> {
        Slot { device: self, ram }
    }
}

impl Deref for Disk<'_> {
    type Target = Front<1, Block>;

    fn deref(&self) -> &Front<1, Block> {
        &self.front
    }
}

impl Behind for Disk<'_> {
    const BAR: u8 = BAR_VIRTIO;

    fn face(&self) -> &Face {
        &self.front
    }

    fn read(&self, _: &Ram, bar: u8, offset: u64, size: u8) -> u32 {
        self.front.read(bar, offset, size)
    }

    fn write(&self, ram: &Ram, bar: u8, offset: u64, size: u8, value: u32) {
        if let Some(effect) = self.front.write(bar, offset, size, value) {
            self.act(ram, effect);
        }
    }
}
