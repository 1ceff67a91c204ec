// SPDX-License-Identifier: Apache-2.0 OR MIT
//! AMD's IOMMU, AMD-Vi (AMD I/O Virtualization Technology specification, 48882; sections without a document are of that one).
//!
//! ```text
//! start: nothing reaches anything → message: a function may send one → reach: it gets tables of its memory → faults: who has strayed
//!                                                                            lend: more memory, for a while → take_back
//! ```
//!
//! | file | what |
//! |---|---|
//! | `platform` | what the driver needs of the machine, and why it fails |
//! | `registers` | registers, and what of the features this driver needs |
//! | `device` | the device table, and the tables of messages |
//! | `pages` | the tables of memory |
//! | `command` | the command buffer |
//! | `event` | the event log |
//!
//! Messages are writes to memory: without a table of them, a function could send any interrupt to any CPU. So they are looked up from the start on.

mod command;
mod device;
mod event;
mod pages;
mod platform;
mod registers;

use arrayvec::ArrayVec;
use turnstile_paging::{PageTable, PhysAddr};

use command::{Command, Commands};
use device::Entry;
use event::Events;
pub use event::{Event, Kind};
use pages::IoPages;
pub use platform::{Error, MAX_FUNCTIONS, MAX_UNITS, Platform};
use registers::{
    CONTROL, CONTROL_EVENT_INTERRUPT, DEVICE_TABLE_BASE, EXCLUSION_BASE, EXCLUSION_LIMIT, STATUS,
    STATUS_COMMANDS_RUN, STATUS_EVENTS_RUN, set64, wait,
};

use crate::pieces::{MAX_LENT, map_all};

/// What all messages write: the only one that does anything is the first in the function's table.
pub const MESSAGE: u32 = 0;

/// There is no memory for a table.
const NO_MEMORY: Error = Error::Paging(turnstile_paging::Error::OutOfTables);

/// A function has reached for what is not its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its number as a requester.
    pub function: u16,
    /// The address, if the IOMMU tells it.
    pub address: Option<u64>,
}

/// A function that has something.
#[derive(Debug)]
struct Function {
    id: u16,
    entry: Entry,
    /// What it has for ever: where, and how many bytes.
    memory: (u64, u64),
    /// The tables of that alone. Its entry leads to them while it has nothing else.
    own: Option<PageTable<IoPages>>,
    /// The tables of that and of what it has been lent.
    lent: Option<PageTable<IoPages>>,
}

/// One IOMMU.
#[derive(Debug)]
struct Unit {
    commands: Commands,
    events: Events,
    /// What is in its control register.
    control: u32,
    /// How many looks at events told nothing new.
    idle: u32,
}

/// So many looks at events that tell nothing new are interrupts'. Then the log is looked at when functions are allowed or silenced alone.
const PATIENCE: u32 = 64;

/// The IOMMUs of a machine, in use.
#[derive(Debug)]
pub struct AmdVi {
    table: PhysAddr,
    units: ArrayVec<Unit, MAX_UNITS>,
    /// Those that have something. The place of each, counted from 1, is its number as a domain.
    functions: ArrayVec<Function, MAX_FUNCTIONS>,
}

impl AmdVi {
    /// Starts the IOMMUs for which firmware wishes this (`flags` of an IOMMU's block in its table). From then on no function reaches anything; messages of
    /// these I/O APICs pass.
    ///
    /// # Errors
    /// When one of them lacks something: then all are as they were. When one does not answer: then what passes it may be anything.
    pub fn start(platform: &mut impl Platform, flags: &[u8], io_apics: &[u16]) -> Result<Self, Error> {
        for unit in 0..flags.len() {
            registers::check(platform, unit)?;
        }
        let table = platform.allocate(device::BYTES).ok_or(NO_MEMORY)?;
        device::refuse_all(platform, table);
        for function in io_apics {
            device::pass_messages(platform, table, *function);
        }
        let mut units = ArrayVec::new();
        for flags in flags {
            let (commands, events) = (Commands::new(platform), Events::new(platform));
            let (commands, events) = commands.zip(events).ok_or(NO_MEMORY)?;
            let unit = Unit { commands, events, control: registers::control(*flags), idle: 0 };
            units.try_push(unit).map_err(|_| Error::TooMany)?;
        }
        let mut all = Self { table, units, functions: ArrayVec::new() };
        for number in 0..all.units.len() {
            all.enable(platform, number)?;
        }
        Ok(all)
    }

    /// Sets an IOMMU up and has it forget what it may have cached.
    fn enable(&mut self, platform: &mut impl Platform, number: usize) -> Result<(), Error> {
        /// The size of the device table, in pages without the first.
        const PAGES: u64 = device::BYTES / 4096 - 1;
        let Some(unit) = self.units.get_mut(number) else { return Ok(()) };
        set64(platform, number, CONTROL, 0);
        // Firmware may have used it: its buffers are not moved while it reads them, and no range of memory stays open to all.
        let running = STATUS_COMMANDS_RUN | STATUS_EVENTS_RUN;
        wait("CmdBufRun", || platform.get32(number, STATUS) & running == 0)?;
        set64(platform, number, EXCLUSION_BASE, 0);
        set64(platform, number, EXCLUSION_LIMIT, 0);
        set64(platform, number, DEVICE_TABLE_BASE, self.table.0 | PAGES);
        unit.commands.set_up(platform, number);
        unit.events.set_up(platform, number);
        // The tables, before they are used.
        platform.synchronize();
        platform.set32(number, CONTROL, unit.control);
        unit.commands.issue(platform, number, &[Command::ForgetAll])
    }

    /// Returns what a function has, which is none if it is new.
    fn function(&mut self, id: u16) -> Result<usize, Error> {
        if let Some(at) = self.functions.iter().position(|known| known.id == id) {
            return Ok(at);
        }
        let entry = Entry { is_heard: true, ..Entry::default() };
        let known = Function { id, entry, memory: (0, 0), own: None, lent: None };
        self.functions.try_push(known).map_err(|_| Error::TooMany)?;
        Ok(self.functions.len() - 1)
    }

    /// Lets a function send [`MESSAGE`], which interrupts the CPU with this local APIC by this vector, and no other.
    ///
    /// # Errors
    /// When it has a message, or there is no room for tables. It sends none then.
    pub fn message(
        &mut self,
        platform: &mut impl Platform,
        id: u16,
        (vector, destination): (u8, u8),
    ) -> Result<(), Error> {
        let at = self.function(id)?;
        let known = self.functions.get_mut(at).filter(|known| known.entry.messages.is_none());
        let known = known.ok_or(Error::Taken(id))?;
        known.entry.messages = Some(device::messages(platform, vector, destination).ok_or(NO_MEMORY)?);
        self.write(platform, at)
    }

    /// Lets a function reach `size` bytes at `address`, under that address, and nothing else. Both are multiples of 4 KiB.
    ///
    /// # Errors
    /// When it has memory, or there is no room for tables. It reaches nothing then.
    pub fn reach(
        &mut self,
        platform: &mut impl Platform,
        id: u16,
        (address, size): (u64, u64),
    ) -> Result<(), Error> {
        let at = self.function(id)?;
        let domain = u16::try_from(at + 1).map_err(|_| Error::TooMany)?;
        let known = self.functions.get_mut(at).filter(|known| known.entry.memory.is_none());
        let known = known.ok_or(Error::Taken(id))?;
        let own = map_all(platform, IoPages, [(address, size)], ())?;
        known.entry.memory = Some((own.root(), domain));
        (known.memory, known.own) = ((address, size), Some(own));
        self.write(platform, at)
    }

    /// Lets a function that has memory reach these pieces, too, as [`AmdVi::reach`] has it, until [`AmdVi::take_back`]. The function is silent meanwhile.
    ///
    /// # Errors
    /// When it has no memory, or has been lent some, or there is no room for tables. It reaches nothing new then.
    pub fn lend(
        &mut self,
        platform: &mut impl Platform,
        id: u16,
        pieces: &[(u64, u64)],
    ) -> Result<(), Error> {
        let at = self.function(id)?;
        let known = self.functions.get(at).filter(|known| known.own.is_some() && known.lent.is_none());
        let known = known.ok_or(Error::Taken(id))?;
        if pieces.len() > MAX_LENT {
            return Err(Error::TooMany);
        }
        let all = core::iter::once(&known.memory).chain(pieces).copied();
        let lent = map_all(platform, IoPages, all, ())?;
        let root = lent.root();
        if let Some(known) = self.functions.get_mut(at) {
            known.lent = Some(lent);
        }
        self.lead(platform, at, root)
    }

    /// Takes back what a function was lent. When this returns, nothing of it is reached: no IOMMU has anything of it cached. Its tables are free behind
    /// that. Nothing happens if it was lent nothing.
    ///
    /// # Errors
    /// When an IOMMU does not say so. Then the function may still reach it.
    pub fn take_back(&mut self, platform: &mut impl Platform, id: u16) -> Result<(), Error> {
        let at = self.function(id)?;
        let known = self.functions.get(at).filter(|known| known.lent.is_some());
        let Some(root) = known.and_then(|known| known.own.as_ref()).map(PageTable::root) else {
            return Ok(());
        };
        self.lead(platform, at, root)?;
        let lent = self.functions.get_mut(at).and_then(|known| known.lent.take());
        lent.into_iter().for_each(|tables| tables.free_all(platform));
        Ok(())
    }

    /// Has a function's entry lead to these tables: one word of it changes.
    fn lead(&mut self, platform: &mut impl Platform, at: usize, root: PhysAddr) -> Result<(), Error> {
        if let Some(known) = self.functions.get_mut(at) {
            known.entry.memory = known.entry.memory.map(|(_, domain)| (root, domain));
        }
        self.write(platform, at)
    }

    /// Writes the entry of a function and has all IOMMUs read it anew.
    fn write(&mut self, platform: &mut impl Platform, at: usize) -> Result<(), Error> {
        let Some(&Function { id, entry, .. }) = self.functions.get(at) else { return Ok(()) };
        device::write(platform, self.table, id, entry);
        let forget = [Command::ForgetFunction(id), Command::ForgetMessages(id)];
        let pages = entry.memory.map(|(_, domain)| Command::ForgetPages(domain));
        let commands: ArrayVec<Command, 3> = forget.into_iter().chain(pages).collect();
        for (number, unit) in self.units.iter_mut().enumerate() {
            unit.commands.issue(platform, number, &commands)?;
        }
        Ok(())
    }

    /// Hands over the first fault of each function, and has no other one of it recorded. A call looks at no more events than each log holds twice. A log
    /// that has lost events begins anew if there was a first fault in it: so it does as often as there are functions at most.
    pub fn faults(&mut self, platform: &mut impl Platform, take: &mut dyn FnMut(Fault)) {
        for number in 0..self.units.len() {
            let (mut some, mut has_new) = (false, false);
            let Some(unit) = self.units.get_mut(number) else { return };
            unit.events.begin(platform, number);
            // Behind the first look, those that are known record nothing any more.
            for _ in 0..2 * Events::SIZE {
                let Some(unit) = self.units.get_mut(number) else { return };
                let Some(event) = unit.events.next(platform, number) else { break };
                some = true;
                has_new |= self.heard(platform, event, take);
            }
            let Some(unit) = self.units.get_mut(number) else { return };
            unit.events.acknowledge(platform, number);
            unit.idle = unit.idle.saturating_add(u32::from(some && !has_new));
            if unit.idle > PATIENCE && unit.control & CONTROL_EVENT_INTERRUPT != 0 {
                // Some events cannot be kept from being recorded. Who makes them on purpose is not to have a CPU's time.
                unit.control &= !CONTROL_EVENT_INTERRUPT;
                platform.set32(number, CONTROL, unit.control);
            }
            if has_new {
                // A log that does not begin anew is what nobody looks at.
                let _ = unit.events.restart(platform, number, unit.control);
            }
        }
    }

    /// Hands an event over if it is the first fault of a function, and says whether it is.
    fn heard(&mut self, platform: &mut impl Platform, event: Event, take: &mut dyn FnMut(Fault)) -> bool {
        let is_first = |known: &Function| Some(known.id) == event.function && known.entry.is_heard;
        let Some(at) = self.functions.iter().position(is_first) else { return false };
        let Some(known) = self.functions.get_mut(at) else { return false };
        known.entry.is_heard = false;
        take(Fault { function: known.id, address: event.address });
        // If an IOMMU does not take that, its events are what nobody looks at.
        let _ = self.write(platform, at);
        true
    }
}
