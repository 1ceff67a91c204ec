// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is taken is nobody else's, and comes back once.
#![cfg(not(loom))]

use std::collections::BTreeSet;
use std::slice;

use proptest::prelude::*;
use turnstile_pool::{Pool, Released};

const BASE: u64 = 0x4000_0000;
const BLOCK: u64 = 2 << 20;

#[test]
fn each_block_is_taken_once_until_it_is_given_back() {
    for count in [0, 1, 63, 64, 65, 200] {
        let pool = Pool::new(BASE, BLOCK, count);
        let taken: BTreeSet<u64> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!((taken.len(), pool.free(), pool.count()), (count, 0, count));
        let all = (0..count as u64).map(|index| BASE + index * BLOCK);
        assert!(all.clone().eq(taken), "all of them, and no other");
        assert!(all.clone().all(|block| pool.give(block)));
        assert!(!all.clone().any(|block| pool.give(block)), "once");
        assert_eq!(pool.free(), count);
    }
}

#[test]
fn what_is_no_block_of_the_pool_is_refused() {
    let pool = Pool::new(BASE, BLOCK, 3);
    while pool.take().is_some() {}
    for other in [0, BASE - BLOCK, BASE + 1, BASE + 3 * BLOCK, BASE + 63 * BLOCK, BASE + 64 * BLOCK, u64::MAX]
    {
        assert!(!pool.give(other), "{other:#x}");
    }
    assert_eq!(pool.free(), 0);
    assert!(!pool.has_free());
}

proptest! {
    #[test]
    fn it_does_what_a_set_does(takes in prop::collection::vec(any::<(bool, u8)>(), 1..400)) {
        let pool = Pool::new(BASE, BLOCK, 130);
        let mut taken: Vec<u64> = Vec::new();
        for (takes, which) in takes {
            if takes {
                let block = pool.take();
                prop_assert_eq!(block.is_none(), taken.len() == 130);
                prop_assert!(block.is_none_or(|block| !taken.contains(&block)));
                taken.extend(block);
            } else if !taken.is_empty() {
                let block = taken.swap_remove(usize::from(which) % taken.len());
                prop_assert!(pool.give(block));
            }
            prop_assert_eq!(pool.free(), 130 - taken.len());
            prop_assert_eq!(pool.has_free(), taken.len() < 130);
            prop_assert_eq!(pool.free_bytes() + taken.len() as u64 * BLOCK, pool.bytes());
        }
    }
}

#[test]
fn what_is_named_is_taken_once_and_no_more_of_it_than_goes_at_once() {
    let mut released = Released::default();
    assert!(
        released.add(0..2 * BLOCK)
            && released.add(2 * BLOCK..3 * BLOCK)
            && released.add(8 * BLOCK..9 * BLOCK)
    );
    assert_eq!(released.count(), 2, "what lies behind it is a part of it");
    assert_eq!(released.take(2 * BLOCK).as_slice(), [8 * BLOCK..9 * BLOCK, 2 * BLOCK..3 * BLOCK]);
    assert_eq!(released.count(), 1, "the rest waits");
    assert_eq!(released.take(9 * BLOCK).as_slice(), slice::from_ref(&(0..2 * BLOCK)));
    assert!((released.count(), released.take(BLOCK).len()) == (0, 0), "once");
}

#[test]
fn too_many_parts_are_refused_and_those_before_stay() {
    let mut released = Released::default();
    let part = |number: u64| 2 * number * BLOCK..(2 * number + 1) * BLOCK;
    assert!((0..32).all(|number| released.add(part(number))));
    assert!(!released.add(part(32)) && released.count() == 32);
    assert!(released.add(63 * BLOCK..64 * BLOCK), "behind the last one");
    assert_eq!(released.take(u64::MAX).len(), 32);
    assert!(released.add(part(32)));
    released.clear();
    assert_eq!(released.count(), 0);
}
