// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a chain is, read from the specification as simply as can be: collect everything first, and judge it then.

use super::common::Ram;

/// A descriptor's fields.
#[derive(Clone, Copy, Debug)]
pub struct Raw {
    pub address: u64,
    pub length: u32,
    pub flags: u16,
    pub next: u16,
}

/// Memory, with what is outside.
pub struct Memory<'a> {
    pub ram: &'a Ram,
    pub base: u64,
    pub end: u64,
}

impl Memory<'_> {
    fn has(&self, address: u64, length: u64) -> bool {
        let (address, length) = (u128::from(address), u128::from(length));
        length == 0 || address >= u128::from(self.base) && address + length <= u128::from(self.end)
    }

    fn table(&self, address: u64, count: u64) -> Vec<Raw> {
        let one = |at| Raw {
            address: u64::from_le_bytes(self.ram.get(at)),
            length: u32::from_le_bytes(self.ram.get(at + 8)),
            flags: u16::from_le_bytes(self.ram.get(at + 12)),
            next: u16::from_le_bytes(self.ram.get(at + 14)),
        };
        (0..count).map(|index| one(address + 16 * index)).collect()
    }
}

/// Follows a list of descriptors in a table; the last one is the first without a next.
fn follow(table: &[Raw], head: u16) -> Result<Vec<Raw>, &'static str> {
    let mut list = Vec::new();
    let mut at = usize::from(head);
    loop {
        list.push(*table.get(at).ok_or("no such descriptor")?);
        if list.len() > table.len() {
            return Err("a loop");
        }
        let last = list[list.len() - 1];
        // A descriptor that is a table ends the list, whatever it says.
        if last.flags & 1 == 0 || last.flags & 4 != 0 {
            return Ok(list);
        }
        at = last.next.into();
    }
}

/// The buffers of a chain (address, length, writable), or the rule that it breaks.
pub fn chain(
    memory: &Memory,
    descriptors: u64,
    size: u16,
    head: u16,
    indirect: bool,
) -> Result<Vec<(u64, u32, bool)>, &'static str> {
    let mut list = follow(&memory.table(descriptors, size.into()), head)?;
    let last = list[list.len() - 1];
    if last.flags & 4 != 0 {
        if !indirect {
            return Err("the feature is missing");
        }
        if last.flags & 1 != 0 {
            return Err("a table has a next");
        }
        if last.length == 0 || last.length % 16 != 0 || last.length > 16 << 16 {
            return Err("no length of a table");
        }
        if !memory.has(last.address, last.length.into()) {
            return Err("a table outside");
        }
        list.pop();
        list.extend(follow(&memory.table(last.address, u64::from(last.length) / 16), 0)?);
    }
    if list.iter().any(|raw| raw.flags & 4 != 0) {
        return Err("a table in a table");
    }
    if list.iter().any(|raw| !memory.has(raw.address, raw.length.into())) {
        return Err("a buffer outside");
    }
    if list.windows(2).any(|pair| pair[0].flags & 2 != 0 && pair[1].flags & 2 == 0) {
        return Err("the order");
    }
    if list.iter().map(|raw| u64::from(raw.length)).sum::<u64>() > 1 << 32 {
        return Err("too many bytes");
    }
    if list.len() > 1 << 10 {
        return Err("too many descriptors for this device");
    }
    Ok(list.iter().map(|raw| (raw.address, raw.length, raw.flags & 2 != 0)).collect())
}
