// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-checks the pool: every interleaving, every value a weak memory order allows.
//!
//! `RUSTFLAGS="--cfg loom" cargo test -p turnstile-pool --release --test loom`
#![cfg(loom)]

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use turnstile_pool::Pool;

/// What is in the blocks: written without order, by who has each.
struct Machine {
    pool: Pool,
    contents: [AtomicU32; 2],
}

impl Machine {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { pool: Pool::new(0, 1, count), contents: [AtomicU32::new(0), AtomicU32::new(0)] })
    }

    /// Uses a block, if there is one: finds it as who had it before has left it, and leaves it so.
    fn use_one(&self) -> bool {
        let Some(block) = self.pool.take() else { return false };
        let contents = &self.contents[block as usize];
        assert_eq!(
            contents.load(Ordering::Relaxed),
            0,
            "somebody else has it, or what it has done is not over"
        );
        contents.store(1, Ordering::Relaxed);
        contents.store(0, Ordering::Relaxed);
        assert!(self.pool.give(block));
        true
    }
}

#[test]
fn a_block_is_nobody_elses() {
    loom::model(|| {
        let machine = Machine::new(1);
        let other = thread::spawn({
            let machine = machine.clone();
            move || machine.use_one()
        });
        let own = machine.use_one();
        assert!(other.join().unwrap() || own, "one of them has it");
        assert_eq!(machine.pool.free(), 1);
    });
}

#[test]
fn there_is_one_for_each() {
    loom::model(|| {
        let machine = Machine::new(2);
        let other = thread::spawn({
            let machine = machine.clone();
            move || machine.use_one()
        });
        assert!(machine.use_one(), "the other one has one at most");
        assert!(other.join().unwrap());
    });
}
