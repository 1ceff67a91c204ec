// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor is to the service: events, calls, restarts. The service is killed at any step that leaves a trace.

use std::cell::Cell;
use std::rc::Rc;

use turnstile_rig::{BlockDriver, Computer, Fuse, Ram};
use turnstile_service_rig::{Board, Kills};
use turnstile_service_rt::{AGAIN, BARS, CONFIGURATION, Event, MMIO, Service};
use turnstile_service_virtio::Virtio;
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
    pub kills: Kills,
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
        let mut board = Board::new(MEMORY, 41);
        board.interrupts.push(REGISTERS);
        let (fuse, kills) = (board.fuse.clone(), Kills::new(board.fuse.clone(), left));
        let [drawn, asked] = [(); 2].map(|()| Rc::new(Cell::new(0)));
        let counter = Counter { drawn, there: Rc::new(Cell::new(there)), asked, fuse };
        let device = Device::new(Entropy::new(counter.clone()));
        let mut host = Self { board, counter, device, bars, rung: 0, again: false, kills };
        host.begin(false);
        host
    }

    /// Begins a life of the service, until one gets so far.
    fn begin(&mut self, mut kept: bool) {
        loop {
            self.device = Device::new(Entropy::new(self.counter.clone()));
            self.kills.arm();
            let answer = self.device.attach(&self.board, kept, self.bars);
            if !self.kills.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                return;
            }
            kept = true;
        }
    }

    /// Hands an event to the service until it has answered.
    pub fn event(&mut self, event: Event) -> u64 {
        loop {
            self.kills.arm();
            let answer = self.device.event(&self.board, event);
            if !self.kills.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                return answer.value;
            }
            self.begin(true);
        }
    }

    /// Kills it between two events.
    pub fn kill(&mut self) {
        self.kills.deaths += 1;
        self.begin(true);
    }

    fn find(&self, address: u64) -> Option<(u64, u64)> {
        if self.bars & MMIO != 0 {
            let offset = address.checked_sub(REGISTERS).filter(|offset| *offset < LENGTH);
            return offset.map(|offset| (CONFIGURATION, offset));
        }
        self.board.find(address)
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
