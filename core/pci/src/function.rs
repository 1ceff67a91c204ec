// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One function's configuration space: a type 0 header and a list of capabilities.
//!
//! The space is 256 bytes with two masks: the bits that a write sets and the bits that it clears by ones. All other bits are as
//! they were built, whatever a guest writes. The rest of the 4096 bytes of ECAM reads as zero, which ends the list of extended
//! capabilities before it begins.

mod build;

use core::ops::Range;

use bitflags::bitflags;

pub use build::{Identity, MsixPlaces, Unfit};

use crate::bar::{Bar, Space};
use crate::msix::Control;
use crate::register::{BAR0, COMMAND, Command, FIRST_CAPABILITY, STATUS, Status};

/// How many bytes a function implements.
const SPACE: usize = 256;

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
    bytes: [u8; SPACE],
    writable: [u8; SPACE],
    /// Bits that are cleared by writing ones.
    clears: [u8; SPACE],
    bars: [Option<Bar>; 6],
    /// Where the offset of the next capability is written.
    link: u8,
    /// The first byte behind the capabilities.
    free: usize,
    /// Where the MSI-X capability is.
    msix: Option<u8>,
}

impl Function {
    /// Reads `size` bytes (1, 2 or 4) at `offset`. Bytes behind the end read as zero.
    pub fn read(&self, offset: u16, size: u8) -> u32 {
        let bytes = (0..size.min(4)).map(|at| self.byte(usize::from(offset) + usize::from(at)));
        bytes.rev().fold(0, |value, byte| value << 8 | u32::from(byte))
    }

    /// Writes the low `size` bytes (1, 2 or 4) of `value` at `offset`, as far as bits can be written, and says what has changed.
    pub fn write(&mut self, offset: u16, size: u8, value: u32) -> Changed {
        let mut changed = Changed::empty();
        for (at, new) in (usize::from(offset)..).zip(value.to_le_bytes()).take(size.into()) {
            let (Some(byte), Some(&writable), Some(&clears)) =
                (self.bytes.get_mut(at), self.writable.get(at), self.clears.get(at))
            else {
                break;
            };
            let before = *byte;
            *byte = (before & !writable | new & writable) & !(new & clears);
            if *byte != before {
                changed |= part(at);
            }
        }
        changed
    }

    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    fn word(&self, at: u8) -> u16 {
        self.read(at.into(), 2) as u16
    }

    /// The command register.
    pub fn command(&self) -> Command {
        Command::from_bits_truncate(self.word(COMMAND))
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
    pub fn msix(&self) -> Control {
        let Some(at) = self.msix else { return Control::default() };
        let control = self.word(at.wrapping_add(2));
        let master = self.command().contains(Command::BUS_MASTER);
        Control { enabled: control & 1 << 15 != 0, masked: control & 1 << 14 != 0 || !master }
    }

    /// Shows in the status whether the function has an interrupt; returns whether it asserts INTx for it.
    pub fn interrupt(&mut self, pending: bool) -> bool {
        let bit = Status::INTERRUPT.bits() as u8;
        if let Some(status) = self.bytes.get_mut(usize::from(STATUS)) {
            *status = if pending { *status | bit } else { *status & !bit };
        }
        let pin = self.byte(crate::register::INTERRUPT_PIN.into()) != 0;
        pending && pin && !self.command().contains(Command::INTX_DISABLE) && !self.msix().enabled
    }

    /// Resets it: everything that can be written is zero, addresses included.
    pub fn reset(&mut self) {
        for ((byte, writable), clears) in self.bytes.iter_mut().zip(&self.writable).zip(&self.clears) {
            *byte &= !(writable | clears);
        }
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
