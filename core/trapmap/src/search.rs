// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lookups that [`crate::TrapMap`] replaces, for the ablation benchmark: the linear search that the first
//! seed found, and the binary search it put in its place (`seeds/000`, "handle trapped system registers").

use crate::{Group, SysReg};

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

/// Counts what [`flat`] lists.
pub const fn flat_len<H: Copy>(groups: &[(Group, H)], entries: &[(SysReg, H)]) -> usize {
    let mut count = entries.len();
    let mut next = 0;
    while next < groups.len() {
        let mut place = 0;
        while let Some(register) = groups[next].0.at(place) {
            if !has(entries, register) {
                count += 1;
            }
            place += 1;
        }
        next += 1;
    }
    count
}

/// Lists every register of what a [`crate::TrapMap`] is built from, groups spelled out, in ascending order of
/// [`SysReg::key`], as [`Binary`] wants it.
///
/// # Panics
/// If `N` is not [`flat_len`], or two groups overlap where no entry does; in a constant, that does not compile.
pub const fn flat<H: Copy, const N: usize>(
    groups: &[(Group, H)],
    entries: &[(SysReg, H)],
) -> [(SysReg, H); N] {
    let mut list = [entries[0]; N];
    let mut len = 0;
    let mut next = 0;
    while next < entries.len() {
        insert(&mut list, len, entries[next]);
        len += 1;
        next += 1;
    }
    let mut next = 0;
    while next < groups.len() {
        let mut place = 0;
        while let Some(register) = groups[next].0.at(place) {
            if !has(entries, register) {
                insert(&mut list, len, (register, groups[next].1));
                len += 1;
            }
            place += 1;
        }
        next += 1;
    }
    assert!(len == N, "the list is as long as flat_len says");
    list
}

/// Sorts a list as the architecture lists registers: by op0, op1, CRn, CRm, op2. The order in which hypervisors write
/// their tables, and search them.
pub const fn by_encoding<H: Copy, const N: usize>(mut list: [(SysReg, H); N]) -> [(SysReg, H); N] {
    let mut next = 1;
    while next < N {
        let entry = list[next];
        let mut at = next;
        while at > 0 && list[at - 1].0.encoding() > entry.0.encoding() {
            list[at] = list[at - 1];
            at -= 1;
        }
        list[at] = entry;
        next += 1;
    }
    list
}

const fn has<H: Copy>(entries: &[(SysReg, H)], register: SysReg) -> bool {
    let mut next = 0;
    while next < entries.len() {
        if entries[next].0.key() == register.key() {
            return true;
        }
        next += 1;
    }
    false
}

/// Inserts an entry into the sorted first `len` of a list.
const fn insert<H: Copy>(list: &mut [(SysReg, H)], len: usize, entry: (SysReg, H)) {
    let mut at = len;
    while at > 0 && list[at - 1].0.key() >= entry.0.key() {
        assert!(list[at - 1].0.key() != entry.0.key(), "two handlers for one encoding");
        list[at] = list[at - 1];
        at -= 1;
    }
    list[at] = entry;
}
