// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor is to the service: events, calls, restarts. The service is killed at any step that leaves a trace.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use turnstile_pci::msix::Message;
use turnstile_rig::{BlockDriver, Computer, DOORBELL, ECAM, Fuse, Ram, Random};
use turnstile_service_rt::{AGAIN, BARS, CONFIGURATION, Event, MMIO, Service};
use turnstile_service_virtio::{Virtio, World};
use turnstile_virtio::config::ENTROPY;
use turnstile_virtio::features::Features;
use turnstile_virtio::mmio::LENGTH;

use crate::Function;
use crate::model::{Entropy, Generator, QUEUES, VECTORS};

/// Where the registers of the device are, if it is behind MMIO.
pub const REGISTERS: u64 = 0xa00_0000;
/// Where firmware places BARs.
const FIRMWARE: u64 = 0x1008_0000;
/// Bytes of the VM's memory.
pub const MEMORY: usize = 0x20_0000;
/// What Linux accepts.
pub const ACCEPTED: Features =
    Features::VERSION_1.union(Features::INDIRECT_DESC).union(Features::EVENT_IDX).union(Features::RING_RESET);

/// A generator of words that say which one they are, as long as there are some.
#[derive(Clone)]
pub struct Counter {
    pub drawn: Rc<Cell<u64>>,
    /// How many there are.
    pub there: Rc<Cell<u64>>,
    /// How often it was asked.
    pub asked: Rc<Cell<u64>>,
    fuse: Fuse,
}

impl Generator for Counter {
    fn draw(&mut self) -> Option<u64> {
        self.asked.set(self.asked.get() + 1);
        if !self.fuse.step() || self.there.get() == self.drawn.get() {
            return None;
        }
        self.drawn.set(self.drawn.get() + 1);
        Some(word(self.drawn.get()))
    }
}

/// A word of the generator, none of which is the same as another one.
pub fn word(number: u64) -> u64 {
    number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// What calls reach.
pub struct Board {
    pub ram: Ram,
    pub fuse: Fuse,
    kept: RefCell<Vec<u64>>,
    pub decoded: RefCell<[Option<(u64, u64)>; 6]>,
    pub messages: RefCell<Vec<u32>>,
    clock: Cell<u64>,
    /// How much later it is whenever somebody asks for the time.
    pub tick: Cell<u64>,
}

impl World for Board {
    type Memory = Ram;

    fn memory(&self) -> &Ram {
        &self.ram
    }

    fn message(&self, Message { address, data }: Message) {
        if self.fuse.step() && [DOORBELL, REGISTERS].contains(&address) {
            self.messages.borrow_mut().push(data);
        }
    }

    fn flush(&self) {}

    fn decode(&self, bar: u8, address: u64, size: u64) -> bool {
        if self.fuse.step() {
            self.decoded.borrow_mut()[usize::from(bar)] = (size != 0).then_some((address, size));
        }
        true
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

type Device = Virtio<QUEUES, VECTORS, Entropy<Counter>>;

/// A hypervisor with one VM and its source of random numbers.
pub struct Host {
    pub board: Board,
    pub counter: Counter,
    device: Device,
    /// Where it is.
    bars: u64,
    /// How many doorbells there were.
    pub rung: u64,
    /// The service wants another event.
    pub again: bool,
    /// After how many steps it is killed.
    pub left: Option<u64>,
    /// After how many it is killed again, at most.
    pub most: Option<Random>,
    pub deaths: u64,
}

impl Host {
    pub fn new(there: u64, left: Option<u64>) -> Self {
        Self::at(FIRMWARE, there, left)
    }

    /// The same, with the device behind MMIO.
    pub fn behind_mmio(there: u64, left: Option<u64>) -> Self {
        Self::at(MMIO | REGISTERS, there, left)
    }

    fn at(bars: u64, there: u64, left: Option<u64>) -> Self {
        let fuse = Fuse::default();
        let board = Board {
            ram: Ram::new(MEMORY, fuse.clone()),
            fuse: fuse.clone(),
            kept: RefCell::new(vec![0; 41]),
            decoded: RefCell::default(),
            messages: RefCell::default(),
            clock: Cell::new(0),
            tick: Cell::new(1000),
        };
        let [drawn, asked] = [(); 2].map(|()| Rc::new(Cell::new(0)));
        let counter = Counter { drawn, there: Rc::new(Cell::new(there)), asked, fuse };
        let device = Device::new(Entropy::new(counter.clone()));
        let mut host =
            Self { board, counter, device, bars, rung: 0, again: false, left, most: None, deaths: 0 };
        host.begin(false);
        host
    }

    /// Begins a life of the service, until one gets so far.
    fn begin(&mut self, mut kept: bool) {
        loop {
            self.device = Device::new(Entropy::new(self.counter.clone()));
            self.arm();
            let answer = self.device.attach(&self.board, kept, self.bars);
            if !self.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                return;
            }
            kept = true;
        }
    }

    fn arm(&self) {
        match self.left {
            Some(left) => self.board.fuse.arm(left),
            None => self.board.fuse.mend(),
        }
    }

    /// Whether it was killed; then it may be killed again.
    fn is_dead(&mut self) -> bool {
        let (blown, steps) = (self.board.fuse.is_blown(), self.board.fuse.steps());
        self.board.fuse.mend();
        self.left = match (&mut self.most, self.left) {
            (Some(random), _) if blown => Some(random.below(3000)),
            (None, _) if blown => None,
            (_, left) => left.map(|left| left - steps),
        };
        self.deaths += u64::from(blown);
        blown
    }

    /// Hands an event to the service until it has answered.
    pub fn event(&mut self, event: Event) -> u64 {
        loop {
            self.arm();
            let answer = self.device.event(&self.board, event);
            if !self.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                return answer.value;
            }
            self.begin(true);
        }
    }

    /// Kills it between two events.
    pub fn kill(&mut self) {
        self.deaths += 1;
        self.begin(true);
    }

    fn find(&self, address: u64) -> Option<(u64, u64)> {
        if self.bars & MMIO != 0 {
            let offset = address.checked_sub(REGISTERS).filter(|offset| *offset < LENGTH);
            return offset.map(|offset| (CONFIGURATION, offset));
        }
        if (ECAM..ECAM + 0x1000).contains(&address) {
            return Some((CONFIGURATION, address - ECAM));
        }
        let decoded = self.board.decoded.borrow();
        let mut all = (BARS..).zip(decoded.iter()).filter_map(|(device, bar)| Some((device, (*bar)?)));
        all.find_map(|(device, (base, size))| {
            (base..base + size).contains(&address).then(|| (device, address - base))
        })
    }
}

impl Computer for Host {
    fn read(&mut self, address: u64, size: u64) -> u64 {
        let Some((device, offset)) = self.find(address) else { return u64::MAX >> (64 - 8 * size) };
        self.event(Event::Read { device, offset, size })
    }

    fn write(&mut self, address: u64, size: u64, value: u64) {
        let Some((device, offset)) = self.find(address) else { return };
        let bell = match self.bars & MMIO {
            0 => Function::DOORBELLS.queue(offset, value).filter(|_| device == BARS + 4),
            _ => Function::DOORBELLS.behind_mmio().queue(offset, value),
        };
        self.rung += u64::from(bell.is_some());
        match bell {
            // The hypervisor has so many bits.
            Some(queue) => self.event(Event::Doorbell { queues: 1 << (queue % 32), now: 0 }),
            None => self.event(Event::Write { device, offset, size, value }),
        };
    }

    fn ram(&self) -> &Ram {
        &self.board.ram
    }

    fn messages(&mut self) -> Vec<u32> {
        self.board.messages.take()
    }

    fn wait(&mut self) -> bool {
        let again = std::mem::take(&mut self.again);
        if again {
            self.event(Event::Alarm(0));
        }
        again
    }
}

/// A driver that has found the device.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe_other(host, 0x1040 + u64::from(ENTROPY), QUEUES, 16)
}
