// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a VM: allocated, cleared, loaded, mapped by partition-scoped tables, released.

use turnstile_arch_common::allocators::Allocators;
use turnstile_arch_common::crew::Crew;
use turnstile_arch_common::memory::{MIB, PAGE};
use turnstile_paging::{FrameRange, PageTable, Partition, PartitionAttributes, PhysAddr, whole_blocks};

use super::host::{Error, Pool, with};
use super::kept;
use super::ram::GuestRam;
use super::user::{self, Block};
use crate::cpu;

const GIB: u64 = 1 << 30;

/// The memory of one VM and its partition-scoped tables.
pub struct GuestMemory {
    chunk: FrameRange,
    ram: GuestRam,
    table: PageTable<Partition>,
}

impl GuestMemory {
    /// Allocates the RAM of a VM, from guest real address 0 on, whole blocks of 2 MiB. Clears it and maps it with the largest pages that
    /// fit, or prepares it to be cleared and mapped on demand. The `crew` clears, which `call` calls.
    ///
    /// # Errors
    /// When there is not enough memory.
    pub fn new(size: u64, on_demand: bool, (crew, call): (&Crew, &dyn Fn())) -> Result<Self, Error> {
        with(|m| {
            let chunk = allocate(m, size.next_multiple_of(PAGE))?;
            let ram = GuestRam::new(chunk.start().0, chunk.size());
            match build(m, &ram, on_demand) {
                Ok(table) if on_demand => {
                    let ram = ram.on_demand(table.blocks());
                    Ok(Self { chunk, ram, table })
                }
                Ok(table) => Ok(Self { chunk, ram, table }),
                Err(error) => {
                    m.guests.free(chunk)?;
                    Err(error)
                }
            }
        })
        .inspect(|memory| memory.scrub(crew, call))
    }

    /// Clears all of it that is mapped: this VM sees nothing that anybody had there before.
    fn scrub(&self, crew: &Crew, call: &dyn Fn()) {
        let (base, size) = (self.ram.base(), self.ram.size());
        let later = match self.ram.is_on_demand() {
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
    /// None: as on other architectures, where the range has to be mapped.
    pub fn load(&mut self, address: u64, bytes: &[u8]) -> Result<(), Error> {
        if let Some(host) = self.ram.host(address, bytes.len() as u64) {
            // SAFETY: the RAM of this VM, which is stopped: only its owner gets here, by `&mut`.
            unsafe { user::copy_to(host, bytes) };
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
        with(|m| {
            self.table.free_all(&mut Pool::new(&mut m.arena));
            if kept::is_kept(&self.ram) {
                return Err(Error::InUse { size: self.ram.size(), all: kept::bytes() });
            }
            Ok(m.guests.free(self.chunk)?)
        })
    }
}

/// Allocates the RAM, aligned so that the largest pages fit if that is possible.
fn allocate(m: &mut Allocators, size: u64) -> Result<FrameRange, Error> {
    let align = if size >= GIB { GIB } else { 2 * MIB };
    let chunk = m.guests.allocate(size, align).or_else(|_| m.guests.allocate(size, 2 * MIB));
    chunk.map_err(|_| Error::NoGuestMemory(size))
}

/// Builds the tables of the RAM.
fn build(m: &mut Allocators, ram: &GuestRam, on_demand: bool) -> Result<PageTable<Partition>, Error> {
    let mut pool = Pool::new(&mut m.arena);
    let mut table = PageTable::new(Partition, &mut pool)?;
    let host = PhysAddr(ram.base());
    let made = match on_demand {
        true => table.map_on_demand(&mut pool, 0, host, ram.size(), PartitionAttributes::RAM),
        false => table.map(&mut pool, 0, host, ram.size(), PartitionAttributes::RAM),
    };
    if let Err(error) = made {
        table.free_all(&mut pool);
        return Err(error.into());
    }
    Ok(table)
}
