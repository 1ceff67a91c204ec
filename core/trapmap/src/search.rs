// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lookups that [`crate::TrapMap`] replaces, for the ablation benchmark: the linear search that the first
//! seed found, and the binary search it put in its place (`seeds/000`, "handle trapped system registers").

use crate::SysReg;

/// Searches a list from its front.
#[derive(Debug)]
pub struct Linear<H: Copy + 'static> {
    entries: &'static [(SysReg, H)],
    default: H,
}

impl<H: Copy> Linear<H> {
    /// Wraps a list in any order; the first of equal encodings wins.
    pub const fn new(default: H, entries: &'static [(SysReg, H)]) -> Self {
        Self { entries, default }
    }

    /// Looks up the handler for the ISS of an exception of class 0x18.
    pub fn lookup(&self, iss: u32) -> H {
        let key = SysReg::key_of_iss(iss);
        let found = self.entries.iter().find(|(register, _)| register.key() == key);
        found.map_or(self.default, |&(_, handler)| handler)
    }
}

/// Searches a sorted list by halves.
#[derive(Debug)]
pub struct Binary<H: Copy + 'static> {
    entries: &'static [(SysReg, H)],
    default: H,
}

impl<H: Copy> Binary<H> {
    /// Wraps a list sorted by [`SysReg::key`].
    ///
    /// # Panics
    /// If the list is not in strictly ascending order; in a constant, that does not compile.
    pub const fn new(default: H, entries: &'static [(SysReg, H)]) -> Self {
        let mut next = 1;
        while next < entries.len() {
            assert!(entries[next - 1].0.key() < entries[next].0.key(), "sort the registers by key");
            next += 1;
        }
        Self { entries, default }
    }

    /// Looks up the handler for the ISS of an exception of class 0x18.
    pub fn lookup(&self, iss: u32) -> H {
        let key = SysReg::key_of_iss(iss);
        let found = self.entries.binary_search_by_key(&key, |(register, _)| register.key());
        found.ok().and_then(|at| self.entries.get(at)).map_or(self.default, |&(_, handler)| handler)
    }
}
