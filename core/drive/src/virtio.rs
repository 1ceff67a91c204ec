// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of virtio 1.0 and later (section 5.2), those included that drivers of before may use, too.
//!
//! A request has a buffer for each segment of a command. Those of more than one segment are tables of descriptors.

use arrayvec::ArrayVec;
use turnstile_virtio::config::{Block, BlockRange, BlockRequest, Configuration};
use turnstile_virtio::driver::pci::{Device, Function};
use turnstile_virtio::driver::rung::Rung;
use turnstile_virtio::driver::{self, Bus, ring};
use turnstile_virtio::features::Features;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::registers::Isr;
use turnstile_virtio::ring::{Buffer, DESCRIPTOR, Options};

use crate::drive::{
    Direction, Drive, Failure, Geometry, MOST_BYTES, MOST_SEGMENTS, Outcome, PAGE, Refusal, Refused, SECTOR,
    Segment,
};
use crate::tags::{TAGS, Tags};

/// Vendor and device of a function, in the first word of its configuration space (section 4.1.2).
pub(crate) const MODERN: u32 = 0x1042_1af4;
pub(crate) const TRANSITIONAL: u32 = 0x1001_1af4;

/// The queue of requests.
const REQUESTS: u16 = 0;
/// How many buffers a request has whose data lie together: header, data, status.
const BUFFERS: u16 = 3;
/// How many a request has at most.
const MOST_BUFFERS: usize = MOST_SEGMENTS + 2;
/// How many descriptors are enough for all tags, with and without tables.
const MOST: [u16; 2] = [(TAGS * BUFFERS).next_power_of_two(), TAGS];

/// What the driver uses, if it is there.
const WANTED: Features = Features::EVENT_IDX
    .union(Features::INDIRECT_DESC)
    .union(Block::SIZE_MAX)
    .union(Block::SEG_MAX)
    .union(Block::RO)
    .union(Block::BLK_SIZE)
    .union(Block::FLUSH)
    .union(Block::DISCARD)
    .union(Block::WRITE_ZEROES);

/// What each tag has in memory: the header, a range, the status, and a table of descriptors.
const TAG: u64 = 1024;
const RANGE: u64 = BlockRequest::LENGTH as u64;
const STATUS: u64 = RANGE + BlockRange::LENGTH as u64;
const TABLE: u64 = 64;
/// What the status is before the device has written it.
const UNANSWERED: u8 = 0xff;

/// How many bytes of the configuration there are on all devices that say the size of a block.
const SHORT: usize = 24;
/// No disk is larger, in sectors.
const LARGEST: u64 = 1 << 55;

/// A disk of virtio.
#[derive(Debug)]
pub struct Virtio {
    device: Option<Device>,
    geometry: Option<Geometry>,
    requests: Rung<{ MOST[0] as usize }>,
    tags: Tags,
    /// Where the tags' memory begins.
    at: u64,
    /// Requests are tables.
    indirect: bool,
    /// Filling with zeroes may discard.
    may_discard: bool,
    /// How many segments a request has at most.
    most_segments: usize,
}

/// What a request does.
struct Request<'a> {
    kind: u32,
    sector: u64,
    data: &'a [Segment],
    /// The device writes the data.
    writable: bool,
}

impl Virtio {
    fn device(&self) -> Result<&Device, Failure> {
        self.device.as_ref().ok_or(Failure::Unknown)
    }

    /// What the disk is, if it is ready and takes a command with this tag now.
    #[inline(always)] // On the path of every command.
    fn ready(&self, tag: u16) -> Result<&Geometry, Refusal> {
        let geometry = self.geometry.as_ref().ok_or(Refusal::Unsupported)?;
        self.tags.check(tag, geometry.depth)?;
        Ok(geometry)
    }

    fn start<B: Bus>(&mut self, bus: &B, device: &Device, at: u64) -> Result<Geometry, Failure> {
        let features = device.begin(bus.function(), WANTED)?;
        let options = Options::from(features);
        let [plain, tables] = MOST;
        let most = if options.indirect { tables } else { plain };
        let size = self.requests.begin::<B, Failure>(bus, device, (REQUESTS, at, most), options)?;
        if !bus.memory().contains(at, Self::BYTES) {
            return Err(Failure::Memory);
        }
        let depth = if options.indirect { size } else { size / BUFFERS }.min(TAGS);
        if depth == 0 {
            return Err(Failure::Queues);
        }
        let config = configuration(bus.function(), device, features)?;
        let geometry = geometry(&config, features, depth)?;
        device.start(bus.function())?;
        (self.at, self.tags) = (at + ring::BYTES, Tags::NEW);
        (self.indirect, self.may_discard) = (options.indirect, config.write_zeroes_may_unmap);
        let many = options.indirect && features.contains(Block::SEG_MAX);
        self.most_segments = if many { (config.seg_max as usize).clamp(1, MOST_SEGMENTS) } else { 1 };
        Ok(geometry)
    }

    /// Where a tag's memory is.
    fn of(&self, tag: u16) -> u64 {
        self.at + TAG * u64::from(tag)
    }

    /// Gives the device a request whose tag is free.
    fn submit<B: Bus>(&mut self, bus: &B, tag: u16, request: Request<'_>) -> Result<(), Refusal> {
        let (memory, at) = (bus.memory(), self.of(tag));
        memory.write(at, &BlockRequest { kind: request.kind, sector: request.sector }.to_bytes())?;
        memory.write(at + STATUS, &[UNANSWERED])?;
        let mut buffers = ArrayVec::<Buffer, MOST_BUFFERS>::new();
        buffers.push(Buffer { address: at, length: BlockRequest::LENGTH as u32, writable: false });
        let writable = request.writable;
        let buffer = |&Segment { address, length }: &Segment| Buffer { address, length, writable };
        buffers.extend(request.data.iter().map(buffer).take(MOST_SEGMENTS));
        buffers.push(Buffer { address: at + STATUS, length: 1, writable: true });
        let ring = &mut self.requests.ring;
        let given = match self.indirect {
            true => ring.add_indirect(memory, tag, at + TABLE, &buffers),
            false => ring.add_chain(memory, tag, &buffers),
        };
        given.map_err(|refusal| match refusal {
            driver::Refusal::Full => Refusal::Full,
            _ => Refusal::Memory,
        })?;
        self.tags.take(tag);
        Ok(())
    }

    /// Gives the device a request about a range.
    fn submit_range<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        kind: u32,
        range: BlockRange,
    ) -> Result<(), Refusal> {
        let address = self.of(tag) + RANGE;
        bus.memory().write(address, &range.to_bytes())?;
        let data = &[Segment { address, length: BlockRange::LENGTH as u32 }];
        self.submit(bus, tag, Request { kind, sector: 0, data, writable: false })
    }
}

/// Finds the disk.
fn find<B: Bus>(bus: &B) -> Result<Device, Failure> {
    match bus.function().configuration(0, 4) {
        MODERN | TRANSITIONAL => Ok(Device::find(bus.function())?),
        _ => Err(Failure::Unknown),
    }
}

/// Reads the configuration; devices of before virtio 1.1 have less of it.
fn configuration<F: Function>(function: &F, device: &Device, features: Features) -> Result<Block, Failure> {
    let bytes = match features.intersects(Block::DISCARD.union(Block::WRITE_ZEROES)) {
        true => device.config(function),
        false => device.config(function).map(|short: [u8; SHORT]| {
            let mut bytes = [0; Block::LENGTH];
            bytes.iter_mut().zip(short).for_each(|(to, from)| *to = from);
            bytes
        }),
    };
    Ok(Block::from_bytes(&bytes.ok_or(Failure::Blocks)?))
}

/// Says what a disk is, by what its configuration says and which fields of it hold.
fn geometry(config: &Block, features: Features, depth: u16) -> Result<Geometry, Failure> {
    let has = |feature| features.contains(feature);
    let block = if has(Block::BLK_SIZE) { config.block_size } else { SECTOR };
    if !block.is_power_of_two() || !(SECTOR..=PAGE as u32).contains(&block) {
        return Err(Failure::Blocks);
    }
    let of_block = block / SECTOR;
    let whole = |sectors: u32| sectors - sectors % of_block;
    let sectors = config.capacity - config.capacity % u64::from(of_block);
    if sectors == 0 || sectors >= LARGEST {
        return Err(Failure::Blocks);
    }
    let most_bytes = if has(Block::SIZE_MAX) { config.size_max.min(MOST_BYTES) } else { MOST_BYTES };
    // A range is a buffer, too.
    if most_bytes < block {
        return Err(Failure::Queues);
    }
    let writable = !has(Block::RO);
    let can = |feature, ranges: u32, sectors: u32| match has(feature) && writable && ranges != 0 {
        true => whole(sectors),
        false => 0,
    };
    Ok(Geometry {
        sectors,
        block,
        depth,
        most_bytes: most_bytes - most_bytes % block,
        writable,
        cache: has(Block::FLUSH),
        most_discarded: can(Block::DISCARD, config.max_discard_seg, config.max_discard_sectors),
        discard_alignment: config.discard_sector_alignment.max(of_block),
        most_zeroed: can(Block::WRITE_ZEROES, config.max_write_zeroes_seg, config.max_write_zeroes_sectors),
    })
}

impl Drive for Virtio {
    const BYTES: u64 = ring::BYTES + TAG * TAGS as u64;
    const NEW: Self = Self {
        device: None,
        geometry: None,
        requests: Rung::NEW,
        tags: Tags::NEW,
        at: 0,
        indirect: false,
        may_discard: false,
        most_segments: 1,
    };
    const DEPTH: u16 = TAGS;

    fn reset<B: Bus>(bus: &B) -> Result<bool, Failure> {
        find(bus)?.reset(bus.function())?;
        Ok(true)
    }

    fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure> {
        const { assert!(TABLE > STATUS && TABLE + MOST_BUFFERS as u64 * DESCRIPTOR <= TAG) };
        (self.device, self.geometry) = (None, None);
        let device = find(bus)?;
        let geometry = self.start(bus, &device, at).inspect_err(|_| {
            // It is not to go on with what is half set up.
            let _ = device.reset(bus.function());
        })?;
        (self.device, self.geometry) = (Some(device), Some(geometry));
        Ok(())
    }

    fn proceed<B: Bus>(&mut self, _: &B, _: u64) -> Result<Option<Geometry>, Failure> {
        self.geometry.map(Some).ok_or(Failure::Unknown)
    }

    fn read<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        address: u64,
        length: u32,
    ) -> Result<(), Refusal> {
        let geometry = self.ready(tag)?;
        geometry.check_bytes(bus.memory(), sector, address, length)?;
        let data = &[Segment { address, length }];
        self.submit(bus, tag, Request { kind: BlockRequest::IN, sector, data, writable: true })
    }

    fn write<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        address: u64,
        length: u32,
    ) -> Result<(), Refusal> {
        let geometry = self.ready(tag)?;
        if !geometry.writable {
            return Err(Refusal::Unsupported);
        }
        geometry.check_bytes(bus.memory(), sector, address, length)?;
        let data = &[Segment { address, length }];
        self.submit(bus, tag, Request { kind: BlockRequest::OUT, sector, data, writable: false })
    }

    fn scatter<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        direction: Direction,
        sector: u64,
        segments: &[Segment],
    ) -> Result<(), Refusal> {
        let geometry = self.ready(tag)?;
        geometry.check_segments(direction, sector, segments)?;
        if segments.len() > self.most_segments {
            return Err(Refusal::Memory);
        }
        let (kind, writable) = match direction {
            Direction::Read => (BlockRequest::IN, true),
            Direction::Write => (BlockRequest::OUT, false),
        };
        self.submit(bus, tag, Request { kind, sector, data: segments, writable })
    }

    fn flush<B: Bus>(&mut self, bus: &B, tag: u16) -> Result<(), Refusal> {
        let geometry = self.ready(tag)?;
        match geometry.cache {
            true => {
                let flush = Request { kind: BlockRequest::FLUSH, sector: 0, data: &[], writable: false };
                self.submit(bus, tag, flush)
            }
            false => Err(Refusal::Unsupported),
        }
    }

    fn discard<B: Bus>(&mut self, bus: &B, tag: u16, sector: u64, sectors: u32) -> Result<(), Refusal> {
        let geometry = self.ready(tag)?;
        geometry.check_most(sector, sectors, geometry.most_discarded)?;
        self.submit_range(bus, tag, BlockRequest::DISCARD, BlockRange { sector, sectors, flags: 0 })
    }

    fn zero<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        sectors: u32,
        may_discard: bool,
    ) -> Result<(), Refusal> {
        let geometry = self.ready(tag)?;
        geometry.check_most(sector, sectors, geometry.most_zeroed)?;
        let flags = u32::from(may_discard && self.may_discard);
        self.submit_range(bus, tag, BlockRequest::WRITE_ZEROES, BlockRange { sector, sectors, flags })
    }

    fn ring<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        let device = self.device.as_ref().ok_or(Failure::Unknown)?;
        Ok(self.requests.flush(bus, device)?)
    }

    fn finished<B: Bus>(&mut self, bus: &B) -> Result<Option<(u16, Outcome)>, Failure> {
        self.device()?;
        let Some((tag, _)) = self.requests.ring.take(bus.memory())? else { return Ok(None) };
        if !self.tags.give_back(tag) {
            return Err(Failure::Finished { queue: REQUESTS, tag });
        }
        let mut status = [UNANSWERED];
        bus.memory().read(self.of(tag) + STATUS, &mut status)?;
        let [status] = status;
        let result = match status {
            BlockRequest::OK => Ok(()),
            BlockRequest::UNSUPP => Err(Refused::Unsupported),
            _ => Err(Refused::Io),
        };
        Ok(Some((tag, result)))
    }

    fn arm<B: Bus>(&mut self, bus: &B) -> Result<bool, Failure> {
        self.device()?;
        Ok(self.requests.ring.arm(bus.memory())?)
    }

    fn interrupted<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        match self.device()?.reasons(bus.function()) == Isr::CONFIG {
            true => self.check(bus),
            false => Ok(()),
        }
    }

    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure> {
        Ok(self.device()?.check(bus.function())?)
    }

    fn stop<B: Bus>(&mut self, bus: &B) {
        self.geometry = None;
        if let Some(device) = self.device.take() {
            // One that does not end its reset is trusted to let this memory alone, or it is at least the caller's own.
            let _ = device.reset(bus.function());
        }
    }
}
