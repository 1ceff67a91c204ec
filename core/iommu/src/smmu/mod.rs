// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Arm's System Memory Management Unit, version 3 (Arm IHI 0070; sections without a document are of that one).
//!
//! ```text
//! start: all streams abort → reach: a stream gets tables of its own, by stage 2 → faults: who has reached for something else
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

/// A stream has reached for memory that is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number.
    pub stream: u32,
    /// The address, if the SMMU tells it.
    pub address: Option<u64>,
}

/// A stream that has memory.
#[derive(Clone, Copy, Debug)]
struct Stream {
    id: u32,
    /// Its first fault has been handed over.
    has_strayed: bool,
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
        self.streams.try_push(Stream { id: stream, has_strayed: false }).map_err(|_| Error::TooMany)?;
        let mut tables = PageTable::new(format, platform)?;
        tables.map(platform, address, PhysAddr(address), size, SHARED)?;
        let entry = stream::Entry::translated(number, &format, self.features.output_size, tables.root());
        self.table.prepare(platform, stream)?;
        // What it says of the translation counts from the second step on (section 3.21.3).
        self.table.write(platform, stream, entry.rest())?;
        self.forget(platform, stream)?;
        self.table.write(platform, stream, entry)?;
        self.forget(platform, stream)
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
