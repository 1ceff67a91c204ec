// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service, its generator, and a hypervisor with both.

use std::cell::Cell;
use std::rc::Rc;

use turnstile_rig::{BlockDriver, Fuse};
use turnstile_service_rig::{Board, Subject};
use turnstile_service_rt::{Answer, Doorbells, Event, Service};
use turnstile_service_virtio::Virtio;
use turnstile_virtio::config::ENTROPY;
use turnstile_virtio::features::Features;

use crate::Function;
use crate::model::{Entropy, Generator, QUEUES, VECTORS};

/// Where the registers of the device are, if it is behind MMIO.
pub const REGISTERS: u64 = 0xa00_0000;
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

/// The service, and its generator.
pub struct Program {
    pub counter: Counter,
    device: Device,
    /// How many doorbells there were.
    pub rung: u64,
}

impl Subject for Program {
    const DOORBELLS: Doorbells = Function::DOORBELLS;

    fn begin(&mut self, board: &Board, kept: bool, bars: u64) -> Answer {
        self.device = Device::new(Entropy::new(self.counter.clone()));
        self.device.attach(board, kept, bars)
    }

    fn event(&mut self, board: &Board, event: Event) -> Answer {
        self.rung += u64::from(matches!(event, Event::Doorbell { .. }));
        self.device.event(board, event)
    }
}

pub type Host = turnstile_service_rig::Host<Program>;

/// A hypervisor with one VM and its source of random numbers.
pub fn host(there: u64, left: Option<u64>) -> Host {
    at(None, there, left)
}

/// The same, with the device behind MMIO.
pub fn host_behind_mmio(there: u64, left: Option<u64>) -> Host {
    at(Some(REGISTERS), there, left)
}

fn at(registers: Option<u64>, there: u64, left: Option<u64>) -> Host {
    let mut board = Board::new(MEMORY, 41);
    board.registers = registers;
    let [drawn, asked] = [(); 2].map(|()| Rc::new(Cell::new(0)));
    let counter = Counter { drawn, there: Rc::new(Cell::new(there)), asked, fuse: board.fuse.clone() };
    let device = Device::new(Entropy::new(counter.clone()));
    Host::new(board, Program { counter, device, rung: 0 }, left)
}

/// A driver that has found the device.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe_other(host, 0x1040 + u64::from(ENTROPY), QUEUES, 16)
}
