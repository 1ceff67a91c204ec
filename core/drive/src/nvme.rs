// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of NVM Express 1.1 and later: the first namespace that can be used, by one pair of I/O queues.
//!
//! | file | what |
//! |---|---|
//! | `registers` | the controller's registers |
//! | `command` | commands |
//! | `queue` | a submission queue and its completion queue |
//! | `identify` | what a controller says of itself and of its namespaces |
//! | `start` | how a controller is begun |

mod command;
mod identify;
mod queue;
mod registers;
mod start;

use turnstile_virtio::driver::Bus;
use turnstile_virtio::driver::pci::Function;
use turnstile_virtio::memory::Memory;

use crate::drive::{Direction, Drive, Failure, Geometry, Outcome, Refusal, Refused, SECTOR, Segment};
use crate::tags::{TAGS, Tags};
use command::{Blocks, Command, LIST, Pages};
use queue::Pair;
use start::Start;

/// The class of a function (PCI Code and ID Assignment Specification, section 1.2): mass storage, non-volatile memory, NVM Express.
pub(crate) const CLASS: u32 = 0x01_0802;
/// Where the class is in its configuration space, above the revision.
pub(crate) const REVISION: u16 = 0x08;

/// The status of a command whose operation there is not.
const INVALID_OPERATION: u16 = 0x001;

/// A disk of NVM Express.
#[derive(Debug)]
pub struct Nvme {
    start: Start,
    io: Pair,
    tags: Tags,
    geometry: Option<Geometry>,
    /// Where the tags' lists begin.
    lists: u64,
}

impl Nvme {
    /// What the disk is, if it is ready and takes a command with this tag now.
    #[inline(always)] // On the path of every command.
    fn ready(&self, tag: u16) -> Result<&Geometry, Refusal> {
        let geometry = self.geometry.as_ref().ok_or(Refusal::Unsupported)?;
        self.tags.check(tag, geometry.depth)?;
        Ok(geometry)
    }

    /// There is a controller.
    fn on(&self) -> Result<(), Failure> {
        match self.start.is_on() {
            true => Ok(()),
            false => Err(Failure::Unknown),
        }
    }

    /// Where the list of a tag is.
    fn list(&self, tag: u16) -> u64 {
        self.lists + LIST * u64::from(tag)
    }

    /// Gives the controller a command whose tag is free.
    #[inline(always)] // On the path of every command.
    fn submit<B: Bus>(&mut self, bus: &B, tag: u16, command: Command) -> Result<(), Refusal> {
        self.io.submit(bus.memory(), tag, command)?;
        self.tags.take(tag);
        Ok(())
    }

    /// Checks a command that moves bytes, and says which blocks and pages it has.
    fn bytes<B: Bus>(
        &self,
        bus: &B,
        tag: u16,
        geometry: &Geometry,
        (sector, address, length): (u64, u64, u32),
    ) -> Result<(Blocks, Pages), Refusal> {
        geometry.check_bytes(bus.memory(), sector, address, length)?;
        let pages = Pages::new(bus.memory(), &[Segment { address, length }], self.list(tag))?;
        Ok((blocks(geometry, sector, length / SECTOR), pages))
    }
}

/// The blocks that sectors are, which were checked.
fn blocks(geometry: &Geometry, sector: u64, sectors: u32) -> Blocks {
    let shift = geometry.sectors_of_block().trailing_zeros();
    Blocks { first: sector >> shift, count: sectors >> shift }
}

/// Says whether the function is one of NVM Express.
fn find<B: Bus>(bus: &B) -> Result<(), Failure> {
    match bus.function().configuration(REVISION, 4) >> 8 {
        CLASS => Ok(()),
        _ => Err(Failure::Unknown),
    }
}

impl Drive for Nvme {
    const BYTES: u64 = start::BYTES + LIST * TAGS as u64;
    const NEW: Self = Self { start: Start::NEW, io: Pair::NEW, tags: Tags::NEW, geometry: None, lists: 0 };
    const DEPTH: u16 = TAGS;

    fn reset<B: Bus>(bus: &B) -> Result<bool, Failure> {
        find(bus)?;
        registers::reset(bus.function())
    }

    fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure> {
        *self = Self::NEW;
        find(bus)?;
        if !start::fits(bus.memory(), at, Self::BYTES) {
            return Err(Failure::Memory);
        }
        self.lists = at + start::BYTES;
        self.start.begin(bus, at)
    }

    fn proceed<B: Bus>(&mut self, bus: &B, now: u64) -> Result<Option<Geometry>, Failure> {
        if self.geometry.is_none() {
            self.geometry = self.start.proceed(bus, &mut self.io, now).inspect_err(|_| {
                // It is not to go on with what is half set up.
                let _ = registers::reset(bus.function());
                self.start = Start::NEW;
            })?;
        }
        Ok(self.geometry)
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
        let (blocks, pages) = self.bytes(bus, tag, geometry, (sector, address, length))?;
        self.submit(bus, tag, Command::read(self.start.namespace().number, blocks, pages))
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
        let (blocks, pages) = self.bytes(bus, tag, geometry, (sector, address, length))?;
        self.submit(bus, tag, Command::write(self.start.namespace().number, blocks, pages))
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
        let length = geometry.check_segments(direction, sector, segments)?;
        let pages = Pages::new(bus.memory(), segments, self.list(tag))?;
        let (namespace, blocks) = (self.start.namespace().number, blocks(geometry, sector, length / SECTOR));
        let command = match direction {
            Direction::Read => Command::read(namespace, blocks, pages),
            Direction::Write => Command::write(namespace, blocks, pages),
        };
        self.submit(bus, tag, command)
    }

    fn flush<B: Bus>(&mut self, bus: &B, tag: u16) -> Result<(), Refusal> {
        let geometry = self.ready(tag)?;
        match geometry.cache {
            true => self.submit(bus, tag, Command::flush(self.start.namespace().number)),
            false => Err(Refusal::Unsupported),
        }
    }

    fn discard<B: Bus>(&mut self, bus: &B, tag: u16, sector: u64, sectors: u32) -> Result<(), Refusal> {
        let geometry = self.ready(tag)?;
        geometry.check_most(sector, sectors, geometry.most_discarded)?;
        let (at, range) = (self.list(tag), blocks(geometry, sector, sectors).to_range());
        bus.memory().write(at, &range)?;
        self.submit(bus, tag, Command::discard(self.start.namespace().number, Pages::one(at)))
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
        let namespace = self.start.namespace();
        let deallocate = may_discard && namespace.discards_to_zero;
        let command = Command::zero(namespace.number, blocks(geometry, sector, sectors), deallocate);
        self.submit(bus, tag, command)
    }

    fn ring<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        self.on()?;
        self.io.ring(bus.function());
        Ok(())
    }

    fn finished<B: Bus>(&mut self, bus: &B) -> Result<Option<(u16, Outcome)>, Failure> {
        self.on()?;
        if !self.start.is_ready() {
            return Ok(None);
        }
        let Some(completion) = self.io.take(bus.memory())? else { return Ok(None) };
        let tag = completion.tag;
        if !self.tags.give_back(tag) {
            return Err(Failure::Finished { queue: self.io.places().number, tag });
        }
        let result = match completion.status & 0x7ff {
            0 => Ok(()),
            INVALID_OPERATION => Err(Refused::Unsupported),
            _ => Err(Refused::Io),
        };
        Ok(Some((tag, result)))
    }

    fn arm<B: Bus>(&mut self, bus: &B) -> Result<bool, Failure> {
        self.on()?;
        if !self.start.is_ready() {
            return Ok(false);
        }
        // An entry behind these interrupts by itself; a pin is high until all are taken.
        self.io.free(bus.function());
        Ok(self.io.is_waiting(bus.memory())?)
    }

    fn interrupted<B: Bus>(&mut self, _: &B) -> Result<(), Failure> {
        self.on()
    }

    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure> {
        self.on()?;
        self.start.check(bus)
    }

    fn stop<B: Bus>(&mut self, bus: &B) {
        if self.start.is_on() {
            let _ = registers::reset(bus.function());
        }
        *self = Self::NEW;
    }
}
