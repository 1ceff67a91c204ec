// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a service, and what translates it. A service is a partition of its own, in problem state, so its addresses are
//! translated twice:
//!
//! - by a process-scoped tree that is the same for all services ([`tree`]): the block of 2 MiB at [`BASE`] is the partition's at
//!   [`PROGRAM`], what is from [`WINDOWS`] on is at [`WINDOWS_THERE`], what is from [`REGISTERS`] on at [`REGISTERS_THERE`]; the
//!   lowest block is itself, for privileged fetches alone;
//! - by partition-scoped tables of its own: they have the pages of the program, as each may be used, the tree, for the walker, and
//!   what the service reaches of its members' memory, and of its device ([`ServiceMemory::map`]).
//!
//! Both say of memory that it is cached, and of registers that they are not: no address of a service is one of registers, and cached.
//!
//! Nothing is mapped at the partition's vectors, wherever LPCR.AIL puts them: with translation off, in the lowest block, or at
//! c000000000004000h, which the entry of process 0 translates to the lowest block, too. So what interrupts the partition itself,
//! or is an interrupt of the guest's whose vCPU is inside, becomes a hypervisor instruction storage interrupt at its vector.

use core::ops::Range;

use turnstile_arch_common::service::{Mapping, SLOT, SLOTS, Window};
use turnstile_paging::{Format, Partition, PartitionAttributes, PhysAddr};
use turnstile_service::image::Header;

/// Where a program is in its address space: beyond what processes of guests use, so that its code is known by its address.
pub const BASE: u64 = 0xf_0000_0000_0000;
/// Where it is in its partition.
const PROGRAM: u64 = 2 << 20;
/// Where the tree is in the partition: its root, then [`Table`].
const TREE: u64 = 4 << 20;

/// Where windows on the memory of guests are in the address space.
pub const WINDOWS: u64 = 0xe_0000_0000_0000;
/// Where they are in the partition.
const WINDOWS_THERE: u64 = 1 << 40;
/// Bytes that one table of blocks of 1 GiB maps: all windows of a service.
const WINDOWS_BYTES: u64 = 512 << 30;
/// Where those of them that are registers of a device are in the address space.
pub const REGISTERS: u64 = 0xd_0000_0000_0000;
/// Where they are in the partition.
const REGISTERS_THERE: u64 = WINDOWS_THERE + WINDOWS_BYTES;

const _: () = assert!(WINDOWS_BYTES == SLOTS * SLOT && WINDOWS_THERE.is_multiple_of(WINDOWS_BYTES));

/// The entries of a root.
const ROOT_ENTRIES: usize = 1 << 13;
/// Bytes of a page.
const PAGE: u64 = 4096;
/// Bytes of a root.
const ROOT: u64 = (ROOT_ENTRIES * size_of::<u64>()) as u64;
/// A page that problem state does not reach.
const PRIVILEGED: u64 = 1 << 3;
/// In the partition table: the tree is a partition's.
const HOST_RADIX: u64 = 1 << 63;

/// The pages behind the root.
#[derive(Clone, Copy)]
enum Table {
    /// The process table: an entry of two doublewords for each process.
    Processes,
    /// From the lowest address: blocks of 1 GiB, and of 2 MiB.
    Low,
    LowBlocks,
    /// From [`BASE`] likewise.
    High,
    HighBlocks,
    /// From [`WINDOWS`], blocks of 1 GiB.
    Windows,
    /// From [`REGISTERS`] likewise.
    Registers,
}

impl Table {
    const COUNT: u64 = Self::Registers as u64 + 1;

    /// Where it is in the partition.
    const fn address(self) -> PhysAddr {
        PhysAddr(TREE + ROOT + self as u64 * PAGE)
    }
}

/// Bytes of the tree.
pub const TREE_BYTES: u64 = ROOT + Table::COUNT * PAGE;

/// The second doubleword of a service's entry in the partition table: radix, and where its process table is, of 4 KiB.
pub const PROCESSES: u64 = HOST_RADIX | Table::Processes.address().0;

/// Writes the tree of services by `put`, which gets the offset of each entry that is not zero, and the entry.
pub fn tree(mut put: impl FnMut(u64, u64)) {
    let format = Partition;
    let [root, large, blocks, _] = format.levels() else { return };
    let mut entry = |table: PhysAddr, index: usize, entry: u64| put(table.0 - TREE + 8 * index as u64, entry);
    // Process 0 is where LPCR.AIL may put vectors, process 1 is the service.
    for process in [0, 1] {
        entry(Table::Processes.address(), 2 * process, Partition::table_entry(PhysAddr(TREE)) & !HOST_RADIX);
    }
    let low = PartitionAttributes { write: false, execute: true, device: false };
    let vectors = format.leaf(*blocks, PhysAddr(0), low) | PRIVILEGED;
    let program = format.leaf(*blocks, PhysAddr(PROGRAM), PartitionAttributes::RAM);
    for (address, table, last, leaf) in
        [(0, Table::Low, Table::LowBlocks, vectors), (BASE, Table::High, Table::HighBlocks, program)]
    {
        entry(PhysAddr(TREE), root.index(address), format.table(*root, table.address()));
        entry(table.address(), 0, format.table(*large, last.address()));
        entry(last.address(), 0, leaf);
    }
    for (address, table, there, device) in [
        (WINDOWS, Table::Windows, WINDOWS_THERE, false),
        (REGISTERS, Table::Registers, REGISTERS_THERE, true),
    ] {
        let attributes = PartitionAttributes { write: true, execute: false, device };
        entry(PhysAddr(TREE), root.index(address), format.table(*root, table.address()));
        for at in (0..WINDOWS_BYTES).step_by(large.span() as usize) {
            let leaf = format.leaf(*large, PhysAddr(there + at), attributes);
            entry(table.address(), large.index(address + at), leaf);
        }
    }
}

/// Returns where the first of all windows like this one is: in the address space, and in the partition.
fn first(window: &Window) -> (u64, u64) {
    if window.registers { (REGISTERS, REGISTERS_THERE) } else { (WINDOWS, WINDOWS_THERE) }
}

/// Returns the address of a window that is mapped so many bytes behind the first.
pub fn address(window: &Window, offset: u64) -> u64 {
    first(window).0 + offset
}

/// Returns where in the partition something is that is so many bytes behind the beginning of a window that is mapped.
fn place(window: &Window, offset: u64) -> u64 {
    let (here, there) = first(window);
    (window.address - here).saturating_add(there + offset)
}

/// What a window's pages are for in the partition's tables.
fn attributes(window: &Window) -> PartitionAttributes {
    PartitionAttributes { write: !window.read_only, execute: false, device: window.registers }
}

/// A part of a program: where it is in the partition, where in its memory, its size, and how it may be used.
pub type Part = (u64, u64, u64, PartitionAttributes);

/// The parts of a program that are mapped.
pub fn parts(header: &Header) -> impl Iterator<Item = Part> {
    let code = PartitionAttributes { write: false, execute: true, device: false };
    let constants = PartitionAttributes { execute: false, ..code };
    let data = PartitionAttributes { write: true, ..constants };
    let file = [(header.code, code), (header.constants, constants), (header.data + header.zeros, data)];
    let mut next = 0;
    let file = file.map(|(size, attributes)| {
        let at = next;
        next += size;
        (at, size, attributes)
    });
    let stack = (header.stack_at(), header.stack, data);
    let parts = file.into_iter().chain([stack]).filter(|(_, size, _)| *size != 0);
    parts.map(|(at, size, attributes)| (PROGRAM + u64::from(at), u64::from(at), size.into(), attributes))
}

/// A window in tables that are none: where it is in the partition, the physical address, the size in bytes, and what it is for.
#[cfg(not(target_os = "none"))]
pub type Mapped = (u64, u64, u64, PartitionAttributes);

/// The memory of a service.
#[derive(Debug)]
pub struct ServiceMemory {
    /// Where it is: as many bytes as [`Header::size`] says, for ever.
    pub address: u64,
    /// The first doubleword of its entry in the partition table.
    pub tables: u64,
    /// Its partition's tables.
    #[cfg(target_os = "none")]
    table: turnstile_paging::PageTable<Partition>,
    /// What they would have of windows.
    #[cfg(not(target_os = "none"))]
    pub mapped: std::vec::Vec<Mapped>,
}

#[cfg(target_os = "none")]
pub use machine::build;

#[cfg(target_os = "none")]
mod machine {
    use spin::Once;
    use turnstile_arch_common::demand;
    use turnstile_paging::{BLOCK, PageTable};

    use super::super::host::{Error, Pool, pages, with};
    use super::super::user::Block;
    use super::*;
    use crate::cpu;

    /// Where the tree is.
    static THE_TREE: Once<u64> = Once::new();

    /// Makes the tree; returns where it is.
    fn make_tree() -> Result<u64, Error> {
        let memory = pages(TREE_BYTES / PAGE)?;
        tree(|offset, entry| {
            // SAFETY: inside those pages, which nobody else has. Walkers read in big-endian order.
            unsafe { ((memory + offset) as *mut u64).write_volatile(entry.to_be()) };
        });
        Ok(memory)
    }

    /// Takes memory for a program, and maps it.
    ///
    /// # Errors
    /// When there is no room.
    pub fn build(header: &Header) -> Result<ServiceMemory, Error> {
        let tree = *THE_TREE.try_call_once(make_tree)?;
        let address = pages(u64::from(header.size()) / PAGE)?;
        with(|m| {
            let mut pool = Pool::new(&mut m.arena);
            let mut table = PageTable::new(Partition, &mut pool)?;
            for (at, offset, size, attributes) in parts(header) {
                table.map(&mut pool, at, PhysAddr(address + offset), size, attributes)?;
            }
            let read = PartitionAttributes { write: false, execute: false, device: false };
            table.map(&mut pool, TREE, PhysAddr(tree), TREE_BYTES, read)?;
            cpu::ptesync();
            Ok(ServiceMemory { address, tables: Partition::table_entry(table.root()), table })
        })
    }

    impl ServiceMemory {
        /// Maps the block that is so many bytes behind the beginning of a window that is mapped on demand, and that is at `host`. False
        /// if it has no place.
        ///
        /// # Safety
        /// The block is cleared.
        pub unsafe fn supply(&mut self, window: &Window, offset: u64, host: u64) -> bool {
            let there = place(window, offset);
            // SAFETY: the caller's promise; the hypervisor reaches all memory, and the reference is unique.
            let supplied =
                unsafe { demand::supply::<_, Block>(&self.table.blocks(), there, host, attributes(window)) };
            // The store before the walk of the access that is repeated. What was not mapped is in no TLB.
            cpu::ptesync();
            supplied
        }

        /// Unmaps whole blocks that are so many bytes behind the beginning of such a window, until they are supplied again. The caller
        /// sees to what CPUs remember of the partition, in which none is.
        ///
        /// # Safety
        /// None but the caller changes or walks these tables.
        pub unsafe fn withdraw(&mut self, window: &Window, offsets: Range<u64>) {
            for offset in offsets.step_by(BLOCK as usize) {
                let (blocks, there) = (self.table.blocks(), place(window, offset));
                // SAFETY: the caller's promise; as for `supply`.
                unsafe { demand::vacate::<_, Block>(&blocks, there, attributes(window)) };
            }
        }
    }

    impl Mapping for ServiceMemory {
        fn map(&mut self, offset: u64, window: &Window) -> Result<(), Error> {
            let (at, host, attributes) =
                (first(window).1 + offset, PhysAddr(window.host), attributes(window));
            with(|m| {
                let mut pool = Pool::new(&mut m.arena);
                match window.on_demand {
                    true => self.table.map_on_demand(&mut pool, at, host, window.size, attributes)?,
                    false => self.table.map(&mut pool, at, host, window.size, attributes)?,
                }
                cpu::ptesync();
                Ok(())
            })
        }

        /// The caller sees to what CPUs remember of the partition, in which none is. Each place is one window's: of memory, or of
        /// registers.
        fn unmap(&mut self, offset: u64, size: u64) {
            for there in [WINDOWS_THERE, REGISTERS_THERE] {
                // What was mapped as a whole is split nowhere, so nothing can fail.
                let _ = with(|m| Ok(self.table.unmap(&mut Pool::new(&mut m.arena), there + offset, size)?));
            }
        }
    }
}

/// On the host nothing translates.
#[cfg(not(target_os = "none"))]
impl ServiceMemory {
    /// Notes the block that would be mapped.
    ///
    /// # Safety
    /// None is needed here.
    pub unsafe fn supply(&mut self, window: &Window, offset: u64, host: u64) -> bool {
        use turnstile_arch_common::demand::block;
        use turnstile_paging::BLOCK;

        let (at, host) = (block(place(window, offset)), block(host));
        self.mapped.push((at, host, BLOCK, attributes(window)));
        true
    }

    /// Forgets these blocks.
    ///
    /// # Safety
    /// None is needed here.
    pub unsafe fn withdraw(&mut self, window: &Window, offsets: Range<u64>) {
        let there = place(window, offsets.start)..place(window, offsets.end);
        self.mapped.retain(|(at, ..)| !there.contains(at));
    }
}

/// On the host nothing translates.
#[cfg(not(target_os = "none"))]
impl Mapping for ServiceMemory {
    fn map(&mut self, offset: u64, window: &Window) -> Result<(), turnstile_arch_common::memory::Error> {
        if window.on_demand {
            return Ok(());
        }
        self.mapped.push((first(window).1 + offset, window.host, window.size, attributes(window)));
        Ok(())
    }

    fn unmap(&mut self, offset: u64, size: u64) {
        let places = [WINDOWS_THERE + offset, REGISTERS_THERE + offset];
        self.mapped.retain(|(at, ..)| !places.iter().any(|place| (*place..place + size).contains(at)));
    }
}

/// On the host nothing translates.
#[cfg(not(target_os = "none"))]
pub fn build(header: &Header) -> Result<ServiceMemory, turnstile_arch_common::memory::Error> {
    let memory = std::vec![0u8; header.size() as usize].leak();
    let address = memory.as_mut_ptr().expose_provenance() as u64;
    Ok(ServiceMemory { address, tables: 0, mapped: std::vec::Vec::new() })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    const LEAF: u64 = 1 << 62;
    const READ: u64 = 1 << 2;
    const WRITE: u64 = 1 << 1;
    const EXECUTE: u64 = 1;
    const ATTRIBUTE: u64 = 0b11 << 4;
    const NON_IDEMPOTENT: u64 = 0b10 << 4;

    /// Walks the tree from the process table on, as Power ISA 3.0B Book III, 5.7.10 says. Returns the entry of the page.
    fn walk(process: u64, address: u64) -> Option<u64> {
        let mut entries = HashMap::new();
        tree(|offset, entry| assert_eq!(entries.insert(TREE + offset, entry), None));
        assert!(entries.keys().all(|at| *at < TREE + TREE_BYTES));
        let mut entry = *entries.get(&((PROCESSES & 0x0fff_ffff_ffff_f000) + 16 * process))?;
        assert_eq!(entry & 31, 13, "the bits of the root's index");
        let mut shift = 52 - 13;
        let mut index = address >> shift & 0x1fff;
        loop {
            entry = *entries.get(&((entry & 0x0fff_ffff_ffff_ff00) + 8 * index))?;
            assert_ne!(entry >> 63, 0, "valid");
            if entry & LEAF != 0 {
                return Some(entry);
            }
            shift -= 9;
            index = address >> shift & 0x1ff;
        }
    }

    #[test]
    fn a_program_is_at_its_base_and_vectors_lead_to_what_the_partition_does_not_map() {
        let program = walk(1, BASE + 0x1234).unwrap();
        assert_eq!((program & 0x01ff_ffff_ffe0_0000, program & PRIVILEGED), (PROGRAM, 0));
        assert_eq!(
            program & 7,
            READ | WRITE | EXECUTE,
            "the partition's own tables say what each page is for"
        );
        // LPCR.AIL = 2, and 3: the address without the bits that name the quadrant.
        for (process, address) in [(1, 0x1_8300), (0, 0x4300), (0, 0)] {
            let vectors = walk(process, address).unwrap();
            assert_eq!(vectors & 0x01ff_ffff_ffe0_0000, 0);
            assert_eq!(vectors & (PRIVILEGED | WRITE | EXECUTE), PRIVILEGED | EXECUTE);
        }
        assert_eq!(walk(1, 2 << 20), None);
        assert_eq!(walk(1, BASE - 1), None);
        assert_eq!(walk(1, BASE + (2 << 20)), None);
        assert_eq!(walk(2, BASE), None);
    }

    #[test]
    fn windows_are_read_and_written_and_only_the_partitions_tables_say_what_is_there() {
        for (start, there, device) in
            [(WINDOWS, WINDOWS_THERE, 0), (REGISTERS, REGISTERS_THERE, NON_IDEMPOTENT)]
        {
            for offset in [0, 0x1234_5678, WINDOWS_BYTES - 1] {
                let leaf = walk(1, start + offset).unwrap();
                let block = offset & !((1 << 30) - 1);
                assert_eq!(leaf & 0x01ff_ffff_c000_0000, there + block);
                assert_eq!(leaf & (PRIVILEGED | READ | WRITE | EXECUTE | ATTRIBUTE), READ | WRITE | device);
            }
            assert_eq!(walk(1, start - 1), None);
            assert_eq!(walk(1, start + WINDOWS_BYTES), None);
        }
    }

    #[test]
    fn registers_are_inhibited_in_both_tables_and_memory_in_none() {
        let memory = Window { read_only: true, ..Window::default() };
        let registers = Window { registers: true, ..Window::default() };
        for (window, write) in [(memory, false), (registers, true)] {
            let (start, there) = first(&window);
            let leaf = walk(1, address(&window, 0x7000)).unwrap();
            assert_eq!(leaf & 0x01ff_ffff_c000_0000, there);
            assert_eq!(address(&window, 0x7000), start + 0x7000);
            let device = leaf & ATTRIBUTE == NON_IDEMPOTENT;
            assert_eq!(attributes(&window), PartitionAttributes { write, execute: false, device });
            assert_eq!(device, window.registers);
        }
    }

    #[test]
    fn each_page_is_for_one_thing_and_below_the_stack_there_is_none() {
        let header = Header {
            code: 0x3000,
            constants: 0,
            data: 0x1000,
            zeros: 0x2000,
            stack: 0x4000,
            ..Header::default()
        };
        let found: std::vec::Vec<_> = parts(&header)
            .map(|(at, offset, size, use_)| (at - PROGRAM, offset, size, use_.write, use_.execute))
            .collect();
        assert_eq!(
            found,
            [
                (0, 0, 0x3000, false, true),
                (0x3000, 0x3000, 0x3000, true, false),
                (0x7000, 0x7000, 0x4000, true, false),
            ]
        );
    }
}
