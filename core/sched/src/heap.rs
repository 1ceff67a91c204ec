// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A binary heap of vCPUs that knows where each of them is, so that any can be taken out.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Not in the heap.
const NOWHERE: u32 = u32::MAX;

/// vCPUs in the order of their keys, the least first.
#[derive(Debug)]
pub(crate) struct Heap<K> {
    items: Vec<(K, u32)>,
    /// Where each vCPU is among the items.
    places: Box<[u32]>,
}

impl<K: Copy + Ord> Heap<K> {
    /// Makes an empty heap for vCPUs with numbers below `threads`: it never grows beyond that.
    pub(crate) fn new(threads: usize) -> Self {
        Self { items: Vec::with_capacity(threads), places: vec![NOWHERE; threads].into() }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn first(&self) -> Option<(K, u32)> {
        self.items.first().copied()
    }

    /// Iterates over all, in no order but that the first comes first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (K, u32)> + '_ {
        self.items.iter().copied()
    }

    /// Changes all keys, without changing their order.
    pub(crate) fn change_keys(&mut self, mut change: impl FnMut(&mut K, u32)) {
        self.items.iter_mut().for_each(|(key, thread)| change(key, *thread));
    }

    /// Adds a vCPU, or gives one that is there another key.
    pub(crate) fn insert(&mut self, thread: u32, key: K) {
        self.remove(thread);
        let Some(place) = self.places.get_mut(thread as usize) else { return };
        let at = self.items.len();
        *place = at as u32;
        // Within the capacity: each vCPU is in here once.
        self.items.push((key, thread));
        self.rise(at);
    }

    /// Takes a vCPU out; says whether it was there.
    #[inline] // Mostly it was not there, or was alone.
    pub(crate) fn remove(&mut self, thread: u32) -> bool {
        let Some(place) = self.places.get_mut(thread as usize) else { return false };
        let at = core::mem::replace(place, NOWHERE) as usize;
        if at >= self.items.len() {
            return false;
        }
        self.items.swap_remove(at);
        if at < self.items.len() {
            self.restore(at);
        }
        true
    }

    /// Takes the first one out.
    #[inline] // Mostly it was alone.
    pub(crate) fn take_first(&mut self) -> Option<u32> {
        let (_, thread) = self.first()?;
        if let Some(place) = self.places.get_mut(thread as usize) {
            *place = NOWHERE;
        }
        if self.items.len() == 1 {
            self.items.clear();
        } else {
            self.items.swap_remove(0);
            self.restore(0);
        }
        Some(thread)
    }

    /// Restores the order after another vCPU has come to this place.
    #[inline(never)] // Apart from the others, as it is long.
    fn restore(&mut self, at: usize) {
        self.note(at);
        self.sink(at);
        self.rise(at);
    }

    fn note(&mut self, at: usize) {
        self.places[self.items[at].1 as usize] = at as u32;
    }

    fn exchange(&mut self, a: usize, b: usize) {
        self.items.swap(a, b);
        self.note(a);
        self.note(b);
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 && self.items[at].0 < self.items[(at - 1) / 2].0 {
            self.exchange(at, (at - 1) / 2);
            at = (at - 1) / 2;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let (left, right) = (2 * at + 1, 2 * at + 2);
            let mut least = at;
            for child in [left, right] {
                if child < self.items.len() && self.items[child].0 < self.items[least].0 {
                    least = child;
                }
            }
            if least == at {
                return;
            }
            self.exchange(at, least);
            at = least;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Operation {
        Insert,
        Remove,
        TakeFirst,
    }

    fn operation() -> impl Strategy<Value = Operation> {
        prop_oneof![
            Just(Operation::Insert),
            Just(Operation::Insert),
            Just(Operation::Remove),
            Just(Operation::TakeFirst)
        ]
    }

    proptest! {
        #[test]
        fn behaves_as_a_sorted_list(operations in prop::collection::vec((0u32..20, 0u64..8, operation()), 0..200)) {
            let mut heap = Heap::new(20);
            let mut list: Vec<(u64, u32)> = Vec::new();
            for (thread, key, operation) in operations {
                if operation == Operation::TakeFirst {
                    let first = heap.first().map(|(_, thread)| thread);
                    prop_assert_eq!(heap.take_first(), first);
                    list.retain(|(_, other)| Some(*other) != first);
                } else {
                    let there = list.iter().any(|(_, other)| *other == thread);
                    list.retain(|(_, other)| *other != thread);
                    if operation == Operation::Insert {
                        heap.insert(thread, key);
                        list.push((key, thread));
                    } else {
                        prop_assert_eq!(heap.remove(thread), there);
                    }
                }
                let least = list.iter().map(|(key, _)| *key).min();
                prop_assert_eq!(heap.first().map(|(key, _)| key), least);
                let mut all: Vec<_> = heap.iter().collect();
                all.sort_unstable();
                list.sort_unstable();
                prop_assert_eq!(&all, &list);
                prop_assert_eq!(heap.len(), list.len());
            }
        }
    }
}
