// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service, the pool that it gives memory to, and a hypervisor with both.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use turnstile_rig::{BlockDriver, Fuse, Ram};
use turnstile_service_rig::{Board, Subject};
use turnstile_service_rt::{Answer, BLOCK, Characters, Doorbells, Event, ROOM, Service};
use turnstile_service_virtio::Virtio;
use turnstile_virtio::config::{BALLOON, Balloon as Configuration};
use turnstile_virtio::features::Features;

use crate::Function;
use crate::model::{self, Balloon, Giver, QUEUES, VECTORS};

/// Bytes of the VM's memory.
pub const MEMORY: usize = 0x80_0000;
/// What a driver accepts that wants an interrupt of each report.
pub const ACCEPTED: Features = Features::VERSION_1
    .union(Features::INDIRECT_DESC)
    .union(Configuration::MUST_TELL_HOST)
    .union(Configuration::PAGE_POISON)
    .union(Configuration::PAGE_REPORTING);

/// A pool, as the service knows it. Clones are one.
#[derive(Clone, Default)]
pub struct Pool(Rc<State>, Fuse);

#[derive(Default)]
struct State {
    /// The blocks that were given and are still there.
    leaving: RefCell<BTreeSet<u64>>,
    /// Those that are gone.
    gone: RefCell<BTreeSet<u64>>,
    /// How often they are still there when somebody asks.
    delay: Cell<u64>,
    left: Cell<u64>,
    /// How often it was asked.
    asked: Cell<u64>,
    /// For how many pages the driver was asked, as the service keeps it.
    wanted: Cell<u64>,
}

impl Pool {
    pub fn has(&self, block: u64) -> bool {
        self.0.gone.borrow().contains(&block)
    }

    pub fn count(&self) -> usize {
        self.0.gone.borrow().len()
    }

    /// The guest has touched all again.
    pub fn take_back(&self) {
        self.0.gone.borrow_mut().clear();
    }

    /// What is given is still there when somebody has asked so often.
    pub fn delay(&self, delay: u64) {
        self.0.delay.set(delay);
    }

    pub fn asked(&self) -> u64 {
        self.0.asked.take()
    }
}

impl Giver for Pool {
    fn give(&mut self, address: u64, length: u64) {
        assert!(address.is_multiple_of(BLOCK) && length.is_multiple_of(BLOCK) && length != 0);
        assert!(Ram::BASE <= address && address + length <= Ram::BASE + MEMORY as u64);
        self.0.asked.set(self.0.asked.get() + 1);
        if self.1.step() {
            self.0.left.set(self.0.delay.get());
            self.0.leaving.borrow_mut().extend((address..address + length).step_by(BLOCK as usize));
        }
    }

    fn is_settled(&mut self) -> bool {
        self.0.asked.set(self.0.asked.get() + 1);
        if !self.1.step() {
            return false;
        }
        let left = self.0.left.get();
        self.0.left.set(left.saturating_sub(1));
        if left == 0 {
            self.0.gone.borrow_mut().append(&mut self.0.leaving.borrow_mut());
        }
        left == 0
    }

    fn keep(&mut self) {
        if self.1.step() {
            self.0.leaving.borrow_mut().clear();
        }
    }

    fn wanted(&self) -> u64 {
        self.0.wanted.get()
    }

    fn want(&mut self, pages: u64) {
        if self.1.step() {
            self.0.wanted.set(pages);
        }
    }
}

type Device = Virtio<QUEUES, VECTORS, Balloon<Pool>>;

/// The service, and the pool.
pub struct Program {
    pub pool: Pool,
    /// For how many pages the guest is to be asked.
    wanted: u64,
    /// The service wants to hear that.
    room: bool,
    device: Device,
}

impl Subject for Program {
    const DOORBELLS: Doorbells = Function::DOORBELLS;

    fn begin(&mut self, board: &Board, kept: bool, bars: u64) -> Answer {
        self.device = Device::new(Balloon::new(self.pool.clone()));
        model::attach(&mut self.device, board, kept, bars)
    }

    fn event(&mut self, board: &Board, event: Event) -> Answer {
        model::event(&mut self.device, board, event)
    }

    fn answered(&mut self, lines: u64) {
        self.room |= lines & ROOM != 0;
    }
}

pub type Host = turnstile_service_rig::Host<Program>;

/// A hypervisor with one VM and its balloon.
pub fn host() -> Host {
    let board = Board::new(MEMORY, 65);
    let pool = Pool(Rc::default(), board.fuse.clone());
    let device = Device::new(Balloon::new(pool.clone()));
    Host::new(board, Program { pool, wanted: 0, room: false, device }, None)
}

/// The guest is to be asked for so many pages.
pub fn ask(host: &mut Host, pages: u64) {
    host.subject.wanted = pages;
    tell(host);
}

/// What the service wants to hear, it is told. Returns whether it was that.
pub fn tell_again(host: &mut Host) -> bool {
    let wants = std::mem::take(&mut host.subject.room);
    if wants {
        tell(host);
    }
    wants
}

fn tell(host: &mut Host) {
    let (typed, size) = (Characters::default(), host.subject.wanted);
    host.event(Event::Input { device: 0, typed, position: 0, size });
}

/// A driver that has found the device.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe_other(host, 0x1040 + u64::from(BALLOON), QUEUES, 32)
}
