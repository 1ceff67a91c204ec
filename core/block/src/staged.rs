// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A drive, which does commands later, as a disk for one request.
//!
//! A drive that reaches the driver's memory moves bytes there itself. Otherwise, and where buffers lie as it cannot take them, it reaches memory of its
//! own alone, the stages: so bytes are copied once, between these and the driver's memory.

use turnstile_virtio::device::Span;
use turnstile_virtio::transfer::{End, Transfer};

use crate::disk::{Disk, DiskFor, Failure, Move, SECTOR, inside};

/// What a drive is told to do. Positions and lengths are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Bytes to the stage.
    Read {
        /// From where.
        at: u64,
        /// How many.
        length: u64,
    },
    /// Bytes from the stage.
    Write {
        /// To where.
        at: u64,
        /// How many.
        length: u64,
    },
    /// All that was written survives a loss of power when this is done.
    Flush,
    /// These bytes are not needed any more.
    Discard {
        /// From where.
        at: u64,
        /// How many.
        length: u64,
    },
    /// These bytes become zero.
    Zero {
        /// From where.
        at: u64,
        /// How many.
        length: u64,
        /// Room for them may be given up.
        may_discard: bool,
    },
}

/// A drive that does commands later, several at once and in any order. Each has a tag, and with it a stage: memory that the drive reaches.
pub trait Drive {
    /// That memory.
    type Memory: Transfer;

    /// Its size.
    fn sectors(&self) -> u64;

    /// How many bytes a stage has: whole blocks of the drive, and at most [`PIECE`](crate::disk::PIECE).
    fn stage_bytes(&self) -> u64;

    /// How many bytes one command discards, or fills with zeroes, at most.
    fn range_piece(&self) -> u64;

    /// The memory with the stages, and where that of a tag is.
    ///
    /// # Errors
    /// [`Failure::Busy`] while the drive may still reach it for what was given up, [`Failure::Io`] if the drive is gone.
    fn stage(&self, tag: u16) -> Result<(&Self::Memory, u64), Failure>;

    /// Begins with a command, and says whether it is done already. Otherwise that is told by [`Slots::done`](crate::deep::Slots::done). Behind an error it has not begun; with
    /// [`Failure::Busy`] it is to be given again, when another one is done.
    fn submit(&mut self, tag: u16, command: Command) -> Result<bool, Failure>;

    /// Begins to move the first of these bytes between the disk and the driver's buffers, and returns how many: at least one. `None` if it does not reach
    /// these, or not as they lie. Errors are those of [`Drive::submit`].
    fn submit_direct(&mut self, _tag: u16, _wanted: &Move<'_>) -> Result<Option<u64>, Failure> {
        Ok(None)
    }
}

/// What a request has of the drive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Nothing.
    #[default]
    Empty,
    /// Bytes to write, from the first on, which have not all come.
    Gathered { at: u64, length: u64 },
    /// Bytes that were read, and that the request has not all taken.
    Filled { at: u64, length: u64 },
    /// The drive has not done this command.
    Waiting(Command),
    /// It has.
    Done(Command, Result<(), Failure>),
    /// The drive has not moved so many bytes itself.
    Moving(u64),
    /// It has.
    Moved(u64, Result<(), Failure>),
}

impl Stage {
    /// Says whether the drive has something to do.
    pub(crate) const fn is_waiting(&self) -> bool {
        matches!(self, Self::Waiting(_) | Self::Moving(_))
    }

    /// What it is when the drive has done that.
    pub(crate) fn behind(self, result: Result<(), Failure>) -> Self {
        match self {
            Self::Waiting(command) => Self::Done(command, result),
            Self::Moving(bytes) => Self::Moved(bytes, result),
            other => other,
        }
    }

    /// How many bytes the next call from `at` has at most, if some of these bytes are there.
    fn piece(&self, at: u64, most: u64) -> Option<u64> {
        match *self {
            Self::Gathered { at: first, length } => (at == first + length).then(|| most - length),
            Self::Filled { at: first, length }
            | Self::Waiting(Command::Write { at: first, length })
            | Self::Done(Command::Write { at: first, length }, _) => {
                (first <= at && at < first + length).then(|| first + length - at)
            }
            _ => None,
        }
    }
}

/// The drive, for one request.
pub(crate) struct Staged<'a, D> {
    pub drive: &'a mut D,
    pub tag: u16,
    pub stage: &'a mut Stage,
    /// Where the bytes end that the request reads or writes.
    pub end: u64,
}

impl<D: Drive> Staged<'_, D> {
    /// Has the drive do something, and says whether it is done.
    fn command(&mut self, command: Command) -> Result<(), Failure> {
        match *self.stage {
            Stage::Waiting(_) => Err(Failure::Busy),
            Stage::Done(done, result) if done == command => {
                *self.stage = Stage::Empty;
                result
            }
            _ => {
                if self.drive.submit(self.tag, command)? {
                    return Ok(());
                }
                *self.stage = Stage::Waiting(command);
                Err(Failure::Busy)
            }
        }
    }

    /// Bytes that are to be written have all come, or as many as there is room for: says whether they are written.
    fn written(&mut self, at: u64, length: u64) -> Option<Result<(), Failure>> {
        let Stage::Done(Command::Write { at: first, length: all }, result) = *self.stage else { return None };
        if at < first || at + length > first + all {
            return None;
        }
        if result.is_err() || at + length == first + all {
            *self.stage = Stage::Empty;
        }
        Some(result)
    }

    fn is_inside(&self, at: u64, length: u64) -> Result<(), Failure> {
        inside(at, length, self.drive.sectors().saturating_mul(SECTOR))
    }
}

impl<D: Drive> Disk for Staged<'_, D> {
    fn sectors(&self) -> u64 {
        self.drive.sectors()
    }

    fn piece(&self, at: u64) -> u64 {
        let most = self.drive.stage_bytes();
        self.stage.piece(at, most).unwrap_or(most)
    }

    fn range_piece(&self) -> u64 {
        self.drive.range_piece()
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.command(Command::Flush)
    }

    fn discard(&mut self, at: u64, length: u64) -> Result<(), Failure> {
        self.is_inside(at, length)?;
        self.command(Command::Discard { at, length })
    }

    fn zero(&mut self, at: u64, length: u64, may_discard: bool) -> Result<(), Failure> {
        self.is_inside(at, length)?;
        self.command(Command::Zero { at, length, may_discard })
    }
}

impl<D: Drive> DiskFor<D::Memory> for Staged<'_, D> {
    #[inline] // On the path of every request.
    fn direct(&mut self, wanted: &Move<'_>) -> Result<Option<u64>, Failure> {
        match *self.stage {
            Stage::Moving(_) => Err(Failure::Busy),
            Stage::Moved(bytes, result) => {
                *self.stage = Stage::Empty;
                result.map(|()| Some(bytes))
            }
            Stage::Empty if wanted.length != 0 => {
                self.is_inside(wanted.at, wanted.length)?;
                let Some(bytes) = self.drive.submit_direct(self.tag, wanted)? else { return Ok(None) };
                *self.stage = Stage::Moving(bytes);
                Err(Failure::Busy)
            }
            // Bytes that are copied.
            _ => Ok(None),
        }
    }

    /// Reads as much of the request as there is room for, and copies what is asked for.
    fn read(&mut self, at: u64, memory: &D::Memory, to: Span) -> Result<(), Failure> {
        let bytes = u64::from(to.length);
        self.is_inside(at, bytes)?;
        let (first, length) = match *self.stage {
            Stage::Filled { at: first, length } if first <= at && at < first + length => (first, length),
            _ => {
                let length = self.end.saturating_sub(at).clamp(bytes, self.drive.stage_bytes().max(bytes));
                self.command(Command::Read { at, length })?;
                (at, length)
            }
        };
        *self.stage =
            if at + bytes < first + length { Stage::Filled { at: first, length } } else { Stage::Empty };
        let (stage, place) = self.drive.stage(self.tag)?;
        let from = Span { address: place + (at - first), length: to.length };
        stage.transfer(from, memory, to.address).map_err(|end| match end {
            // Memory of the device that it has not, or more than the stage has.
            End::From(_) => Failure::Io,
            End::To(outside) => outside.into(),
        })
    }

    /// Gathers the bytes of the request, and writes them when all are there, or as many as there is room for.
    fn write(&mut self, at: u64, memory: &D::Memory, from: Span) -> Result<(), Failure> {
        let bytes = u64::from(from.length);
        self.is_inside(at, bytes)?;
        if let Some(result) = self.written(at, bytes) {
            return result;
        }
        let (first, gathered) = match *self.stage {
            Stage::Waiting(_) => return Err(Failure::Busy),
            Stage::Gathered { at: first, length } if at == first + length => (first, length),
            _ => (at, 0),
        };
        let (stage, place) = self.drive.stage(self.tag)?;
        let length = gathered + bytes;
        let most = self.drive.stage_bytes();
        if length > most {
            return Err(Failure::Io);
        }
        memory.transfer(from, stage, place + gathered).map_err(|end| match end {
            End::From(outside) => outside.into(),
            End::To(_) => Failure::Io,
        })?;
        if at + bytes < self.end && length < most {
            *self.stage = Stage::Gathered { at: first, length };
            return Ok(());
        }
        // A drive that is busy is given all of it later, and this call comes again.
        *self.stage = Stage::Gathered { at: first, length: gathered };
        self.command(Command::Write { at: first, length })
    }
}
