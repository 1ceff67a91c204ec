// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor is to the service: events, calls, restarts. The service is killed at any step that leaves a trace.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use turnstile_rig::{BlockDriver, Computer, Fuse, Ram};
use turnstile_service_rig::{Board, Kills};
use turnstile_service_rt::{AGAIN, BLOCK, Characters, Event, ROOM, Service};
use turnstile_service_virtio::Virtio;
use turnstile_virtio::config::{BALLOON, Balloon as Configuration};
use turnstile_virtio::features::Features;

use crate::Function;
use crate::model::{self, Balloon, Giver, QUEUES, VECTORS};

/// Where firmware places BARs.
const FIRMWARE: u64 = 0x1008_0000;
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

/// A hypervisor with one VM and its balloon.
pub struct Host {
    pub board: Board,
    pub pool: Pool,
    device: Device,
    /// For how many pages the guest is to be asked.
    pub wanted: u64,
    /// The service wants to hear that.
    pub room: bool,
    /// The service wants another event.
    pub again: bool,
    pub kills: Kills,
}

impl Host {
    pub fn new() -> Self {
        let board = Board::new(MEMORY, 65);
        let (fuse, kills) = (board.fuse.clone(), Kills::new(board.fuse.clone(), None));
        let pool = Pool(Rc::default(), fuse);
        let device = Device::new(Balloon::new(pool.clone()));
        let mut host = Self { board, pool, device, wanted: 0, room: false, again: false, kills };
        host.begin(false);
        host
    }

    /// Begins a life of the service, until one gets so far.
    fn begin(&mut self, mut kept: bool) {
        loop {
            self.device = Device::new(Balloon::new(self.pool.clone()));
            self.kills.arm();
            let answer = model::attach(&mut self.device, &self.board, kept, FIRMWARE);
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
            let answer = model::event(&mut self.device, &self.board, event);
            if !self.kills.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                return answer.value;
            }
            self.begin(true);
        }
    }

    /// Asks the guest for so many pages.
    pub fn ask(&mut self, pages: u64) {
        self.wanted = pages;
        self.tell();
    }

    /// Tells the service for how many pages.
    fn tell(&mut self) {
        let typed = Characters::default();
        self.event(Event::Input { device: 0, typed, position: 0, size: self.wanted });
    }

    /// What is kept is lost, too.
    pub fn forget_kept(&mut self) {
        self.begin(false);
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
        if std::mem::take(&mut self.room) {
            self.tell();
            return true;
        }
        let again = std::mem::take(&mut self.again);
        if again {
            self.event(Event::Alarm(0));
        }
        again
    }
}

/// A driver that has found the device.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe_other(host, 0x1040 + u64::from(BALLOON), QUEUES, 32)
}
