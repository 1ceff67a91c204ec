// SPDX-License-Identifier: Apache-2.0 OR MIT
//! H_REGISTER_VPA: areas of guest memory that a vCPU shares with the hypervisor (LoPAPR 14.11.3.2): the virtual processor
//! area, the shadow of the SLB, the log of dispatches.
//!
//! The architecture defines the order: the other two areas need the first, which is deregistered last. A radix guest has no SLB.
//! Operating systems register its shadow all the same, so it is accepted, but nothing reads it.

use crate::Memory;
use crate::code::Code;
use crate::turns::Turns;

/// Offsets in the virtual processor area, in bytes.
pub mod offset {
    /// Its size: two bytes.
    pub const SIZE: u64 = 4;
    /// Flags: one byte. The hypervisor's.
    pub const STATUS: u64 = 9;
    /// Non-zero if the performance monitor is in use: one byte. The guest's.
    pub const PMC_IN_USE: u64 = 0xbb;
    /// Non-zero if event-based branches are in use: one byte. The guest's.
    pub const EBB_IN_USE: u64 = 0xb1;
    /// Which dispatches are logged: one byte. The guest's.
    pub const LOG_MASK: u64 = 0xb8;
    /// How often it was dispatched and preempted: four bytes, odd while it does not run. The hypervisor's.
    pub const YIELD_COUNT: u64 = 0x100;
    /// How often it was dispatched on another processor: four bytes. The hypervisor's.
    pub const DISPERSION: u64 = 0x104;
    /// Ticks from its queue to a processor, in all: eight bytes. The hypervisor's.
    pub const READY_TIME: u64 = 0x158;
    /// Ticks that it waited, in all: eight bytes. The hypervisor's.
    pub const WAITED_TIME: u64 = 0x168;
    /// How many dispatches were logged: eight bytes. The hypervisor's.
    pub const LOG_INDEX: u64 = 0x218;
}

/// In the byte at [`offset::STATUS`]: the vCPU shares its processor.
pub const SHARED: u8 = 2;
/// The fewest bytes of a virtual processor area.
pub const VPA_SIZE: u64 = 640;
/// Bytes of a log entry, and so the fewest of a log.
pub const LOG_ENTRY: u64 = 48;
/// The fewest bytes of a shadow.
const SHADOW_SIZE: u64 = 8;
/// Areas begin at a cache line.
const LINE: u64 = 128;
/// No area crosses a boundary of these.
const PAGE: u64 = 4096;

/// A range of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Area {
    /// The guest's real address.
    pub address: u64,
    /// Its bytes.
    pub size: u64,
}

/// What a vCPU has registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Areas {
    /// The virtual processor area.
    pub vpa: Option<Area>,
    /// The shadow of the SLB.
    pub shadow: Option<Area>,
    /// The log of dispatches.
    pub log: Option<Area>,
    /// What is told there.
    pub(crate) turns: Turns,
}

/// What an area is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Vpa,
    Log,
    Shadow,
}

/// A call's flags (R4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    Register(Kind),
    Deregister(Kind),
}

impl Request {
    /// Reads the flags: the subfunction in bits 16 to 18 (counted from the most significant), nothing else.
    fn read(flags: u64) -> Option<Self> {
        const SHIFT: u32 = 63 - 18;
        if flags & !(7 << SHIFT) != 0 {
            return None;
        }
        match flags >> SHIFT {
            1 => Some(Self::Register(Kind::Vpa)),
            2 => Some(Self::Register(Kind::Log)),
            3 => Some(Self::Register(Kind::Shadow)),
            5 => Some(Self::Deregister(Kind::Vpa)),
            6 => Some(Self::Deregister(Kind::Log)),
            7 => Some(Self::Deregister(Kind::Shadow)),
            _ => None,
        }
    }
}

impl Areas {
    /// Carries out H_REGISTER_VPA for the vCPU whose areas these are: `flags` is R4, `address` R6 (R5 has named the vCPU).
    pub fn call(&mut self, flags: u64, address: u64, memory: &impl Memory) -> Code {
        let done = match Request::read(flags) {
            Some(Request::Register(kind)) => self.register(kind, address, memory),
            Some(Request::Deregister(kind)) => self.deregister(kind, memory),
            None => Err(Code::PARAMETER),
        };
        done.err().unwrap_or(Code::SUCCESS)
    }

    fn register(&mut self, kind: Kind, address: u64, memory: &impl Memory) -> Result<(), Code> {
        let area = area(kind, address, memory)?;
        if kind == Kind::Vpa {
            // From now on it says so of itself.
            let mut status = [0];
            let place = address + offset::STATUS;
            let written = memory.read(place, &mut status) && memory.write(place, &[status[0] | SHARED]);
            if !written {
                return Err(Code::PARAMETER);
            }
            // It has a processor, whatever the guest has left there.
            make_count(place - offset::STATUS, false, memory);
        } else if self.vpa.is_none() {
            return Err(Code::RESOURCE);
        }
        self.set(kind, Some(area));
        Ok(())
    }

    fn deregister(&mut self, kind: Kind, memory: &impl Memory) -> Result<(), Code> {
        if kind == Kind::Vpa && (self.shadow.is_some() || self.log.is_some()) {
            return Err(Code::RESOURCE);
        }
        if kind == Kind::Vpa
            && let Some(area) = self.vpa
        {
            // Nobody says from now on that it has a processor.
            make_count(area.address, true, memory);
        }
        self.set(kind, None);
        Ok(())
    }

    fn set(&mut self, kind: Kind, area: Option<Area>) {
        match kind {
            Kind::Vpa => (self.vpa, self.turns) = (area, Turns::default()),
            Kind::Log => {
                self.log = area;
                self.turns.begin_log();
            }
            Kind::Shadow => self.shadow = area,
        }
    }
}

/// Counts on, if the area's count of dispatches is not odd, or not even, already.
pub(crate) fn make_count(area: u64, odd: bool, memory: &impl Memory) {
    let place = area + offset::YIELD_COUNT;
    if let Some(count) = memory.word(place)
        && (count & 1 != 0) != odd
    {
        // What was RAM when it was registered is RAM as long as this life.
        let _ = memory.set_word(place, count.wrapping_add(1));
    }
}

/// Finds out how long an area is, from itself, and whether it may be one.
fn area(kind: Kind, address: u64, memory: &impl Memory) -> Result<Area, Code> {
    if address == 0 || !address.is_multiple_of(LINE) || address >> 60 != 0 {
        return Err(Code::PARAMETER);
    }
    let word = memory.word(address + offset::SIZE).ok_or(Code::PARAMETER)?;
    let (size, least) = match kind {
        Kind::Vpa => (u64::from(word >> 16), VPA_SIZE),
        Kind::Log => (u64::from(word), LOG_ENTRY),
        Kind::Shadow => (u64::from(word), SHADOW_SIZE),
    };
    let within = kind == Kind::Log || address % PAGE + size <= PAGE;
    let mut last = [0];
    if size < least || !within || !memory.read(address + size - 1, &mut last) {
        return Err(Code::PARAMETER);
    }
    // Of a log, whole entries.
    let size = if kind == Kind::Log { size - size % LOG_ENTRY } else { size };
    Ok(Area { address, size })
}
