// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service, its terminal with somebody at it, and a hypervisor with all of them.

use std::cell::RefCell;
use std::rc::Rc;

use turnstile_rig::{BlockDriver, Fuse};
use turnstile_service_rig::{Board, Subject};
use turnstile_service_rt::{Answer, Characters, Doorbells, Event, ROOM, Service, terminal_size};
use turnstile_service_virtio::Virtio;
use turnstile_virtio::config::{CONSOLE, Console as Size};
use turnstile_virtio::features::Features;

use crate::Function;
use crate::model::{Console, QUEUES, Terminal, VECTORS, attach};

/// Bytes of the VM's memory.
pub const MEMORY: usize = 0x20_0000;
/// The message of the configuration.
const CONFIGURED: u32 = 0x50;
/// What Linux accepts.
pub const ACCEPTED: Features =
    Features::VERSION_1.union(Features::INDIRECT_DESC).union(Features::EVENT_IDX).union(Size::SIZE);

/// A screen that shows what was printed, and counts it as the hypervisor does.
#[derive(Clone)]
pub struct Shown {
    pub text: Rc<RefCell<Vec<u8>>>,
    kept: Rc<RefCell<[u64; 3]>>,
    fuse: Fuse,
}

impl Terminal for Shown {
    fn print(&mut self, characters: &[u8]) -> u64 {
        assert!(characters.len() <= 16, "more than a call can");
        if self.fuse.step() {
            self.text.borrow_mut().extend(characters);
        }
        self.text.borrow().len() as u64
    }

    fn get(&self, at: usize) -> u64 {
        self.kept.borrow()[at]
    }

    fn set(&mut self, at: usize, word: u64) {
        if self.fuse.step() {
            self.kept.borrow_mut()[at] = word;
        }
    }
}

type Device = Virtio<QUEUES, VECTORS, Console<Shown>>;

/// The service, and whoever is at the terminal.
pub struct Program {
    pub shown: Shown,
    /// What was typed and not taken, and how many were taken.
    pub typed: Vec<u8>,
    pub taken: u64,
    pub size: u64,
    /// How often the driver was told that it has changed.
    pub told: usize,
    /// The service has asked for what waits.
    pub room: bool,
    device: Device,
}

impl Subject for Program {
    const DOORBELLS: Doorbells = Function::DOORBELLS;

    fn begin(&mut self, board: &Board, kept: bool, bars: u64) -> Answer {
        self.device = Device::new(Console::new(self.shown.clone()));
        attach(&mut self.device, board, kept, bars)
    }

    fn event(&mut self, board: &Board, event: Event) -> Answer {
        crate::model::event(&mut self.device, board, event)
    }

    fn answered(&mut self, lines: u64) {
        self.room |= lines & ROOM != 0;
    }
}

pub type Host = turnstile_service_rig::Host<Program>;

/// A hypervisor with one VM and its console.
pub fn host(left: Option<u64>) -> Host {
    let board = Board::new(MEMORY, 53);
    let shown = Shown { text: Rc::default(), kept: Rc::default(), fuse: board.fuse.clone() };
    let device = Device::new(Console::new(shown.clone()));
    let (typed, taken, size, told, room) = (Vec::new(), 0, 0, 0, false);
    Host::new(board, Program { shown, typed, taken, size, told, room, device }, left)
}

/// What happens at the terminal.
pub trait Typist {
    /// The VM has started anew: so does the service.
    fn restart(&mut self);
    /// Characters are typed.
    fn type_in(&mut self, text: &[u8]);
    /// The terminal has another size.
    fn resize(&mut self, columns: u16, rows: u16);
    /// Offers what was typed for as long as the service takes some.
    fn offer(&mut self);
}

impl Typist for Host {
    fn restart(&mut self) {
        self.subject.typed.clear();
        self.begin(false);
    }

    fn type_in(&mut self, text: &[u8]) {
        self.subject.typed.extend(text);
        self.subject.room = true;
        self.offer();
    }

    fn resize(&mut self, columns: u16, rows: u16) {
        self.subject.size = terminal_size(columns, rows);
        offer_now(self);
        let is_told = |data: &u32| *data == CONFIGURED;
        self.subject.told += self.board.messages.borrow().iter().filter(|data| is_told(data)).count();
        self.board.messages.borrow_mut().retain(|data| !is_told(data));
    }

    fn offer(&mut self) {
        while std::mem::take(&mut self.subject.room) {
            while !self.subject.typed.is_empty() && offer_now(self) != 0 {}
        }
    }
}

fn offer_now(host: &mut Host) -> u64 {
    let Program { typed, taken, size, .. } = &host.subject;
    let count = typed.len().min(8);
    let mut bytes = [0; 8];
    bytes[..count].copy_from_slice(&typed[..count]);
    let typed = Characters { count: count as u64, words: [u64::from_le_bytes(bytes), 0] };
    let taken = host.event(Event::Input { device: 0, typed, position: *taken, size: *size });
    assert!(taken <= count as u64);
    host.subject.typed.drain(..taken as usize);
    host.subject.taken += taken;
    taken
}

/// A driver that has found the device.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe_other(host, 0x1040 + u64::from(CONSOLE), QUEUES, 64)
}
