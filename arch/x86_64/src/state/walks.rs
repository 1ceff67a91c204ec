// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Walks through a guest's page tables to code that accesses devices, so that an access need not walk them again.
//!
//! A walk that was done before is used only if it would be the same: each entry that it goes through is read again, where it is in
//! the machine's memory, and compared. So nothing has to be forgotten when a guest changes its tables. What one life of a VM has noted is
//! forgotten when the next one begins. Where the memory is changes in a life only when some is given back to a pool: then it is forgotten, too,
//! before the vCPU goes on.

use alloc::boxed::Box;
use alloc::vec;

use crate::cpu::regs::cr4;
use crate::cpu::svm::Vmcb;
use crate::memory::{GuestRam, user};

/// How many walks are kept. The drivers of a guest are in a few pages, but those are anywhere in its kernel: two that are used by turns
/// rarely have the same place.
const WALKS: usize = 32;
/// Bytes of a page.
const PAGE: u64 = 4096;

/// What a walk begins with: CR3, and the bit of CR4 that says whether there are five levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Root {
    /// CR3.
    pub cr3: u64,
    /// CR4.LA57.
    pub la57: u64,
}

impl Root {
    /// That of the guest as it was left.
    #[inline(always)] // A few loads.
    pub fn of(vmcb: &Vmcb) -> Self {
        Self { cr3: vmcb.cr3(), la57: vmcb.cr4() & cr4::LA57 }
    }
}

/// A walk; where the next one is, is a shift.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(128))]
struct Walk {
    /// The page's number: by its linear address.
    page: u64,
    root: Root,
    /// Where the page is in the machine's memory.
    code: u64,
    /// Where each entry is, and what it is. A walk of fewer levels has the first again.
    entries: user::Words,
}

impl Walk {
    /// Of no page.
    const NONE: Self = Self { page: u64::MAX, root: Root { cr3: 0, la57: 0 }, code: 0, entries: [[0; 2]; 5] };
}

/// The walks of a vCPU.
#[derive(Debug)]
pub struct Walks(Box<[Walk; WALKS]>);

impl Default for Walks {
    fn default() -> Self {
        let walks = vec![Walk::NONE; WALKS].into_boxed_slice().try_into();
        Self(walks.unwrap_or_else(|_| Box::new([Walk::NONE; WALKS])))
    }
}

impl Walks {
    #[inline(always)] // Three instructions.
    const fn place(linear: u64) -> usize {
        (linear / PAGE) as usize % WALKS
    }

    /// Returns where the code at a linear address is in the machine's memory, if the walk to it is the same as before. HOT.
    #[inline(always)] // Part of the light exit of an access to a device.
    pub fn find(&self, linear: u64, root: Root) -> Option<u64> {
        let walk = &self.0[Self::place(linear)];
        let is_other =
            (walk.page ^ (linear / PAGE)) | (walk.root.cr3 ^ root.cr3) | (walk.root.la57 ^ root.la57);
        // SAFETY: `note` was given the addresses in this life of the VM, which runs.
        if is_other != 0 || !unsafe { user::are(&walk.entries) } {
            return None;
        }
        Some(walk.code + linear % PAGE)
    }

    /// Returns what was noted of the walk to a linear address, for who compares the entries as [`Walks::find`] does; and where the
    /// code is.
    pub fn way(&self, linear: u64, root: Root) -> Option<(user::Words, u64)> {
        let at = self.find(linear, root)?;
        Some((self.0[Self::place(linear)].entries, at))
    }

    /// Notes a walk to a linear address: guest physical addresses of entries, and the entries; and where the page is in the machine's
    /// memory. One whose tables are not in the VM's RAM, or that has another number of levels than there are, is not kept.
    pub fn note(&mut self, linear: u64, root: Root, entries: &[[u64; 2]], code: u64, ram: &GuestRam) {
        let mut noted = [[0; 2]; 5];
        let Some(&first) = entries.first() else { return };
        if entries.len() > noted.len() {
            return;
        }
        let entries = entries.iter().copied().chain(core::iter::repeat(first));
        for (place, [address, entry]) in noted.iter_mut().zip(entries) {
            let Some(host) = ram.host_in_page(address) else { return };
            *place = [host, entry];
        }
        self.0[Self::place(linear)] =
            Walk { page: linear / PAGE, root, code: code - linear % PAGE, entries: noted };
    }

    /// Forgets everything: the memory may be another VM's.
    pub fn clear(&mut self) {
        self.0.fill(Walk::NONE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Piece;

    #[test]
    fn a_walk_is_found_while_it_is_the_same() {
        let words = Box::leak(vec![0u64; 5 * 512].into_boxed_slice());
        let skip = words.as_ptr().align_offset(4096);
        let words = &mut words[skip..];
        let host = words.as_ptr() as u64;
        let ram = GuestRam::new([Piece { guest: 0x10_0000, size: 4 * 4096, host }].into_iter());
        let root = Root { cr3: 0x10_0000, la57: 0 };
        let mut walks = Walks::default();
        assert_eq!(walks.find(u64::MAX, Root { cr3: 0, la57: 0 }), None);
        (words[3], words[512 + 4]) = (0x10_1001, 0x10_2001);
        let entries = [[0x10_0018, 0x10_1001], [0x10_1020, 0x10_2001]];
        walks.note(0x7123, root, &entries, host + 0x2123, &ram);
        assert_eq!(walks.find(0x7456, root), Some(host + 0x2456), "another instruction of the page");
        assert_eq!(walks.find(0x8456, root), None);
        assert_eq!(walks.find(0x7456, Root { cr3: 0x10_1000, ..root }), None);
        assert_eq!(walks.find(0x7456, Root { la57: 1 << 12, ..root }), None);
        for word in [3, 512 + 4] {
            words[word] ^= 1 << 5;
            assert_eq!(walks.find(0x7456, root), None, "an entry has changed");
            words[word] ^= 1 << 5;
            assert!(walks.find(0x7456, root).is_some());
        }
        // Two drivers that are used by turns.
        walks.note(0x7000 + 24 * PAGE, root, &entries, host + 0x2000, &ram);
        assert!(walks.find(0x7456, root).is_some() && walks.find(0x7456 + 24 * PAGE, root).is_some());
        walks.note(0xf000, root, &[[0x20_0000, 0]], host, &ram);
        assert_eq!(walks.find(0xf000, root), None, "its table is not in RAM");
        walks.clear();
        assert_eq!(walks.find(0x7456, root), None);
    }
}
