// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block device of a member: one queue of requests to its part of the disk.

use core::cell::Cell;

use turnstile_block::deep::{Queue, Slots};
use turnstile_block::disk::{Failure, PIECE};
use turnstile_block::queue;
use turnstile_block::request::{Budget, Fault};
use turnstile_block::settings::{Rules, Settings};
use turnstile_drive::drive::{Drive, Geometry};
use turnstile_service_rt::drive::Drive as Wanted;
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves};
use turnstile_virtio::config::{BLOCK, Block};
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::rings::Rings;

use crate::lent::{DEPTH, Lent};
use crate::machine::Machine;

/// One service does the requests of all of a guest's CPUs, and the controller interrupts one of the machine's.
pub const QUEUES: usize = 1;
/// One for the queue, and one for the configuration.
pub const VECTORS: usize = QUEUES + 1;
/// Descriptors of the queue. With indirect ones, that is how many requests it has at once.
const SIZE: u16 = 128;
/// Buffers of a request, header and status included.
const BUFFERS: usize = 128;

/// What a device reaches: the memory of its VM, and the controller, which it has for the time of a call.
pub struct Reach<'a, H: Machine, D> {
    memory: &'a H::Memory,
    lent: Cell<Option<&'a mut Lent<H, D>>>,
}

impl<'a, H: Machine, D> Reach<'a, H, D> {
    /// Lends the controller.
    pub const fn new(memory: &'a H::Memory, lent: &'a mut Lent<H, D>) -> Self {
        Self { memory, lent: Cell::new(Some(lent)) }
    }
}

/// That of the VM.
impl<H: Machine, D> Memory for Reach<'_, H, D> {
    fn contains(&self, address: u64, length: u64) -> bool {
        self.memory.contains(address, length)
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        self.memory.load(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        self.memory.store(address, value)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        self.memory.read(address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        self.memory.write(address, bytes)
    }

    fn fence(&self) {
        self.memory.fence();
    }
}

/// What is known of the disk.
#[derive(Clone, Copy)]
struct Known {
    geometry: Geometry,
    /// How many sectors the member has.
    sectors: u64,
    stage_bytes: u64,
}

/// A disk and its queue.
// In this order: what is behind the slots is out of an instruction's reach.
#[repr(C)]
pub struct Disk<R> {
    /// The member's number.
    number: usize,
    queue: Option<Queue<DEPTH, R>>,
    /// Where the queue is, for who takes it up anew.
    rings: Option<(R, Options)>,
    known: Option<Known>,
    id: [u8; 20],
    read_only: bool,
    /// The controller does nothing for a queue that is gone.
    is_settled: bool,
    rules: Rules,
    slots: Slots<BUFFERS, DEPTH>,
}

impl<R: Copy> Disk<R> {
    /// A disk without a name, and without a controller.
    pub const NEW: Self = Self {
        number: 0,
        slots: Slots::NEW,
        queue: None,
        rings: None,
        known: None,
        id: [0; 20],
        read_only: true,
        is_settled: true,
        rules: Rules { read_only: true, through: true, discards: false, id: [0; 20] },
    };

    /// Whose it is, what the configuration says of it, and how many of its requests are done at once. Only without requests.
    pub const fn set(&mut self, number: usize, wanted: Wanted, room: u16) {
        self.number = number;
        self.read_only = wanted.read_only;
        self.slots.limit(room);
    }

    /// The controller is ready: what the disk is.
    pub fn know<H: Machine, D: Drive>(&mut self, lent: &Lent<H, D>) {
        self.known = lent.geometry().map(|geometry| Known {
            geometry,
            sectors: lent.sectors_of(self.number),
            stage_bytes: lent.largest(),
        });
    }

    /// Its name, which the guest sees.
    pub fn set_name(&mut self, words: [u64; 2]) {
        let bytes = words.into_iter().flat_map(u64::to_le_bytes);
        self.id.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    }

    /// The controller has something to do.
    pub fn is_waiting(&self) -> bool {
        self.slots.is_waiting()
    }

    /// The controller has something to do for a queue that is gone.
    pub fn is_forgotten_at_work(&self) -> bool {
        self.slots.is_forgotten_at_work()
    }

    /// Whether the controller reaches the guest's memory for no queue that is gone, as the guest is to see.
    pub const fn set_settled(&mut self, is_settled: bool) {
        self.is_settled = is_settled;
    }

    /// The controller has done the command with this tag.
    #[inline(always)] // Of each command.
    pub fn done(&mut self, tag: u16, result: Result<(), Failure>) {
        self.slots.done(tag, result);
    }

    /// The controller begins anew, and has forgotten its commands: the requests are begun again.
    pub fn again<M: Memory>(&mut self, memory: &M, room: u16) -> Result<(), Broken>
    where
        R: Rings<M>,
    {
        self.slots = Slots::NEW;
        self.slots.limit(room);
        if let (Some(queue), Some((rings, options))) = (&mut self.queue, self.rings) {
            *queue = Queue::resume(memory, rings, options, BUFFERS as u32).map_err(broken)?;
        }
        Ok(())
    }

    /// The controller does nothing any more.
    pub fn fail(&mut self) {
        self.slots.fail();
    }

    fn settings(&self) -> Settings {
        let geometry = self.known.map(|known| known.geometry);
        let stage_bytes = self.known.map_or(PIECE, |known| known.stage_bytes);
        let is_writable = geometry.is_none_or(|geometry| geometry.writable);
        let block = geometry.map_or(512, |geometry| geometry.block);
        let discards = geometry.is_some_and(|geometry| geometry.most_discarded != 0);
        Settings {
            read_only: self.read_only || !is_writable,
            id: self.id,
            segments: BUFFERS as u32 - 2,
            segment_bytes: 0,
            block_size: block,
            physical_block_exp: (4096 / block.max(512)).trailing_zeros() as u8,
            best_blocks: (stage_bytes / u64::from(block.max(512))) as u32,
            queues: QUEUES as u16,
            cache: geometry.is_none_or(|geometry| geometry.cache),
            discard_alignment: geometry.filter(|_| discards).map_or(0, |geometry| geometry.discard_alignment),
            zeroes: geometry.is_some_and(|geometry| geometry.most_zeroed != 0),
        }
    }
}

impl<R: Copy + 'static> Model<QUEUES> for Disk<R> {
    type Configuration = Block;
    const KIND: Kind = Kind { device: BLOCK, class: 0x01_8000, interrupt_pin: false, places: QUEUES as u16 };
    const SIZES: [u16; QUEUES] = [SIZE; QUEUES];
    const REQUIREMENTS: &'static [Requirement] = &[];

    /// A queue is never reset by itself: the controller may be at work for it.
    fn features(&self) -> Features {
        self.settings().features() - Features::RING_RESET
    }

    fn configuration(&self) -> Block {
        self.settings().configuration(self.known.map_or(0, |known| known.sectors))
    }

    fn written(configuration: &Block) -> u64 {
        configuration.writeback.into()
    }

    fn write_again(configuration: &mut Block, written: u64) {
        configuration.writeback = written != 0;
    }

    fn agree(&mut self, features: Features, configuration: &Block) {
        self.rules = self.settings().rules(features, configuration.writeback);
    }

    fn is_settled(&self) -> bool {
        self.is_settled
    }

    fn forget(&mut self, _: u16) {
        (self.queue, self.rings) = (None, None);
        self.slots.forget();
    }
}

impl<'a, H: Machine, D: Drive, R: Rings<H::Memory> + Copy + 'static> Serves<QUEUES, Reach<'a, H, D>>
    for Disk<R>
{
    fn begin(
        &mut self,
        _: u16,
        Reach { memory, .. }: &Reach<'a, H, D>,
        layout: Layout,
        options: Options,
        left: bool,
    ) -> Result<(), Broken> {
        let rings = R::find(*memory, &layout).map_err(|_| Broken)?;
        self.queue = Some(match left {
            true => Queue::resume(*memory, rings, options, BUFFERS as u32).map_err(broken)?,
            false => Queue::new(rings, options, BUFFERS as u32),
        });
        self.rings = Some((rings, options));
        Ok(())
    }

    #[inline(always)] // The way of each notification.
    fn serve(&mut self, _: u16, reach: &Reach<'a, H, D>, budget: &mut u32) -> Result<Served, Broken> {
        const IDLE: Served = Served { interrupt: false, rest: Rest::Idle };
        let Some(queue) = &mut self.queue else { return Ok(IDLE) };
        // Whoever calls lends it.
        let Some(lent) = reach.lent.take() else { return Ok(IDLE) };
        lent.turn_to(self.number);
        let mut left = Budget(*budget);
        let served = queue.serve(reach.memory, &mut self.slots, lent, &self.rules, &mut left);
        reach.lent.set(Some(lent));
        *budget = left.0;
        let served = served.map_err(broken)?;
        let rest = match served.rest {
            // What the controller does brings an interrupt.
            queue::Rest::Idle | queue::Rest::Busy => Rest::Idle,
            queue::Rest::Spent => Rest::More,
        };
        Ok(Served { interrupt: served.interrupt, rest })
    }
}

#[cold]
fn broken(_: Fault) -> Broken {
    Broken
}
