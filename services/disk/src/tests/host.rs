// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The service, its disk, and a hypervisor with both.

use turnstile_block::ram::{Image, RamDisk, Store};
use turnstile_rig::{BlockDriver, Fuse};
use turnstile_service_block::{Disk, QUEUES, VECTORS};
use turnstile_service_rig::{Board, Subject};
use turnstile_service_rt::{Answer, Doorbells, Event, Service};
use turnstile_service_virtio::Virtio;

use crate::Function;

/// Bytes of the VM's memory.
pub const MEMORY: usize = 0x80_0000;
/// Another function decodes this.
pub const OTHER: std::ops::Range<u64> = 0x1000_0000..0x1000_1000;

/// The disk's memory, which stays when the service is killed.
#[derive(Default)]
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

/// The service with its disk.
pub struct Program {
    device: Device,
    writable: bool,
}

impl Subject for Program {
    const DOORBELLS: Doorbells = Function::DOORBELLS;

    fn begin(&mut self, board: &Board, kept: bool, bars: u64) -> Answer {
        let new = Device::new(Disk::new(RamDisk::new(Bytes::default())));
        let bytes = std::mem::replace(&mut self.device, new).model.into_disk().into_store();
        self.device.model.insert(RamDisk::new(bytes), *b"root\0\0\0\0\0\0\0\0\0\0\0\0", self.writable);
        self.device.attach(board, kept, bars)
    }

    fn event(&mut self, board: &Board, event: Event) -> Answer {
        self.device.event(board, event)
    }
}

impl Program {
    /// Takes the disk out of the machine.
    pub fn into_disk(self) -> Vec<u8> {
        self.device.model.into_disk().into_store().0
    }
}

pub type Host = turnstile_service_rig::Host<Program>;

/// A hypervisor with one VM and its disk.
pub fn host(disk: Vec<u8>, writable: bool, left: Option<u64>) -> Host {
    let mut board = Board::new(MEMORY, 77);
    board.other = OTHER;
    let device = Device::new(Disk::new(RamDisk::new(Bytes(disk, board.fuse.clone()))));
    Host::new(board, Program { device, writable }, left)
}

/// A driver of all queues.
pub fn probe(host: &mut Host) -> BlockDriver {
    BlockDriver::probe(host, QUEUES)
}
