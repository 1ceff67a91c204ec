// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor is to the service: events, calls, restarts. The service is killed at any step that leaves a trace.

use turnstile_block::ram::{Image, RamDisk, Store};
use turnstile_rig::{BlockDriver, Computer, Fuse, Ram};
use turnstile_service_block::{Disk, QUEUES, VECTORS};
use turnstile_service_rig::{Board, Kills};
use turnstile_service_rt::{AGAIN, Event, Service};
use turnstile_service_virtio::Virtio;

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

type Device = Virtio<QUEUES, VECTORS, Disk<RamDisk<Bytes>>>;

/// A hypervisor with one VM and its disk.
pub struct Host {
    pub board: Board,
    device: Option<Device>,
    writable: bool,
    /// The service wants another event.
    pub again: bool,
    pub kills: Kills,
}

impl Host {
    pub fn new(disk: Vec<u8>, writable: bool, left: Option<u64>) -> Self {
        let mut board = Board::new(MEMORY, 77);
        board.other = OTHER;
        let (fuse, kills) = (board.fuse.clone(), Kills::new(board.fuse.clone(), left));
        let mut host = Self { board, device: None, writable, again: false, kills };
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
            self.kills.arm();
            let answer = device.attach(&self.board, kept, FIRMWARE);
            if !self.kills.is_dead() {
                self.again |= answer.lines & AGAIN != 0;
                self.device = Some(device);
                return;
            }
            bytes = device.model.into_disk().into_store();
            kept = true;
        }
    }

    /// Hands an event to the service until it has answered.
    pub fn event(&mut self, event: Event) -> u64 {
        loop {
            self.kills.arm();
            let mut device = self.device.take().expect("it lives");
            let answer = device.event(&self.board, event);
            if !self.kills.is_dead() {
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
        self.kills.deaths += 1;
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

    /// The disk.
    pub fn disk(self) -> Vec<u8> {
        self.device.expect("it lives").model.into_disk().into_store().0
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
        self.alarm()
    }
}

/// A driver of all queues.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe(host, QUEUES)
}
