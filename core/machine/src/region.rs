// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of guest physical addresses, and the most vCPUs that they are laid out for.

/// The largest number of vCPUs of one VM.
pub const MAX_VCPUS: usize = 512;

/// A range of guest physical addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Region {
    /// The first address.
    pub base: u64,
    /// The number of bytes.
    pub size: u64,
}

impl Region {
    /// Returns the first address after the region.
    #[must_use]
    pub const fn end(&self) -> u64 {
        self.base + self.size
    }

    /// Says whether `address` lies in the region.
    #[must_use]
    pub const fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.base) < self.size
    }

    /// Says whether the two regions share an address.
    #[must_use]
    pub const fn overlaps(&self, other: &Region) -> bool {
        self.base < other.end() && other.base < self.end()
    }
}
