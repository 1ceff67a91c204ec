// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Windows: the pieces in which the hypervisor maps memory that it only works on for a moment.

/// The largest window, in bytes: a block of level 2.
pub const WINDOW: u64 = 2 << 20;

/// Cuts `size` bytes at `start` at multiples of [`WINDOW`]; yields (start, size) of each piece.
///
/// ```
/// use turnstile_paging::{WINDOW, windows};
/// let pieces: Vec<_> = windows(WINDOW - 100, 300).collect();
/// assert_eq!(pieces, [(WINDOW - 100, 100), (WINDOW, 200)]);
/// ```
pub fn windows(start: u64, size: u64) -> impl Iterator<Item = (u64, u64)> {
    let (mut next, mut left) = (start, size);
    core::iter::from_fn(move || {
        let piece = (WINDOW - next % WINDOW).min(left);
        let found = (next, piece);
        next = next.wrapping_add(piece);
        left -= piece;
        (piece > 0).then_some(found)
    })
}
