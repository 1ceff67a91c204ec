// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor is to the service: events, calls, restarts. The service is killed at any step that leaves a trace.

use std::cell::{Cell, RefCell};

use turnstile_block::ram::{Image, RamDisk, Store};
use turnstile_pci::msix::Message;
use turnstile_rig::{BlockDriver, Computer, DOORBELL, ECAM, Fuse, Ram, Random, WINDOW};
use turnstile_service_block::{Disk, QUEUES, VECTORS};
use turnstile_service_rt::{AGAIN, BARS, CONFIGURATION, Event, Service};
use turnstile_service_virtio::{Virtio, World};

use crate::Function;

/// Bytes of the VM's memory.
pub const MEMORY: usize = 0x80_0000;
/// Where firmware places the BARs of this function.
pub const FIRMWARE: u64 = 0x1008_0000;
/// Another function decodes this.
pub const OTHER: std::ops::Range<u64> = 0x1000_0000..0x1000_1000;

/// The disk's memory, which stays when the service is killed.
pub struct Bytes(pub Vec<u8>, pub Fuse);

impl Image for Bytes {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn piece(&self, at: u64, most: u64) -> Option<&[u8]> {
        self.0.get(at as usize..(at + most) as usize)
    }
}

impl Store for Bytes {
    fn piece_mut(&mut self, at: u64, most: u64) -> Option<&mut [u8]> {
        let alive = self.1.step();
        self.0.get_mut(at as usize..(at + most) as usize).filter(|_| alive)
    }
}

/// What calls reach.
pub struct Board {
    pub ram: Ram,
    pub fuse: Fuse,
    kept: RefCell<Vec<u64>>,
    pub decoded: RefCell<[Option<(u64, u64)>; 6]>,
    pub messages: RefCell<Vec<u32>>,
    /// The time, and how much later it is whenever somebody asks.
    pub clock: Cell<u64>,
    pub tick: Cell<u64>,
}

impl World for Board {
    type Memory = Ram;

    fn memory(&self) -> &Ram {
        &self.ram
    }

    fn message(&self, Message { address, data }: Message) {
        if self.fuse.step() && address == DOORBELL {
            self.messages.borrow_mut().push(data);
        }
    }

    fn flush(&self) {}

    fn decode(&self, bar: u8, address: u64, size: u64) -> bool {
        if !self.fuse.step() {
            return true;
        }
        let mut all = self.decoded.borrow_mut();
        all[usize::from(bar)] = None;
        let end = address.saturating_add(size);
        let overlaps = |begin: u64, last: u64| address < last && begin < end;
        let taken = overlaps(OTHER.start, OTHER.end)
            || all.iter().flatten().any(|(base, size)| overlaps(*base, base + size));
        let inside = WINDOW.start <= address && end <= WINDOW.end;
        if size == 0 {
            return true;
        }
        let good = inside && !taken && address.is_multiple_of(size);
        if good {
            all[usize::from(bar)] = Some((address, size));
        }
        good
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

type Device = Virtio<QUEUES, VECTORS, Disk<RamDisk<Bytes>>>;

/// A hypervisor with one VM and its disk.
pub struct Host {
    pub board: Board,
    device: Option<Device>,
    writable: bool,
    /// The service wants another event.
    pub again: bool,
    /// After how many steps it is killed.
    pub left: Option<u64>,
    /// After how many it is killed again, at most.
    pub most: Option<Random>,
    pub deaths: u64,
}

impl Host {
    pub fn new(disk: Vec<u8>, writable: bool, left: Option<u64>) -> Self {
        let fuse = Fuse::default();
        let board = Board {
            ram: Ram::new(MEMORY, fuse.clone()),
            fuse: fuse.clone(),
            kept: RefCell::new(vec![0; 77]),
            decoded: RefCell::default(),
            messages: RefCell::default(),
            clock: Cell::new(0),
            tick: Cell::new(1000),
        };
        let mut host = Self { board, device: None, writable, again: false, left, most: None, deaths: 0 };
        host.begin(Bytes(disk, fuse), false);
        host
    }

    /// Begins a life of the service, until one gets so far.
    fn begin(&mut self, mut bytes: Bytes, mut kept: bool) {
        loop {
            let mut device = Device::new(Disk::new(RamDisk::new(bytes)));
            let fuse = self.board.fuse.clone();
            let store =
                std::mem::replace(&mut device, Device::new(Disk::new(RamDisk::new(Bytes(Vec::new(), fuse)))));
            device.model.insert(store.model.into_disk(), *b"root\0\0\0\0\0\0\0\0\0\0\0\0", self.writable);
            self.arm();
            let answer = device.attach(&self.board, kept, FIRMWARE);
            if !self.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                self.device = Some(device);
                return;
            }
            bytes = device.model.into_disk().into_store();
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
            let mut device = self.device.take().expect("it lives");
            let answer = device.event(&self.board, event);
            if !self.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                self.device = Some(device);
                return answer.value;
            }
            self.begin(device.model.into_disk().into_store(), true);
        }
    }

    /// Kills it between two events.
    pub fn kill(&mut self) {
        let device = self.device.take().expect("it lives");
        self.deaths += 1;
        self.begin(device.model.into_disk().into_store(), true);
    }

    /// The alarm, if the service wants it.
    pub fn alarm(&mut self) -> bool {
        let again = std::mem::take(&mut self.again);
        if again {
            self.event(Event::Alarm(0));
        }
        again
    }

    fn find(&self, address: u64) -> Option<(u64, u64)> {
        if (ECAM..ECAM + 0x1000).contains(&address) {
            return Some((CONFIGURATION, address - ECAM));
        }
        let decoded = self.board.decoded.borrow();
        let mut all = (BARS..).zip(decoded.iter()).filter_map(|(device, bar)| Some((device, (*bar)?)));
        all.find_map(|(device, (base, size))| {
            (base..base + size).contains(&address).then(|| (device, address - base))
        })
    }

    /// The disk.
    pub fn disk(self) -> Vec<u8> {
        self.device.expect("it lives").model.into_disk().into_store().0
    }
}

impl Computer for Host {
    fn read(&mut self, address: u64, size: u64) -> u64 {
        let Some((device, offset)) = self.find(address) else { return u64::MAX >> (64 - 8 * size) };
        self.event(Event::Read { device, offset, size })
    }

    fn write(&mut self, address: u64, size: u64, value: u64) {
        let Some((device, offset)) = self.find(address) else { return };
        let bell = Function::DOORBELLS.queue(offset, value).filter(|_| device == BARS + 4);
        match bell {
            Some(queue) => self.event(Event::Doorbell { queues: 1 << queue, now: 0 }),
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
        self.alarm()
    }
}

/// A driver of all queues.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe(host, QUEUES)
}
