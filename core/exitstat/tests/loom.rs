// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-checks the record of one reason: every interleaving, every value a weak memory order allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-exitstat --release --test loom`
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use turnstile_exitstat::{Exits, Record, bucket};

/// Costs of different buckets, of which no two sets have the same sum.
const COSTS: [u64; 2] = [1, 12];

/// The exits of the first `n` costs.
fn exits(n: usize) -> Exits {
    let mut exits = Exits::default();
    COSTS[..n].iter().for_each(|&cost| exits.add(cost));
    exits
}

/// Runs both at the same time. Neither on the model's own thread: with the reader there, loom tries one execution only.
fn race<T: Send + Sync + 'static>(shared: &Arc<T>, one: fn(&T), other: fn(&T)) {
    let threads = [one, other].map(|act| {
        let shared = Arc::clone(shared);
        thread::spawn(move || act(&shared))
    });
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn no_cost_is_seen_without_its_exit() {
    loom::model(|| {
        let record = Arc::new(Record::new());
        race(&record, |record| COSTS.iter().for_each(|&cost| record.add(cost)), read_beside_the_writer);
        assert_eq!(record.read(), exits(COSTS.len()));
    });
}

fn read_beside_the_writer(record: &Record) {
    let read = record.read();
    // The total says how many exits had ended for certain; all of them must be there, and no more than will be.
    let ended = (0..=COSTS.len()).find(|&n| exits(n).total == read.total).expect("a total of the writer's");
    for (bits, count) in read.buckets.iter().enumerate() {
        let most = exits(COSTS.len()).buckets[bits];
        assert!((exits(ended).buckets[bits]..=most).contains(count), "{bits} bits: {count}");
    }
}

/// A VM of one vCPU as far as its statistics go: its lives are counted, and begin under a lock.
struct Vm {
    record: Record,
    beginning: Mutex<()>,
    boots: AtomicU32,
}

/// What the vCPU's exits cost in its first life, and in its second.
const LIVES: [u64; 2] = [1, 12];

#[test]
fn a_reading_is_of_the_life_that_it_names() {
    loom::model(|| {
        let vm = Arc::new(Vm { record: Record::new(), beginning: Mutex::new(()), boots: AtomicU32::new(1) });
        race(&vm, live_twice, read_one_life);
        let mut second = Exits::default();
        second.add(LIVES[1]);
        assert_eq!(vm.record.read(), second);
    });
}

fn live_twice(vm: &Vm) {
    vm.record.add(LIVES[0]);
    let beginning = vm.beginning.lock().unwrap();
    vm.record.clear();
    vm.boots.fetch_add(1, Ordering::Relaxed);
    drop(beginning);
    vm.record.add(LIVES[1]);
}

fn read_one_life(vm: &Vm) {
    let beginning = vm.beginning.lock().unwrap();
    let (boots, read) = (vm.boots.load(Ordering::Relaxed), vm.record.read());
    drop(beginning);
    let life = LIVES[boots as usize - 1];
    assert!([0, life].contains(&read.total), "life {boots}: {read:?}");
    assert!(read.count() <= 1 && read.count() == read.buckets[bucket(life)], "life {boots}: {read:?}");
}
