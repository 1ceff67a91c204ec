// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The event log (section 2.5).

use turnstile_paging::{PhysAddr, Tables};

use super::platform::{Error, Platform};
use super::registers::{
    CONTROL, CONTROL_EVENTS, EVENT_BASE, EVENT_HEAD, EVENT_TAIL, STATUS, STATUS_EVENT_INTERRUPT,
    STATUS_EVENTS_RUN, STATUS_OVERFLOW, set64, wait,
};

/// Entries, as a logarithm: a page.
const BITS: u32 = 8;
const LENGTH_SHIFT: u32 = 56;
/// Bytes of an entry.
const ENTRY: u32 = 16;
/// Bits of the registers with offsets.
const OFFSET: u32 = (ENTRY << BITS) - ENTRY;

/// What kind an event is of (section 2.5.2 and following).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// ILLEGAL_DEV_TABLE_ENTRY.
    DeviceTable,
    /// IO_PAGE_FAULT: memory that is not mapped, or not for that; a message that is not in the interrupt table.
    Page,
    /// DEV_TAB_HARDWARE_ERROR: the device table cannot be read.
    DeviceTableRead,
    /// PAGE_TAB_HARDWARE_ERROR: a page table cannot be read.
    PageTableRead,
    /// INVALID_DEVICE_REQUEST: a request that no function may make.
    Request,
    /// Another one, by its number: it is about the IOMMU itself.
    Other(u8),
}

/// What an IOMMU records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its kind.
    pub kind: Kind,
    /// The requester that it is about, if its kind has one.
    pub function: Option<u16>,
    /// What it has reached for, if the kind has that.
    pub address: Option<u64>,
}

impl Event {
    /// Reads one. Any words will do.
    pub fn decode([first, second]: [u64; 2]) -> Self {
        let kind = match (first >> 60) as u8 {
            1 => Kind::DeviceTable,
            2 => Kind::Page,
            3 => Kind::DeviceTableRead,
            4 => Kind::PageTableRead,
            8 => Kind::Request,
            other => Kind::Other(other),
        };
        let is_request = matches!(kind, Kind::Page | Kind::Request);
        let is_function = !matches!(kind, Kind::Other(_));
        Self { kind, function: is_function.then_some(first as u16), address: is_request.then_some(second) }
    }
}

/// The event log of one IOMMU.
#[derive(Debug)]
pub(super) struct Events {
    log: PhysAddr,
    /// The offset of the next event.
    next: u32,
    /// It has lost events, and records none.
    has_stopped: bool,
}

impl Events {
    /// How many it holds.
    pub const SIZE: u32 = 1 << BITS;

    /// Makes an empty one.
    pub fn new(tables: &mut impl Tables) -> Option<Self> {
        Some(Self { log: tables.allocate(u64::from(ENTRY) << BITS)?, next: 0, has_stopped: false })
    }

    /// Tells the IOMMU where it is.
    pub fn set_up(&self, platform: &mut impl Platform, unit: usize) {
        set64(platform, unit, EVENT_BASE, self.log.0 | u64::from(BITS) << LENGTH_SHIFT);
        set64(platform, unit, EVENT_HEAD, 0);
        set64(platform, unit, EVENT_TAIL, 0);
        platform.set32(unit, STATUS, STATUS_OVERFLOW | STATUS_EVENT_INTERRUPT);
    }

    /// Begins to look: what is recorded from now on interrupts again.
    pub fn begin(&mut self, platform: &mut impl Platform, unit: usize) {
        self.has_stopped |= platform.get32(unit, STATUS) & STATUS_OVERFLOW != 0;
        platform.set32(unit, STATUS, STATUS_EVENT_INTERRUPT);
    }

    /// Takes an event out, if there is one.
    pub fn next(&mut self, platform: &mut impl Platform, unit: usize) -> Option<Event> {
        if platform.get32(unit, EVENT_TAIL) & OFFSET == self.next {
            return None;
        }
        // What was written before that register says so.
        platform.synchronize();
        let at = self.next as usize / 8;
        let words = [0, 1].map(|word| platform.read(self.log, at + word));
        self.next = (self.next + ENTRY) & OFFSET;
        Some(Event::decode(words))
    }

    /// Gives the room back of what was taken out.
    pub fn acknowledge(&self, platform: &mut impl Platform, unit: usize) {
        // What was read before that room is written again.
        platform.synchronize();
        platform.set32(unit, EVENT_HEAD, self.next);
    }

    /// Has a log that has lost events record again (section 2.5.1). `control` is what is in the register.
    pub fn restart(&mut self, platform: &mut impl Platform, unit: usize, control: u32) -> Result<(), Error> {
        if !self.has_stopped {
            return Ok(());
        }
        platform.set32(unit, CONTROL, control & !CONTROL_EVENTS);
        wait("EventLogRun", || platform.get32(unit, STATUS) & STATUS_EVENTS_RUN == 0)?;
        self.next = 0;
        self.has_stopped = false;
        self.set_up(platform, unit);
        platform.set32(unit, CONTROL, control);
        Ok(())
    }
}
