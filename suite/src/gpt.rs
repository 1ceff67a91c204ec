// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images of disks with a GUID partition table (UEFI 2.10, section 5.3).

use crc::{CRC_32_ISO_HDLC, Crc};

/// Bytes of a block.
pub const BLOCK: usize = 512;
/// Blocks at each end of the disk for the table: the array of entries, the header, and at the beginning what older systems look for.
const ENDS: usize = 34;
/// Entries of a table, and the bytes of each.
const ENTRIES: usize = 128;
const ENTRY: usize = 128;
/// Bytes of a header.
const HEADER: usize = 92;
/// What a partition with a file system of Linux is called, as it is stored: 0FC63DAF-8483-4772-8E79-3D69D8477DE4.
const LINUX: u128 = 0xe47d_47d8_693d_798e_4772_8483_0fc6_3daf;
const SUM: Crc<u32> = Crc::<u32>::new(&CRC_32_ISO_HDLC);

/// Makes a disk with partitions of these contents, whole blocks each, one behind the other.
pub fn disk(partitions: &[&[u8]]) -> Vec<u8> {
    let mut entries = vec![0; ENTRIES * ENTRY];
    let mut contents = Vec::new();
    for ((number, partition), entry) in (1_u128..).zip(partitions).zip(entries.chunks_exact_mut(ENTRY)) {
        let first = ENDS + contents.len() / BLOCK;
        contents.extend_from_slice(partition);
        let last = ENDS + contents.len() / BLOCK - 1;
        entry[..16].copy_from_slice(&LINUX.to_le_bytes());
        entry[16..32].copy_from_slice(&number.to_le_bytes());
        entry[32..40].copy_from_slice(&(first as u64).to_le_bytes());
        entry[40..48].copy_from_slice(&(last as u64).to_le_bytes());
    }
    let blocks = 2 * ENDS + contents.len() / BLOCK;
    let mut disk = vec![0; BLOCK];
    disk.extend(header(blocks, (1, blocks - 1), 2, &entries));
    disk.extend(&entries);
    disk.extend(contents);
    disk.resize(BLOCK * (blocks - 1) - entries.len(), 0);
    disk.extend(&entries);
    disk.extend(header(blocks, (blocks - 1, 1), blocks - 1 - entries.len() / BLOCK, &entries));
    disk
}

/// The block with the header that is at the first of these places, with the other one at the second, of entries that begin at `array`.
fn header(blocks: usize, (own, other): (usize, usize), array: usize, entries: &[u8]) -> Vec<u8> {
    let mut block = vec![0; BLOCK];
    block[..8].copy_from_slice(b"EFI PART");
    block[8..12].copy_from_slice(&0x1_0000_u32.to_le_bytes());
    block[12..16].copy_from_slice(&(HEADER as u32).to_le_bytes());
    let places = [own, other, ENDS, blocks - ENDS - 1];
    for (place, field) in places.into_iter().zip(block[24..56].chunks_exact_mut(8)) {
        field.copy_from_slice(&(place as u64).to_le_bytes());
    }
    block[56..72].copy_from_slice(&u128::MAX.to_le_bytes());
    block[72..80].copy_from_slice(&(array as u64).to_le_bytes());
    block[80..84].copy_from_slice(&(ENTRIES as u32).to_le_bytes());
    block[84..88].copy_from_slice(&(ENTRY as u32).to_le_bytes());
    block[88..92].copy_from_slice(&SUM.checksum(entries).to_le_bytes());
    let sum = SUM.checksum(&block[..HEADER]);
    block[16..20].copy_from_slice(&sum.to_le_bytes());
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_where_they_say() {
        let disk = disk(&[&[1; BLOCK], &[2; 3 * BLOCK]]);
        let number = |at: usize| u64::from_le_bytes(disk[at..at + 8].try_into().unwrap()) as usize;
        let blocks = disk.len() / BLOCK;
        assert_eq!(blocks, 2 * ENDS + 4);
        for own in [1, blocks - 1] {
            let at = own * BLOCK;
            assert_eq!((&disk[at..at + 8], number(at + 24)), (&b"EFI PART"[..], own));
            let entry = number(at + 72) * BLOCK + ENTRY;
            let (first, last) = (number(entry + 32), number(entry + 40));
            assert_eq!(disk[first * BLOCK..(last + 1) * BLOCK], [2; 3 * BLOCK]);
        }
    }
}
