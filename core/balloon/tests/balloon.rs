// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pages that are given, taken back and reported.

use std::collections::BTreeSet;

use proptest::prelude::*;
use turnstile_balloon::{BLOCK, Balloons, Collected, Kind, PAGE, Pages};
use turnstile_rig::{Fuse, Guest, Ram, Random, Request, Ring};
use turnstile_virtio::ring::Options;

const OPTIONS: Options = Options { indirect: true, event_idx: true };

/// Pages that are not there, how many ranges of them came, and how often they are not gone yet when somebody asks.
#[derive(Default)]
struct Gone(BTreeSet<u64>, u64, u64);

impl Pages for Gone {
    fn report(&mut self, address: u64, length: u64) {
        self.inflate(address, length);
    }

    fn inflate(&mut self, address: u64, length: u64) {
        assert!(address.is_multiple_of(PAGE) && length.is_multiple_of(PAGE) && length != 0);
        self.1 += 1;
        self.0.extend((address..address + length).step_by(PAGE as usize));
    }

    fn is_settled(&mut self) -> bool {
        let left = self.2.checked_sub(1);
        self.2 = left.unwrap_or(0);
        left.is_none()
    }

    fn deflate(&mut self, address: u64, length: u64) {
        assert!(address.is_multiple_of(PAGE) && length.is_multiple_of(PAGE) && length != 0);
        (address..address + length).step_by(PAGE as usize).for_each(|page| {
            self.0.remove(&page);
        });
    }
}

fn numbers(random: &mut Random, pages: &[u32]) -> Request {
    let readable: Vec<u8> = pages.iter().flat_map(|page| page.to_le_bytes()).collect();
    let readable_cuts = random.cut(readable.len() as u32, 4);
    Request { readable_cuts, readable, indirect: true, ..Request::default() }
}

proptest! {
    /// Over budgets and kills: what is gone is what was given and not taken back, of the guest's memory alone.
    #[test]
    fn what_is_given_is_gone(seed in 1u64..) {
        let random = &mut Random(seed);
        let ram = Ram::new(0x20_0000, Fuse::default());
        let base = (Ram::BASE / PAGE) as u32;
        let mut guests = [0, 0x8_0000].map(|at| Guest::new(&ram, Ram::BASE + at, 16, OPTIONS, 0x1000));
        let kinds = [Kind::Inflate, Kind::Deflate];
        let mut queues = [0, 1].map(|index| Balloons::new(kinds[index], guests[index].ring.layout, OPTIONS));
        let (mut gone, mut model) = (Gone::default(), BTreeSet::new());
        for _ in 0..40 {
            let index = random.below(2) as usize;
            let first = base - 3 + random.below(0x205) as u32;
            let pages: Vec<_> = (0..random.below(200) as u32)
                .map(|page| if random.below(10) == 0 { random.any() as u32 } else { first + page })
                .collect();
            let guest = &mut guests[index];
            guest.ask(&ram, &numbers(random, &pages)).unwrap();
            for page in pages.iter().filter(|&&page| (base..base + 0x200).contains(&page)) {
                let page = u64::from(*page) * PAGE;
                if index == 0 { model.insert(page); } else { model.remove(&page); }
            }
            gone.2 = random.below(4);
            loop {
                ram.fuse.arm(random.below(40));
                let turn = queues[index].serve(&ram, &mut gone, 0, 1 + random.below(4) as u32);
                let blown = ram.fuse.is_blown();
                ram.fuse.mend();
                match turn {
                    _ if blown => {
                        queues[index] = Balloons::resume(kinds[index], &ram, guest.ring.layout, OPTIONS).unwrap();
                    }
                    Ok(turn) if !turn.again && !queues[index].waits() => break,
                    Ok(_) => {}
                    Err(violation) => panic!("{violation}"),
                }
            }
            prop_assert_eq!(guest.take(&ram).len(), 1);
            prop_assert!(index == 1 || gone.2 == 0, "completed before all is gone");
            prop_assert!(gone.0 == model);
        }
    }

    /// Over blocks that come to places of others: a block is whole when, and as often as, all of it was given and nothing of it taken back; and one
    /// that is told to be whole is.
    #[test]
    fn what_is_given_page_by_page_is_whole_blocks(seed in 1u64..) {
        let random = &mut Random(seed);
        let mut collected = Collected::<2>::new();
        // What each place knows: the block, and which pages of it.
        let mut places = [(0, BTreeSet::new()), (0, BTreeSet::new())];
        for _ in 0..60 {
            let block = 5 + random.below(3);
            let first = [0, random.below(513)][random.below(2) as usize];
            let count = [512 - first, random.below(513)][random.below(2) as usize].min(512 - first);
            let address = block * BLOCK + first * PAGE;
            let (number, pages) = &mut places[(block % 2) as usize];
            match random.below(20) {
                0 => {
                    collected.clear();
                    places.iter_mut().for_each(|(_, pages)| pages.clear());
                }
                1..5 => {
                    collected.take_back(address, count * PAGE);
                    if *number == block {
                        pages.retain(|page| !(first..first + count).contains(page));
                    }
                }
                _ => {
                    if *number != block && count != 0 {
                        (*number, *pages) = (block, BTreeSet::new());
                    }
                    pages.extend(first..first + count);
                    let mut whole = Vec::new();
                    collected.give(address, count * PAGE, |block| whole.push(block));
                    let is_whole = count != 0 && pages.len() == 512;
                    prop_assert_eq!(whole, if is_whole { vec![block * BLOCK] } else { Vec::new() });
                }
            }
        }
    }

    #[test]
    fn hostile_rings_are_answered(seed in 1u64..) {
        let random = &mut Random(seed);
        let ram = Ram::new(0x8_0000, Fuse::default());
        let mut guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x1000);
        let kind = [Kind::Inflate, Kind::Deflate, Kind::Report][random.below(3) as usize];
        let mut queue = Balloons::new(kind, guest.ring.layout, OPTIONS);
        for _ in 0..8 {
            let mut request = numbers(random, &[1, 2, 3]);
            request.writable = vec![100];
            let _ = guest.ask(&ram, &request);
        }
        let mut gone = Gone::default();
        for _ in 0..40 {
            gone.2 = random.below(3);
            ram.disturb(random, 0x180);
            if queue.serve(&ram, &mut gone, 0, 10).is_err() {
                queue = Balloons::resume(kind, &ram, guest.ring.layout, OPTIONS).unwrap();
            }
            prop_assert!(ram.fuse.steps() < 10 * 150, "bounded: {}", ram.fuse.steps());
            prop_assert!(gone.0.iter().all(|page| (Ram::BASE..Ram::BASE + 0x8_0000).contains(page)));
        }
    }
}

#[test]
fn pages_that_lie_together_are_one_range() {
    let ram = Ram::new(0x20_0000, Fuse::default());
    let base = (Ram::BASE / PAGE) as u32;
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x1000);
    let mut queue = Balloons::new(Kind::Inflate, guest.ring.layout, OPTIONS);
    let pages: Vec<_> = (base + 10..base + 60).chain([base + 100]).collect();
    guest.ask(&ram, &numbers(&mut Random(1), &pages)).unwrap();
    let mut gone = Gone::default();
    assert!(queue.serve(&ram, &mut gone, 0, 100).unwrap().interrupt);
    assert_eq!((gone.0.len(), gone.1), (51, 2));
}

#[test]
fn a_range_over_several_blocks_is_each_of_them() {
    let mut collected = Collected::<4>::new();
    let mut give = |address, length| {
        let mut whole = Vec::new();
        collected.give(address, length, |block| whole.push(block / BLOCK));
        whole
    };
    assert_eq!(give(8 * BLOCK - PAGE, BLOCK + 2 * PAGE), [8]);
    assert_eq!(give(7 * BLOCK, BLOCK - 2 * PAGE), []);
    assert_eq!(give(8 * BLOCK - 2 * PAGE, PAGE), [7]);
    assert_eq!(give(9 * BLOCK + PAGE, BLOCK - PAGE), [9]);
    assert_eq!(give(9 * BLOCK, PAGE), [9], "what comes again is told again");
    assert_eq!(give(u64::MAX - PAGE, u64::MAX), []);
    assert_eq!(give(0, 0), []);
}

#[test]
fn whole_pages_that_are_free_are_told() {
    let ram = Ram::new(0x20_0000, Fuse::default());
    let ring = Ring::new(&ram, Ram::BASE, 8, OPTIONS);
    let at = Ram::BASE + 0x10_0000;
    let report = |poison, address, length| {
        let mut queue = Balloons::new(Kind::Report, ring.layout, OPTIONS);
        Ring::describe(&ram, ring.layout.areas().descriptors, 0, (address, length), 2, 0);
        ring.offer(&ram, 0, 0, 1);
        let mut gone = Gone::default();
        assert!(!queue.serve(&ram, &mut gone, poison, 100).unwrap().again);
        assert_eq!(ring.used(&ram), 1);
        gone.0.into_iter().collect::<Vec<_>>()
    };
    assert_eq!(report(0, at, 0x2000), [at, at + 0x1000]);
    assert_eq!(report(0, at + 1, 0x2000), [at + 0x1000], "not what is beside it");
    assert_eq!(report(0, at + 1, 0x1ffe), []);
    assert_eq!(report(0xaa, at, 0x2000), [], "pages that come back are zero, not poison");
}

/// A report stays open until its pages are gone, over kills, too; what comes behind it waits.
#[test]
fn a_report_is_completed_when_its_pages_are_gone() {
    let ram = Ram::new(0x20_0000, Fuse::default());
    let ring = Ring::new(&ram, Ram::BASE, 8, OPTIONS);
    for index in 0..2_u16 {
        let buffer = (Ram::BASE + 0x10_0000 + 0x1000 * u64::from(index), 0x1000);
        Ring::describe(&ram, ring.layout.areas().descriptors, index.into(), buffer, 2, 0);
        ring.offer(&ram, index, index, index + 1);
    }
    let mut queue = Balloons::new(Kind::Report, ring.layout, OPTIONS);
    let mut gone = Gone(BTreeSet::new(), 0, 3);
    for ranges in [1, 1] {
        let turn = queue.serve(&ram, &mut gone, 0, 100).unwrap();
        assert!(queue.waits() && !turn.again && !turn.interrupt);
        assert_eq!((gone.1, ring.used(&ram)), (ranges, 0), "told once, and not completed");
    }
    queue = Balloons::resume(Kind::Report, &ram, ring.layout, OPTIONS).unwrap();
    assert!(!queue.serve(&ram, &mut gone, 0, 100).unwrap().again);
    assert_eq!(
        (gone.1, ring.used(&ram), queue.waits()),
        (2, 0, true),
        "the life before has not completed it"
    );
    assert!(queue.serve(&ram, &mut gone, 0, 100).unwrap().interrupt);
    assert_eq!((gone.1, ring.used(&ram), queue.waits()), (3, 2, false));
}
