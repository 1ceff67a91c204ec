// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a VM: allocated, cleared, loaded, mapped by nested page tables, released.

use arrayvec::ArrayVec;
use turnstile_arch_common::crew::Crew;
use turnstile_arch_common::demand::Backing;
use turnstile_arch_common::memory::{MIB, PAGE};
use turnstile_arch_common::pooled::{Pooled, parts};
use turnstile_paging::{FrameRange, Nested, NestedAttributes, PageTable, PhysAddr, whole_blocks};

use super::host::{Error, Memory, Pool, with};
use super::ram::{GuestRam, MAX_PIECES, Piece};
use super::user::{self, Block};

const GIB: u64 = 1 << 30;
/// Pieces of RAM with less than this between them are allocated as one, so that large pages fit behind the gap.
const GAP: u64 = 2 * MIB;

/// What was allocated for one or more pieces.
type Chunks = ArrayVec<FrameRange, MAX_PIECES>;
type Pieces = ArrayVec<Piece, MAX_PIECES>;

/// The memory of one VM and its nested page tables.
pub struct GuestMemory {
    chunks: Chunks,
    ram: GuestRam,
    table: PageTable<Nested>,
}

impl GuestMemory {
    /// Allocates the RAM of a VM. Clears it and maps it with the largest pages that fit, or prepares it to be cleared and mapped when it is
    /// touched. What is no whole block is cleared and mapped in any case. The `crew` clears, which `call` calls.
    /// `pieces` are guest physical addresses and sizes, in ascending order, at most [`MAX_PIECES`].
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(
        pieces: &[(u64, u64)],
        backing: Backing,
        (crew, call): (&Crew, &dyn Fn()),
    ) -> Result<Self, Error> {
        with(|m| {
            let mut chunks = Chunks::new();
            let placed = match backing {
                Backing::Pool(_) => place_edges(m, pieces, &mut chunks),
                Backing::AtStart | Backing::OnDemand => place(m, pieces, &mut chunks),
            };
            let made = placed.map(|pieces| GuestRam::new(pieces.into_iter()));
            match made.and_then(|ram| Ok((build(m, &ram, backing)?, ram))) {
                Ok((table, ram)) => Ok(Self { chunks, ram: backed(ram, backing, &table), table }),
                Err(error) => {
                    free(m, &chunks)?;
                    Err(error)
                }
            }
        })
        .inspect(|memory| memory.scrub(crew, call))
    }

    /// Clears all of it that is mapped: this VM sees nothing that anybody had there before.
    fn scrub(&self, crew: &Crew, call: &dyn Fn()) {
        for piece in self.ram.pieces().iter().filter(|piece| piece.host != Piece::FROM_POOL) {
            let later = match self.ram.is_on_demand() {
                true => whole_blocks(piece.guest, PhysAddr(piece.host), piece.size),
                false => piece.guest..piece.guest,
            };
            let end = piece.guest + piece.size;
            for (from, to) in [(piece.guest, later.start), (later.end, end)] {
                // SAFETY: free memory until now, mapped for guests for ever; no vCPU runs in it yet. The CPU of the first vCPU alone
                // gets here.
                unsafe { crew.clear::<Block>(piece.host + (from - piece.guest), to - from, call) };
            }
        }
    }

    /// Copies `bytes` to a guest physical address; ignored outside the memory.
    ///
    /// # Errors
    /// When the pool that it comes from has not enough.
    pub fn load(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        let mut left = bytes;
        for (part, size) in parts(address, bytes.len() as u64) {
            let (now, later) = left.split_at(left.len().min(size as usize));
            if let Some(host) = self.ram.host(part, size) {
                // SAFETY: the RAM of this VM, which is stopped: only its owner gets here, by `&mut`.
                unsafe { user::copy_to(host, now) };
            } else if self.ram.is_dry(part, size) {
                return Err(Error::PoolEmpty);
            }
            left = later;
        }
        Ok(())
    }

    /// Returns where its RAM is.
    pub fn ram(&self) -> &GuestRam {
        &self.ram
    }

    /// Returns the physical address of its first byte.
    pub fn base(&self) -> u64 {
        self.chunks.first().map_or(0, |chunk| chunk.start().0)
    }

    /// Makes a part of the RAM read-only for the guest, as a ROM is. Before its vCPUs run.
    ///
    /// # Errors
    /// When it is not whole pages of RAM, or there is no memory for the tables.
    pub fn protect(&mut self, address: u64, size: u64) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool::new(&mut m.frames.arena);
            Ok(self.table.protect(&mut pool, address, size, NestedAttributes::ROM)?)
        })
    }

    /// Maps a page of device registers for the guest. Before its vCPUs run.
    ///
    /// # Errors
    /// When something is mapped there, or there is no memory for the tables.
    pub fn map_device(&mut self, address: u64, page: u64) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool::new(&mut m.frames.arena);
            Ok(self.table.map(&mut pool, address, PhysAddr(page), PAGE, NestedAttributes::DATA)?)
        })
    }

    /// Makes loaded code visible to instruction fetches: nothing, caches of x86 are coherent.
    pub fn finish_loading(&self) {}

    /// Returns the physical address of the nested page tables, for the VMCB's N_CR3.
    pub fn tables(&self) -> u64 {
        self.table.root().0
    }

    /// Gives the memory and the tables back. No CPU may have them loaded any more, and no TLB may hold translations of an
    /// ASID that used them once that ASID is used again. What the memory holds stays there, out of reach, until it is
    /// cleared for its next owner.
    ///
    /// # Errors
    /// When the allocator's books do not allow it.
    pub fn release(self) -> Result<(), Error> {
        // SAFETY: nobody has the tables or an ASID that used them any more, by the caller's promise: so nobody reaches what they map, and the
        // exits of the life that is over were the last that kept addresses.
        unsafe { self.ram.release() };
        with(|m| {
            self.table.free_all(&mut Pool::new(&mut m.frames.arena));
            free(m, &self.chunks)
        })
    }
}

fn free(m: &mut Memory, chunks: &Chunks) -> Result<(), Error> {
    for chunk in chunks {
        m.frames.guests.free(*chunk)?;
    }
    Ok(())
}

/// Says of RAM what is behind it.
fn backed(ram: GuestRam, backing: Backing, table: &PageTable<Nested>) -> GuestRam {
    match backing {
        Backing::AtStart => ram,
        Backing::OnDemand => ram.on_demand(table.blocks()),
        Backing::Pool(share) => {
            let end = ram.pieces().last().map_or(0, |piece| piece.guest + piece.size);
            ram.from_pool(Pooled::new(table.blocks(), share, end))
        }
    }
}

/// Allocates memory for what is no whole block of the pieces. The blocks come from a pool: they are pieces of their own.
fn place_edges(m: &mut Memory, pieces: &[(u64, u64)], chunks: &mut Chunks) -> Result<Pieces, Error> {
    let mut edges: ArrayVec<(u64, u64), MAX_PIECES> = ArrayVec::new();
    let mut whole: ArrayVec<Piece, MAX_PIECES> = ArrayVec::new();
    for (guest, size) in pieces.iter().copied() {
        let blocks = whole_blocks(guest, PhysAddr(guest), size);
        let (edge, end) = match blocks.is_empty() {
            true => (guest..guest + size, guest + size..guest + size),
            false => (guest..blocks.start, blocks.end..guest + size),
        };
        for part in [edge, end].into_iter().filter(|part| !part.is_empty()) {
            let size = part.end - part.start;
            edges.try_push((part.start, size)).map_err(|_| Error::NoGuestMemory(size))?;
        }
        if !blocks.is_empty() {
            let size = blocks.end - blocks.start;
            let piece = Piece { guest: blocks.start, size, host: Piece::FROM_POOL };
            whole.try_push(piece).map_err(|_| Error::NoGuestMemory(size))?;
        }
    }
    let mut placed = place(m, &edges, chunks)?;
    for piece in whole {
        placed.try_push(piece).map_err(|_| Error::NoGuestMemory(piece.size))?;
    }
    placed.sort_unstable_by_key(|piece| piece.guest);
    Ok(placed)
}

/// Allocates memory for all pieces.
fn place(m: &mut Memory, pieces: &[(u64, u64)], chunks: &mut Chunks) -> Result<Pieces, Error> {
    let mut placed = Pieces::new();
    let mut rest = pieces;
    while let Some((first, others)) = rest.split_first() {
        let near = |pair: &[(u64, u64)]| pair[1].0.saturating_sub(pair[0].0 + pair[0].1) < GAP;
        let together = 1 + rest.windows(2).take_while(|pair| near(pair)).count();
        let (group, further) = rest.split_at(together.min(1 + others.len()));
        let end = group.last().map_or(first.0, |last| last.0 + last.1);
        let chunk = allocate(m, first.0, end - first.0)?;
        chunks.try_push(chunk).map_err(|_| Error::NoGuestMemory(end - first.0))?;
        for (guest, size) in group.iter().copied() {
            let piece = Piece { guest, size, host: chunk.start().0 + (guest - first.0) };
            placed.try_push(piece).map_err(|_| Error::NoGuestMemory(size))?;
        }
        rest = further;
    }
    Ok(placed)
}

/// Allocates a chunk, aligned so that the largest pages fit if that is possible.
fn allocate(m: &mut Memory, guest: u64, size: u64) -> Result<FrameRange, Error> {
    let align = if size >= GIB && guest.is_multiple_of(GIB) { GIB } else { 2 * MIB };
    let size = size.next_multiple_of(PAGE);
    let chunk = m.frames.guests.allocate(size, align).or_else(|_| m.frames.guests.allocate(size, 2 * MIB));
    chunk.map_err(|_| Error::NoGuestMemory(size))
}

/// Builds the nested page tables of the RAM.
fn build(m: &mut Memory, ram: &GuestRam, backing: Backing) -> Result<PageTable<Nested>, Error> {
    let format = m.nested;
    let mut pool = Pool::new(&mut m.frames.arena);
    let mut table = PageTable::new(format, &mut pool)?;
    for piece in ram.pieces() {
        let host = PhysAddr(piece.host);
        let later = matches!(backing, Backing::OnDemand) || piece.host == Piece::FROM_POOL;
        let made = match later {
            true => table.map_on_demand(&mut pool, piece.guest, host, piece.size, NestedAttributes::RAM),
            false => table.map(&mut pool, piece.guest, host, piece.size, NestedAttributes::RAM),
        };
        if let Err(error) = made {
            table.free_all(&mut pool);
            return Err(error.into());
        }
    }
    Ok(table)
}
