// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service, the other sides of its ports, a hypervisor with both, and a guest.

use std::cell::RefCell;
use std::rc::Rc;

use turnstile_console::control::Name;
use turnstile_rig::{BlockDriver, Computer, Fuse, Request};
use turnstile_service_rig::{Board, Subject};
use turnstile_service_rt::{Answer, Characters, Doorbells, Event, ROOM, Sent, Service};
use turnstile_service_virtio::Virtio;
use turnstile_virtio::config::{CONSOLE, Console, ConsoleControl};
use turnstile_virtio::features::Features;

use crate::Function;
use crate::model::{Ports, QUEUES, VECTORS, attach};
use crate::outlets::{Outlets, WORDS};

/// Bytes of the VM's memory.
pub const MEMORY: usize = 0x100_0000;
/// What Linux accepts.
pub const ACCEPTED: Features =
    Features::VERSION_1.union(Features::INDIRECT_DESC).union(Features::EVENT_IDX).union(Console::MULTIPORT);
/// The ports that are there.
pub const NAMES: [&str; 2] = ["agent", "a.name-of_31.characters-and-no1"];

/// The other side of a port.
#[derive(Default)]
pub struct Side {
    pub is_open: bool,
    pub room: u64,
    /// How much was sent, in all.
    pub sent: u64,
    /// What came to somebody.
    pub text: Vec<u8>,
    /// What waits for the guest, and how much it has taken.
    pub typed: Vec<u8>,
    pub taken: u64,
    /// It was not taken.
    refused: bool,
    /// The service is to look.
    news: bool,
}

/// The other sides of all ports.
#[derive(Clone)]
pub struct Sides {
    pub all: Rc<RefCell<[Side; 2]>>,
    kept: Rc<RefCell<[u64; WORDS]>>,
    fuse: Fuse,
}

impl Outlets for Sides {
    fn name(&self, port: usize) -> Option<Name> {
        NAMES.get(port - 1).map(|name| Name::new(name.as_bytes()))
    }

    fn send(&mut self, port: usize, bytes: &[u8]) -> Sent {
        assert!(bytes.len() <= 16, "more than a call can");
        let mut all = self.all.borrow_mut();
        let side = &mut all[port - 1];
        if (bytes.is_empty() || self.fuse.step()) && !self.fuse.is_blown() {
            let taken = if side.is_open { bytes.len().min(side.room as usize) } else { bytes.len() };
            side.sent += taken as u64;
            if side.is_open {
                side.room -= taken as u64;
                side.text.extend(&bytes[..taken]);
            }
        }
        let room = if side.is_open { side.room } else { Sent::MOST };
        Sent::from_word(Sent { is_open: side.is_open, room, count: side.sent }.word())
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

type Device = Virtio<QUEUES, VECTORS, Ports<Sides>>;

/// The service, and the other sides of its ports.
pub struct Program {
    pub sides: Sides,
    device: Device,
}

impl Subject for Program {
    const DOORBELLS: Doorbells = Function::DOORBELLS;

    fn begin(&mut self, board: &Board, kept: bool, bars: u64) -> Answer {
        self.device = Device::new(Ports::new(self.sides.clone()));
        attach(&mut self.device, board, kept, bars)
    }

    fn event(&mut self, board: &Board, event: Event) -> Answer {
        crate::model::event(&mut self.device, board, event)
    }

    fn answered(&mut self, lines: u64) {
        if lines & ROOM != 0 {
            self.sides.all.borrow_mut().iter_mut().for_each(|side| side.refused = false);
        }
    }
}

pub type Host = turnstile_service_rig::Host<Program>;

/// A hypervisor with one VM and its ports.
pub fn host(left: Option<u64>) -> Host {
    let board = Board::new(MEMORY, 273);
    let kept = Rc::new(RefCell::new([0; WORDS]));
    let sides = Sides { all: Rc::default(), kept, fuse: board.fuse.clone() };
    let device = Device::new(Ports::new(sides.clone()));
    Host::new(board, Program { sides, device }, left)
}

/// What happens at the other sides.
pub trait Peers {
    /// The VM has started anew: so does the service, and nobody is at the ports.
    fn restart(&mut self);
    /// Somebody comes to a port, and has so much room.
    fn open(&mut self, port: usize, room: u64);
    /// They go: what waits is gone, too.
    fn close(&mut self, port: usize);
    /// They have read: there is more room.
    fn make_room(&mut self, port: usize, room: u64);
    /// Bytes come for a port.
    fn bring(&mut self, port: usize, bytes: &[u8]);
    /// Offers what there is, as the hypervisor does.
    fn offer(&mut self);
    /// What came to whoever is at a port.
    fn text(&self, port: usize) -> Vec<u8>;
}

impl Peers for Host {
    fn restart(&mut self) {
        let mut all = self.subject.sides.all.borrow_mut();
        for side in all.iter_mut() {
            *side = Side { sent: side.sent, taken: side.taken, ..Side::default() };
        }
        drop(all);
        self.begin(false);
    }

    fn open(&mut self, port: usize, room: u64) {
        let mut all = self.subject.sides.all.borrow_mut();
        let side = &mut all[port - 1];
        (side.is_open, side.room, side.news, side.refused) = (true, room, true, false);
        drop(all);
        self.offer();
    }

    fn close(&mut self, port: usize) {
        let mut all = self.subject.sides.all.borrow_mut();
        let side = &mut all[port - 1];
        (side.is_open, side.news) = (false, true);
        side.typed.clear();
        drop(all);
        self.offer();
    }

    fn make_room(&mut self, port: usize, room: u64) {
        let mut all = self.subject.sides.all.borrow_mut();
        (all[port - 1].room, all[port - 1].news) = (all[port - 1].room + room, true);
        drop(all);
        self.offer();
    }

    fn bring(&mut self, port: usize, bytes: &[u8]) {
        self.subject.sides.all.borrow_mut()[port - 1].typed.extend(bytes);
        self.offer();
    }

    fn offer(&mut self) {
        for _ in 0..10_000 {
            let next = (0..NAMES.len()).find_map(|at| {
                let side = &mut self.subject.sides.all.borrow_mut()[at];
                let count = side.typed.len().min(8);
                let mut bytes = [0; 8];
                bytes[..count].copy_from_slice(&side.typed[..count]);
                match (std::mem::take(&mut side.news), count != 0 && !side.refused) {
                    (true, _) => Some((at, 0, [0; 8], side.taken)),
                    (_, true) => Some((at, count, bytes, side.taken)),
                    _ => None,
                }
            });
            let Some((at, count, bytes, position)) = next else { return };
            let typed = Characters { count: count as u64, words: [u64::from_le_bytes(bytes), 0] };
            let taken = self.event(Event::Input { device: at as u64 + 1, typed, position, size: 0 });
            assert!(taken <= count as u64);
            let side = &mut self.subject.sides.all.borrow_mut()[at];
            side.typed.drain(..(taken as usize).min(side.typed.len()));
            side.taken += taken;
            side.refused = count != 0 && taken == 0;
        }
        panic!("it is offered the same again and again");
    }

    fn text(&self, port: usize) -> Vec<u8> {
        self.subject.sides.all.borrow()[port - 1].text.clone()
    }
}

/// A guest, as its driver and its programs see ports.
pub struct Guest {
    pub driver: BlockDriver,
    /// What was said to it, but for names: port, event, value.
    pub heard: Vec<(u32, u16, u16)>,
    pub names: Vec<(u32, Vec<u8>)>,
    /// What it has read from each port.
    pub read: [Vec<u8>; 2],
    /// The program at each port is there, and reads.
    pub reads: [bool; 2],
}

/// Room for a message or bytes.
pub fn room(length: u32) -> Request {
    Request { writable: vec![length], ..Request::default() }
}

/// Bytes to be sent.
pub fn text(bytes: &[u8]) -> Request {
    Request { readable: bytes.to_vec(), readable_cuts: vec![bytes.len() as u32], ..Request::default() }
}

/// The queue of what a port receives.
pub const fn receive(port: usize) -> usize {
    2 * port + 2
}

/// The queue of what is written to a port.
pub const fn transmit(port: usize) -> usize {
    2 * port + 3
}

impl Guest {
    /// Finds the device and its ports, and a program opens each.
    pub fn new(host: &mut Host) -> Self {
        let mut guest = Self::before_ports(host);
        guest.find_ports(host);
        guest
    }

    /// Finds the device.
    pub fn before_ports(host: &mut Host) -> Self {
        let mut driver = BlockDriver::probe_other(host, 0x1040 + u64::from(CONSOLE), QUEUES, 64);
        driver.enable_messages(host);
        assert!(driver.start(host, ACCEPTED));
        Self { driver, heard: Vec::new(), names: Vec::new(), read: Default::default(), reads: [true; 2] }
    }

    /// Finds its ports, and a program opens each.
    pub fn find_ports(&mut self, host: &mut Host) {
        for _ in 0..8 {
            self.driver.ask(host, 2, &room(40));
        }
        self.say(host, 0, ConsoleControl::DEVICE_READY, 1);
        self.settle(host);
        for port in 1..=NAMES.len() {
            self.say(host, port as u32, ConsoleControl::PORT_READY, 1);
            self.say(host, port as u32, ConsoleControl::PORT_OPEN, 1);
        }
        self.settle(host);
    }

    /// Says something on the control queue.
    pub fn say(&mut self, host: &mut Host, port: u32, event: u16, value: u16) {
        let message = ConsoleControl { port, event, value }.to_bytes();
        while !self.driver.ask(host, 3, &text(&message)) {
            self.turn(host);
        }
    }

    /// Handles interrupts, and gives buffers back.
    pub fn turn(&mut self, host: &mut Host) {
        for (queue, reply) in self.driver.interrupts(host) {
            let bytes = &reply.bytes[..reply.written as usize];
            if queue == 2 {
                let (head, tail) = bytes.split_at(ConsoleControl::LENGTH);
                let ConsoleControl { port, event, value } =
                    ConsoleControl::from_bytes(head.try_into().unwrap());
                match event {
                    ConsoleControl::PORT_NAME => self.names.push((port, tail.to_vec())),
                    _ => self.heard.push((port, event, value)),
                }
                assert!(self.driver.ask(host, 2, &room(40)));
            }
            for port in 1..=NAMES.len() {
                if queue == receive(port) {
                    self.read[port - 1].extend(bytes);
                }
            }
        }
        for port in 1..=NAMES.len() {
            if self.reads[port - 1] {
                while self.driver.ask(host, receive(port), &room(13)) {}
            }
        }
        host.offer();
    }

    /// Lets everything that is due happen.
    pub fn settle(&mut self, host: &mut Host) {
        loop {
            self.turn(host);
            let more = host.wait() || !host.board.messages.borrow().is_empty();
            if !more {
                return;
            }
        }
    }
}
