// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An overlay against plain bytes.

mod common;

use std::sync::atomic::{AtomicU32, Ordering};

use common::Bytes;
use proptest::prelude::*;
use turnstile_block::disk::{Disk, DiskFor, Failure};
use turnstile_block::overlay::{CLUSTER, Kept, Overlay};
use turnstile_block::partition::Partition;
use turnstile_rig::{Fuse, Ram, Random};
use turnstile_virtio::device::Span;

fn words(count: usize) -> Vec<AtomicU32> {
    (0..count).map(|_| AtomicU32::new(0)).collect()
}

proptest! {
    /// Whatever is written, filled and given up, over restarts at any time and with too little room: what is read is what was written.
    #[test]
    fn an_overlay_reads_what_was_written(seed in 1u64.., places in 1usize..12) {
        let random = &mut Random(seed);
        let sectors = 70;
        let length = 512 * sectors;
        let image = random.bytes(random.clone().below(length + 5000) as usize);
        let mut model = image.clone();
        model.resize(length as usize, 0);
        let (map, owners) = (words(9), words(places));
        let kept = Kept { map: &map, owners: &owners };
        let mut store = vec![0xaa; places * CLUSTER as usize];
        let ram = Ram::new(0x1_0000, Fuse::default());
        for _ in 0..4 {
            let store = Bytes(&mut store, Fuse::default());
            let mut disk = Overlay::new(&image[..], store, kept, sectors).unwrap();
            for _ in 0..20 {
                let at = random.below(length);
                let count = random.below((length - at).min(0x5000)) + 1;
                let span = Span { address: Ram::BASE, length: count as u32 };
                let range = at as usize..(at + count) as usize;
                match random.below(5) {
                    0 | 1 => {
                        disk.read(at, &ram, span).unwrap();
                        prop_assert!(ram.get(Ram::BASE, count as usize) == model[range]);
                    }
                    2 => {
                        let bytes = random.bytes(count as usize);
                        ram.put(Ram::BASE, &bytes);
                        match disk.write(at, &ram, span) {
                            Ok(()) => model[range].copy_from_slice(&bytes),
                            Err(failure) => {
                                prop_assert_eq!((failure, disk.room()), (Failure::Io, 0), "only room can be short");
                                // What fitted was written, and the rest is as before.
                                disk.read(at, &ram, span).unwrap();
                                let now = ram.get(Ram::BASE, count as usize);
                                for (index, byte) in range.clone().enumerate() {
                                    prop_assert!(now[index] == bytes[index] || now[index] == model[byte]);
                                }
                                model[range].copy_from_slice(&now);
                            }
                        }
                    }
                    3 => match disk.zero(at, count, random.below(2) == 0) {
                        Ok(()) => model[range].fill(0),
                        Err(_) => {
                            prop_assert_eq!(disk.room(), 0);
                            disk.read(at, &ram, span).unwrap();
                            model[range].copy_from_slice(&ram.get(Ram::BASE, count as usize));
                        }
                    },
                    _ => {
                        disk.discard(at, count).unwrap();
                        disk.read(at, &ram, span).unwrap();
                        let now = ram.get(Ram::BASE, count as usize);
                        for (index, byte) in range.clone().enumerate() {
                            prop_assert!(now[index] == 0 || now[index] == model[byte]);
                        }
                        model[range].copy_from_slice(&now);
                    }
                }
                let used = map.iter().filter(|entry| entry.load(Ordering::Relaxed) >= 2).count();
                prop_assert_eq!(disk.room() as usize + used, places, "no place is lost");
            }
        }
    }

    /// A map that somebody has damaged leads neither outside the store nor two clusters to one place: what was written is read.
    #[test]
    fn a_damaged_map_is_bounded(
        entries in prop::collection::vec(prop_oneof![0u32..12, any::<u32>()], 8),
        owned in prop::collection::vec(prop_oneof![0u32..12, any::<u32>()], 6),
    ) {
        let map: Vec<_> = entries.into_iter().map(AtomicU32::new).collect();
        let owners: Vec<_> = owned.into_iter().map(AtomicU32::new).collect();
        let (image, mut store) = (vec![1; 4096 * 8], vec![2; 4096 * 6]);
        let kept = Kept { map: &map, owners: &owners };
        let mut disk = Overlay::new(&image[..], &mut store[..], kept, 64).unwrap();
        let ram = Ram::new(0x1000, Fuse::default());
        let span = Span { address: Ram::BASE, length: 4096 };
        let mut written = Vec::new();
        for cluster in 0..8 {
            ram.put(Ram::BASE, &[0x10 + cluster as u8; 4096]);
            match disk.write(4096 * cluster, &ram, span) {
                Ok(()) => written.push(cluster),
                Err(failure) => prop_assert_eq!((failure, disk.room()), (Failure::Io, 0)),
            }
        }
        prop_assert_eq!((written.len(), disk.has_lacked()), (6, true));
        for cluster in written {
            disk.read(4096 * cluster, &ram, span).unwrap();
            prop_assert!(ram.get(Ram::BASE, 4096) == [0x10 + cluster as u8; 4096]);
        }
    }
}

/// Of a store that is nearly full, whoever begins anew looks at some places in each call, and finds the free one.
#[test]
fn free_places_are_found_a_few_at_a_time() {
    const PLACES: usize = 9000;
    let (map, owners) = (words(PLACES + 2), words(PLACES));
    let mut store = vec![0; PLACES * CLUSTER as usize];
    let kept = Kept { map: &map, owners: &owners };
    let ram = Ram::new(0x1000, Fuse::default());
    let span = Span { address: Ram::BASE, length: 1 };
    let sectors = 8 * (PLACES as u64 + 2);
    let mut disk = Overlay::new(&[][..], &mut store[..], kept, sectors).unwrap();
    for cluster in 0..PLACES as u64 - 1 {
        disk.write(cluster * CLUSTER, &ram, span).unwrap();
    }
    let (last, beyond) = (PLACES as u64 * CLUSTER, (PLACES as u64 + 1) * CLUSTER);
    let mut disk = Overlay::new(&[][..], &mut store[..], kept, sectors).unwrap();
    // Given up before it was looked at, and once only.
    disk.discard(8999 * CLUSTER, CLUSTER).unwrap();
    disk.discard(17 * CLUSTER, CLUSTER).unwrap();
    assert_eq!((disk.room(), disk.has_lacked()), (2, false));
    let mut write = |at| {
        let mut calls = 1;
        while disk.write(at, &ram, span) == Err(Failure::Busy) {
            calls += 1;
        }
        calls
    };
    assert_eq!([write(last), write(0), write(beyond)], [1, 1, 3]);
    assert_eq!((disk.write(17 * CLUSTER, &ram, span), disk.has_lacked()), (Err(Failure::Io), true));
    disk.write(last, &ram, span).unwrap();
    // What is given up can be written again.
    disk.discard(last, CLUSTER).unwrap();
    disk.write(17 * CLUSTER, &ram, span).unwrap();
    assert_eq!(disk.room(), 0);
}

/// A call that writes two clusters whose places are far apart is asked again, too.
#[test]
fn one_call_looks_at_some_places_however_many_it_wants() {
    const PLACES: usize = 9000;
    let (map, owners) = (words(PLACES + 2), words(PLACES));
    let mut store = vec![0; PLACES * CLUSTER as usize];
    let kept = Kept { map: &map, owners: &owners };
    let ram = Ram::new(0x2000, Fuse::default());
    let sectors = 8 * (PLACES as u64 + 2);
    let mut disk = Overlay::new(&[][..], &mut store[..], kept, sectors).unwrap();
    for cluster in 0..PLACES as u64 {
        disk.write(cluster * CLUSTER, &ram, Span { address: Ram::BASE, length: 1 }).unwrap();
    }
    let mut disk = Overlay::new(&[][..], &mut store[..], kept, sectors).unwrap();
    [3999, 7999].into_iter().for_each(|cluster| disk.discard(cluster * CLUSTER, CLUSTER).unwrap());
    let mut write =
        || disk.write(PLACES as u64 * CLUSTER, &ram, Span { address: Ram::BASE, length: 2 * CLUSTER as u32 });
    assert_eq!([write(), write()], [Err(Failure::Busy), Ok(())]);
}

#[test]
fn overlays_that_do_not_fit_are_refused() {
    let (image, mut store) = ([0; 512], vec![0; 4096]);
    let (map, owners) = (words(2), words(1));
    let new = |map, owners, sectors, store: &mut [u8]| {
        Overlay::new(&image[..], store, Kept { map, owners }, sectors).is_some()
    };
    assert!(new(&map, &owners, 16, &mut store));
    assert!(!new(&map, &owners, 17, &mut store), "the map has no room");
    assert!(!new(&map, &owners, 16, &mut store[..4095]), "the store has no room");
}

#[test]
fn a_partition_is_a_part() {
    let mut bytes: Vec<u8> = (0..64u8).flat_map(|sector| [sector; 512]).collect();
    let ram = Ram::new(0x1000, Fuse::default());
    assert!(Partition::new(turnstile_block::ram::RamDisk::new(&mut bytes[..]), 60, 5).is_none());
    assert!(Partition::new(turnstile_block::ram::RamDisk::new(&mut bytes[..]), u64::MAX, 2).is_none());
    let mut part = Partition::new(turnstile_block::ram::RamDisk::new(&mut bytes[..]), 10, 4).unwrap();
    let span = |length| Span { address: Ram::BASE, length };
    assert_eq!(part.sectors(), 4);
    part.read(512, &ram, span(1024)).unwrap();
    assert_eq!((ram.get(Ram::BASE, 1)[0], ram.get(Ram::BASE + 1023, 1)[0]), (11, 12));
    part.write(2047, &ram, span(1)).unwrap();
    assert_eq!(part.read(2047, &ram, span(2)), Err(Failure::Io));
    assert_eq!(part.write(u64::MAX, &ram, span(2)), Err(Failure::Io));
    assert_eq!(part.zero(2047, 2, false), Err(Failure::Io));
    assert_eq!(part.discard(0, 2049), Err(Failure::Io));
    part.zero(0, 512, false).unwrap();
    assert_eq!((bytes[10 * 512], bytes[10 * 512 - 1], bytes[11 * 512], bytes[14 * 512 - 1]), (0, 9, 11, 11));
    assert_eq!(bytes[14 * 512], 14);
}
