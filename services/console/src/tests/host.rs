// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor is to the service: events, calls, restarts. The service is killed at any step that leaves a trace.

use std::cell::RefCell;
use std::rc::Rc;

use turnstile_rig::{BlockDriver, Computer, Fuse, Ram};
use turnstile_service_rig::{Board, Kills};
use turnstile_service_rt::{AGAIN, Characters, Event, ROOM, Service, terminal_size};
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

/// A hypervisor with one VM and its console.
pub struct Host {
    pub board: Board,
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
    /// The service wants another event.
    pub again: bool,
    pub kills: Kills,
}

impl Host {
    pub fn new(left: Option<u64>) -> Self {
        let board = Board::new(MEMORY, 53);
        let (fuse, kills) = (board.fuse.clone(), Kills::new(board.fuse.clone(), left));
        let shown = Shown { text: Rc::default(), kept: Rc::default(), fuse };
        let device = Device::new(Console::new(shown.clone()));
        let (typed, taken, size, told, room, again) = (Vec::new(), 0, 0, 0, false, false);
        let mut host = Self { board, shown, typed, taken, size, told, room, device, again, kills };
        host.begin(false);
        host
    }

    /// The VM has started anew: so does the service.
    pub fn restart(&mut self) {
        self.typed.clear();
        self.begin(false);
    }

    /// Characters are typed.
    pub fn type_in(&mut self, text: &[u8]) {
        self.typed.extend(text);
        self.room = true;
        self.offer();
    }

    /// The terminal has another size.
    pub fn resize(&mut self, columns: u16, rows: u16) {
        self.size = terminal_size(columns, rows);
        self.offer_now();
        let is_told = |data: &u32| *data == CONFIGURED;
        self.told += self.board.messages.borrow().iter().filter(|data| is_told(data)).count();
        self.board.messages.borrow_mut().retain(|data| !is_told(data));
    }

    /// Offers what was typed for as long as the service takes some.
    pub fn offer(&mut self) {
        while std::mem::take(&mut self.room) {
            while !self.typed.is_empty() && self.offer_now() != 0 {}
        }
    }

    fn offer_now(&mut self) -> u64 {
        let count = self.typed.len().min(8);
        let mut bytes = [0; 8];
        bytes[..count].copy_from_slice(&self.typed[..count]);
        let typed = Characters { count: count as u64, words: [u64::from_le_bytes(bytes), 0] };
        let (position, size) = (self.taken, self.size);
        let taken = self.event(Event::Input { device: 0, typed, position, size });
        assert!(taken <= count as u64);
        self.typed.drain(..taken as usize);
        self.taken += taken;
        taken
    }

    /// Begins a life of the service, until one gets so far.
    fn begin(&mut self, mut kept: bool) {
        loop {
            self.device = Device::new(Console::new(self.shown.clone()));
            self.kills.arm();
            let answer = attach(&mut self.device, &self.board, kept, 0x1008_0000);
            if !self.kills.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                self.room |= answer.lines & ROOM != 0;
                return;
            }
            kept = true;
        }
    }

    /// Hands an event to the service until it has answered.
    pub fn event(&mut self, event: Event) -> u64 {
        loop {
            self.kills.arm();
            let answer = crate::model::event(&mut self.device, &self.board, event);
            if !self.kills.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                self.room |= answer.lines & ROOM != 0;
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
}

impl Computer for Host {
    fn read(&mut self, address: u64, size: u64) -> u64 {
        let event = self.board.load(address, size);
        event.map_or(u64::MAX >> (64 - 8 * size), |event| self.event(event))
    }

    fn write(&mut self, address: u64, size: u64, value: u64) {
        if let Some(event) = self.board.store(Function::DOORBELLS, address, size, value) {
            self.event(event);
        }
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
    BlockDriver::probe_other(host, 0x1040 + u64::from(CONSOLE), QUEUES, 64)
}
