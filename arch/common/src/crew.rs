// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a VM, cleared by its CPUs together: whoever waits for the VM's start takes block after block.

use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_paging::BLOCK;

use crate::demand::{Clear, block};
use crate::relax;

/// The CPUs that clear memory, and what is left of it.
///
/// One CPU has the work at a time, which it does not leave before it is done. Others help if they find some.
#[derive(Debug, Default)]
pub struct Crew {
    /// Where the memory is.
    base: AtomicU64,
    /// Its bytes.
    size: AtomicU64,
    /// Blocks that nobody has taken yet, the first ones of the memory. Zero if there is no work.
    left: AtomicU64,
    /// CPUs that may be at a block, beside the one that has the work.
    busy: AtomicU64,
}

impl Crew {
    /// Makes one that has nothing to do.
    pub const fn new() -> Self {
        Self {
            base: AtomicU64::new(0),
            size: AtomicU64::new(0),
            left: AtomicU64::new(0),
            busy: AtomicU64::new(0),
        }
    }

    /// Clears `size` bytes at the physical address `base`, with all that help; `call` tells them. Returns when it is done.
    ///
    /// # Safety
    /// Whole pages of guest memory, which nobody reads or writes meanwhile, as nobody does the rest of the blocks that they are in.
    /// Only one CPU at a time.
    pub unsafe fn clear<C: Clear>(&self, base: u64, size: u64, call: impl FnOnce()) {
        if size == 0 {
            return;
        }
        // Relaxed: nobody looks at them who has not taken a block.
        self.base.store(base, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
        let blocks = (block(base + size - 1) - block(base)) / BLOCK + 1;
        // Release: who takes a block finds where it is.
        self.left.store(blocks, Ordering::Release);
        if blocks > 1 {
            call();
        }
        self.work::<C>();
        // Acquire: what the others have cleared. Whoever has taken a block is counted here: it was before it took the block, and
        // this CPU has found none left after that.
        while self.busy.load(Ordering::Acquire) != 0 {
            relax();
        }
    }

    /// Helps a CPU that clears memory, if there is one: for CPUs that wait.
    pub fn help<C: Clear>(&self) {
        // Relaxed: only so that nobody is waited for without need.
        if self.left.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.busy.fetch_add(1, Ordering::Relaxed);
        self.work::<C>();
        // Release: what was cleared, for the CPU that has the work.
        self.busy.fetch_sub(1, Ordering::Release);
    }

    /// Takes blocks, one after the other, and clears them, until none is left.
    fn work<C: Clear>(&self) {
        // Acquire: where the blocks are. Release: that this CPU is busy. The values in between are exchanges, too, so whoever finds
        // zero has synchronized with all who took a block.
        while let Ok(left) =
            self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1))
        {
            let base = self.base.load(Ordering::Relaxed);
            let end = base + self.size.load(Ordering::Relaxed);
            let whole = block(base) + (left - 1) * BLOCK;
            let (from, to) = (base.max(whole), end.min(whole + BLOCK));
            // SAFETY: guest memory that nobody else touches, by the contract of `clear`; this CPU alone has taken the block.
            let mut window = unsafe { C::open(whole) };
            window.clear(from - whole, to - from);
            window.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    /// Whether all bytes are the same one; page by page, so that it does not take long.
    fn is_all(bytes: &[u8], byte: u8) -> bool {
        bytes.chunks(4096).all(|page| *page == [byte; 4096][..page.len()])
    }

    struct Plain(u64);

    impl Clear for Plain {
        unsafe fn open(host: u64) -> Self {
            Self(host)
        }

        fn clear(&mut self, offset: u64, size: u64) {
            let start = (self.0 + offset) as *mut u8;
            // SAFETY: memory of the test.
            let bytes = unsafe { core::slice::from_raw_parts_mut(start, size as usize) };
            assert!(is_all(bytes, 0xee), "it is cleared once");
            bytes.fill(0);
        }

        fn close(self) {}
    }

    #[test]
    fn all_of_it_is_cleared_once_and_nothing_else() {
        const PAGE: usize = 4096;
        const SIZE: usize = 6 * BLOCK as usize;
        let crew = Crew::new();
        let ended = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    while !ended.load(Ordering::Relaxed) {
                        crew.help::<Plain>();
                    }
                });
            }
            let mut memory = vec![0xee_u8; SIZE + BLOCK as usize];
            let offset = memory.as_ptr().align_offset(BLOCK as usize);
            for (from, to) in
                [(PAGE, SIZE - PAGE), (0, SIZE), (BLOCK as usize, 2 * BLOCK as usize), (0, PAGE), (0, 0)]
                    .into_iter()
                    .cycle()
                    .take(20)
            {
                memory.fill(0xee);
                let base = memory.as_mut_ptr() as u64 + (offset + from) as u64;
                let called = AtomicBool::new(false);
                // SAFETY: memory of the test.
                unsafe {
                    crew.clear::<Plain>(base, (to - from) as u64, || called.store(true, Ordering::Relaxed))
                };
                assert_eq!(called.into_inner(), to - from > BLOCK as usize, "for more than one block");
                let (before, rest) = memory.split_at(offset + from);
                let (cleared, behind) = rest.split_at(to - from);
                assert!(is_all(before, 0xee) && is_all(behind, 0xee));
                assert!(is_all(cleared, 0));
            }
            ended.store(true, Ordering::Relaxed);
        });
    }
}
