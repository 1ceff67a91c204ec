// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the table replaces, for the ablation benchmark: one vCPU after the other is asked whether an SGI names it
//! (seed 001 found that, and took it from all vCPUs to sixteen).

use super::{KEY, Routes, SgiRegister, key};

/// Iterates over the vCPUs that an SGI reaches; see
/// [`Vgic::search_sgi_targets`](crate::Vgic::search_sgi_targets).
pub struct SearchedTargets<'a> {
    routes: &'a Routes,
    next: usize,
    key: u64,
    /// The members still to come.
    named: u16,
    intid: u32,
    group1: bool,
}

impl Routes {
    /// Decodes an SGI register's value.
    #[inline] // One caller.
    pub(crate) fn search(&self, register: SgiRegister, value: u64) -> SearchedTargets<'_> {
        SearchedTargets {
            routes: self,
            next: 0,
            key: value & KEY,
            named: value as u16,
            intid: SgiRegister::intid(value),
            group1: register.reaches_group1(),
        }
    }
}

impl SearchedTargets<'_> {
    /// Says whether the SGI names a vCPU, and crosses it off.
    #[inline] // The loop's body.
    fn names(&mut self, mpidr: u64) -> bool {
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
            if !self.names(mpidr) {
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
