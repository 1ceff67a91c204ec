// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of guests: RAM with its stage 2 tables, and the cells of flash.

use alloc::sync::Arc;

use turnstile_arch_common::crew::Crew;
use turnstile_arch_common::demand::{self, Backing};
use turnstile_arch_common::memory::{Error, MIB, PAGE};
use turnstile_arch_common::pooled::{Missing, Pooled, parts};
use turnstile_paging::{FrameRange, PageTable, PhysAddr, Stage2, Stage2Attributes, Tables, windows};

use super::bulk::copy;
use super::coherence;
use super::demand::Later;
use super::el2::{Pool, Regime};
use super::host::{close_window, with};
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
    place: Place,
    table: PageTable<Stage2>,
    ipa: u64,
    size: u64,
}

/// Where the RAM of a VM is.
enum Place {
    /// In one piece, which is mapped already, or on demand.
    Own { frames: FrameRange, on_demand: bool },
    /// In blocks of a pool, each of which is taken when it is first touched.
    Pooled(Arc<Pooled<Stage2>>),
}

impl GuestMemory {
    /// Allocates `size` bytes at intermediate physical address `ipa`, whole blocks of 2 MiB. Clears them and maps them with the largest
    /// blocks that fit, or prepares them to be cleared and mapped when they are touched. The `crew` clears, which `call` calls.
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
        let (own, on_demand) = match backing {
            Backing::Pool(pool) => return Self::from_pool((ipa, size), ipa_bits, pool),
            Backing::AtStart => (allocate(ipa, size)?, false),
            Backing::OnDemand => (allocate(ipa, size)?, true),
        };
        let made = with(|m| {
            let mut pool = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            match Self::build(&mut pool, ipa, (own.start(), size), ipa_bits, on_demand) {
                Ok(table) => Ok(table),
                Err(error) => {
                    m.frames.guests.free(own)?;
                    Err(error)
                }
            }
        });
        let memory = Self { place: Place::Own { frames: own, on_demand }, table: made?, ipa, size };
        if !on_demand {
            // SAFETY: free memory until now; no vCPU runs in it yet. The CPU of the first vCPU alone gets here.
            unsafe { crew.clear::<Window>(own.start().0, size, call) };
        }
        Ok(memory)
    }

    /// Prepares so many bytes at an intermediate physical address, whose blocks come from a pool.
    fn from_pool(
        (ipa, size): (u64, u64),
        ipa_bits: u32,
        pool: &'static turnstile_arch_common::pooled::Pool,
    ) -> Result<Self, Error> {
        let table = with(|m| {
            let mut tables = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
            // Where a block is, its entry says by and by. What it would be congruent to is what it is to the guest.
            Self::build(&mut tables, ipa, (PhysAddr(ipa), size), ipa_bits, true)
        })?;
        let pooled = Arc::new(Pooled::new(table.blocks(), pool, ipa + size));
        Ok(Self { place: Place::Pooled(pooled), table, ipa, size })
    }

    fn build(
        pool: &mut Pool<'_>,
        ipa: u64,
        (host, size): (PhysAddr, u64),
        ipa_bits: u32,
        later: bool,
    ) -> Result<PageTable<Stage2>, Error> {
        let format = Stage2::new(ipa_bits).ok_or(Error::NoArena)?;
        let mut table = PageTable::new(format, pool)?;
        let attributes = coherence::ram(Stage2Attributes::RAM);
        let made = match later {
            true => table.map_on_demand(pool, ipa, host, size, attributes),
            false => table.map(pool, ipa, host, size, attributes),
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

    /// Clears and maps what was not mapped yet of `size` bytes, `offset` bytes from the beginning of memory on demand at `base`: the rest of
    /// the blocks that images are loaded into.
    fn settle(&self, base: u64, offset: u64, size: u64) {
        let (blocks, attributes) = (self.table.blocks(), coherence::ram(Stage2Attributes::RAM));
        // RAM begins with a block on each guest machine.
        let place = |next| Some(base + (next - self.ipa));
        // SAFETY: tables and memory of a VM that does not run, which only its owner reaches; EL2 maps its arena one to one.
        unsafe { demand::settle_all::<_, Window>(&blocks, self.ipa + offset, size, attributes, place) };
    }

    /// Copies `bytes` to intermediate physical address `ipa`; ignored outside the memory.
    ///
    /// # Errors
    /// When the pool that it comes from has not enough.
    pub fn load(&mut self, ipa: u64, bytes: &[u8]) -> Result<(), Error> {
        let Some(offset) = ipa.checked_sub(self.ipa) else { return Ok(()) };
        let Some(end) = offset.checked_add(bytes.len() as u64) else { return Ok(()) };
        if end > self.size || bytes.is_empty() {
            return Ok(());
        }
        match &self.place {
            Place::Own { frames, on_demand } => {
                if *on_demand {
                    self.settle(frames.start().0, offset, bytes.len() as u64);
                }
                fill(frames.start().0 + offset, bytes);
                Ok(())
            }
            Place::Pooled(pooled) => fill_pooled(pooled, ipa, bytes),
        }
    }

    /// Returns the physical address of its first byte, which EL2 does not map; zero if that is in a block that no pool has given yet.
    pub fn base(&self) -> u64 {
        match &self.place {
            Place::Own { frames, .. } => frames.start().0,
            Place::Pooled(_) => with(|m| {
                let tables = Pool { arena: &mut m.frames.arena, regime: Regime::Guest };
                Ok(self.table.translate(&tables, self.ipa).map_or(0, |found| found.address.0))
            })
            .unwrap_or(0),
        }
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

    /// Returns what of it is mapped when it is touched.
    pub fn later(&self) -> Later {
        match &self.place {
            Place::Own { frames, on_demand: true } => Later::At(frames.start().0),
            Place::Own { on_demand: false, .. } => Later::Nothing,
            Place::Pooled(pooled) => Later::Pooled(pooled.clone()),
        }
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
            pool.invalidate(0, 0);
            match self.place {
                Place::Own { frames, .. } => {
                    self.table.free_all(&mut pool);
                    Ok(m.frames.guests.free(frames)?)
                }
                Place::Pooled(pooled) => {
                    let attributes = coherence::ram(Stage2Attributes::RAM);
                    // Before the tables go, which say where the blocks are, and behind the invalidation: another VM may have them at once.
                    // SAFETY: nobody has the tables or translations of them any more, and EL2 keeps no address of what they map.
                    unsafe {
                        pooled.release::<Window>(self.ipa..self.ipa + self.size, attributes, false);
                    }
                    self.table.free_all(&mut pool);
                    Ok(())
                }
            }
        })
    }
}

/// Takes free memory for `size` bytes at intermediate physical address `ipa`, aligned so that the largest blocks fit if that is possible.
fn allocate(ipa: u64, size: u64) -> Result<FrameRange, Error> {
    let gib = 1 << 30;
    let align = if size >= gib && ipa.is_multiple_of(gib) { gib } else { 2 * MIB };
    with(|m| {
        let frames = m.frames.guests.allocate(size, align);
        frames.or_else(|_| m.frames.guests.allocate(size, 2 * MIB)).map_err(|_| Error::NoGuestMemory(size))
    })
}

/// Copies bytes to guest memory at a physical address.
fn fill(host: u64, bytes: &[u8]) {
    with_guest_memory(host, bytes.len() as u64, |offset, memory| {
        if let Some(source) = bytes.get(offset..offset + memory.len()) {
            copy(memory, source);
        }
    });
}

/// Copies bytes to guest memory at intermediate physical address `ipa`, into blocks that come from a pool.
fn fill_pooled(pooled: &Pooled<Stage2>, ipa: u64, bytes: &[u8]) -> Result<(), Error> {
    let attributes = coherence::ram(Stage2Attributes::RAM);
    let mut left = bytes;
    for (part, size) in parts(ipa, bytes.len() as u64) {
        let (now, later) = left.split_at(left.len().min(size as usize));
        // SAFETY: tables and memory of a VM that does not run, which only its owner reaches; EL2 maps its arena one to one.
        match unsafe { pooled.host::<Window>(part, size, attributes) } {
            Ok(host) => fill(host, now),
            Err(Missing::Dry) => return Err(Error::PoolEmpty),
            Err(Missing::Foreign) => return Ok(()),
        }
        left = later;
    }
    Ok(())
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
