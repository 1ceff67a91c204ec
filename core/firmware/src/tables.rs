// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ACPI tables (ACPI Specification 6.5, 5.2): where they begin, and each by its signature.

use crate::Physical;
use crate::bytes::{firmware_areas, is_sound, scan, u8, u32, u64};

const RSDP_SIGNATURE: &[u8] = b"RSD PTR ";
/// Bytes of the pointer's first version.
const RSDP_1: usize = 20;
/// Bytes that begin each table.
const HEADER: usize = 36;
/// The longest table that is looked at, in bytes.
const MAX_TABLE: usize = 1 << 20;

/// Looks for the root pointer where the firmware of a PC puts it (ACPI 5.2.5.1).
pub fn find_rsdp(memory: &impl Physical) -> Option<u64> {
    let sound = |address| memory.bytes(address, RSDP_1).is_some_and(is_sound);
    firmware_areas(memory)
        .into_iter()
        .find_map(|(start, end)| scan(memory, start, end, RSDP_SIGNATURE, sound))
}

/// Returns the table at an address, if it has the signature and its checksum is right.
pub fn table<'a>(memory: &'a impl Physical, address: u64, signature: &[u8; 4]) -> Option<&'a [u8]> {
    let header = memory.bytes(address, HEADER)?;
    let length = u32(header, 4)? as usize;
    if header.get(..4)? != signature || !(HEADER..=MAX_TABLE).contains(&length) {
        return None;
    }
    memory.bytes(address, length).filter(|table| is_sound(table))
}

/// The table of tables.
pub struct Root<'a> {
    entries: &'a [u8],
    /// Bytes of an entry: 8 in an XSDT, 4 in an RSDT.
    width: usize,
}

impl<'a> Root<'a> {
    /// Finds it by the root pointer at `rsdp`.
    pub fn read(memory: &'a impl Physical, rsdp: u64) -> Option<Self> {
        let pointer = memory.bytes(rsdp, RSDP_1)?;
        if pointer.get(..8)? != RSDP_SIGNATURE || !is_sound(pointer) {
            return None;
        }
        if u8(pointer, 15)? >= 2
            && let Some(extended) = memory.bytes(rsdp, 36)
            && let Some(xsdt) = table(memory, u64(extended, 24)?, b"XSDT")
        {
            return Some(Self { entries: xsdt.get(HEADER..)?, width: 8 });
        }
        let rsdt = table(memory, u32(pointer, 16)?.into(), b"RSDT")?;
        Some(Self { entries: rsdt.get(HEADER..)?, width: 4 })
    }

    /// Finds a table by its signature.
    pub fn find(&self, memory: &'a impl Physical, signature: &[u8; 4]) -> Option<&'a [u8]> {
        self.entries.chunks_exact(self.width).find_map(|entry| {
            let address = if self.width == 8 { u64(entry, 0)? } else { u32(entry, 0)?.into() };
            table(memory, address, signature)
        })
    }
}
