// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checks the frame allocator against a bitmap of pages.

use proptest::prelude::*;
use turnstile_paging::{FrameAllocator, FrameError, FrameRange, PhysAddr};

const PAGE: u64 = 4096;
const PAGES: usize = 256;

fn range(page: u64, count: u64) -> FrameRange {
    FrameRange::new(PhysAddr(page * PAGE), count * PAGE).unwrap()
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Page {
    Foreign,
    Free,
    Taken,
}

#[derive(Clone, Debug)]
enum Operation {
    Add(u64, u64),
    Reserve(u64, u64),
    Allocate(u64, u64),
    Free(u64, u64),
    FreeAllocated(usize),
}

fn operations() -> impl Strategy<Value = Vec<Operation>> {
    let place = || (0..PAGES as u64 - 40, 1..40u64);
    let operation = prop_oneof![
        2 => place().prop_map(|(p, n)| Operation::Add(p, n)),
        1 => place().prop_map(|(p, n)| Operation::Reserve(p, n)),
        4 => (1..24u64, 0..5u32).prop_map(|(n, shift)| Operation::Allocate(n, 1 << shift)),
        1 => place().prop_map(|(p, n)| Operation::Free(p, n)),
        4 => any::<usize>().prop_map(Operation::FreeAllocated),
    ];
    prop::collection::vec(operation, 1..64)
}

fn pages(map: &[Page], range: &FrameRange) -> Vec<Page> {
    map[(range.start().0 / PAGE) as usize..(range.end().0 / PAGE) as usize].to_vec()
}

fn set(map: &mut [Page], range: &FrameRange, page: Page) {
    map[(range.start().0 / PAGE) as usize..(range.end().0 / PAGE) as usize].fill(page);
}

fn allocate<const N: usize>(
    map: &mut [Page],
    frames: &mut FrameAllocator<N>,
    count: u64,
    align: u64,
) -> Option<FrameRange> {
    let free = |start: usize| {
        map.get(start..start + count as usize).is_some_and(|p| p.iter().all(|&p| p == Page::Free))
    };
    let possible = (0..PAGES).step_by(align as usize).any(free);
    match frames.allocate(count * PAGE, align * PAGE) {
        Ok(range) => {
            assert_eq!((range.size(), range.start().0 % (align * PAGE)), (count * PAGE, 0));
            assert!(pages(map, &range).iter().all(|&page| page == Page::Free), "{range:?} was not free");
            set(map, &range, Page::Taken);
            Some(range)
        }
        Err(error) => {
            assert_eq!(error, FrameError::OutOfMemory);
            assert!(!possible, "a place was there for {count} pages at {align}");
            None
        }
    }
}

fn step<const N: usize>(
    map: &mut [Page],
    frames: &mut FrameAllocator<N>,
    allocated: &mut Vec<FrameRange>,
    operation: &Operation,
) {
    match *operation {
        Operation::Add(page, count) => {
            let range = range(page, count);
            let new = pages(map, &range).iter().all(|&page| page == Page::Foreign);
            assert_eq!(frames.add(range), if new { Ok(()) } else { Err(FrameError::Overlap) });
            if new {
                set(map, &range, Page::Free);
            }
        }
        Operation::Reserve(page, count) => {
            let range = range(page, count);
            let free = pages(map, &range).iter().filter(|&&page| page == Page::Free).count();
            assert_eq!(frames.reserve(range), Ok(free as u64 * PAGE));
            for page in &mut map[page as usize..(page + count) as usize] {
                *page = if *page == Page::Free { Page::Taken } else { *page };
            }
        }
        Operation::Allocate(count, align) => allocated.extend(allocate(map, frames, count, align)),
        Operation::Free(page, count) => {
            let range = range(page, count);
            let found = pages(map, &range);
            let expected = if found.contains(&Page::Foreign) {
                Err(FrameError::Foreign)
            } else if found.contains(&Page::Free) {
                Err(FrameError::DoubleFree)
            } else {
                Ok(())
            };
            assert_eq!(frames.free(range), expected);
            if expected.is_ok() {
                set(map, &range, Page::Free);
                allocated.retain(|other| !other.overlaps(&range));
            }
        }
        Operation::FreeAllocated(pick) if !allocated.is_empty() => {
            let range = allocated.swap_remove(pick % allocated.len());
            assert_eq!(frames.free(range), Ok(()));
            assert_eq!(frames.free(range), Err(FrameError::DoubleFree));
            set(map, &range, Page::Free);
        }
        Operation::FreeAllocated(_) => {}
    }
}

proptest! {
    #[test]
    fn follows_the_bitmap(history in operations()) {
        let mut map = [Page::Foreign; PAGES];
        let mut frames = FrameAllocator::<PAGES>::new();
        let mut allocated = Vec::new();
        for operation in &history {
            step(&mut map, &mut frames, &mut allocated, operation);
            let free = map.iter().filter(|&&page| page == Page::Free).count() as u64;
            let total = map.iter().filter(|&&page| page != Page::Foreign).count() as u64;
            prop_assert_eq!((frames.free_bytes(), frames.total_bytes()), (free * PAGE, total * PAGE));
            let ranges: Vec<_> = frames.free_ranges().collect();
            prop_assert!(ranges.windows(2).all(|w| w[0].end() < w[1].start()), "not coalesced: {:?}", ranges);
        }
    }
}

#[test]
fn a_full_table_refuses_without_losing_anything() {
    let mut frames = FrameAllocator::<2>::new();
    frames.add(range(0, 8)).unwrap();
    frames.add(range(16, 8)).unwrap();
    assert_eq!(frames.add(range(32, 8)), Err(FrameError::Fragmented));
    assert_eq!(frames.reserve(range(2, 1)), Err(FrameError::Fragmented));
    assert_eq!((frames.free_bytes(), frames.total_bytes()), (16 * PAGE, 16 * PAGE));
    let all = frames.allocate(8 * PAGE, PAGE).unwrap();
    let rest = frames.allocate(8 * PAGE, PAGE).unwrap();
    assert_eq!(frames.free(range(0, 1)), Ok(()));
    assert_eq!(frames.free(range(4, 1)), Ok(()));
    assert_eq!(frames.free(range(6, 1)), Err(FrameError::Fragmented));
    assert_eq!(frames.free(range(5, 1)), Ok(()));
    assert_eq!((all, rest), (range(0, 8), range(16, 8)));
}

#[test]
fn small_requests_leave_large_aligned_memory_alone() {
    let gib = 1 << 30;
    let mut frames = FrameAllocator::<8>::new();
    // Memory from 1 GiB to 4 GiB with firmware at its start.
    frames.add(FrameRange::new(PhysAddr(gib), 3 * gib).unwrap()).unwrap();
    frames.reserve(FrameRange::new(PhysAddr(gib), 2 << 20).unwrap()).unwrap();
    for _ in 0..64 {
        frames.allocate(2 << 20, 2 << 20).unwrap();
    }
    assert!(frames.allocate(gib, gib).is_ok());
    assert!(frames.allocate(gib, gib).is_ok());
}

#[test]
fn nonsense_is_refused() {
    let mut frames = FrameAllocator::<4>::new();
    assert_eq!(frames.allocate(PAGE, PAGE), Err(FrameError::OutOfMemory));
    frames.add(range(1, 4)).unwrap();
    assert_eq!(frames.allocate(0, PAGE), Err(FrameError::Invalid));
    assert_eq!(frames.allocate(PAGE, 0), Err(FrameError::Invalid));
    assert_eq!(frames.allocate(PAGE, 3 * PAGE), Err(FrameError::Invalid));
    assert_eq!(frames.allocate(u64::MAX, PAGE), Err(FrameError::OutOfMemory));
    assert_eq!(frames.allocate(PAGE, 1 << 63), Err(FrameError::OutOfMemory));
    assert!(FrameRange::new(PhysAddr(u64::MAX), 2).is_none());
    assert!(FrameRange::new(PhysAddr(0), 0).is_none());
}

#[test]
fn an_allocation_leaves_the_rest_in_one_piece_where_it_can() {
    let mut frames = FrameAllocator::<4>::new();
    frames.add(range(1, 63)).unwrap();
    assert_eq!(frames.allocate(8 * PAGE, 8 * PAGE), Ok(range(56, 8)), "its end is aligned, its start is not");
    let mut frames = FrameAllocator::<4>::new();
    frames.add(range(8, 61)).unwrap();
    assert_eq!(frames.allocate(8 * PAGE, 8 * PAGE), Ok(range(8, 8)), "its start is aligned, its end is not");
}
