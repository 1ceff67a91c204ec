// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Images that are put together here by the format's description (QEMU's docs/interop/qcow2.txt), and broken ones.

use std::fs;

use super::*;

const CLUSTER: usize = 4096;
/// Where the parts of an image are, in clusters.
const REFCOUNTS: usize = 1;
const L1: usize = 2;
const L2: usize = 3;
const DATA: usize = 4;
const COMPRESSED: usize = 5;
const CLUSTERS: usize = 8;
/// Clusters of the disk: what is missing, is data, zeros by a flag, compressed, and missing again.
const SIZE: usize = 1 << 20;
const LIMITS: (u64, u64) = (1 << 30, 1 << 20);

/// Makes an image of this version, of a disk of 1 MiB that begins with 16 KiB.
pub(in crate::config) fn image(version: u32) -> Vec<u8> {
    let mut image = vec![0; CLUSTERS * CLUSTER];
    let mut put = |at: usize, bytes: &[u8]| image[at..at + bytes.len()].copy_from_slice(bytes);
    let offset = |cluster: usize| ((cluster * CLUSTER) as u64).to_be_bytes();
    put(0, MAGIC);
    put(4, &version.to_be_bytes());
    put(20, &CLUSTER.ilog2().to_be_bytes());
    put(24, &(SIZE as u64).to_be_bytes());
    put(36, &1_u32.to_be_bytes());
    put(40, &offset(L1));
    put(48, &offset(REFCOUNTS));
    put(56, &1_u32.to_be_bytes());
    if version == 3 {
        put(96, &4_u32.to_be_bytes());
        put(100, &104_u32.to_be_bytes());
    }
    put(L1 * CLUSTER, &(1 << 63 | (L2 * CLUSTER) as u64).to_be_bytes());
    let zeros = u64::from(version == 3);
    // Compressed data are 8 further sectors long.
    let compressed = 1 << 62 | 8 << 58 | (COMPRESSED * CLUSTER) as u64;
    for (entry, value) in [(1, 1 << 63 | (DATA * CLUSTER) as u64), (2, zeros), (3, compressed)] {
        put(L2 * CLUSTER + 8 * entry, &u64::to_be_bytes(value));
    }
    put(DATA * CLUSTER, &[0xda; CLUSTER]);
    // A block of deflate that is stored as it is, the last one.
    let length = CLUSTER as u16;
    put(
        COMPRESSED * CLUSTER,
        &[&[1][..], &length.to_le_bytes(), &(!length).to_le_bytes(), &[0xc0; CLUSTER]].concat(),
    );
    image
}

fn read_bytes(image: &[u8]) -> Result<Contents, Refused> {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("disk.qcow2");
    fs::write(&path, image).unwrap();
    read(&path, &image[..HEADER.min(image.len())], LIMITS.0, LIMITS.1)
}

/// What is said of an image that is not read.
fn refusal(change: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut image = image(3);
    change(&mut image);
    match read_bytes(&image).unwrap_err() {
        Refused::Kind(what, help) => format!("{what}; {help}"),
        Refused::Broken(error) => format!("broken: {error}"),
        Refused::TooLarge(size) => format!("large {size}"),
        Refused::TooLong(length) => format!("long {length}"),
    }
}

#[test]
fn both_versions_are_read() {
    let bytes = [[0; CLUSTER], [0xda; CLUSTER], [0; CLUSTER], [0xc0; CLUSTER]].concat();
    for version in [2, 3] {
        let contents = read_bytes(&image(version)).unwrap();
        assert_eq!(contents.size, SIZE as u64);
        assert!(contents.bytes == bytes, "version {version}: what is behind the last data is zeros");
    }
}

#[test]
fn what_is_not_read_is_named() {
    let with = |at: usize, byte: u8| refusal(|image| image[at] = byte);
    assert!(with(BACKING + 7, 104).contains("differs from another image; convert it"));
    assert!(with(ENCRYPTION + 3, 2).contains("encrypted"));
    let needs = |bit: u32| with(INCOMPATIBLE + 7, 1 << bit);
    assert!(needs(0).contains("not closed in order; mend it") && needs(1).contains("corrupt"));
    assert!(needs(2).contains("another file") && needs(3).contains("zlib") && needs(4).contains("extended"));
    assert!(needs(7).contains("not known (0x80)"));
    assert!(with(7, 9).contains("broken"), "the version");
    assert_eq!(with(24, 1), format!("large {}", (1_u64 << 56) + SIZE as u64));
    assert!(refusal(|image| image[24..32].fill(0)).contains("without a byte"));
    assert!(refusal(|image| image.truncate(20)).contains("broken"));
    assert!(refusal(|image| image[COMPRESSED * CLUSTER] = 7).contains("broken"), "no deflate");
    // The last cluster of the disk has data: the limit is that of what has to be read.
    let full =
        |image: &mut Vec<u8>| image.copy_within(L2 * CLUSTER + 8..L2 * CLUSTER + 16, L2 * CLUSTER + 8 * 255);
    let mut image = image(3);
    full(&mut image);
    assert_eq!(read_bytes(&image).unwrap().bytes.len(), SIZE);
    let longer = refusal(|image| {
        full(image);
        // The same table twice: a disk of 3 MiB.
        image[24..32].copy_from_slice(&(3_u64 << 20).to_be_bytes());
        image[39] = 2;
        image.copy_within(L1 * CLUSTER..L1 * CLUSTER + 8, L1 * CLUSTER + 8);
    });
    assert!(longer.starts_with("long "), "{longer}");
}

#[test]
fn broken_images_do_no_harm() {
    let good = image(3);
    let places = (4..112).chain(L1 * CLUSTER..L1 * CLUSTER + 8).chain(L2 * CLUSTER..L2 * CLUSTER + 32);
    for at in places {
        for byte in [0, 1, 0x7f, 0x80, 0xff, good[at] ^ 4] {
            let mut broken = good.clone();
            broken[at] = byte;
            if let Ok(contents) = read_bytes(&broken) {
                assert!(contents.bytes.len() as u64 <= LIMITS.1, "byte {at} is {byte:#x}");
            }
        }
    }
    for length in (0..good.len()).step_by(509) {
        let _ = read_bytes(&good[..length]);
    }
}

#[test]
fn one_that_is_cut_short_is_not_read_as_zeros() {
    assert!(refusal(|image| image.truncate(DATA * CLUSTER)).contains("is cut short"));
    let mut image = image(3);
    // QEMU may end a file within its last cluster.
    image.truncate(COMPRESSED * CLUSTER);
    image[L2 * CLUSTER + 8 * 3..][..8].fill(0);
    image.truncate(DATA * CLUSTER + 1024);
    let contents = read_bytes(&image).unwrap();
    assert_eq!(contents.bytes[CLUSTER..][..1025], [&[0xda; 1024][..], &[0]].concat());
}
