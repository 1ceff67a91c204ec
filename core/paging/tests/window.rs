// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Windows cover what they are to cover, once and in order, and none is larger than a block.

use proptest::prelude::*;
use turnstile_paging::{WINDOW, windows};

proptest! {
    #[test]
    fn windows_cover_a_range_once(start in 0..1u64 << 39, size in 0..64 * WINDOW) {
        let mut next = start;
        for (piece, length) in windows(start, size) {
            prop_assert_eq!(piece, next);
            prop_assert!(length > 0 && piece / WINDOW == (piece + length - 1) / WINDOW);
            next += length;
        }
        prop_assert_eq!(next, start + size);
    }
}

#[test]
fn aligned_memory_comes_in_whole_blocks() {
    assert!(windows(4 * WINDOW, 8 * WINDOW).all(|(start, size)| size == WINDOW && start % WINDOW == 0));
    assert_eq!(windows(4 * WINDOW, 8 * WINDOW).count(), 8);
    assert_eq!(windows(4096, 0).count(), 0);
}
