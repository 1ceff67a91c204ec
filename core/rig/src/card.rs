// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A network card of the machine: virtio behind PCI, as its driver reaches it.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use turnstile_pci::function::Function;
use turnstile_virtio::config::{Configuration, NETWORK, Network};
use turnstile_virtio::device::{Cursor, Queue};
use turnstile_virtio::driver::pci;
use turnstile_virtio::features::Features;
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::pci::{BAR_MSIX, BAR_VIRTIO, Device, Kind, Outcome};
use turnstile_virtio::registers::{Effect, Registers};
use turnstile_virtio::ring::Options;
use turnstile_virtio::violation::Violation;

use crate::ram::Ram;

/// Memory as the card reaches it: whatever becomes of its driver.
struct Dma<'a>(&'a Ram);

impl Memory for Dma<'_> {
    fn contains(&self, address: u64, length: u64) -> bool {
        self.0.contains(address, length)
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        self.read_u16(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        self.write(address, &value.to_le_bytes())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        if !self.contains(address, bytes.len() as u64) {
            return Err(Outside { address });
        }
        bytes.copy_from_slice(&self.0.get(address, bytes.len()));
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        if !self.contains(address, bytes.len() as u64) {
            return Err(Outside { address });
        }
        self.0.put(address, bytes);
        Ok(())
    }

    fn fence(&self) {}
}

/// What it offers, if the test wants nothing else.
pub const CARD_FEATURES: Features =
    Features::EVENT_IDX.union(Network::MAC).union(Network::CTRL_VQ).union(Network::CTRL_RX);

/// Bytes of its BARs.
const LENGTHS: [u64; 6] = [0, 0x1000, 0, 0, 0x4000, 0];
/// Where the common structure's status is.
const STATUS: u64 = 0x14;
/// Descriptors of its queues.
const SIZES: [u16; 3] = [128, 128, 64];

/// A card, and the wire behind it.
#[derive(Debug)]
pub struct Card {
    function: RefCell<Function>,
    device: RefCell<Device<3, 1, Network>>,
    queues: RefCell<[Option<Queue>; 3]>,
    /// What the configuration space has instead of what it should.
    pub patches: RefCell<BTreeMap<u16, u8>>,
    /// What registers of the common structure read as, by their offsets.
    pub stuck: RefCell<BTreeMap<u64, u32>>,
    /// The packets that it has sent, with their headers.
    pub sent: RefCell<Vec<Vec<u8>>>,
    /// It keeps what it is to send.
    pub holds: Cell<bool>,
    /// What it answers to commands.
    pub answer: Cell<u8>,
    /// The commands.
    pub commands: RefCell<Vec<Vec<u8>>>,
    /// How many interrupts it has sent.
    pub interrupts: Cell<u32>,
    /// How often it was notified.
    pub notified: Cell<u32>,
    /// How often a driver has accessed what it should not, or broken a rule of queues.
    pub strays: Cell<u32>,
}

impl Card {
    /// Makes one that offers these features, with queues of up to so many descriptors, by MSI-X or by its pin.
    pub fn new(offered: Features, most: u16, msix: bool) -> Self {
        let kind = Kind { device: NETWORK, class: 0x02_0000, interrupt_pin: true };
        let mut function = kind.function(3, Network::LENGTH as u32, 1).expect("it has room");
        // It decodes its BARs, and reaches memory.
        let _ = function.write(4, 2, 6);
        let registers = Registers::new(offered, Network::REQUIREMENTS, SIZES.map(|size| size.min(most)));
        let config = Network { mac: [2, 0, 0, 0, 0, 0xca], link_up: true, ..Network::default() };
        let mut device = Device::new(registers, config);
        if msix {
            let mut at = function.read(0x34, 1) as u16;
            while function.read(at, 1) != 0x11 {
                at = function.read(at + 1, 1) as u16;
            }
            let _ = function.write(at + 2, 2, 0x8000);
            for (at, word) in [(0, 0xfee0_0000), (4, 0), (8, 0x30), (12, 0)] {
                let Outcome { message, .. } = device.write(function.msix(), BAR_MSIX, at, 4, word);
                assert_eq!(message, None);
            }
        }
        Self {
            function: RefCell::new(function),
            device: RefCell::new(device),
            queues: RefCell::default(),
            patches: RefCell::default(),
            stuck: RefCell::default(),
            sent: RefCell::default(),
            holds: Cell::new(false),
            answer: Cell::new(0),
            commands: RefCell::default(),
            interrupts: Cell::new(0),
            notified: Cell::new(0),
            strays: Cell::new(0),
        }
    }

    /// Whether its driver is ready.
    pub fn runs(&self) -> bool {
        self.device.borrow().registers.is_running()
    }

    /// The features that were agreed on.
    pub fn features(&self) -> Features {
        self.device.borrow().registers.features()
    }

    /// It cannot go on.
    pub fn fail(&self) {
        let control = self.function.borrow().msix();
        let message = self.device.borrow_mut().fail(control);
        self.count(message.is_some());
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
        self.strays.update(|strays| strays + u32::from(result.is_err()));
        result.ok()
    }

    /// A plain packet has come.
    pub fn receive_plain(&self, ram: &Ram, packet: &[u8]) -> bool {
        let bytes = [&[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], packet].concat();
        self.receive(ram, &bytes, bytes.len() as u32)
    }

    fn raise(&self, wanted: bool, number: usize) {
        if wanted {
            let control = self.function.borrow().msix();
            let message = self.device.borrow_mut().raise_queue(control, number as u16);
            self.count(message.is_some());
        }
    }

    /// Takes note of an interrupt: a message, or a pin that is high.
    fn count(&self, message: bool) {
        self.interrupts.update(|count| count + u32::from(message || self.device.borrow().line()));
    }

    /// Does what a write has caused. The driver's memory is `ram`.
    fn act(&self, ram: &Ram, effect: Effect) {
        let mut queues = self.queues.borrow_mut();
        match effect {
            Effect::Reset => *queues = [const { None }; 3],
            Effect::Enabled(number) => {
                let device = self.device.borrow();
                let options = Options::from(device.registers.features());
                let layout =
                    device.registers.queue(number).unwrap().layout(&Dma(ram)).expect("it is in memory");
                queues[usize::from(number)] = Some(Queue::new(layout, options, 4));
            }
            Effect::Notified(_) => {
                self.notified.update(|count| count + 1);
                drop(queues);
                self.run(ram);
            }
            Effect::Started | Effect::QueueReset(_) | Effect::Configured => {}
        }
    }

    /// Says whether an access is one that a driver should make.
    fn is_sound(&self, bar: u8, offset: u64, size: u8) -> bool {
        let length = LENGTHS.get(usize::from(bar)).copied().unwrap_or(0);
        let sound = matches!(size, 1 | 2 | 4)
            && offset.is_multiple_of(size.into())
            && offset.checked_add(size.into()).is_some_and(|end| end <= length);
        self.strays.update(|strays| strays + u32::from(!sound));
        sound
    }

    /// The card's registers, while it reaches this memory.
    pub const fn on<'a>(&'a self, ram: &'a Ram) -> Slot<'a> {
        Slot { card: self, ram }
    }
}

/// A card where it reaches memory.
#[derive(Clone, Copy, Debug)]
pub struct Slot<'a> {
    card: &'a Card,
    ram: &'a Ram,
}

impl pci::Function for Slot<'_> {
    fn configuration(&self, offset: u16, size: u8) -> u32 {
        let bytes = (offset..).take(size.into()).map(|at| {
            let patch = self.card.patches.borrow().get(&at).copied();
            patch.map_or_else(|| self.card.function.borrow().read(at, 1), u32::from)
        });
        bytes.collect::<Vec<_>>().into_iter().rev().fold(0, |value, byte| value << 8 | byte)
    }

    fn length(&self, bar: u8) -> u64 {
        LENGTHS.get(usize::from(bar)).copied().unwrap_or(0)
    }

    fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
        if !self.card.is_sound(bar, offset, size) {
            return u32::MAX;
        }
        let stuck = self.card.stuck.borrow().get(&offset).copied().filter(|_| bar == BAR_VIRTIO);
        stuck.unwrap_or_else(|| self.card.device.borrow_mut().read(bar, offset, size) as u32)
    }

    fn write(&self, bar: u8, offset: u64, size: u8, value: u32) {
        if !self.card.is_sound(bar, offset, size) || !self.ram.fuse.step() {
            return;
        }
        let control = self.card.function.borrow().msix();
        let Outcome { effect, message, .. } =
            self.card.device.borrow_mut().write(control, bar, offset, size, value.into());
        assert_eq!(message, None);
        // A reset is done whatever the status then reads as.
        let is_reset = (offset, value) == (STATUS, 0);
        assert!(!is_reset || effect == Some(Effect::Reset) || bar != BAR_VIRTIO);
        if let Some(effect) = effect {
            self.card.act(self.ram, effect);
        }
    }
}
