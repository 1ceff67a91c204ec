// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whoever serves the disk is killed before any change of what outlives it.

extern crate std;

use core::cell::Cell;
use core::panic::AssertUnwindSafe;
use std::boxed::Box;
use std::panic::{catch_unwind, resume_unwind};
use std::vec;
use std::vec::Vec;

use turnstile_rig::{Fuse, Ram, Random};

use super::*;

/// The last cluster of the disk has two sectors.
const SECTORS: u64 = 6 * 8 + 2;
const BYTES: usize = (SECTORS * SECTOR) as usize;
/// It ends within a cluster.
const IMAGE: usize = 10_000;
/// Fewer than the disk has clusters.
const PLACES: usize = 5;
const OPERATIONS: usize = 200;

std::thread_local! {
    /// How many changes are made until somebody is killed; `None` if nobody is.
    static LEFT: Cell<Option<u32>> = const { Cell::new(None) };
}

/// Before a change: nothing of this thread runs any more if it is killed.
pub(super) fn step() {
    match LEFT.get() {
        Some(0) => resume_unwind(Box::new(())),
        left => LEFT.set(left.map(|left| left - 1)),
    }
}

/// What outlives whoever serves the disk.
struct Left {
    image: Vec<u8>,
    store: Vec<u8>,
    map: Vec<AtomicU32>,
    owners: Vec<AtomicU32>,
}

impl Left {
    fn new() -> Self {
        let words = |count| (0..count).map(|_| AtomicU32::new(0)).collect();
        let store = vec![0xee; PLACES * CLUSTER as usize];
        Self { image: Random(1).bytes(IMAGE), store, map: words(7), owners: words(PLACES) }
    }

    fn disk(&mut self) -> Overlay<'_, &[u8], &mut [u8]> {
        let kept = Kept { map: &self.map, owners: &self.owners };
        Overlay::new(&self.image[..], &mut self.store[..], kept, SECTORS).unwrap()
    }
}

/// What a guest reads.
fn bytes(disk: &mut Overlay<'_, &[u8], &mut [u8]>, ram: &Ram) -> Vec<u8> {
    disk.read(0, ram, Span { address: Ram::BASE, length: BYTES as u32 }).unwrap();
    ram.get(Ram::BASE, BYTES)
}

/// One request.
struct Operation {
    kind: Kind,
    at: u64,
    bytes: Vec<u8>,
}

enum Kind {
    Write,
    Zero { may_discard: bool },
    Discard,
}

impl Operation {
    fn any(random: &mut Random) -> Self {
        let sector = random.below(SECTORS);
        let length = SECTOR * (1 + random.below((SECTORS - sector).min(20)));
        let kind = match random.below(4) {
            0 | 1 => Kind::Write,
            2 => Kind::Zero { may_discard: random.below(2) != 0 },
            _ => Kind::Discard,
        };
        Self { kind, at: sector * SECTOR, bytes: random.bytes(length as usize) }
    }

    fn ask(&self, disk: &mut Overlay<'_, &[u8], &mut [u8]>, ram: &Ram) -> Result<(), Failure> {
        let length = self.bytes.len() as u64;
        match self.kind {
            Kind::Write => {
                ram.put(Ram::BASE, &self.bytes);
                disk.write(self.at, ram, Span { address: Ram::BASE, length: length as u32 })
            }
            Kind::Zero { may_discard } => disk.zero(self.at, length, may_discard),
            Kind::Discard => disk.discard(self.at, length),
        }
    }

    /// Does it to the bytes of a disk.
    fn apply(&self, disk: &mut [u8]) {
        let (mut begin, mut end) = (self.at as usize, self.at as usize + self.bytes.len());
        match self.kind {
            Kind::Write => return disk[begin..end].copy_from_slice(&self.bytes),
            Kind::Zero { .. } => {}
            Kind::Discard => {
                begin = begin.next_multiple_of(CLUSTER as usize);
                end = if end == BYTES { end } else { end - end % CLUSTER as usize };
            }
        }
        disk[begin.min(end)..end].fill(0);
    }
}

/// Does operations, of which one is killed before the change with this number; returns whether there were so many.
fn killed_before(change: u32, ram: &Ram) -> bool {
    let (mut left, mut random) = (Left::new(), Random(2));
    let mut disk = left.disk();
    let (mut before, mut killed) = (bytes(&mut disk, ram), false);
    LEFT.set(Some(change));
    for number in 0..OPERATIONS {
        let operation = Operation::any(&mut random);
        let life = catch_unwind(AssertUnwindSafe(|| operation.ask(&mut disk, ram)));
        if life.is_err() {
            (killed, disk) = (true, left.disk());
            LEFT.set(None);
        }
        let (now, mut after) = (bytes(&mut disk, ram), before.clone());
        operation.apply(&mut after);
        let clusters = |bytes: &[u8]| bytes.chunks(CLUSTER as usize).map(<[u8]>::to_vec).collect::<Vec<_>>();
        for (cluster, now) in clusters(&now).iter().enumerate() {
            // One without room is done in part, too.
            let is_old = !matches!(life, Ok(Ok(()))) && *now == clusters(&before)[cluster];
            let is_right = is_old || *now == clusters(&after)[cluster];
            assert!(is_right, "change {change}, operation {number}, cluster {cluster}");
        }
        before = now;
    }
    LEFT.set(None);
    killed
}

#[test]
fn whoever_is_killed_before_any_change_leaves_clusters_as_they_were_or_are_to_be() {
    let ram = Ram::new(0x8000, Fuse::default());
    let changes = (0..).take_while(|change| killed_before(*change, &ram)).count();
    assert!(changes > 60, "there were {changes}");
}

/// The end of a disk that ends within a cluster is the end of the cluster.
#[test]
fn a_last_cluster_that_is_cut_off_is_given_up() {
    let ram = Ram::new(0x8000, Fuse::default());
    let mut left = Left::new();
    let mut disk = left.disk();
    let (last, length) = (6 * CLUSTER, 2 * SECTOR);
    let span = Span { address: Ram::BASE, length: length as u32 };
    for zero in [false, true] {
        disk.write(last, &ram, span).unwrap();
        assert_eq!(disk.room(), PLACES as u32 - 1);
        let given_up = if zero { disk.zero(last, length, true) } else { disk.discard(last, length) };
        assert_eq!((given_up, disk.room()), (Ok(()), PLACES as u32));
    }
}

#[test]
fn what_is_zero_already_takes_no_room() {
    let mut left = Left::new();
    let mut disk = left.disk();
    // Behind the image, and a part of a cluster that is zero.
    disk.zero(3 * CLUSTER + SECTOR, SECTOR, false).unwrap();
    disk.zero(4 * CLUSTER, CLUSTER, false).unwrap();
    disk.zero(4 * CLUSTER, SECTOR, false).unwrap();
    assert_eq!(disk.room(), PLACES as u32);
    // That in which the image ends has bytes of it.
    disk.zero(2 * CLUSTER, SECTOR, false).unwrap();
    assert_eq!(disk.room(), PLACES as u32 - 1);
}
