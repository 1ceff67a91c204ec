// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The commands of members: each within its part, in the guest's own buffers or by a stage.

use arrayvec::ArrayVec;
use turnstile_block::disk::{Failure, Move, SECTOR};
use turnstile_block::staged::{Command, Drive as Staged};
use turnstile_drive::drive::{Direction, Drive, MOST_SEGMENTS, Refusal, Segment};

use super::{Lent, Phase, Share};
use crate::machine::Machine;

/// How many bytes a command discards or fills with zeroes at most, whatever the controller takes: one that a member gives is done in a time for which the
/// others can wait.
const RANGE: u64 = 8 << 20;

impl<H: Machine, D: Drive> Staged for Lent<H, D> {
    type Memory = H::Memory;

    fn sectors(&self) -> u64 {
        self.turn.part.sectors
    }

    fn stage_bytes(&self) -> u64 {
        self.stage_bytes
    }

    fn range_piece(&self) -> u64 {
        self.geometry.map_or(SECTOR, |geometry| range_piece(geometry.most_discarded, geometry.most_zeroed))
    }

    fn stage(&self, tag: u16) -> Result<(&H::Memory, u64), Failure> {
        let machine = self.machine.filter(|_| self.phase != Phase::Absent).ok_or(Failure::Io)?;
        match self.phase {
            Phase::Ready => Ok((machine.shared(), self.stage_of(self.turn.first + tag))),
            // Commands of before may not have ended.
            _ => Err(Failure::Busy),
        }
    }

    fn submit(&mut self, tag: u16, command: Command) -> Result<bool, Failure> {
        let Some(machine) = self.machine.filter(|_| self.phase != Phase::Absent) else {
            return Err(Failure::Io);
        };
        if self.phase != Phase::Ready {
            return Err(Failure::Busy);
        }
        let Share { part, first, .. } = self.turn;
        let (bus, tag) = (machine.bus(), first + tag);
        let stage = self.stage_of(tag);
        let sector = |at: u64| part.first + at / SECTOR;
        let sectors = |length: u64| u32::try_from(length / SECTOR).map_err(|_| Failure::Io);
        let result = match command {
            Command::Read { at, length } => self.drive.read(bus, tag, sector(at), stage, length as u32),
            Command::Write { at, length } => self.drive.write(bus, tag, sector(at), stage, length as u32),
            // Of what is not there.
            Command::Flush if part.sectors == 0 => return Err(Failure::Io),
            Command::Flush if self.geometry.is_some_and(|geometry| !geometry.cache) => return Ok(true),
            Command::Flush => self.drive.flush(bus, tag),
            Command::Discard { at, length } => self.drive.discard(bus, tag, sector(at), sectors(length)?),
            Command::Zero { at, length, may_discard } => {
                self.drive.zero(bus, tag, sector(at), sectors(length)?, may_discard)
            }
        };
        result.map_err(refused)?;
        self.under_way += 1;
        Ok(false)
    }

    #[inline] // On the path of every request.
    fn submit_direct(&mut self, tag: u16, wanted: &Move<'_>) -> Result<Option<u64>, Failure> {
        let (Some(machine), Some(geometry)) = (self.machine.filter(|_| self.is_ready()), self.geometry)
        else {
            return Ok(None);
        };
        let length = wanted.length.min(geometry.most_bytes.into()) as u32;
        let mut segments = ArrayVec::new();
        let Share { part, first, member } = self.turn;
        if find((machine, member.into()), wanted, length, &mut segments).is_none() {
            return Ok(None);
        }
        let direction = if wanted.writes { Direction::Write } else { Direction::Read };
        let sector = part.first + wanted.at / SECTOR;
        match self.drive.scatter(machine.bus(), first + tag, direction, sector, &segments) {
            Ok(()) => {
                (self.reaches_guest, self.under_way) = (true, self.under_way + 1);
                Ok(Some(length.into()))
            }
            // Not as they lie.
            Err(Refusal::Memory) => Ok(None),
            Err(refusal) => Err(refused(refusal)),
        }
    }
}

/// Finds where the controller reaches the first of these bytes of a member. `None` if it does not reach them all, or they are in more segments than a command has.
#[inline] // On the path of every request.
fn find<H: Machine>(
    (machine, member): (&H, usize),
    wanted: &Move<'_>,
    length: u32,
    segments: &mut ArrayVec<Segment, MOST_SEGMENTS>,
) -> Option<()> {
    let (mut place, mut left) = (wanted.place, length);
    while left != 0 {
        let span = place.take(wanted.spans, left)?;
        let address = machine.on_bus(member, span.address, span.length.into())?;
        segments.try_push(Segment { address, length: span.length }).ok()?;
        left -= span.length;
    }
    Some(())
}

const fn refused(refusal: Refusal) -> Failure {
    match refusal {
        Refusal::Full => Failure::Busy,
        Refusal::Unsupported => Failure::Unsupported,
        Refusal::Tag | Refusal::Range | Refusal::Memory => Failure::Io,
    }
}

/// How many bytes a command discards or fills with zeroes, of a controller that takes so many sectors.
pub fn range_piece(discarded: u32, zeroed: u32) -> u64 {
    let most = match (discarded, zeroed) {
        (0, most) | (most, 0) => most,
        (one, other) => one.min(other),
    };
    (u64::from(most) * SECTOR).clamp(SECTOR, RANGE)
}
