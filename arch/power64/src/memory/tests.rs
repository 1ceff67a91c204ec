// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of VMs for tests on the host.

use std::boxed::Box;

use turnstile_arch_common::heap::Heap;
use turnstile_arch_common::pooled::{Pool, Pooled, Share};
use turnstile_paging::{BLOCK, PageTable, Partition, PartitionAttributes, PhysAddr, Tables};

use super::GuestRam;

/// Tables in big-endian order.
pub(crate) struct BigEndian;

impl Tables for BigEndian {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        Heap.allocate(bytes)
    }

    fn free(&mut self, _: PhysAddr, _: u64) {}

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        u64::from_be(Heap.read(table, index))
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        Heap.write(table, index, entry.to_be());
    }

    fn invalidate(&mut self, _: u64, _: u64) {}
}

/// A VM's memory whose blocks come from a pool.
pub(crate) struct Machine {
    pub(crate) ram: GuestRam,
    pub(crate) pool: &'static Pool,
    /// The memory of the pool.
    pub(crate) host: u64,
    pub(crate) table: PageTable<Partition>,
}

/// A VM of so many blocks, and a pool of `count`, in which somebody has left something.
pub(crate) fn pooled(count: u64, blocks: u64) -> Machine {
    let memory = vec![0xee_u8; ((count + 1) * BLOCK) as usize].leak();
    let host = (memory.as_ptr() as u64).next_multiple_of(BLOCK);
    let pool: &Pool = Box::leak(Box::new(Pool::new(host, BLOCK, count as usize)));
    let mut table = PageTable::new(Partition, &mut BigEndian).unwrap();
    table.map_on_demand(&mut BigEndian, 0, PhysAddr(0), blocks * BLOCK, PartitionAttributes::RAM).unwrap();
    let share = Share::new(pool, Box::leak(Box::default()));
    let ram = GuestRam::from_pool(blocks * BLOCK, Pooled::new(table.blocks(), share, blocks * BLOCK));
    Machine { ram, pool, host, table }
}
