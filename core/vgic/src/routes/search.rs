// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the table replaces, for the ablation benchmark: one vCPU after the other is asked whether an SGI names it
//! (seed 001 found that, and took it from all vCPUs to sixteen).

use super::{BROADCAST, KEY, Routes, SgiRegister, key};

/// Iterates over the vCPUs that an SGI reaches; see
/// [`Vgic::search_sgi_targets`](crate::Vgic::search_sgi_targets).
pub struct SearchedTargets<'a> {
    routes: &'a Routes,
    next: usize,
    key: u64,
    /// The members still to come; with a broadcast it never becomes empty.
    named: u16,
    /// The sender of a broadcast.
    broadcast: Option<usize>,
    intid: u32,
    group1: bool,
}

impl Routes {
    /// Decodes an SGI register's value.
    #[inline] // One caller.
    pub(crate) fn search(&self, register: SgiRegister, value: u64, sender: usize) -> SearchedTargets<'_> {
        let broadcast = (value & BROADCAST != 0).then_some(sender);
        SearchedTargets {
            routes: self,
            next: 0,
            key: value & KEY,
            named: if broadcast.is_some() { u16::MAX } else { value as u16 },
            broadcast,
            intid: (value >> 24 & 15) as u32,
            group1: matches!(register, SgiRegister::Sgi1r),
        }
    }
}

impl SearchedTargets<'_> {
    pub(crate) fn intid(&self) -> u32 {
        self.intid
    }

    /// Says whether the SGI names a vCPU, and crosses it off.
    #[inline] // The loop's body.
    fn names(&mut self, vcpu: usize, mpidr: u64) -> bool {
        if let Some(sender) = self.broadcast {
            return vcpu != sender;
        }
        let member = 1 << (mpidr & 15);
        let named = key(mpidr) == self.key && self.named & member != 0;
        if named {
            self.named &= !member;
        }
        named
    }
}

impl Iterator for SearchedTargets<'_> {
    type Item = usize;

    #[inline] // One caller.
    fn next(&mut self) -> Option<usize> {
        while self.named != 0 {
            let vcpu = self.next;
            let mpidr = *self.routes.mpidrs.get(vcpu)?;
            self.next += 1;
            if !self.names(vcpu, mpidr) {
                continue;
            }
            let group = self.routes.groups.iter().find(|group| group.key == key(mpidr))?;
            if group.reached(self.intid, self.group1) >> (mpidr & 15) & 1 != 0 {
                return Some(vcpu);
            }
        }
        None
    }
}
