// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arm's System Memory Management Unit, version 3 (Arm IHI 0070; sections without a document are of that one).
//!
//! ```text
//! start: all streams abort → reach: a stream gets tables of its own, by stage 2 → faults: who has reached for something else
//!                                                   lend: more memory, for a while → take_back
//! ```
//!
//! | file | what |
//! |---|---|
//! | `platform` | what the driver needs of the machine, and why it fails |
//! | `registers` | registers, and what of the features this driver needs |
//! | `stream` | the stream table |
//! | `command` | the command queue |
//! | `event` | the event queue |

mod command;
mod event;
mod platform;
mod registers;
mod stream;

use arrayvec::ArrayVec;
use turnstile_paging::{Memory, PageTable, PhysAddr, Stage2, Stage2Attributes};

use command::{Command, Commands};
use event::Events;
pub use event::{Event, Kind};
pub use platform::{Error, MAX_STREAMS, Platform};
use registers::{CR0, CR1, CR2, Features, GBPA, IRQ_CTRL, STRTAB_BASE, STRTAB_BASE_CFG, wait};
use stream::StreamTable;

use crate::pieces::{MAX_LENT, map_all};

/// A stream has reached for memory that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number.
    pub stream: u32,
    /// The address, if the SMMU tells it.
    pub address: Option<u64>,
}

/// A stream that has memory.
#[derive(Debug)]
struct Stream {
    id: u32,
    /// Its first fault has been handed over.
    has_strayed: bool,
    /// What it has for ever: where, and how many bytes.
    memory: (u64, u64),
    /// The tables of that alone. Its entry leads to them while it has nothing else.
    own: PageTable<Stage2>,
    /// The tables of that and of what it has been lent.
    lent: Option<PageTable<Stage2>>,
}

/// An SMMU in use.
#[derive(Debug)]
pub struct Smmu {
    features: Features,
    table: StreamTable,
    commands: Commands,
    events: Events,
    /// Those that have memory. The place of each is its number as a virtual machine.
    streams: ArrayVec<Stream, MAX_STREAMS>,
    /// How many looks at events told nothing new.
    idle: u32,
    /// It interrupts nobody any more.
    is_quiet: bool,
}

/// So many looks at events that tell nothing new are interrupts'. Then the queue is looked at when functions are allowed or silenced alone.
const PATIENCE: u32 = 64;

/// Everything that the memory of a device is: read and written, not executed.
const SHARED: Stage2Attributes =
    Stage2Attributes { memory: Memory::Normal, read: true, write: true, execute: false };

impl Smmu {
    /// Starts an SMMU whose streams have numbers below `streams`. From then on none of them reaches anything.
    ///
    /// # Errors
    /// When it lacks something: then it is as it was. When it does not answer: then nothing may pass it.
    pub fn start(platform: &mut impl Platform, streams: u64) -> Result<Self, Error> {
        let features = Features::read(platform)?;
        let table = StreamTable::new(&features, platform, streams)?;
        let commands = Commands::new(&features, platform)?;
        let events = Events::new(&features, platform)?;
        // What passes while it is not enabled is aborted (section 6.3.15).
        let gbpa = platform.get32(GBPA.offset) | registers::GBPA_ABORT;
        platform.set32(GBPA.offset, gbpa | registers::GBPA_UPDATE);
        wait(platform, GBPA.name, |p| p.get32(GBPA.offset) & registers::GBPA_UPDATE == 0)?;
        CR0.set(platform, 0)?;
        IRQ_CTRL.set(platform, 0)?;
        platform.set32(CR1, registers::CR1_WRITE_BACK);
        platform.set32(CR2, registers::CR2_PRIVATE_TLB);
        platform.set64(STRTAB_BASE, table.base());
        platform.set32(STRTAB_BASE_CFG, table.shape());
        commands.set_up(platform);
        events.set_up(platform);
        let mut smmu =
            Self { features, table, commands, events, streams: ArrayVec::new(), idle: 0, is_quiet: false };
        smmu.enable(platform)?;
        Ok(smmu)
    }

    /// Enables the queues, forgets what it may have cached, and enables translation (section 6.3.9).
    fn enable(&mut self, platform: &mut impl Platform) -> Result<(), Error> {
        CR0.set(platform, registers::CR0_COMMANDS)?;
        self.commands.issue(platform, Command::ForgetConfigurations)?;
        if self.features.has_el2 {
            self.commands.issue(platform, Command::ForgetHypervisor)?;
        }
        self.commands.issue(platform, Command::ForgetGuests)?;
        self.commands.issue(platform, Command::Synchronize)?;
        let queues = registers::CR0_COMMANDS | registers::CR0_EVENTS;
        CR0.set(platform, queues)?;
        IRQ_CTRL.set(platform, registers::IRQ_EVENTS)?;
        // Else a device passes that says that its addresses are translated (section 3.9.1).
        let checks = if self.features.has_ats { registers::CR0_CHECK_TRANSLATED } else { 0 };
        CR0.set(platform, queues | checks | registers::CR0_ENABLE)
    }

    /// Lets a stream reach `size` bytes at `address`, under that address, and nothing else. Both are multiples of 4 KiB.
    ///
    /// # Errors
    /// When there is no such stream, or it has memory, or there is no room for tables. It reaches nothing then.
    pub fn reach(
        &mut self,
        platform: &mut impl Platform,
        stream: u32,
        (address, size): (u64, u64),
    ) -> Result<(), Error> {
        if self.streams.iter().any(|other| other.id == stream) {
            return Err(Error::Taken(stream));
        }
        let format = Stage2::new(self.features.address_bits)
            .ok_or(Error::Feature("address size that tables can have"))?;
        let number = u16::try_from(self.streams.len()).map_err(|_| Error::TooMany)?;
        if self.streams.is_full() {
            return Err(Error::TooMany);
        }
        let own = map_all(platform, format, [(address, size)], SHARED)?;
        let entry = stream::Entry::translated(number, &format, self.features.output_size, own.root());
        self.streams.push(Stream {
            id: stream,
            has_strayed: false,
            memory: (address, size),
            own,
            lent: None,
        });
        self.table.prepare(platform, stream)?;
        self.establish(platform, stream, entry)
    }

    /// Replaces an entry that aborts. What it says of the translation counts from the second step on (section 3.21.3).
    fn establish(
        &mut self,
        platform: &mut impl Platform,
        stream: u32,
        entry: stream::Entry,
    ) -> Result<(), Error> {
        self.table.write(platform, stream, entry.rest())?;
        self.forget(platform, stream)?;
        self.table.write(platform, stream, entry)?;
        self.forget(platform, stream)
    }

    /// Lets a stream that has memory reach these pieces, too, as [`Smmu::reach`] has it, until [`Smmu::take_back`]. The stream is silent meanwhile.
    ///
    /// # Errors
    /// When it has no memory, or has been lent some, or there is no room for tables. It reaches nothing new then.
    pub fn lend(
        &mut self,
        platform: &mut impl Platform,
        stream: u32,
        pieces: &[(u64, u64)],
    ) -> Result<(), Error> {
        let number = self.number(stream)?;
        let known = self.streams.get(number).filter(|known| known.lent.is_none());
        let known = known.ok_or(Error::Taken(stream))?;
        if pieces.len() > MAX_LENT {
            return Err(Error::TooMany);
        }
        let all = core::iter::once(&known.memory).chain(pieces).copied();
        let lent = map_all(platform, *known.own.format(), all, SHARED)?;
        let root = lent.root();
        if let Some(known) = self.streams.get_mut(number) {
            known.lent = Some(lent);
        }
        self.lead(platform, number, root)
    }

    /// Takes back what a stream was lent. When this returns, nothing of it is reached: not by what the SMMU had cached, and what was on its way has
    /// arrived. Its tables are free behind that. Nothing happens if it was lent nothing.
    ///
    /// # Errors
    /// When the SMMU does not say so. Then the stream may still reach it.
    pub fn take_back(&mut self, platform: &mut impl Platform, stream: u32) -> Result<(), Error> {
        let number = self.number(stream)?;
        let Some(known) = self.streams.get(number).filter(|known| known.lent.is_some()) else {
            return Ok(());
        };
        let root = known.own.root();
        self.lead(platform, number, root)?;
        let lent = self.streams.get_mut(number).and_then(|known| known.lent.take());
        lent.into_iter().for_each(|tables| tables.free_all(platform));
        Ok(())
    }

    /// Returns the place of a stream that has memory.
    fn number(&self, stream: u32) -> Result<usize, Error> {
        self.streams.iter().position(|known| known.id == stream).ok_or(Error::NoStream(stream))
    }

    /// Has a stream's entry lead to these tables, and the SMMU forget what it knows of others: by an entry that aborts, because the words are read one
    /// by one (section 3.21.3).
    fn lead(&mut self, platform: &mut impl Platform, number: usize, root: PhysAddr) -> Result<(), Error> {
        let Some(Stream { id, has_strayed, own, .. }) = self.streams.get(number) else { return Ok(()) };
        let (stream, is_silent) = (*id, *has_strayed);
        let vm = u16::try_from(number).map_err(|_| Error::TooMany)?;
        let entry = stream::Entry::translated(vm, own.format(), self.features.output_size, root);
        let entry = if is_silent { entry.silent() } else { entry };
        self.table.abort(platform, stream)?;
        self.commands.issue(platform, Command::ForgetStream(stream))?;
        // No entry of this machine, as a virtual one, stays. Behind it what was translated by one has arrived (section 3.21.1).
        self.commands.issue(platform, Command::ForgetGuests)?;
        self.commands.issue(platform, Command::Synchronize)?;
        self.establish(platform, stream, entry)
    }

    /// Has the SMMU read a stream's entry anew.
    fn forget(&mut self, platform: &mut impl Platform, stream: u32) -> Result<(), Error> {
        self.commands.issue(platform, Command::ForgetStream(stream))?;
        self.commands.issue(platform, Command::Synchronize)
    }

    /// Hands over the first fault of each stream, and has the SMMU record no other one of it. A call looks at no more events than the queue holds
    /// twice.
    pub fn faults(&mut self, platform: &mut impl Platform, take: &mut dyn FnMut(Fault)) {
        let (mut some, mut has_new) = (false, false);
        // Behind the first look, those that are known record nothing any more.
        for _ in 0..2 {
            for _ in 0..self.events.size() {
                let Some(event) = self.events.next(platform) else { break };
                some = true;
                let is_first = |known: &&mut Stream| known.id == event.stream && !known.has_strayed;
                let Some(known) = self.streams.iter_mut().find(is_first) else { continue };
                (known.has_strayed, has_new) = (true, true);
                take(Fault { stream: event.stream, address: event.address });
                // If it does not take that, its events are what nobody looks at.
                let _ = self.silence(platform, event.stream);
            }
            self.events.acknowledge(platform);
        }
        self.idle = self.idle.saturating_add(u32::from(some && !has_new));
        if self.idle > PATIENCE && !self.is_quiet {
            // Some events cannot be kept from being recorded. Who makes them on purpose is not to have a CPU's time. If the SMMU does not take that, it
            // is asked again.
            self.is_quiet = IRQ_CTRL.set(platform, 0).is_ok();
        }
    }

    /// Has a stream's faults not recorded.
    fn silence(&mut self, platform: &mut impl Platform, stream: u32) -> Result<(), Error> {
        self.table.silence(platform, stream)?;
        self.forget(platform, stream)
    }
}
