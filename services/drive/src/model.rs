// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The block device: one queue of requests to the disk.

use turnstile_block::deep::{Queue, Slots};
use turnstile_block::queue;
use turnstile_block::request::{Budget, Fault};
use turnstile_block::settings::{Rules, Settings};
use turnstile_block::staged::Drive as _;
use turnstile_drive::drive::Drive;
use turnstile_service_virtio::{Broken, Model, Rest, Served, Serves};
use turnstile_virtio::config::{BLOCK, Block};
use turnstile_virtio::features::{Features, Requirement};
use turnstile_virtio::pci::Kind;
use turnstile_virtio::ring::{Layout, Options};
use turnstile_virtio::rings::Rings;

use crate::lent::{DEPTH, Lent, Trouble};
use crate::machine::Machine;

/// One service does the requests of all of a guest's CPUs, and the controller interrupts one of the machine's.
pub const QUEUES: usize = 1;
/// One for the queue, and one for the configuration.
pub const VECTORS: usize = QUEUES + 1;
/// Descriptors of the queue. With indirect ones, that is how many requests it has at once.
const SIZE: u16 = 128;
/// Buffers of a request, header and status included.
const BUFFERS: usize = 128;

/// A disk and its queue.
pub struct Disk<H: Machine, D, R> {
    /// The disk of the machine.
    pub lent: Lent<H, D>,
    slots: Slots<BUFFERS, DEPTH>,
    queue: Option<Queue<DEPTH, R>>,
    /// Where the queue is, for who takes it up anew.
    rings: Option<(R, Options)>,
    id: [u8; 20],
    read_only: bool,
    rules: Rules,
}

impl<H: Machine, D: Drive, R: Copy> Disk<H, D, R> {
    /// A disk without a name, and without a controller.
    pub const NEW: Self = Self {
        lent: Lent::NEW,
        slots: Slots::NEW,
        queue: None,
        rings: None,
        id: [0; 20],
        read_only: true,
        rules: Rules { read_only: true, through: true, discards: false, id: [0; 20] },
    };

    /// What the configuration says of it.
    pub const fn set_read_only(&mut self, read_only: bool) {
        self.read_only = read_only;
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

    /// Takes what the controller has done. Returns how many commands.
    pub fn collect(&mut self) -> Result<u32, Trouble> {
        let mut count = 0;
        while let Some((tag, result)) = self.lent.finished()? {
            self.slots.done(tag, result);
            count += 1;
        }
        Ok(count)
    }

    /// The controller begins anew, and has forgotten its commands: the requests are begun again.
    pub fn again<M>(&mut self, memory: &M) -> Result<(), Broken>
    where
        M: turnstile_virtio::memory::Memory,
        R: Rings<M>,
    {
        self.slots = Slots::NEW;
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
        let geometry = self.lent.geometry();
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
            best_blocks: (self.lent.stage_bytes() / u64::from(block.max(512))) as u32,
            queues: QUEUES as u16,
            cache: geometry.is_none_or(|geometry| geometry.cache),
            discard_alignment: geometry.filter(|_| discards).map_or(0, |geometry| geometry.discard_alignment),
            zeroes: geometry.is_some_and(|geometry| geometry.most_zeroed != 0),
        }
    }
}

impl<H: Machine, D: Drive + 'static, R: Copy + 'static> Model<QUEUES> for Disk<H, D, R> {
    type Configuration = Block;
    const KIND: Kind = Kind { device: BLOCK, class: 0x01_8000, interrupt_pin: false };
    const SIZES: [u16; QUEUES] = [SIZE; QUEUES];
    const REQUIREMENTS: &'static [Requirement] = &[];

    /// A queue is never reset by itself: the controller may be at work for it.
    fn features(&self) -> Features {
        self.settings().features() - Features::RING_RESET
    }

    fn configuration(&self) -> Block {
        self.settings().configuration(self.lent.sectors())
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
        self.lent.is_settled() && !(self.lent.reaches_guest() && self.slots.is_forgotten_at_work())
    }

    fn forget(&mut self, _: u16) {
        (self.queue, self.rings) = (None, None);
        self.slots.forget();
    }
}

impl<H: Machine, D: Drive + 'static, R: Rings<H::Memory> + Copy + 'static> Serves<QUEUES, H::Memory>
    for Disk<H, D, R>
{
    fn begin(
        &mut self,
        _: u16,
        memory: &H::Memory,
        layout: Layout,
        options: Options,
        left: bool,
    ) -> Result<(), Broken> {
        let rings = R::find(memory, &layout).map_err(|_| Broken)?;
        self.queue = Some(match left {
            true => Queue::resume(memory, rings, options, BUFFERS as u32).map_err(broken)?,
            false => Queue::new(rings, options, BUFFERS as u32),
        });
        self.rings = Some((rings, options));
        Ok(())
    }

    #[inline(always)] // The way of each notification.
    fn serve(&mut self, _: u16, memory: &H::Memory, budget: &mut u32) -> Result<Served, Broken> {
        let Some(queue) = &mut self.queue else { return Ok(Served { interrupt: false, rest: Rest::Idle }) };
        let mut left = Budget(*budget);
        let served =
            queue.serve(memory, &mut self.slots, &mut self.lent, &self.rules, &mut left).map_err(broken)?;
        *budget = left.0;
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
