// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The controller and its disk, of which each member has a part: from the reset to the commands.

pub mod commands;

use core::fmt;

use turnstile_block::disk::{Failure, PIECE, SECTOR};
use turnstile_block::gpt::{self, Reader, Want, Wrong};
use turnstile_drive::drive::{self, Drive, Geometry, PAGE, Refused};
use turnstile_service_rt::drive::Drives;
use turnstile_virtio::memory::Memory;

use crate::machine::{MEMBERS, Machine};

/// How many requests of a member are done at once, at most.
pub const DEPTH: usize = 16;
/// After so long without a command that is done, in nanoseconds, the controller begins anew.
pub const LATE: u64 = 10_000_000_000;
/// The largest block.
const BLOCK: usize = 4096;

/// Why the disk cannot be used, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The controller.
    Drive(drive::Failure),
    /// A block of the partition table cannot be read.
    Unreadable,
    /// A command is not done for a long time.
    Late,
}

impl From<drive::Failure> for Trouble {
    fn from(failure: drive::Failure) -> Self {
        Self::Drive(failure)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drive(failure) => failure.fmt(f),
            Self::Unreadable => f.write_str("its partition table cannot be read"),
            Self::Late => f.write_str("it has not done what it was told"),
        }
    }
}

/// A command that is done.
pub struct Done {
    /// Whose it was.
    pub member: usize,
    /// Its tag among those of the member.
    pub tag: u16,
    /// What became of it.
    pub result: Result<(), Failure>,
}

/// How far the disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is none, or it cannot be used any more.
    Absent,
    /// The controller begins.
    Starting,
    /// The partition table is read: for one member after the other.
    Table,
    /// Commands can be given.
    Ready,
    /// It is not used any more, but may still reach a guest's memory: its reset has not ended.
    Ending,
    /// It does not end its reset: it is to be kept from memory.
    Late,
    /// The hypervisor was told so.
    CutOff,
}

/// What is next in the search for a part.
enum Step<T> {
    /// This block is to be read.
    Block(u64),
    /// It is found.
    Done(T),
}

/// A part of the disk, in sectors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Part {
    first: u64,
    sectors: u64,
}

/// What a member has of the controller.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Share {
    part: Part,
    /// Where its tags begin among those of the controller, and its stages among all. Nobody else ever has them.
    first: u16,
    /// Whose it is.
    member: u16,
}

impl Share {
    const NONE: Self = Self { part: Part { first: 0, sectors: 0 }, first: 0, member: 0 };
}

/// A disk of the machine.
// In this order: what is behind the large ones is out of an instruction's reach.
#[repr(C)]
pub struct Lent<H: Machine, D> {
    machine: Option<&'static H>,
    phase: Phase,
    geometry: Option<Geometry>,
    /// What the members are to have.
    drives: Drives,
    shares: [Share; MEMBERS],
    /// Why a member does not have its partition.
    wrong: [Option<Wrong>; MEMBERS],
    /// The share of the member whose requests are done now.
    turn: Share,
    /// How many tags each member has.
    room: u16,
    /// The controller may have fewer commands at once than the members have tags.
    is_scarce: bool,
    /// How many commands of members the controller has not done.
    under_way: u16,
    /// Where blocks of the partition table come to, for the controller: no guest's bytes ever do.
    table: u64,
    /// Where the stages are.
    stages: u64,
    stage_bytes: u64,
    /// For which member the partition table is read.
    reading: usize,
    /// When the present block of the partition table was asked for.
    asked_at: u64,
    /// Since its reset has ended last, it was told of a guest's memory.
    reaches_guest: bool,
    /// Since when it ends.
    ending_since: Option<u64>,
    drive: D,
    reader: Option<Reader>,
    /// A block of the partition table.
    block: [u8; BLOCK],
}

impl<H: Machine, D: Drive> Lent<H, D> {
    /// Without a controller.
    pub const NEW: Self = Self {
        machine: None,
        drive: D::NEW,
        phase: Phase::Absent,
        geometry: None,
        drives: Drives([None; MEMBERS]),
        shares: [Share::NONE; MEMBERS],
        wrong: [None; MEMBERS],
        turn: Share::NONE,
        room: 1,
        is_scarce: false,
        under_way: 0,
        table: 0,
        stages: 0,
        stage_bytes: PIECE,
        reader: None,
        reading: 0,
        asked_at: 0,
        reaches_guest: false,
        ending_since: None,
        block: [0; BLOCK],
    };

    /// Begins with the controller, or begins anew. [`Lent::advance`] is next.
    pub fn begin(&mut self, machine: &'static H, drives: Drives) -> Result<(), Trouble> {
        (self.machine, self.drives, self.reader, self.under_way) = (Some(machine), drives, None, 0);
        let (first, size) = machine.range();
        let at = first.next_multiple_of(PAGE);
        self.table = (at + D::BYTES).next_multiple_of(PAGE);
        self.stages = self.table + BLOCK as u64;
        let stages = size.saturating_sub(self.stages - first) / PIECE;
        if stages < DEPTH as u64 {
            return Err(drive::Failure::Memory.into());
        }
        self.divide(stages.min(D::DEPTH.into()) as u16);
        self.phase = Phase::Starting;
        Ok(self.drive.begin(machine.bus(), at)?)
    }

    /// Gives each member as many tags as the others, of these.
    fn divide(&mut self, tags: u16) {
        let count = self.drives.0.iter().flatten().count().max(1) as u16;
        self.room = (tags / count).clamp(1, DEPTH as u16);
        let firsts = (0..).step_by(self.room.into());
        for (member, (share, first)) in (0..).zip(self.shares.iter_mut().zip(firsts)) {
            (share.first, share.member) = (first, member);
        }
    }

    /// How many requests of a member are done at once.
    pub const fn room(&self) -> u16 {
        self.room
    }

    /// Whoever does requests does those of this member from now on.
    #[inline(always)] // A few moves.
    pub fn turn_to(&mut self, member: usize) {
        self.turn = self.shares.get(member).copied().unwrap_or(Share::NONE);
    }

    /// How many bytes a command reads or writes at most.
    pub const fn largest(&self) -> u64 {
        self.stage_bytes
    }

    /// How many sectors a member has.
    pub fn sectors_of(&self, member: usize) -> u64 {
        self.shares.get(member).map_or(0, |share| share.part.sectors)
    }

    /// Says why a member does not have its partition, if that is so.
    pub fn wrong(&self, member: usize) -> Option<Wrong> {
        self.wrong.get(member).copied().flatten()
    }

    /// Says whether the controller may have fewer commands at once than the members have tags.
    pub const fn is_scarce(&self) -> bool {
        self.is_scarce
    }

    /// The controller is not used any more, unless it begins anew. If it was told of a guest's memory, it may reach that until it
    /// [has ended](Lent::has_ended).
    pub fn end(&mut self) {
        if let Some(machine) = self.machine.filter(|_| self.phase != Phase::Absent) {
            self.drive.stop(machine.bus());
        }
        self.phase = if self.reaches_guest { Phase::Ending } else { Phase::Absent };
        (self.ending_since, self.under_way) = (None, 0);
    }

    /// Says whether it ends, and may still reach a guest's memory.
    pub fn is_ending(&self) -> bool {
        matches!(self.phase, Phase::Ending | Phase::Late | Phase::CutOff)
    }

    /// Says whether it has ended, so that what it was told reaches nothing any more: its reset has, or the hypervisor keeps it from memory.
    pub fn has_ended(&mut self, now: u64) -> bool {
        let Some(machine) = self.machine else { return true };
        let since = *self.ending_since.get_or_insert(now);
        let has_ended = match self.phase {
            Phase::Ending => D::reset(machine.bus()) == Ok(true),
            Phase::CutOff => true,
            _ => false,
        };
        if has_ended {
            (self.phase, self.reaches_guest) = (Phase::Absent, false);
        } else if self.phase == Phase::Ending && now.saturating_sub(since) > LATE {
            self.phase = Phase::Late;
        }
        has_ended
    }

    /// Says, once, that the hypervisor is to keep it from memory. It is told so behind this event.
    pub fn is_to_be_cut_off(&mut self) -> bool {
        let is_late = self.phase == Phase::Late;
        if is_late {
            self.phase = Phase::CutOff;
        }
        is_late
    }

    /// Says whether it reaches no guest's memory for commands of before.
    pub fn is_settled(&self) -> bool {
        self.is_ready() || !self.reaches_guest
    }

    /// Says whether it was told of a guest's memory.
    pub const fn reaches_guest(&self) -> bool {
        self.reaches_guest
    }

    /// Goes on with the beginning. True if commands can be given.
    pub fn advance(&mut self, now: u64) -> Result<bool, Trouble> {
        let Some(machine) = self.machine else { return Ok(false) };
        if self.phase == Phase::Starting {
            let Some(geometry) = self.drive.proceed(machine.bus(), now)? else { return Ok(false) };
            // Its reset has ended.
            self.reaches_guest = false;
            self.found(geometry, now)?;
        }
        if self.phase == Phase::Table {
            self.read_table(machine, now)?;
        }
        Ok(self.phase == Phase::Ready)
    }

    /// Says whether it begins or ends, which takes time.
    pub fn is_starting(&self) -> bool {
        matches!(self.phase, Phase::Starting | Phase::Table) || self.is_ending()
    }

    /// Says whether commands can be given.
    pub fn is_ready(&self) -> bool {
        self.phase == Phase::Ready
    }

    /// Says whether there is none, or one that cannot be used any more.
    pub fn is_gone(&self) -> bool {
        self.phase == Phase::Absent
    }

    /// What the disk is, once that is known.
    pub const fn geometry(&self) -> Option<Geometry> {
        self.geometry
    }

    /// The disk is known.
    fn found(&mut self, geometry: Geometry, now: u64) -> Result<(), Trouble> {
        self.stage_bytes = PIECE.min(geometry.most_bytes.into());
        self.geometry = Some(geometry);
        let tags = usize::from(self.room) * self.drives.0.iter().flatten().count();
        self.is_scarce = usize::from(geometry.depth) < tags;
        (self.wrong, self.reading, self.phase) = ([None; MEMBERS], 0, Phase::Table);
        self.ask(now)
    }

    /// Takes what has come of the partition table, and asks for more.
    fn read_table(&mut self, machine: &H, now: u64) -> Result<(), Trouble> {
        self.drive.check(machine.bus())?;
        if now.saturating_sub(self.asked_at) > LATE {
            return Err(Trouble::Late);
        }
        while let Some((_, result)) = self.drive.finished(machine.bus())? {
            result.map_err(|_| Trouble::Unreadable)?;
            let (Some(reader), Some(geometry)) = (&mut self.reader, self.geometry) else { return Ok(()) };
            let block = self.block.get_mut(..geometry.block as usize).unwrap_or_default();
            machine.shared().read(self.table, block).map_err(|_| Trouble::Unreadable)?;
            reader.give(block);
            self.ask(now)?;
        }
        Ok(())
    }

    /// Asks for the next block of the partition table. If there is none for any member, commands can be given.
    fn ask(&mut self, now: u64) -> Result<(), Trouble> {
        let (Some(machine), Some(geometry)) = (self.machine, self.geometry) else { return Ok(()) };
        let sectors = sectors_of(geometry);
        while let Some(drive) = self.drives.0.get(self.reading) {
            let step = match drive.map(|drive| drive.partition) {
                None => Ok(Step::Done(Part::default())),
                Some(None) => Ok(Step::Done(Part { first: 0, sectors: geometry.sectors })),
                Some(Some(partition)) => self.step(geometry, partition.into()),
            };
            match step {
                Ok(Step::Done(part)) => self.has(Ok(part)),
                Err(wrong) => self.has(Err(wrong)),
                Ok(Step::Block(block)) => {
                    let bus = machine.bus();
                    self.asked_at = now;
                    self.drive
                        .read(bus, 0, block * sectors, self.table, geometry.block)
                        .map_err(|_| Trouble::Unreadable)?;
                    self.drive.ring(bus)?;
                    // What is there already is found when somebody looks again, which is soon.
                    self.drive.arm(bus)?;
                    return Ok(());
                }
            }
        }
        self.phase = Phase::Ready;
        Ok(())
    }

    /// Goes on with the search for a partition.
    fn step(&mut self, geometry: Geometry, partition: u32) -> Result<Step<Part>, Wrong> {
        let sectors = sectors_of(geometry);
        if self.reader.is_none() {
            let blocks = geometry.sectors / sectors;
            self.reader = Some(Reader::new(blocks, geometry.block as usize, Want::Number(partition))?);
        }
        Ok(match self.reader.as_ref().ok_or(Wrong::Missing)?.step()? {
            gpt::Step::Block(block) => Step::Block(block),
            gpt::Step::Done(found) => {
                Step::Done(Part { first: found.first * sectors, sectors: found.blocks * sectors })
            }
        })
    }

    /// It is known what the member has for which the table was read; the next one is next.
    fn has(&mut self, part: Result<Part, Wrong>) {
        if let (Some(share), Some(wrong)) =
            (self.shares.get_mut(self.reading), self.wrong.get_mut(self.reading))
        {
            (share.part, *wrong) = (part.unwrap_or_default(), part.err());
        }
        (self.reader, self.reading) = (None, self.reading + 1);
    }

    /// Takes the next command that is done.
    pub fn finished(&mut self) -> Result<Option<Done>, Trouble> {
        let Some(machine) = self.machine.filter(|_| self.is_ready()) else { return Ok(None) };
        let finished = self.drive.finished(machine.bus())?;
        Ok(finished.map(|(tag, result)| {
            self.under_way = self.under_way.saturating_sub(1);
            // The first member, usually the only one, costs no division.
            let member = if tag < self.room { 0 } else { tag / self.room.max(1) };
            Done { member: member.into(), tag: tag - member * self.room, result: result.map_err(failure) }
        }))
    }

    /// Says whether the controller has something to do for a member, or for one that is gone.
    #[inline(always)] // A load.
    pub const fn is_waiting(&self) -> bool {
        self.under_way != 0
    }

    /// Tells the controller of its commands, and asks for an interrupt if it has something to do. True if something is done already.
    pub fn settle(&mut self) -> Result<bool, Trouble> {
        let Some(machine) = self.machine.filter(|_| self.is_ready()) else { return Ok(false) };
        self.drive.ring(machine.bus())?;
        Ok(self.is_waiting() && self.drive.arm(machine.bus())?)
    }

    /// Tells the controller of its commands alone.
    pub fn ring(&mut self) -> Result<(), Trouble> {
        match self.machine.filter(|_| self.is_ready()) {
            Some(machine) => Ok(self.drive.ring(machine.bus())?),
            None => Ok(()),
        }
    }

    /// The controller has interrupted.
    pub fn interrupted(&mut self) -> Result<(), Trouble> {
        // One that ends has no driver, and is to be done with in its time.
        match self.machine.filter(|_| self.phase != Phase::Absent && !self.is_ending()) {
            Some(machine) => Ok(self.drive.interrupted(machine.bus())?),
            None => Ok(()),
        }
    }

    /// Where the stage of a tag is.
    const fn stage_of(&self, tag: u16) -> u64 {
        self.stages + tag as u64 * PIECE
    }

    /// Says whether the controller goes on.
    pub fn check(&self) -> Result<(), Trouble> {
        match self.machine.filter(|_| self.is_ready()) {
            Some(machine) => Ok(self.drive.check(machine.bus())?),
            None => Ok(()),
        }
    }
}

/// How many sectors a block has.
const fn sectors_of(geometry: Geometry) -> u64 {
    geometry.block as u64 / SECTOR
}

const fn failure(refused: Refused) -> Failure {
    match refused {
        Refused::Io => Failure::Io,
        Refused::Unsupported => Failure::Unsupported,
    }
}
