// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service, the pool that it gives memory to, and a hypervisor with both.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use turnstile_rig::{BlockDriver, Fuse, Ram};
use turnstile_service_rig::{Board, Subject};
use turnstile_service_rt::{Answer, BLOCK, Doorbells, Event, Service};
use turnstile_service_virtio::Virtio;
use turnstile_virtio::config::{BALLOON, Balloon as Configuration};
use turnstile_virtio::features::Features;

use crate::Function;
use crate::model::{Balloon, Giver, QUEUES, VECTORS};

/// Bytes of the VM's memory.
pub const MEMORY: usize = 0x80_0000;
/// What a driver accepts that wants an interrupt of each report.
pub const ACCEPTED: Features = Features::VERSION_1
    .union(Features::INDIRECT_DESC)
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
}

type Device = Virtio<QUEUES, VECTORS, Balloon<Pool>>;

/// The service, and the pool.
pub struct Program {
    pub pool: Pool,
    device: Device,
}

impl Subject for Program {
    const DOORBELLS: Doorbells = Function::DOORBELLS;

    fn begin(&mut self, board: &Board, kept: bool, bars: u64) -> Answer {
        self.device = Device::new(Balloon::new(self.pool.clone()));
        self.device.attach(board, kept, bars)
    }

    fn event(&mut self, board: &Board, event: Event) -> Answer {
        self.device.event(board, event)
    }
}

pub type Host = turnstile_service_rig::Host<Program>;

/// A hypervisor with one VM and its balloon.
pub fn host() -> Host {
    let board = Board::new(MEMORY, 65);
    let pool = Pool(Rc::default(), board.fuse.clone());
    let device = Device::new(Balloon::new(pool.clone()));
    Host::new(board, Program { pool, device }, None)
}

/// A driver that has found the device.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe_other(host, 0x1040 + u64::from(BALLOON), QUEUES, 32)
}
