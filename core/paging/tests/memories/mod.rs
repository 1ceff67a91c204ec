// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of tables, for tests that look at entries themselves.

use std::collections::HashMap;

use turnstile_paging::{PhysAddr, Tables};

/// Tables in a map, at most `limit` of them.
pub struct Memories {
    /// Their entries, by address.
    pub tables: HashMap<u64, Vec<u64>>,
    next: u64,
    limit: usize,
}

impl Memories {
    pub fn new(limit: usize) -> Self {
        Self { tables: HashMap::new(), next: 0x4000_0000, limit }
    }
}

impl Tables for Memories {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        if self.tables.len() >= self.limit {
            return None;
        }
        let address = self.next.next_multiple_of(bytes);
        self.next = address + bytes;
        self.tables.insert(address, vec![0; bytes as usize / 8]);
        Some(PhysAddr(address))
    }

    fn free(&mut self, table: PhysAddr, _: u64) {
        self.tables.remove(&table.0).expect("freed what was not allocated");
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        self.tables[&table.0][index]
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        self.tables.get_mut(&table.0).expect("a table")[index] = entry;
    }

    fn invalidate(&mut self, _: u64, _: u64) {}
}
