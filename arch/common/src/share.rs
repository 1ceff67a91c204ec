// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a VM takes from a pool, and how much that is.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use turnstile_paging::BLOCK;
use turnstile_pool::Pool;

/// What a VM has of a pool, in all its lives: a block that is lost with a life stays counted. Only who takes a block or gives one changes it.
#[derive(Debug, Default)]
pub struct Taken {
    blocks: AtomicU64,
    /// Whether the pool had none when one was wanted last.
    waits: AtomicBool,
}

impl Taken {
    /// Makes it of a VM that has nothing.
    pub const fn new() -> Self {
        Self { blocks: AtomicU64::new(0), waits: AtomicBool::new(false) }
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
        let block = self.pool.take();
        self.taken.blocks.fetch_add(block.is_some().into(), Ordering::Relaxed);
        self.taken.waits.store(block.is_none(), Ordering::Relaxed);
        block
    }

    /// Gives a block back, as [`Pool::give`] does.
    pub(crate) fn give(self, block: u64) -> bool {
        let given = self.pool.give(block);
        self.taken.blocks.fetch_sub(given.into(), Ordering::Relaxed);
        given
    }
}
