// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of guests: RAM with its stage 2 tables, and the cells of flash.

use alloc::sync::Arc;

use turnstile_arch_common::crew::Crew;
use turnstile_arch_common::demand::{self, Backing};
use turnstile_arch_common::memory::{Error, MIB, PAGE};
use turnstile_arch_common::pooled::{Missing, Pooled, parts};
use turnstile_paging::{
    Error as PagingError, FrameRange, PageTable, PhysAddr, Stage2, Stage2Attributes, Tables, windows,
};

use super::bulk::copy;
use super::coherence;
use super::demand::Later;
use super::el2::{Pool, Regime};
use super::host::{Memory, close_window, with};
use super::stage2;
use super::stolen::Records;
use super::window::Window;
use crate::cpu;

/// Runs `f` on guest memory `[start, start + size)`, piece by piece, each with its offset in the range. Of all memory
/// of guests this CPU reaches only the block that contains the piece, and only meanwhile. A guest with its caches off sees the
/// same bytes afterwards.
fn with_guest_memory(start: u64, size: u64, mut f: impl FnMut(usize, &mut [u8])) {
    for (piece, length) in windows(start, size) {
        // SAFETY: memory of a stopped VM, in whole blocks (only `GuestMemory`'s owner gets here), so nobody else accesses it
        // while the slice lives. The window is mapped readable and writable, and the piece does not reach out of it.
        let window = unsafe { Window::open(piece) };
        let place = window.at(piece);
        // SAFETY: as above.
        let bytes = unsafe { core::slice::from_raw_parts_mut(place as *mut u8, length as usize) };
        f((piece - start) as usize, bytes);
        coherence::publish(place, length);
        window.close();
    }
}

/// The memory of one VM and its stage 2 tables.
pub struct GuestMemory {
    table: PageTable<Stage2>,
    ipa: u64,
    size: u64,
    /// Where it is; `None` if its blocks come from a pool.
    frames: Option<FrameRange>,
    /// Whether a block is cleared and mapped when it is touched.
    later: bool,
    pooled: Option<Arc<Pooled<Stage2>>>,
}

impl GuestMemory {
    /// Makes `size` bytes of RAM at intermediate physical address `ipa`, whole blocks of 2 MiB. Allocates them, clears them and maps them with
    /// the largest blocks that fit, or prepares them to be cleared and mapped when they are touched. The `crew` clears, which `call` calls.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(
        ipa: u64,
        size: u64,
        ipa_bits: u32,
        backing: Backing,
        (crew, call): (&Crew, &dyn Fn()),
    ) -> Result<Self, Error> {
        let later = !matches!(backing, Backing::AtStart);
        let memory = with(|m| {
            let frames = match backing {
                Backing::AtStart | Backing::OnDemand => Some(allocate(m, ipa, size)?),
                Backing::Pool(_) => None,
            };
            // Where blocks of a pool are, their entries say once they are there.
            let start = frames.map_or(PhysAddr(0), |frames| frames.start());
            let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            match build(&mut pool, (ipa, size), start, ipa_bits, later) {
                Ok(table) => {
                    let pooled = match backing {
                        Backing::Pool(share) => {
                            Some(Arc::new(Pooled::new(table.blocks(), share, ipa + size)))
                        }
                        Backing::AtStart | Backing::OnDemand => None,
                    };
                    Ok(Self { table, ipa, size, frames, later, pooled })
                }
                Err(error) => {
                    frames.map_or(Ok(()), |frames| m.frames.guests.free(frames))?;
                    Err(error)
                }
            }
        })?;
        if let Some(frames) = memory.frames.filter(|_| !later) {
            // SAFETY: free memory until now; no vCPU runs in it yet. The CPU of the first vCPU alone gets here.
            unsafe { crew.clear::<Window>(frames.start().0, frames.size(), call) };
        }
        Ok(memory)
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

    /// Returns where `size` bytes are that are in one block, cleared and mapped by then.
    fn settle(&self, ipa: u64, size: u64) -> Result<u64, Error> {
        let attributes = coherence::ram(Stage2Attributes::RAM);
        if let Some(pooled) = &self.pooled {
            // SAFETY: tables and memory of a VM that does not run, which only its owner reaches; EL2 maps its arena one to one. The pool's
            // blocks are memory of guests.
            return unsafe { pooled.host::<Window>(ipa, size, attributes) }.map_err(
                |missing| match missing {
                    Missing::Dry => Error::PoolEmpty,
                    Missing::Foreign => Error::Paging(PagingError::OutOfRange),
                },
            );
        }
        let place = |next| self.base() + (next - self.ipa);
        if self.later {
            // RAM begins with a block on each guest machine.
            let blocks = self.table.blocks();
            // SAFETY: as above.
            unsafe {
                demand::settle_all::<_, Window>(&blocks, ipa, size, attributes, |next| Some(place(next)));
            }
        }
        Ok(place(ipa))
    }

    /// Copies `bytes` to intermediate physical address `ipa`; ignored outside the memory.
    ///
    /// # Errors
    /// When the pool that it comes from has not enough.
    pub fn load(&mut self, ipa: u64, bytes: &[u8]) -> Result<(), Error> {
        let size = bytes.len() as u64;
        let end = ipa.checked_sub(self.ipa).and_then(|offset| offset.checked_add(size));
        if end.is_none_or(|end| end > self.size) {
            return Ok(());
        }
        let mut left = bytes;
        for (part, size) in parts(ipa, size) {
            let (now, later) = left.split_at(left.len().min(size as usize));
            with_guest_memory(self.settle(part, size)?, size, |offset, memory| {
                if let Some(source) = now.get(offset..offset + memory.len()) {
                    copy(memory, source);
                }
            });
            left = later;
        }
        Ok(())
    }

    /// Returns the physical address of its first byte, which EL2 does not map. Zero of one whose blocks come from a pool.
    pub fn base(&self) -> u64 {
        self.frames.map_or(0, |frames| frames.start().0)
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

    /// Returns where what is mapped when it is touched is.
    pub fn later(&self) -> Later {
        match &self.pooled {
            Some(pooled) => Later::Pooled(pooled.clone()),
            None if self.later => Later::At(self.base()),
            None => Later::Nothing,
        }
    }

    /// Says whether it is mapped when it is touched.
    pub fn comes_later(&self) -> bool {
        self.later
    }

    /// Returns VTCR_EL2.
    pub fn vtcr(&self) -> u64 {
        stage2::control(self.table.format())
    }

    /// Gives the memory and the tables back. No CPU may have them loaded any more. What the memory holds stays
    /// there, mapped nowhere, until it is cleared for its next owner.
    ///
    /// # Errors
    /// When the allocator's books do not allow it.
    pub fn release(self) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            // Before anybody else has its memory.
            pool.invalidate(0, 0);
            if let Some(pooled) = &self.pooled {
                // SAFETY: no CPU has the tables or what was in them any more.
                unsafe {
                    let attributes = coherence::ram(Stage2Attributes::RAM);
                    pooled.release::<Window>(self.ipa..self.ipa + self.size, attributes, false);
                }
            }
            self.table.free_all(&mut pool);
            Ok(self.frames.map_or(Ok(()), |frames| m.frames.guests.free(frames))?)
        })
    }
}

/// Allocates memory for RAM, aligned so that the largest blocks fit if that is possible.
fn allocate(m: &mut Memory, ipa: u64, size: u64) -> Result<FrameRange, Error> {
    let gib = 1 << 30;
    let align = if size >= gib && ipa.is_multiple_of(gib) { gib } else { 2 * MIB };
    let frames = m.frames.guests.allocate(size, align).or_else(|_| m.frames.guests.allocate(size, 2 * MIB));
    frames.map_err(|_| Error::NoGuestMemory(size))
}

/// Builds the stage 2 tables of RAM that is at `start`, or is to be mapped `later`.
fn build(
    pool: &mut Pool<'_>,
    (ipa, size): (u64, u64),
    start: PhysAddr,
    ipa_bits: u32,
    later: bool,
) -> Result<PageTable<Stage2>, Error> {
    let format = Stage2::new(ipa_bits).ok_or(Error::NoArena)?;
    let mut table = PageTable::new(format, pool)?;
    let attributes = coherence::ram(Stage2Attributes::RAM);
    let made = match later {
        true => table.map_on_demand(pool, ipa, start, size, attributes),
        false => table.map(pool, ipa, start, size, attributes),
    };
    match made {
        Ok(()) => Ok(table),
        Err(error) => {
            table.free_all(pool);
            Err(error.into())
        }
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
