// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Little-endian numbers in bytes.

use crate::Physical;

pub fn u8(bytes: &[u8], at: usize) -> Option<u8> {
    bytes.get(at).copied()
}

pub fn u16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub fn u32(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

pub fn u64(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..)?.first_chunk().copied()?))
}

/// Says whether the bytes add up to zero, as tables of firmware do.
pub fn is_sound(bytes: &[u8]) -> bool {
    bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte)) == 0
}

/// Finds a structure that begins with `signature` at a multiple of 16 in `[start, end)`, and that `accept` takes.
pub fn scan(
    memory: &impl Physical,
    start: u64,
    end: u64,
    signature: &[u8],
    accept: impl Fn(u64) -> bool,
) -> Option<u64> {
    (start..end).step_by(16).find(|address| {
        memory.bytes(*address, signature.len()).is_some_and(|bytes| bytes == signature) && accept(*address)
    })
}

/// The segments that firmware puts tables into: the extended BIOS data area, and the BIOS.
pub fn firmware_areas(memory: &impl Physical) -> [(u64, u64); 2] {
    const EBDA_SEGMENT: u64 = 0x40e;
    let ebda = memory
        .bytes(EBDA_SEGMENT, 2)
        .and_then(|bytes| u16(bytes, 0))
        .map_or(0, |segment| u64::from(segment) << 4);
    let ebda = if (0x8_0000..0xa_0000).contains(&ebda) { (ebda, ebda + 0x400) } else { (0x9_fc00, 0xa_0000) };
    [ebda, (0xe_0000, 0x10_0000)]
}
