// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory VMs have, and how much of a pool is free: what the hypervisor says of it, and its text.

use serde::{Deserialize, Serialize};

use crate::config::show_size;

/// How much memory a VM has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// How many bytes it has now.
    pub bytes: u64,
    /// How many it has at most.
    pub limit: u64,
    /// Whether it waits for more, because the pool is empty.
    #[serde(default)]
    pub waits: bool,
}

/// How much of a machine's pool is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// How many bytes the pool has.
    pub bytes: u64,
    /// How many of them no VM has.
    pub free: u64,
}

impl Memory {
    /// In words: what it has, and what it may have if that is something else, and whether it waits for more.
    pub fn text(self) -> String {
        let more = if self.waits { ", waits" } else { "" };
        match self.bytes == self.limit {
            true => format!("{}{more}", show_size(self.bytes)),
            false => format!("{} of {}{more}", show_size(self.bytes), show_size(self.limit)),
        }
    }
}

impl Pool {
    /// In words: what is free.
    pub fn text(self) -> String {
        format!("{} of {} free", show_size(self.free), show_size(self.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_said_in_words() {
        let memory = |bytes, limit| Memory { bytes, limit, waits: false }.text();
        assert_eq!(memory(256 << 20, 256 << 20), "256MiB");
        assert_eq!(memory(6 << 20, 1 << 30), "6MiB of 1GiB");
        assert_eq!(memory(0, 4 << 20), "0MiB of 4MiB");
        assert_eq!(Memory { bytes: 6 << 20, limit: 1 << 30, waits: true }.text(), "6MiB of 1GiB, waits");
        assert_eq!(Pool { bytes: 1 << 30, free: 98 << 20 }.text(), "98MiB of 1GiB free");
        assert!(memory(u64::MAX, 0).ends_with("KiB of 0MiB"), "whatever was heard");
    }
}
