// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state that survives a crash: two records, of which one is whole at any time.

use turnstile_devices::SAVED;
use turnstile_service_rt::kept;

kept! {
    /// Which record is whole (1 or 2; 0: none), then both.
    static KEPT: Kept<11>;
}

/// Writes the record that is not in use, and then makes it the one that is.
pub fn write(words: [u64; SAVED]) {
    let other = if KEPT.get(0) == 1 { 2 } else { 1 };
    for (index, word) in words.into_iter().enumerate() {
        KEPT.set(first(other) + index, word);
    }
    KEPT.set(0, other as u64);
}

/// Reads the record in use.
pub fn read() -> Option<[u64; SAVED]> {
    let record = match KEPT.get(0) {
        1 => 1,
        2 => 2,
        _ => return None,
    };
    Some(core::array::from_fn(|index| KEPT.get(first(record) + index)))
}

const fn first(record: usize) -> usize {
    1 + (record - 1) * SAVED
}
