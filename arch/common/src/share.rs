// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a VM takes from a pool, and how much that is.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use turnstile_paging::BLOCK;
use turnstile_pool::Pool;

/// What a VM has of a pool, in all its lives: a block that is lost with a life stays counted. Only who takes a block or gives one changes it.
#[derive(Debug, Default)]
pub struct Taken {
    blocks: AtomicU64,
    /// Whether the pool had none when one was wanted last.
    waits: AtomicBool,
    /// How often it has begun to wait.
    waited: AtomicU32,
    /// Whether that is to be said.
    is_news: AtomicBool,
}

/// How many waits are said one by one; later ones only if their number is a power of two. A guest can have as many as it likes.
const SAID: u32 = 8;

impl Taken {
    /// Makes it of a VM that has nothing.
    pub const fn new() -> Self {
        let (waits, is_news) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { blocks: AtomicU64::new(0), waits, waited: AtomicU32::new(0), is_news }
    }

    /// Returns how many bytes are in its blocks. On any CPU, at any time.
    pub fn bytes(&self) -> u64 {
        // Relaxed, here and below: figures, which order nothing.
        self.blocks.load(Ordering::Relaxed) * BLOCK
    }

    /// Says whether the pool had no block for it when it wanted one last.
    pub fn waits(&self) -> bool {
        self.waits.load(Ordering::Relaxed)
    }

    /// Says whether it has begun to wait and nobody has [taken](Taken::take_news) that to say it.
    pub fn has_news(&self) -> bool {
        self.is_news.load(Ordering::Relaxed)
    }

    /// Returns for which time it waits, if that is to be said, once for each wait.
    pub fn take_news(&self) -> Option<u32> {
        let is_news = self.has_news() && self.is_news.swap(false, Ordering::Relaxed);
        is_news.then(|| self.waited.load(Ordering::Relaxed))
    }

    /// The pool has no block for it.
    #[cold]
    #[inline(never)] // Who gets one is not to pay for it.
    fn begin_wait(&self) {
        if self.waits.swap(true, Ordering::Relaxed) {
            return;
        }
        let number = self.waited.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if number <= SAID || number.is_power_of_two() {
            self.is_news.store(true, Ordering::Relaxed);
        }
    }
}

/// What a VM takes from a pool and gives back to it.
#[derive(Clone, Copy, Debug)]
pub struct Share {
    pool: &'static Pool,
    taken: &'static Taken,
}

impl Share {
    /// Makes it for the VM whose blocks are counted in `taken`.
    pub const fn new(pool: &'static Pool, taken: &'static Taken) -> Self {
        Self { pool, taken }
    }

    /// Takes a block, as [`Pool::take`] does.
    pub(crate) fn take(self) -> Option<u64> {
        let Some(block) = self.pool.take() else {
            self.taken.begin_wait();
            return None;
        };
        self.taken.blocks.fetch_add(1, Ordering::Relaxed);
        self.taken.waits.store(false, Ordering::Relaxed);
        Some(block)
    }

    /// Gives a block back, as [`Pool::give`] does.
    pub(crate) fn give(self, block: u64) -> bool {
        let given = self.pool.give(block);
        self.taken.blocks.fetch_sub(given.into(), Ordering::Relaxed);
        given
    }
}

#[cfg(test)]
mod tests {
    use alloc::boxed::Box;

    use super::*;

    #[test]
    fn each_wait_is_news_once_and_later_ones_seldom() {
        let pool: &Pool = Box::leak(Box::new(Pool::new(0, BLOCK, 1)));
        let taken: &Taken = Box::leak(Box::default());
        let share = Share::new(pool, taken);
        let mut said = 0;
        for wait in 1..=100 {
            let block = share.take().unwrap();
            assert!(!taken.has_news());
            (0..3).for_each(|_| assert_eq!(share.take(), None));
            assert!(taken.waits());
            let is_said = wait <= 8 || [16, 32, 64].contains(&wait);
            assert_eq!((taken.has_news(), taken.take_news()), (is_said, is_said.then_some(wait)));
            assert_eq!((share.take(), taken.take_news()), (None, None), "once, however often it touches");
            said += u32::from(is_said);
            assert!(share.give(block));
        }
        assert_eq!(said, 11);
    }
}
