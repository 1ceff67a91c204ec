// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network card of the machine: virtio behind PCI, as its driver reaches it.

use std::cell::{Cell, RefCell};
use std::ops::Deref;

use turnstile_virtio::config::{NETWORK, Network};
use turnstile_virtio::device::{Cursor, Queue};
use turnstile_virtio::features::Features;
use turnstile_virtio::pci::{BAR_VIRTIO, Kind};
use turnstile_virtio::registers::{Effect, Registers};
use turnstile_virtio::violation::Violation;

use crate::front::Front;
use crate::ram::Ram;
use crate::slot::{Behind, Dma, Face, Slot};

/// What it offers, if the test wants nothing else.
pub const CARD_FEATURES: Features =
    Features::EVENT_IDX.union(Network::MAC).union(Network::CTRL_VQ).union(Network::CTRL_RX);

/// Descriptors of its queues.
const SIZES: [u16; 3] = [128, 128, 64];

/// A card, and the wire behind it.
#[derive(Debug)]
pub struct Card {
    front: Front<3, Network>,
    queues: RefCell<[Option<Queue>; 3]>,
    /// The packets that it has sent, with their headers.
    pub sent: RefCell<Vec<Vec<u8>>>,
    /// It keeps what it is to send.
    pub holds: Cell<bool>,
    /// What it answers to commands.
    pub answer: Cell<u8>,
    /// The commands.
    pub commands: RefCell<Vec<Vec<u8>>>,
    /// Packets without headers that come as soon as there is a buffer.
    pub waiting: RefCell<Vec<Vec<u8>>>,
}

impl Card {
    /// Makes one that offers these features, with queues of up to so many descriptors, by MSI-X or by its pin.
    pub fn new(offered: Features, most: u16, msix: bool) -> Self {
        let kind = Kind { device: NETWORK, class: 0x02_0000, interrupt_pin: true, places: 8 };
        let registers = Registers::new(offered, Network::REQUIREMENTS, SIZES.map(|size| size.min(most)));
        let config = Network { mac: [2, 0, 0, 0, 0, 0xca], link_up: true, ..Network::default() };
        Self {
            front: Front::new(kind, registers, config, msix),
            queues: RefCell::default(),
            sent: RefCell::default(),
            holds: Cell::new(false),
            answer: Cell::new(0),
            commands: RefCell::default(),
            waiting: RefCell::default(),
        }
    }

    /// Does what its driver wants: sends packets, takes commands.
    pub fn run(&self, ram: &Ram) {
        for number in if self.holds.get() { 2..3 } else { 1..3 } {
            while let Some(bytes) = self.take(ram, number) {
                if number == 1 { &self.sent } else { &self.commands }.borrow_mut().push(bytes);
            }
        }
    }

    /// Sends so many packets, though it holds the others.
    pub fn send_some(&self, ram: &Ram, count: usize) {
        let taken = (0..count).map_while(|_| self.take(ram, 1));
        let taken: Vec<_> = taken.collect();
        self.sent.borrow_mut().extend(taken);
    }

    /// Takes a chain of a queue, and returns what it reads there. With EVENT_IDX it wants to hear of the next one.
    fn take(&self, ram: &Ram, number: usize) -> Option<Vec<u8>> {
        let ram = &Dma(ram);
        let mut queues = self.queues.borrow_mut();
        let queue = queues[number].as_mut()?;
        let mut step = || -> Result<Option<(Vec<u8>, bool)>, Violation> {
            let mut chain = queue.pop(ram)?;
            if chain.is_none() && queue.arm(ram)? {
                chain = queue.pop(ram)?;
            }
            let Some(chain) = chain else { return Ok(None) };
            let mut cursor = Cursor::new(chain);
            let mut bytes = vec![0; 4096];
            let read = cursor.read(ram, &mut bytes)?;
            bytes.truncate(read);
            cursor.write(ram, &[self.answer.get()])?;
            let written = cursor.written();
            queue.complete(ram, cursor.finish(), written)?;
            Ok(Some((bytes, queue.publish(ram)?)))
        };
        let done = step();
        drop(queues);
        let (bytes, wanted) = self.sound(done)??;
        self.raise(wanted, number);
        Some(bytes)
    }

    /// A packet has come, with its header, and the card says that it is so long. False if it has no buffer for it, or no driver.
    pub fn receive(&self, ram: &Ram, bytes: &[u8], claims: u32) -> bool {
        let (ram, mut queues) = (&Dma(ram), self.queues.borrow_mut());
        let Some(queue) = queues[0].as_mut().filter(|_| self.runs()) else { return false };
        let mut step = || -> Result<Option<bool>, Violation> {
            let Some(chain) = queue.pop(ram)? else { return Ok(None) };
            let mut cursor = Cursor::new(chain);
            cursor.write(ram, bytes)?;
            queue.complete(ram, cursor.finish(), claims)?;
            Ok(Some(queue.publish(ram)?))
        };
        let done = step();
        drop(queues);
        let Some(Some(wanted)) = self.sound(done) else { return false };
        self.raise(wanted, 0);
        true
    }

    /// Takes note of a rule that the driver has broken.
    fn sound<T>(&self, result: Result<T, Violation>) -> Option<T> {
        self.blame(result.is_err());
        result.ok()
    }

    /// A plain packet has come.
    pub fn receive_plain(&self, ram: &Ram, packet: &[u8]) -> bool {
        let bytes = [&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], packet].concat();
        self.receive(ram, &bytes, bytes.len() as u32)
    }

    /// Does what a write has caused. The driver's memory is `ram`.
    fn act(&self, ram: &Ram, effect: Effect) {
        let mut queues = self.queues.borrow_mut();
        match effect {
            Effect::Reset => *queues = [const { None }; 3],
            Effect::Enabled(number) => {
                let (layout, options) = self.front.queue(ram, number);
                queues[usize::from(number)] = Some(Queue::new(layout, options, 4));
            }
            Effect::Notified(_) => {
                self.notified.update(|count| count + 1);
                drop(queues);
                self.run(ram);
                self.waiting.borrow_mut().retain(|packet| !self.receive_plain(ram, packet));
            }
            Effect::Started | Effect::QueueReset(_) | Effect::Configured => {}
        }
    }

    /// The card's registers, while it reaches this memory.
    pub const fn on<'a>(&'a self, ram: &'a Ram) -> Slot<'a, Self> {
        Slot { device: self, ram }
    }
}

impl Deref for Card {
    type Target = Front<3, Network>;

    fn deref(&self) -> &Front<3, Network> {
        &self.front
    }
}

impl Behind for Card {
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
