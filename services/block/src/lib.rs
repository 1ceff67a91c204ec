// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block device of disks in memory, of whatever kind: queues of requests to one disk. The programs `disk` and `overlay` have it.
#![no_std]
#![forbid(unsafe_code)]

use turnstile_block::disk::{self, DiskFor};
use turnstile_block::queue::{self, Queue};
use turnstile_block::request::{Budget, Fault};
use turnstile_block::settings::{Rules, Settings};
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves};
use turnstile_virtio::config::{BLOCK, Block};
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::rings::Rings;

/// One service does the requests of all queues, one after the other. But each queue has a lock in the driver, and an interrupt that goes
/// to the CPU that asked: four are enough for the VMs that there are.
pub const QUEUES: usize = 4;
/// One for each queue, and one for the configuration.
pub const VECTORS: usize = QUEUES + 1;
/// Descriptors of a queue. With indirect ones, that is how many requests it has at once.
const SIZE: u16 = 128;
/// Buffers of a request, header and status included.
const BUFFERS: usize = 128;

/// A disk and its queues.
pub struct Disk<D, R = Layout> {
    disk: D,
    settings: Settings,
    rules: Rules,
    queues: [Option<Queue<BUFFERS, R>>; QUEUES],
}

impl<D, R> Disk<D, R> {
    /// Makes a disk without a name that cannot be written.
    pub const fn new(disk: D) -> Self {
        let settings = settings([0; 20], false);
        let rules = Rules { read_only: true, through: true, discards: false, id: [0; 20] };
        Self { disk, settings, rules, queues: [const { None }; QUEUES] }
    }

    /// Puts in another disk. No queue may be there.
    pub fn insert(&mut self, disk: D, name: [u8; 16], writable: bool) {
        let mut id = [0; 20];
        id.iter_mut().zip(name).for_each(|(to, from)| *to = from);
        self.disk = disk;
        self.settings = settings(id, writable);
    }

    /// Returns the disk.
    #[inline(always)] // A reference.
    pub const fn disk(&self) -> &D {
        &self.disk
    }

    /// Takes the disk out of the device.
    pub fn into_disk(self) -> D {
        self.disk
    }
}

const fn settings(id: [u8; 20], writable: bool) -> Settings {
    Settings {
        read_only: !writable,
        id,
        segments: BUFFERS as u32 - 2,
        segment_bytes: 0,
        block_size: 512,
        physical_block_exp: 3,
        best_blocks: 0,
        queues: QUEUES as u16,
        cache: true,
        discard_alignment: 8,
        zeroes: true,
    }
}

impl<D: disk::Disk + 'static, R: Copy + 'static> Model<QUEUES> for Disk<D, R> {
    type Configuration = Block;
    const KIND: Kind = Kind { device: BLOCK, class: 0x01_8000, interrupt_pin: false, places: QUEUES as u16 };
    const SIZES: [u16; QUEUES] = [SIZE; QUEUES];
    const REQUIREMENTS: &'static [Requirement] = &[];

    fn features(&self) -> Features {
        self.settings.features()
    }

    fn configuration(&self) -> Block {
        self.settings.configuration(self.disk.sectors())
    }

    fn written(configuration: &Block) -> u64 {
        configuration.writeback.into()
    }

    fn write_again(configuration: &mut Block, written: u64) {
        configuration.writeback = written != 0;
    }

    fn agree(&mut self, features: Features, configuration: &Block) {
        self.rules = self.settings.rules(features, configuration.writeback);
    }

    fn forget(&mut self, number: u16) {
        if let Some(queue) = self.queues.get_mut(usize::from(number)) {
            *queue = None;
        }
    }
}

impl<M: Memory, D: DiskFor<M> + 'static, R: Rings<M> + Copy + 'static> Serves<QUEUES, M> for Disk<D, R> {
    fn begin(
        &mut self,
        number: u16,
        memory: &M,
        layout: Layout,
        options: Options,
        left: bool,
    ) -> Result<(), Broken> {
        let Some(queue) = self.queues.get_mut(usize::from(number)) else { return Ok(()) };
        let rings = R::find(memory, &layout).map_err(|_| Broken)?;
        *queue = Some(match left {
            true => Queue::resume(memory, rings, options).map_err(broken)?,
            false => Queue::new(rings, options),
        });
        Ok(())
    }

    #[inline(always)] // The way of each notification.
    fn serve(&mut self, number: u16, memory: &M, budget: &mut u32) -> Result<Served, Broken> {
        let Some(Some(queue)) = self.queues.get_mut(usize::from(number)) else {
            return Ok(Served { interrupt: false, rest: Rest::Idle });
        };
        let mut left = Budget(*budget);
        let served = queue.serve(memory, &mut self.disk, &self.rules, &mut left).map_err(broken)?;
        *budget = left.0;
        let rest = match served.rest {
            queue::Rest::Idle => Rest::Idle,
            queue::Rest::Spent | queue::Rest::Busy => Rest::More,
        };
        Ok(Served { interrupt: served.interrupt, rest })
    }
}

#[cold]
fn broken(_: Fault) -> Broken {
    Broken
}
