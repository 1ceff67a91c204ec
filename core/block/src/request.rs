// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A request of the driver (section 5.2.6), checked, and done piece by piece.

use core::fmt;

use turnstile_virtio::config::{BlockRange, BlockRequest};
use turnstile_virtio::device::{Chain, Place, Segments, Span};
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::violation::Violation;

use crate::disk::{Disk, DiskFor, Failure, Move, PIECE, SECTOR, inside};
use crate::settings::{MAX_RANGE, MAX_RANGES, Rules};

/// What the driver has done wrong. The device sets DEVICE_NEEDS_RESET (section 2.1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A rule of rings.
    Ring(Violation),
    /// A request without a whole header (section 5.2.6).
    Header,
    /// A request without a byte for its status (section 5.2.6).
    Status,
}

impl From<Violation> for Fault {
    fn from(violation: Violation) -> Self {
        Self::Ring(violation)
    }
}

impl From<Outside> for Fault {
    fn from(outside: Outside) -> Self {
        Self::Ring(outside.into())
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring(violation) => violation.fmt(f),
            Self::Header => f.write_str("a request has no whole header"),
            Self::Status => f.write_str("a request has no byte for its status"),
        }
    }
}

impl core::error::Error for Fault {}

/// How much work may still be done, in bytes that are copied, or as much as that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget(pub u32);

impl Budget {
    /// What a request costs beside its bytes.
    pub const REQUEST: u32 = 512;
    /// What each of its buffers costs.
    pub const BUFFER: u32 = 64;

    /// Whether there is none left.
    pub const fn is_spent(&self) -> bool {
        self.0 == 0
    }

    /// Spends some, or what is left.
    #[inline] // On the path of every request.
    pub const fn spend(&mut self, cost: u64) {
        self.0 = if cost < self.0 as u64 { self.0 - cost as u32 } else { 0 };
    }
}

/// How far a request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// It is done, and so many bytes were written for the driver.
    Done(u32),
    /// The budget is spent.
    Spent,
    /// The disk is busy.
    Busy,
}

/// The pages of which addresses for a disk consist.
const PAGE: u64 = 4096;

/// Bytes of the disk that are still to be done.
#[derive(Clone, Copy, Debug, Default)]
struct Part {
    at: u64,
    left: u64,
}

/// What is left to do.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// Copy from the disk to what the driver reads.
    Read(Part),
    /// Copy to the disk.
    Write(Part),
    Flush,
    /// Work on this range, and read so many more.
    Ranges {
        zero: bool,
        part: Part,
        may_discard: bool,
        more: u64,
    },
    /// Write the status.
    Finish(u8),
}

/// A request that has begun; reused for the next one.
#[derive(Debug)]
pub(crate) struct Request<const N: usize> {
    segments: Segments<N>,
    /// Where the next bytes of data are, among those that the task copies.
    place: Place,
    /// How many bytes were written for the driver, from the first on.
    written: u64,
    task: Task,
}

impl<const N: usize> Request<N> {
    pub(crate) const fn new() -> Self {
        let (place, task) = (Place::START, Task::Finish(0));
        Self { segments: Segments::new(), place, written: 0, task }
    }

    /// How many buffers it has.
    pub(crate) fn buffers(&self) -> usize {
        self.segments.readable().len() + self.segments.writable().len()
    }

    /// Where the bytes end that it reads or writes; zero if it does neither.
    pub(crate) const fn end(&self) -> u64 {
        match &self.task {
            Task::Read(part) | Task::Write(part) => part.at + part.left,
            _ => 0,
        }
    }

    /// Begins with a request: reads and checks its header.
    #[inline] // On the path of every request.
    pub(crate) fn begin<M: Memory, D: Disk>(
        &mut self,
        memory: &M,
        chain: &mut Chain,
        disk: &D,
        rules: &Rules,
    ) -> Result<(), Fault> {
        self.segments.gather(memory, chain)?;
        (self.place, self.written) = (Place::START, 0);
        let mut place = Place::START;
        let header = header(memory, &mut place, self.segments.readable())?;
        // The last byte that the device writes is the status.
        let room = self.segments.writable_bytes().checked_sub(1).ok_or(Fault::Status)?;
        let sent = self.segments.readable_bytes() - BlockRequest::LENGTH as u64;
        self.task = match header.kind {
            BlockRequest::IN => part(header.sector, room, disk).map_or(FAILED, Task::Read),
            BlockRequest::OUT | BlockRequest::DISCARD | BlockRequest::WRITE_ZEROES if rules.read_only => {
                FAILED
            }
            BlockRequest::OUT => {
                self.place = place;
                part(header.sector, sent, disk).map_or(FAILED, Task::Write)
            }
            BlockRequest::FLUSH => Task::Flush,
            BlockRequest::DISCARD if !rules.discards => UNSUPPORTED,
            BlockRequest::DISCARD | BlockRequest::WRITE_ZEROES => {
                self.place = place;
                let (zero, more) =
                    (header.kind == BlockRequest::WRITE_ZEROES, sent / BlockRange::LENGTH as u64);
                let whole = sent.is_multiple_of(BlockRange::LENGTH as u64);
                match whole && (1..=u64::from(MAX_RANGES)).contains(&more) {
                    true => Task::Ranges { zero, part: Part::default(), may_discard: false, more },
                    false => FAILED,
                }
            }
            BlockRequest::GET_ID => {
                let id = rules.id.get(..room.min(20) as usize).unwrap_or_default();
                self.written = self.place.write(memory, self.segments.writable(), id)? as u64;
                Task::Finish(BlockRequest::OK)
            }
            _ => UNSUPPORTED,
        };
        Ok(())
    }

    /// Goes on with it.
    #[inline] // On the path of every request.
    pub(crate) fn run<M: Memory, D: DiskFor<M>>(
        &mut self,
        memory: &M,
        disk: &mut D,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<Progress, Fault> {
        loop {
            if let Task::Finish(status) = self.task {
                return Ok(Progress::Done(self.finish(memory, status)?));
            }
            if budget.is_spent() {
                return Ok(Progress::Spent);
            }
            match self.step(memory, disk, rules, budget) {
                Ok(()) => {}
                Err(Failure::Busy) => return Ok(Progress::Busy),
                Err(Failure::Io) => self.task = FAILED,
                Err(Failure::Unsupported) => self.task = UNSUPPORTED,
                Err(Failure::Outside(address)) => return Err(Outside { address }.into()),
            }
        }
    }

    /// Does one piece. Nothing of it has happened if it fails.
    #[inline] // On the path of every request.
    fn step<M: Memory, D: DiskFor<M>>(
        &mut self,
        memory: &M,
        disk: &mut D,
        rules: &Rules,
        budget: &mut Budget,
    ) -> Result<(), Failure> {
        match &mut self.task {
            Task::Read(part) => {
                let spans = self.segments.writable();
                if let Some(bytes) = direct(disk, false, part, &mut self.place, spans, budget)? {
                    self.written += bytes;
                    if part.left == 0 {
                        self.task = Task::Finish(BlockRequest::OK);
                    }
                    return Ok(());
                }
                let mut place = self.place;
                let Some(to) =
                    next(part, budget, disk).and_then(|most| place.take(self.segments.writable(), most))
                else {
                    self.task = Task::Finish(BlockRequest::OK);
                    return Ok(());
                };
                disk.read(part.at, memory, to)?;
                (self.place, self.written) = (place, self.written + u64::from(to.length));
                part.behind(to.length.into());
                budget.spend(to.length.into());
                if part.left == 0 {
                    self.task = Task::Finish(BlockRequest::OK);
                }
            }
            Task::Write(part) => {
                let spans = self.segments.readable();
                if direct(disk, true, part, &mut self.place, spans, budget)?.is_some() {
                    if part.left == 0 && !rules.through {
                        self.task = Task::Finish(BlockRequest::OK);
                    }
                    return Ok(());
                }
                let mut place = self.place;
                let Some(from) =
                    next(part, budget, disk).and_then(|most| place.take(self.segments.readable(), most))
                else {
                    self.task = if rules.through { Task::Flush } else { Task::Finish(BlockRequest::OK) };
                    return Ok(());
                };
                disk.write(part.at, memory, from)?;
                self.place = place;
                part.behind(from.length.into());
                budget.spend(from.length.into());
                if part.left == 0 && !rules.through {
                    self.task = Task::Finish(BlockRequest::OK);
                }
            }
            Task::Flush => {
                disk.flush()?;
                self.task = Task::Finish(BlockRequest::OK);
            }
            Task::Ranges { part: Part { left: 0, .. }, more: 0, zero, .. } => {
                self.task = if *zero && rules.through { Task::Flush } else { Task::Finish(BlockRequest::OK) };
            }
            Task::Ranges { zero, part: range @ Part { left: 0, .. }, may_discard, more } => {
                let mut bytes = [0; BlockRange::LENGTH];
                self.place
                    .read(memory, self.segments.readable(), &mut bytes)
                    .map_err(|_| Failure::Outside(0))?;
                let BlockRange { sector, sectors, flags } = BlockRange::from_bytes(&bytes);
                // Filling may discard; nothing else is known (section 5.2.6.2).
                if flags & !u32::from(*zero) != 0 {
                    return Err(Failure::Unsupported);
                }
                let length = u64::from(sectors) * SECTOR;
                *range = part(sector, length, disk).filter(|_| sectors <= MAX_RANGE).ok_or(Failure::Io)?;
                (*may_discard, *more) = (flags & 1 != 0 && rules.discards, *more - 1);
                budget.spend(Budget::BUFFER.into());
            }
            Task::Ranges { zero, part, may_discard, .. } => {
                let length = part.left.min(disk.range_piece());
                match zero {
                    true => disk.zero(part.at, length, *may_discard)?,
                    false => disk.discard(part.at, length)?,
                }
                part.behind(length);
                budget.spend(length);
            }
            Task::Finish(_) => {}
        }
        Ok(())
    }

    /// Writes the status. Returns how many bytes were written from the first on.
    #[inline] // On the path of every request.
    fn finish<M: Memory>(&mut self, memory: &M, status: u8) -> Result<u32, Violation> {
        let (spans, room) = (self.segments.writable(), self.segments.writable_bytes().saturating_sub(1));
        // The last byte of the last buffer, which has one at least.
        if let [.., Span { address, length }] = spans {
            memory.write(address.wrapping_add(u64::from(length - 1)), &[status])?;
        }
        let all = self.written + u64::from(self.written == room);
        Ok(u32::try_from(all).unwrap_or(u32::MAX))
    }
}

/// Reads the header of a request, and leaves the place behind it. Most drivers put it into a buffer of its own.
#[inline(always)] // On the path of every request.
fn header<M: Memory>(memory: &M, place: &mut Place, spans: &[Span]) -> Result<BlockRequest, Fault> {
    if let [Span { address, length }, ..] = spans
        && *length as usize == BlockRequest::LENGTH
    {
        let words = memory.read_words(*address)?;
        place.take(spans, *length);
        return Ok(BlockRequest::from_words(words));
    }
    cut_header(memory, place, spans)
}

#[cold]
#[inline(never)]
fn cut_header<M: Memory>(memory: &M, place: &mut Place, spans: &[Span]) -> Result<BlockRequest, Fault> {
    let mut header = [0; BlockRequest::LENGTH];
    match place.read(memory, spans, &mut header)? == header.len() {
        true => Ok(BlockRequest::from_bytes(&header)),
        false => Err(Fault::Header),
    }
}

const FAILED: Task = Task::Finish(BlockRequest::IOERR);
const UNSUPPORTED: Task = Task::Finish(BlockRequest::UNSUPP);

impl Part {
    /// So many bytes are done.
    const fn behind(&mut self, bytes: u64) {
        self.at += bytes;
        self.left -= bytes;
    }
}

/// Has the disk move bytes of a part by itself. Returns how many it has moved; `None` if it does not.
#[inline] // On the path of every request.
fn direct<M: Memory, D: DiskFor<M>>(
    disk: &mut D,
    writes: bool,
    part: &mut Part,
    place: &mut Place,
    spans: &[Span],
    budget: &mut Budget,
) -> Result<Option<u64>, Failure> {
    let wanted = Move { writes, at: part.at, length: part.left, spans, place: *place };
    let Some(bytes) = disk.direct(&wanted)? else { return Ok(None) };
    place.skip(spans, bytes);
    part.behind(bytes);
    // A page of them is as much work as a buffer.
    budget.spend(bytes.div_ceil(PAGE) * u64::from(Budget::BUFFER));
    Ok(Some(bytes))
}

/// How many bytes of a part to do now; `None` if it is done.
#[inline] // On the path of every request.
fn next<D: Disk>(part: &Part, budget: &Budget, disk: &D) -> Option<u32> {
    let most = part.left.min(disk.piece(part.at)).min(PIECE) as u32;
    // Sectors are not cut for the budget's sake: a disk may be slow with halves of them.
    (most != 0).then(|| most.min(budget.0.next_multiple_of(SECTOR as u32)))
}

/// The bytes of a request, if it is of whole sectors of the disk.
#[inline] // On the path of every request.
fn part<D: Disk>(sector: u64, bytes: u64, disk: &D) -> Option<Part> {
    let at = sector.checked_mul(SECTOR)?;
    let whole = bytes.is_multiple_of(SECTOR);
    inside(at, bytes, disk.sectors().saturating_mul(SECTOR)).ok().filter(|()| whole)?;
    Some(Part { at, left: bytes })
}
