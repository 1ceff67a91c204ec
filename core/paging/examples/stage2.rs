// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM's stage 2 in tables that lie in a map. A hypervisor implements `Tables` over physical memory.
//!
//! `cargo run -p turnstile-paging --example stage2`

use std::collections::HashMap;

use turnstile_paging::{Error, PageTable, PhysAddr, Stage2, Stage2Attributes, Tables};

const MIB: u64 = 1 << 20;

/// The memory of the tables.
#[derive(Default)]
struct Memory {
    tables: HashMap<u64, Vec<u64>>,
    next: u64,
}

impl Tables for Memory {
    fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
        let address = self.next.next_multiple_of(bytes);
        self.next = address + bytes;
        self.tables.insert(address, vec![0; bytes as usize / 8]);
        Some(PhysAddr(address))
    }

    fn free(&mut self, table: PhysAddr, _: u64) {
        self.tables.remove(&table.0);
    }

    fn read(&self, table: PhysAddr, index: usize) -> u64 {
        self.tables[&table.0][index]
    }

    fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
        if let Some(table) = self.tables.get_mut(&table.0) {
            table[index] = entry;
        }
    }

    // No CPU walks these.
    fn invalidate(&mut self, _: u64, _: u64) {}
}

fn main() -> Result<(), Error> {
    let mut memory = Memory::default();
    let format = Stage2::new(40).expect("40 bits are a size that Armv8-A has");
    let mut table = PageTable::new(format, &mut memory)?;
    // 3 GiB of RAM at 1 GiB, in blocks of 1 GiB; its first 2 MiB read-only, for which one block is cut up.
    let (ipa, ram) = (1024 * MIB, PhysAddr(8192 * MIB));
    table.map(&mut memory, ipa, ram, 3 * 1024 * MIB, Stage2Attributes::RAM)?;
    table.protect(&mut memory, ipa, 2 * MIB, Stage2Attributes::ROM)?;
    for address in [ipa + 0x1234, ipa + 3 * MIB, ipa + 2048 * MIB, 0] {
        match table.translate(&memory, address) {
            Some(found) => println!(
                "{address:#x} is at {} in a block of {} MiB, {}",
                found.address,
                found.size / MIB,
                if found.attributes.write { "writable" } else { "read-only" }
            ),
            None => println!("{address:#x} is not mapped"),
        }
    }
    println!("{} tables, VTCR_EL2.T0SZ = {}", memory.tables.len(), format.t0sz());
    table.free_all(&mut memory);
    assert!(memory.tables.is_empty());
    Ok(())
}
