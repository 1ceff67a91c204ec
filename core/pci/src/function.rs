// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One function's configuration space: a type 0 header and a list of capabilities.
//!
//! Bits that cannot be written are as they were built, whatever a guest writes. Of the 4096 bytes of ECAM the first 256 are
//! implemented; the others read as zero, which ends the list of extended capabilities before it begins.

use core::ops::Range;

use bitflags::bitflags;

pub use crate::parts::{Identity, MsixPlaces, Unfit};

use crate::bar::{Bar, Space};
use crate::msix::Control;
use crate::register::{
    BAR0, CACHE_LINE, CAPABILITIES, CAPABILITY_MSIX, COMMAND, Command, DEVICE, FIRST_CAPABILITY,
    INTERRUPT_LINE, INTERRUPT_PIN, REVISION, STATUS, SUBSYSTEM, SUBSYSTEM_VENDOR, Status, VENDOR,
};
use crate::space::{self, SPACE};

bitflags! {
    /// What a write has changed, for the caller to follow. A write that changes nothing has none.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct Changed: u8 {
        /// The command register: decoding, bus mastering, INTx.
        const COMMAND = 1 << 0;
        /// An address in a BAR.
        const BARS = 1 << 1;
        /// Something in the capabilities, MSI-X's control perhaps.
        const CAPABILITIES = 1 << 2;
    }
}

/// A function's configuration space.
#[derive(Clone, Debug)]
pub struct Function {
    space: space::Space,
    bars: [Option<Bar>; 6],
    /// Where the offset of the next capability is written.
    link: u8,
    /// The first byte behind the capabilities.
    free: usize,
    /// Where the MSI-X capability is.
    msix: Option<u8>,
}

impl Function {
    /// Makes a function without BARs and capabilities.
    pub fn new(identity: &Identity) -> Self {
        let mut function = Self {
            space: space::Space::new(),
            bars: [None; 6],
            link: CAPABILITIES,
            free: FIRST_CAPABILITY.into(),
            msix: None,
        };
        let class = (identity.class & 0xff_ffff) << 8 | u32::from(identity.revision);
        function.space.fix(VENDOR, &identity.vendor.to_le_bytes());
        function.space.fix(DEVICE, &identity.device.to_le_bytes());
        function.space.fix(REVISION, &class.to_le_bytes());
        function.space.fix(SUBSYSTEM_VENDOR, &identity.subsystem_vendor.to_le_bytes());
        function.space.fix(SUBSYSTEM, &identity.subsystem.to_le_bytes());
        function.space.fix(INTERRUPT_PIN, &[identity.interrupt_pin.into()]);
        let mut command = Command::BUS_MASTER | Command::PARITY | Command::SERR;
        command.set(Command::INTX_DISABLE, identity.interrupt_pin);
        function.space.open(COMMAND, &command.bits().to_le_bytes());
        function.space.open(CACHE_LINE, &[0xff]);
        function.space.open(INTERRUPT_LINE, &[0xff]);
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
        self.space.fix(at, bar.kind().to_le_bytes().get(..length).unwrap_or_default());
        self.space.open(at, bar.writable().to_le_bytes().get(..length).unwrap_or_default());
        let enable = match bar.space() {
            Space::Memory => Command::MEMORY,
            Space::Io => Command::IO,
        };
        self.space.open(COMMAND, &enable.bits().to_le_bytes());
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
        self.space.fix(self.link, &[at]);
        self.space.fix(STATUS, &Status::CAPABILITIES.bits().to_le_bytes());
        self.space.fix(at, &[id, 0]);
        let may_be = writable.iter().copied().chain(core::iter::repeat(0));
        for (to, (&byte, open)) in (at + 2..=u8::MAX).zip(body.iter().zip(may_be)) {
            self.space.fix(to, &[byte & !open]);
            self.space.open(to, &[open]);
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
        let [c0, c1] = (vectors - 1).to_le_bytes();
        let [t0, t1, t2, t3] = (table.1 | u32::from(table.0)).to_le_bytes();
        let [p0, p1, p2, p3] = (pending.1 | u32::from(pending.0)).to_le_bytes();
        let body = [c0, c1, t0, t1, t2, t3, p0, p1, p2, p3];
        self.msix = Some(self.add_capability(CAPABILITY_MSIX, &body, &[0, 0xc0])?);
        Ok(())
    }

    /// Reads `size` bytes (1, 2 or 4) at `offset`. Bytes behind the end read as zero.
    pub fn read(&self, offset: u16, size: u8) -> u32 {
        self.space.read(offset, size)
    }

    /// Writes the low `size` bytes (1, 2 or 4) of `value` at `offset`, as far as bits can be written, and says what has changed.
    pub fn write(&mut self, offset: u16, size: u8, value: u32) -> Changed {
        let mut changed = Changed::empty();
        self.space.write(offset, size, value, |at| changed |= part(at));
        changed
    }

    /// The command register.
    pub fn command(&self) -> Command {
        Command::from_bits_truncate(self.space.word(COMMAND))
    }

    /// Returns what the function was built with in a base address register. The upper half of a wide one has none.
    pub fn bar(&self, index: u8) -> Option<Bar> {
        self.bars.get(usize::from(index)).copied().flatten()
    }

    /// Returns the address in a register that was built, whether or not it is decoded.
    pub fn base(&self, index: u8) -> Option<u64> {
        let bar = self.bar(index)?;
        let at = u16::from(BAR0) + 4 * u16::from(index);
        let upper = if bar.is_wide() { self.read(at + 4, 4) } else { 0 };
        Some((u64::from(upper) << 32 | u64::from(self.read(at, 4))) & bar.writable())
    }

    /// Returns the addresses that a register decodes now. `None` if there is no such register, its space is disabled, or all bits
    /// of the address are ones: then software asks for the size.
    pub fn decodes(&self, index: u8) -> Option<Range<u64>> {
        let (bar, base) = (self.bar(index)?, self.base(index)?);
        let (enable, top) = match bar.space() {
            Space::Memory if bar.is_wide() => (Command::MEMORY, u64::MAX),
            Space::Memory => (Command::MEMORY, 1 << 32),
            Space::Io => (Command::IO, 1 << 16),
        };
        let end = base.checked_add(bar.size()).filter(|&end| end < top)?;
        self.command().contains(enable).then_some(base..end)
    }

    /// Returns which register decodes an address, and the offset from its base. If several do, the first.
    pub fn find(&self, space: Space, address: u64) -> Option<(u8, u64)> {
        (0..6).find_map(|index| {
            let fits = self.bar(index)?.space() == space;
            let range = self.decodes(index).filter(|range| fits && range.contains(&address))?;
            Some((index, address - range.start))
        })
    }

    /// Puts an address into a register, as firmware does before it starts a guest. Bits that cannot be set stay as they are.
    pub fn place(&mut self, index: u8, address: u64) {
        let Some(bar) = self.bar(index) else { return };
        let at = u16::from(BAR0) + 4 * u16::from(index);
        self.write(at, 4, address as u32);
        if bar.is_wide() {
            self.write(at + 4, 4, (address >> 32) as u32);
        }
    }

    /// Returns what MSI-X's control says of messages. All are masked while the function may not master the bus.
    #[inline] // On the path of every message.
    pub fn msix(&self) -> Control {
        let Some(at) = self.msix else { return Control::default() };
        let control = self.space.word(at.wrapping_add(2));
        let master = self.command().contains(Command::BUS_MASTER);
        Control { enabled: control & 1 << 15 != 0, masked: control & 1 << 14 != 0 || !master }
    }

    /// Shows in the status whether the function has an interrupt; returns whether it asserts INTx for it.
    pub fn interrupt(&mut self, pending: bool) -> bool {
        self.space.show(STATUS, Status::INTERRUPT.bits() as u8, pending);
        let pin = self.read(INTERRUPT_PIN.into(), 1) != 0;
        pending && pin && !self.command().contains(Command::INTX_DISABLE) && !self.msix().enabled
    }

    /// Returns what software has written, as words for who keeps it over a crash: a word for eight bytes of which something can be
    /// written. Whether an interrupt is [shown](Function::interrupt) is not among it.
    pub fn save(&self) -> impl Iterator<Item = u64> + '_ {
        self.space.save()
    }

    /// Writes what was saved of a function that was built in the same way. Words that are missing are zero; all of them are a state that
    /// software can bring about.
    pub fn restore(&mut self, words: impl IntoIterator<Item = u64>) {
        self.space.restore(words);
    }

    /// Resets it: everything that can be written is zero, addresses included.
    pub fn reset(&mut self) {
        self.space.reset();
        self.interrupt(false);
    }
}

/// The part of the header that a byte belongs to, if the caller wants to hear of its changes.
fn part(at: usize) -> Changed {
    match at {
        0x04 | 0x05 => Changed::COMMAND,
        0x10..0x28 => Changed::BARS,
        _ if at >= FIRST_CAPABILITY.into() => Changed::CAPABILITIES,
        _ => Changed::empty(),
    }
}
