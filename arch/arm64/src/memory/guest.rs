// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of guests: RAM with its stage 2 tables, and the cells of flash.

use turnstile_arch_common::memory::{Error, MIB, PAGE};
use turnstile_paging::{FrameRange, PageTable, PhysAddr, Stage2, Stage2Attributes, Tables, windows};

use super::bulk::{copy, zero};
use super::coherence;
use super::el2::{Pool, Regime};
use super::host::{close_window, open_window, with};
use super::stolen::Records;
use crate::cpu::{self, regs};

/// Runs `f` on guest memory `[start, start + size)`, piece by piece, each with its offset in the range. Of all memory
/// of guests EL2 maps only that piece, and only meanwhile. A guest with its caches off sees the same bytes afterwards.
///
/// # Errors
/// When a piece cannot be mapped.
fn with_guest_memory(start: u64, size: u64, mut f: impl FnMut(usize, &mut [u8])) -> Result<(), Error> {
    for (piece, length) in windows(start, size) {
        let page = piece & !(PAGE - 1);
        let mapped = (piece + length).next_multiple_of(PAGE) - page;
        open_window(page, mapped)?;
        // SAFETY: the range was just mapped readable and writable. It belongs to a stopped VM (only
        // `GuestMemory`'s owner gets here, by `&mut`), so nobody else accesses it while the slice lives.
        let bytes = unsafe { core::slice::from_raw_parts_mut(piece as *mut u8, length as usize) };
        f((piece - start) as usize, bytes);
        coherence::publish(piece, length);
        close_window(page, mapped)?;
    }
    Ok(())
}

/// The memory of one VM and its stage 2 tables.
pub struct GuestMemory {
    frames: FrameRange,
    table: PageTable<Stage2>,
    ipa: u64,
    on_demand: bool,
}

impl GuestMemory {
    /// Allocates `size` bytes at intermediate physical address `ipa`, cleared, and maps them with the largest blocks that fit,
    /// or prepares them to be mapped on demand.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(ipa: u64, size: u64, ipa_bits: u32, on_demand: bool) -> Result<Self, Error> {
        let gib = 1 << 30;
        let align = if size >= gib && ipa.is_multiple_of(gib) { gib } else { 2 * MIB };
        let (frames, table) = with(|m| {
            let frames = m
                .frames
                .guests
                .allocate(size, align)
                .or_else(|_| m.frames.guests.allocate(size, 2 * MIB))
                .map_err(|_| Error::NoGuestMemory(size))?;
            let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            match Self::build(&mut pool, ipa, frames, ipa_bits, on_demand) {
                Ok(table) => Ok((frames, table)),
                Err(error) => {
                    m.frames.guests.free(frames)?;
                    Err(error)
                }
            }
        })?;
        let memory = Self { frames, table, ipa, on_demand };
        match memory.scrub() {
            Ok(()) => Ok(memory),
            Err(error) => {
                memory.release()?;
                Err(error)
            }
        }
    }

    fn build(
        pool: &mut Pool<'_>,
        ipa: u64,
        frames: FrameRange,
        ipa_bits: u32,
        on_demand: bool,
    ) -> Result<PageTable<Stage2>, Error> {
        let format = Stage2::new(ipa_bits).ok_or(Error::NoArena)?;
        let mut table = PageTable::new(format, pool)?;
        let attributes = coherence::ram(Stage2Attributes::RAM);
        let made = match on_demand {
            true => table.map_on_demand(pool, ipa, frames.start(), frames.size(), attributes),
            false => table.map(pool, ipa, frames.start(), frames.size(), attributes),
        };
        match made {
            Ok(()) => Ok(table),
            Err(error) => {
                table.free_all(pool);
                Err(error.into())
            }
        }
    }

    /// Lets the guest read the records of its stolen time at intermediate physical address `ipa`.
    ///
    /// # Errors
    /// When the range is taken, or there is no room for tables.
    pub fn show(&mut self, ipa: u64, records: Records) -> Result<(), Error> {
        let attributes = coherence::ram(Stage2Attributes { execute: false, ..Stage2Attributes::ROM });
        with(|m| {
            let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            Ok(self.table.map(&mut pool, ipa, PhysAddr(records.base()), records.size(), attributes)?)
        })
    }

    /// Lets the guest read and execute the cells of a bank of its flash at intermediate physical address `ipa`: `size` bytes
    /// from physical address `cells` on.
    ///
    /// # Errors
    /// When the range is taken, or there is no room for tables.
    pub fn show_flash(&mut self, ipa: u64, cells: u64, size: u64) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            Ok(self.table.map(
                &mut pool,
                ipa,
                PhysAddr(cells),
                size,
                coherence::ram(Stage2Attributes::ROM),
            )?)
        })
    }

    /// Clears all of it: this VM sees nothing that anybody had there before.
    fn scrub(&self) -> Result<(), Error> {
        let (start, size) = (self.frames.start().0, self.frames.size());
        with_guest_memory(start, size, |_, bytes| zero(bytes.as_mut_ptr() as u64, bytes.len() as u64))
    }

    /// Copies `bytes` to intermediate physical address `ipa`; ignored outside the memory.
    ///
    /// # Errors
    /// When the range cannot be mapped.
    pub fn load(&mut self, ipa: u64, bytes: &[u8]) -> Result<(), Error> {
        let Some(offset) = ipa.checked_sub(self.ipa) else { return Ok(()) };
        let Some(end) = offset.checked_add(bytes.len() as u64) else { return Ok(()) };
        if end > self.frames.size() || bytes.is_empty() {
            return Ok(());
        }
        with_guest_memory(self.frames.start().0 + offset, bytes.len() as u64, |offset, memory| {
            if let Some(source) = bytes.get(offset..offset + memory.len()) {
                copy(memory, source);
            }
        })
    }

    /// Returns the physical address of its first byte, which EL2 does not map.
    pub fn base(&self) -> u64 {
        self.frames.start().0
    }

    /// Maps a page of device registers for the guest. Before its vCPUs run.
    ///
    /// # Errors
    /// When something is mapped there, or there is no memory for the tables.
    pub fn map_device(&mut self, ipa: u64, page: u64) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            Ok(self.table.map(&mut pool, ipa, PhysAddr(page), PAGE, Stage2Attributes::DEVICE)?)
        })
    }

    /// Makes loaded code visible to instruction fetches: after the last [`GuestMemory::load`].
    pub fn finish_loading(&self) {
        cpu::ic_ialluis();
        cpu::dsb_ish();
        cpu::isb();
    }

    /// Returns the physical address of the stage 2 tables.
    pub fn tables(&self) -> u64 {
        self.table.root().0
    }

    /// Returns the physical address of its first byte if it is mapped on demand.
    pub fn on_demand(&self) -> Option<u64> {
        self.on_demand.then(|| self.base())
    }

    /// Returns VTCR_EL2.
    pub fn vtcr(&self) -> u64 {
        let parange = (regs::ID_AA64MMFR0_EL1.read() & 0xf).min(5);
        let format = self.table.format();
        // RES1, PS, TG0 = 4 KiB, SH0 = inner, ORGN0 = IRGN0 = write-back (Arm ARM D24.2.203).
        1 << 31 | parange << 16 | 0b11 << 12 | 0b01 << 10 | 0b01 << 8 | format.sl0() << 6 | format.t0sz()
    }

    /// Gives the memory and the tables back. No CPU may have them loaded any more. What the memory holds stays
    /// there, mapped nowhere, until it is cleared for its next owner.
    ///
    /// # Errors
    /// When the allocator's books do not allow it.
    pub fn release(self) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            pool.invalidate(0, 0);
            self.table.free_all(&mut pool);
            Ok(m.frames.guests.free(self.frames)?)
        })
    }
}

/// The cells of a VM's flash, which EL2 maps as long as they exist: the guest reads them, the hypervisor alone writes them.
pub struct FlashMemory {
    frames: FrameRange,
}

impl FlashMemory {
    /// Allocates `size` bytes, whole blocks of 2 MiB, and erases them.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(size: u64) -> Result<Self, Error> {
        let frames = with(|m| {
            let frames = m.frames.guests.allocate(size, 2 * MIB).map_err(|_| Error::NoGuestMemory(size))?;
            if let Err(error) = m.map(frames.start().0, size) {
                m.frames.guests.free(frames)?;
                return Err(error);
            }
            Ok(frames)
        })?;
        let mut memory = Self { frames };
        // Not only what flash holds when it is new: nothing that anybody had there before is left.
        memory.bytes().fill(0xff);
        memory.clean(0, size);
        Ok(memory)
    }

    /// Returns all of it.
    pub fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the frames are this value's alone and mapped as long as it exists. The guest may read them meanwhile, and
        // writes nothing.
        unsafe {
            core::slice::from_raw_parts_mut(self.frames.start().0 as *mut u8, self.frames.size() as usize)
        }
    }

    /// Makes what was written to `size` bytes at `offset` visible to a guest that reads them past its caches.
    pub fn clean(&self, offset: u64, size: u64) {
        if size > 0 {
            coherence::publish(self.frames.start().0 + offset, size);
        }
    }

    /// Returns its physical address.
    pub fn base(&self) -> u64 {
        self.frames.start().0
    }

    /// Gives it back. No guest may have it mapped any more. It is erased or cleared for its next owner.
    ///
    /// # Errors
    /// When the allocator's books do not allow it.
    pub fn release(self) -> Result<(), Error> {
        close_window(self.frames.start().0, self.frames.size())?;
        with(|m| Ok(m.frames.guests.free(self.frames)?))
    }
}
