// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory VMs have, and how much of a pool is free, in words.

use turnstile_link::{Memory, Pool};

use crate::config::show_size;

/// What a VM has, what it may have if that is something else, and whether it waits for more.
pub fn memory_text(Memory { bytes, limit, waits }: Memory) -> String {
    let more = if waits { ", waits" } else { "" };
    match bytes == limit {
        true => format!("{}{more}", show_size(bytes)),
        false => format!("{} of {}{more}", show_size(bytes), show_size(limit)),
    }
}

/// What is free of a pool.
pub fn pool_text(Pool { bytes, free }: Pool) -> String {
    format!("{} of {} free", show_size(free), show_size(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_said_in_words() {
        let memory = |bytes, limit| memory_text(Memory { bytes, limit, waits: false });
        assert_eq!(memory(256 << 20, 256 << 20), "256MiB");
        assert_eq!(memory(6 << 20, 1 << 30), "6MiB of 1GiB");
        assert_eq!(memory(0, 4 << 20), "0MiB of 4MiB");
        let waits = Memory { bytes: 6 << 20, limit: 1 << 30, waits: true };
        assert_eq!(memory_text(waits), "6MiB of 1GiB, waits");
        assert_eq!(pool_text(Pool { bytes: 1 << 30, free: 98 << 20 }), "98MiB of 1GiB free");
        assert!(memory(u64::MAX, 0).ends_with("KiB of 0MiB"), "whatever was heard");
    }
}
