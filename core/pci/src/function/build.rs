// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a function is built from.

use core::fmt;

use super::{Function, SPACE};
use crate::bar::{Bar, Space};
use crate::register::{
    BAR0, CACHE_LINE, CAPABILITIES, CAPABILITY_MSIX, COMMAND, Command, DEVICE, FIRST_CAPABILITY,
    INTERRUPT_LINE, INTERRUPT_PIN, STATUS, SUBSYSTEM, SUBSYSTEM_VENDOR, Status, VENDOR,
};

/// Who a function says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Vendor ID.
    pub vendor: u16,
    /// Device ID.
    pub device: u16,
    /// Revision ID.
    pub revision: u8,
    /// Class code: base class in bits 23 to 16, subclass in 15 to 8, programming interface in 7 to 0.
    pub class: u32,
    /// Subsystem vendor ID.
    pub subsystem_vendor: u16,
    /// Subsystem ID.
    pub subsystem: u16,
    /// Whether it has INTA.
    pub interrupt_pin: bool,
}

/// Where the structures of MSI-X are: a BAR, and an offset in it that is a multiple of 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MsixPlaces {
    /// How many vectors there are, 1 to 2048.
    pub vectors: u16,
    /// The table.
    pub table: (u8, u32),
    /// The pending bits.
    pub pending: (u8, u32),
}

/// Why a part cannot be added to a function. These are mistakes of whoever builds a device, never of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unfit {
    /// A BAR's number, or that of its upper half, is not below 6 or is taken.
    BarNumber(u8),
    /// A BAR's size is no power of two, or too small or large for its kind.
    BarSize(u64),
    /// The capabilities do not fit into the space.
    Full,
    /// Vectors of MSI-X out of bounds, or a structure that does not lie in its BAR.
    Msix,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BarNumber(index) => write!(f, "BAR {index} does not exist or is taken"),
            Self::BarSize(size) => write!(f, "a BAR cannot have {size:#x} bytes"),
            Self::Full => f.write_str("the capabilities do not fit into the configuration space"),
            Self::Msix => f.write_str("MSI-X has too many vectors, or lies outside its BAR"),
        }
    }
}

impl core::error::Error for Unfit {}

impl Function {
    /// Makes a function without BARs and capabilities.
    pub fn new(identity: &Identity) -> Self {
        let mut function = Self {
            bytes: [0; SPACE],
            writable: [0; SPACE],
            clears: [0; SPACE],
            bars: [None; 6],
            link: CAPABILITIES,
            free: FIRST_CAPABILITY.into(),
            msix: None,
        };
        let class = (identity.class & 0xff_ffff) << 8 | u32::from(identity.revision);
        function.fix(VENDOR, &identity.vendor.to_le_bytes());
        function.fix(DEVICE, &identity.device.to_le_bytes());
        function.fix(crate::register::REVISION, &class.to_le_bytes());
        function.fix(SUBSYSTEM_VENDOR, &identity.subsystem_vendor.to_le_bytes());
        function.fix(SUBSYSTEM, &identity.subsystem.to_le_bytes());
        function.fix(INTERRUPT_PIN, &[identity.interrupt_pin.into()]);
        let mut command = Command::BUS_MASTER | Command::PARITY | Command::SERR;
        command.set(Command::INTX_DISABLE, identity.interrupt_pin);
        function.open(COMMAND, &command.bits().to_le_bytes());
        function.open(CACHE_LINE, &[0xff]);
        function.open(INTERRUPT_LINE, &[0xff]);
        let errors = Status::ERRORS.bits().to_le_bytes();
        for (at, bits) in (usize::from(STATUS)..).zip(errors) {
            set(&mut function.clears, at, bits);
        }
        function
    }

    /// Adds a base address register; a wide one takes the next number, too.
    pub fn add_bar(&mut self, index: u8, bar: Bar) -> Result<(), Unfit> {
        if !bar.is_valid() {
            return Err(Unfit::BarSize(bar.size()));
        }
        let taken = |index: u8| {
            let below = index.checked_sub(1).and_then(|below| self.bar(below));
            index >= 6 || self.bar(index).is_some() || below.is_some_and(Bar::is_wide)
        };
        if taken(index) || bar.is_wide() && taken(index + 1) {
            return Err(Unfit::BarNumber(index));
        }
        let length = if bar.is_wide() { 8 } else { 4 };
        let at = BAR0 + 4 * index;
        self.fix(at, bar.kind().to_le_bytes().get(..length).unwrap_or_default());
        self.open(at, bar.writable().to_le_bytes().get(..length).unwrap_or_default());
        let enable = match bar.space() {
            Space::Memory => Command::MEMORY,
            Space::Io => Command::IO,
        };
        self.open(COMMAND, &enable.bits().to_le_bytes());
        if let Some(slot) = self.bars.get_mut(usize::from(index)) {
            *slot = Some(bar);
        }
        Ok(())
    }

    /// Adds a capability to the end of the list: `body` stands behind its identifier and the link to the next one. Bits of `body`
    /// that are set in `writable`, which may be shorter, can be written and begin as zero. Returns where the capability is.
    pub fn add_capability(&mut self, id: u8, body: &[u8], writable: &[u8]) -> Result<u8, Unfit> {
        let end = (self.free + 2).checked_add(body.len()).filter(|&end| end <= SPACE).ok_or(Unfit::Full)?;
        let at = self.free as u8;
        self.fix(self.link, &[at]);
        self.fix(STATUS, &Status::CAPABILITIES.bits().to_le_bytes());
        self.fix(at, &[id, 0]);
        let may_be = writable.iter().copied().chain(core::iter::repeat(0));
        for (to, (&byte, open)) in (self.free + 2..).zip(body.iter().zip(may_be)) {
            set(&mut self.bytes, to, byte & !open);
            set(&mut self.writable, to, open);
        }
        self.link = at + 1;
        self.free = end.next_multiple_of(4);
        Ok(at)
    }

    /// Adds MSI-X (PCI Local Bus Specification 3.0, section 6.8.2). The BARs must be there already.
    pub fn add_msix(&mut self, places: MsixPlaces) -> Result<(), Unfit> {
        let MsixPlaces { vectors, table, pending } = places;
        let fits = |(bar, offset): (u8, u32), length: u64| {
            let size = self.bar(bar).filter(|bar| bar.space() == Space::Memory).map_or(0, Bar::size);
            offset.is_multiple_of(8) && u64::from(offset) + length <= size
        };
        let count = u64::from(vectors);
        let good = (1..=2048).contains(&vectors)
            && fits(table, 16 * count)
            && fits(pending, 8 * count.div_ceil(64))
            && self.msix.is_none();
        if !good {
            return Err(Unfit::Msix);
        }
        let mut body = [0; 10];
        let words = [vectors - 1, 0, 0, 0, 0];
        let places = [(2, table), (6, pending)];
        for (at, word) in (0..).step_by(2).zip(words) {
            put(&mut body, at, &word.to_le_bytes());
        }
        for (at, (bar, offset)) in places {
            put(&mut body, at, &(offset | u32::from(bar)).to_le_bytes());
        }
        self.msix = Some(self.add_capability(CAPABILITY_MSIX, &body, &[0, 0xc0])?);
        Ok(())
    }

    /// Sets bits that cannot be written.
    fn fix(&mut self, at: u8, bytes: &[u8]) {
        for (at, &byte) in (usize::from(at)..).zip(bytes) {
            set(&mut self.bytes, at, byte);
        }
    }

    /// Lets bits be written.
    fn open(&mut self, at: u8, bits: &[u8]) {
        for (at, &bits) in (usize::from(at)..).zip(bits) {
            set(&mut self.writable, at, bits);
        }
    }
}

fn set(bytes: &mut [u8], at: usize, bits: u8) {
    if let Some(byte) = bytes.get_mut(at) {
        *byte |= bits;
    }
}

fn put(into: &mut [u8], at: usize, bytes: &[u8]) {
    for (at, &byte) in (at..).zip(bytes) {
        set(into, at, byte);
    }
}
