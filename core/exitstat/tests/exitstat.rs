// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The layout of a page, its histogram against a naive model, and a reader beside a writer.

#![cfg(not(loom))]

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;
use turnstile_exitstat::{
    BUCKETS, EVENTS, EVENTS_OFFSET, Event, Exits, MAGIC, PAGE_SIZE, Page, RECORDS, RECORDS_OFFSET, Reason,
    Timing, VERSION, bucket, event_offset, record_offset,
};

/// The page is an ABI: these are its figures, written down a second time.
#[test]
fn the_layout_is_fixed() {
    assert_eq!((PAGE_SIZE, RECORDS_OFFSET, RECORDS, BUCKETS), (16384, 128, 24, 64));
    assert_eq!((EVENTS_OFFSET, EVENTS), (13952, 64));
    let page = Page::new(62_500_000);
    assert_eq!(page.identity().to_le_bytes(), *b"TSXS\x02\0\x16\0");
    assert_eq!((page.frequency(), MAGIC, VERSION), (62_500_000, 0x5358_5354, 2));
    let start = &raw const page as usize;
    for (index, &reason) in Reason::ALL.iter().enumerate() {
        assert_eq!((reason.index(), Reason::from_index(index)), (index, Some(reason)));
        assert_eq!(record_offset(reason), 128 + 576 * index);
        assert_eq!(&raw const *page.record(reason) as usize - start, record_offset(reason));
        assert_eq!(Reason::from_name(reason.name()), Some(reason));
    }
    assert_eq!(Reason::from_index(Reason::ALL.len()), None);
    assert_eq!((Reason::Hypercall.index(), Reason::Start.index(), Reason::Other.index()), (0, 10, 11));
    for (index, &event) in Event::ALL.iter().enumerate() {
        assert_eq!((event.index(), Event::from_index(index)), (index, Some(event)));
        assert_eq!(event_offset(event), 13952 + 8 * index);
        assert_eq!(Event::from_name(event.name()), Some(event));
    }
    assert_eq!(Event::from_index(Event::ALL.len()), None);
}

#[test]
fn events_are_counted_apart() {
    let page = Page::new(1);
    for (index, &event) in Event::ALL.iter().enumerate() {
        page.count(event);
        page.count_several(event, index as u64);
    }
    for (index, &event) in Event::ALL.iter().enumerate() {
        assert_eq!(page.events(event), 1 + index as u64);
    }
    assert!(Reason::ALL.iter().all(|&reason| page.record(reason).read() == Exits::default()));
    page.count_several(Event::Ipi, u64::MAX);
    assert_eq!(page.events(Event::Ipi), 4, "modulo 2^64");
    page.clear();
    assert!(Event::ALL.iter().all(|&event| page.events(event) == 0));
}

#[test]
fn buckets_go_by_significant_bits() {
    let expected = [(0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1023, 10), (1024, 11), (u64::MAX >> 1, 63)];
    for (cost, bits) in expected {
        assert_eq!(bucket(cost), bits);
        let page = Page::new(1);
        page.record(Reason::Wait).add(cost);
        let exits = page.record(Reason::Wait).read();
        assert_eq!((exits.total, exits.buckets[bits], exits.count()), (cost, 1, 1));
    }
}

#[test]
fn reasons_do_not_touch_each_other_and_clear_forgets_all() {
    let page = Page::new(1);
    for &reason in Reason::ALL {
        for cost in [0, 1, reason.index() as u64, 1 << 62] {
            page.record(reason).add(cost);
        }
    }
    for &reason in Reason::ALL {
        let exits = page.record(reason).read();
        assert_eq!(exits.count(), 4);
        assert_eq!(exits.total, (1 << 62) + 1 + reason.index() as u64);
    }
    page.clear();
    assert!(Reason::ALL.iter().all(|&reason| page.record(reason).read() == Exits::default()));
}

#[test]
fn totals_wrap_and_a_counter_that_goes_backwards_is_no_exit() {
    let page = Page::new(1);
    let record = page.record(Reason::Kick);
    for _ in 0..4 {
        record.add(u64::MAX >> 1);
    }
    let exits = record.read();
    assert_eq!((exits.total, exits.count()), ((u64::MAX >> 1).wrapping_mul(4), 4));
    record.add(5_u64.wrapping_sub(9));
    assert_eq!(record.read().count(), 4);
    assert_eq!(record.read().total, exits.total.wrapping_sub(4).wrapping_add(1));
}

#[test]
fn percentiles_of_known_histograms() {
    let mut exits = Exits::default();
    assert_eq!((exits.mean(), exits.percentile(50.0)), (None, None));
    (0..99).for_each(|_| exits.add(1));
    exits.add(1 << 20);
    assert_eq!((exits.percentile(50.0), exits.percentile(99.0)), (Some(1.0), Some(1.0)));
    let last = exits.percentile(100.0).unwrap();
    assert!((1_048_576.0..2_097_152.0).contains(&last), "{last}");
    // One exit: no estimate is above what it cost.
    let mut one = Exits::default();
    one.add(40);
    assert_eq!((one.mean(), one.percentile(99.0)), (Some(40.0), Some(40.0)));
}

/// One thread counts exits of a known cost, another one reads.
#[test]
fn a_reader_never_sees_a_cost_without_its_exit() {
    const COST: u64 = 12;
    let (page, done) = (Page::new(1), AtomicBool::new(false));
    let record = page.record(Reason::Hypercall);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            (0..300_000).for_each(|_| record.add(COST));
            done.store(true, Ordering::Release);
        });
        let mut last = Exits::default();
        while !done.load(Ordering::Acquire) {
            let exits = record.read();
            assert_eq!(exits.total % COST, 0);
            assert!(exits.count() * COST >= exits.total, "{exits:?}");
            assert!(exits.count() >= last.count() && exits.total >= last.total);
            last = exits;
        }
    });
    assert_eq!((record.read().count(), record.read().total), (300_000, 300_000 * COST));
}

proptest! {
    #[test]
    fn a_record_is_what_was_added(costs in prop::collection::vec(0..=u64::MAX >> 1, 0..200)) {
        let page = Page::new(1);
        let mut model = Exits::default();
        for &cost in &costs {
            page.record(Reason::Other).add(cost);
            model.add(cost);
        }
        prop_assert_eq!(page.record(Reason::Other).read(), model);
        prop_assert_eq!(model.count(), costs.len() as u64);
        prop_assert_eq!(model.total, costs.iter().fold(0_u64, |sum, cost| sum.wrapping_add(*cost)));
    }

    /// Against sorting: the estimate is in the bucket of the cost itself.
    #[test]
    fn percentiles_are_in_the_right_bucket(
        mut costs in prop::collection::vec(0..1_u64 << 40, 1..200),
        percent in 0.0..=100.0_f64,
    ) {
        let mut exits = Exits::default();
        costs.iter().for_each(|&cost| exits.add(cost));
        costs.sort_unstable();
        let rank = (percent / 100.0 * costs.len() as f64).max(1.0).ceil() as usize;
        let cost = costs[rank.min(costs.len()) - 1];
        let estimate = exits.percentile(percent).unwrap();
        prop_assert_eq!(bucket(estimate as u64), bucket(cost), "{} for {}", estimate, cost);
    }

    #[test]
    fn what_is_new_is_the_difference(
        first in prop::collection::vec(0..1_u64 << 40, 0..50),
        second in prop::collection::vec(0..1_u64 << 40, 0..50),
    ) {
        let (mut before, mut new) = (Exits::default(), Exits::default());
        first.iter().for_each(|&cost| before.add(cost));
        second.iter().for_each(|&cost| new.add(cost));
        let mut after = before;
        after.merge(&new);
        prop_assert_eq!(after.since(&before), new);
    }
}

#[test]
fn an_exit_that_ends_is_in_its_record() {
    let page: &'static Page = Box::leak(Box::new(Page::new(1000)));
    let mut timing = Timing::new(Some(page));
    let clock = std::cell::Cell::new(110);
    let now = || clock.get();
    timing.end(|| 7);
    timing.begin(Reason::Wait, || 100);
    timing.without(now, || clock.set(clock.get() + 50));
    assert_eq!(timing.begin, 150, "as if it had begun later");
    timing.end(|| clock.get() + 5);
    let mut none = Timing::new(None);
    none.begin(Reason::Wait, || panic!("nobody wants to know"));
    assert_eq!(none.without(|| panic!("nor how long it took"), || 7), 7);
    none.end(now);
    for reason in Reason::ALL {
        let exits = page.record(*reason).read();
        let (count, total) = if *reason == Reason::Wait { (1, 15) } else { (0, 0) };
        assert_eq!((exits.count(), exits.total), (count, total), "{reason:?}");
    }
}
