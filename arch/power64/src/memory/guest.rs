// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a VM: allocated, cleared, loaded, mapped by partition-scoped tables, released.

use turnstile_arch_common::allocators::Allocators;
use turnstile_arch_common::crew::Crew;
use turnstile_arch_common::demand::Backing;
use turnstile_arch_common::memory::{MIB, PAGE};
use turnstile_arch_common::pooled::{Pooled, parts};
use turnstile_paging::{
    BLOCK, FrameRange, PageTable, Partition, PartitionAttributes, PhysAddr, whole_blocks,
};

use super::host::{Error, Pool, with};
use super::kept;
use super::ram::GuestRam;
use super::user::{self, Block};
use crate::cpu;

const GIB: u64 = 1 << 30;

/// The memory of one VM and its partition-scoped tables.
pub struct GuestMemory {
    /// What was allocated for it; nothing if its blocks come from a pool.
    chunk: Option<FrameRange>,
    ram: GuestRam,
    table: PageTable<Partition>,
}

impl GuestMemory {
    /// Allocates the RAM of a VM, from guest real address 0 on, whole blocks of 2 MiB. Clears it and maps it with the largest pages that
    /// fit, or prepares it to be cleared and mapped when it is touched. The `crew` clears, which `call` calls.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(size: u64, backing: Backing, (crew, call): (&Crew, &dyn Fn())) -> Result<Self, Error> {
        let unit = if matches!(backing, Backing::Pool(_)) { BLOCK } else { PAGE };
        let size = size.next_multiple_of(unit);
        with(|m| {
            let (chunk, base) = match backing {
                Backing::Pool(_) => (None, 0),
                Backing::AtStart | Backing::OnDemand => {
                    let chunk = allocate(m, size)?;
                    (Some(chunk), chunk.start().0)
                }
            };
            match build(m, base, size, backing) {
                Ok(table) => {
                    let ram = match backing {
                        Backing::AtStart => GuestRam::new(base, size),
                        Backing::OnDemand => GuestRam::new(base, size).on_demand(table.blocks()),
                        Backing::Pool(share) => {
                            GuestRam::from_pool(size, Pooled::new(table.blocks(), share, size))
                        }
                    };
                    Ok(Self { chunk, ram, table })
                }
                Err(error) => {
                    chunk.map_or(Ok(()), |chunk| m.guests.free(chunk))?;
                    Err(error)
                }
            }
        })
        .inspect(|memory| memory.scrub(crew, call))
    }

    /// Clears all of it that is mapped: this VM sees nothing that anybody had there before.
    fn scrub(&self, crew: &Crew, call: &dyn Fn()) {
        let (base, size) = (self.ram.base(), self.ram.size());
        let later = match self.ram.comes_later() {
            true => whole_blocks(0, PhysAddr(base), size),
            false => 0..0,
        };
        for (from, to) in [(0, later.start), (later.end, size)] {
            // SAFETY: free memory until now; no vCPU runs in it yet. The CPU of the first vCPU alone gets here.
            unsafe { crew.clear::<Block>(base + from, to - from, call) };
        }
    }

    /// Copies `bytes` to a guest real address; ignored outside the memory.
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
        self.ram.base()
    }

    /// Maps device registers for the guest: pages of the hypervisor's choice. Before its vCPUs run.
    ///
    /// # Errors
    /// When something is mapped there, or there is no memory for the tables.
    pub fn map_device(&mut self, address: u64, host: u64, size: u64) -> Result<(), Error> {
        with(|m| {
            let mut pool = Pool::new(&mut m.arena);
            Ok(self.table.map(&mut pool, address, PhysAddr(host), size, PartitionAttributes::DEVICE)?)
        })
    }

    /// Makes loaded code visible to instruction fetches.
    pub fn finish_loading(&self) {
        cpu::synchronize_code();
    }

    /// Returns the first doubleword of the partition table's entry for the tables.
    pub fn tables(&self) -> u64 {
        Partition::table_entry(self.table.root())
    }

    /// Gives the memory and the tables back. No CPU may have the partition loaded any more, its entry in the partition table
    /// is gone. What the memory holds stays there, out of reach, until it is cleared for its next owner.
    ///
    /// # Errors
    /// When the allocator's books do not allow it, or the memory has to be kept out of use.
    pub fn release(self) -> Result<(), Error> {
        let is_kept = kept::is_kept(&self.ram);
        // SAFETY: nobody has the tables any more, by the caller's promise, and no TLB what they mapped: so nobody reaches the memory, but the
        // interrupt controller what is pinned, if it is kept.
        unsafe { self.ram.release(is_kept) };
        with(|m| {
            self.table.free_all(&mut Pool::new(&mut m.arena));
            match self.chunk {
                _ if is_kept => Err(Error::InUse { size: self.ram.kept_bytes(), all: kept::bytes() }),
                Some(chunk) => Ok(m.guests.free(chunk)?),
                None => Ok(()),
            }
        })
    }
}

/// Allocates the RAM, aligned so that the largest pages fit if that is possible.
fn allocate(m: &mut Allocators, size: u64) -> Result<FrameRange, Error> {
    let align = if size >= GIB { GIB } else { 2 * MIB };
    let chunk = m.guests.allocate(size, align).or_else(|_| m.guests.allocate(size, 2 * MIB));
    chunk.map_err(|_| Error::NoGuestMemory(size))
}

/// Builds the tables of the RAM: `size` bytes at `base`, or in blocks of a pool.
fn build(m: &mut Allocators, base: u64, size: u64, backing: Backing) -> Result<PageTable<Partition>, Error> {
    let mut pool = Pool::new(&mut m.arena);
    let mut table = PageTable::new(Partition, &mut pool)?;
    let host = PhysAddr(base);
    let made = match backing {
        Backing::AtStart => table.map(&mut pool, 0, host, size, PartitionAttributes::RAM),
        Backing::OnDemand | Backing::Pool(_) => {
            table.map_on_demand(&mut pool, 0, host, size, PartitionAttributes::RAM)
        }
    };
    if let Err(error) = made {
        table.free_all(&mut pool);
        return Err(error.into());
    }
    Ok(table)
}
