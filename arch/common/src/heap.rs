// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Translation tables on the host's heap, for tests.

use turnstile_paging::{PhysAddr, Tables};

/// Tables that stay for ever.
pub struct Heap;

impl Tables for Heap {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        let words = vec![0_u64; 2 * bytes as usize / 8].leak();
        Some(PhysAddr((words.as_ptr() as u64).next_multiple_of(bytes)))
    }

    fn free(&mut self, _: PhysAddr, _: u64) {}

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        // SAFETY: a table that was allocated, and an index in it.
        unsafe { (table.0 as *const u64).add(index).read() }
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        // SAFETY: as above.
        unsafe { (table.0 as *mut u64).add(index).write(entry) }
    }

    fn invalidate(&mut self, _: u64, _: u64) {}
}
