// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From affinities to vCPUs (Arm IHI 0069, sections 4.3 and 12.1.10; seed 001).
//!
//! An SGI names a group of sixteen possible targets by Aff3.Aff2.Aff1 and the range selector, and up
//! to sixteen of them by a bit mask. The table maps the group to its sixteen vCPUs by one
//! multiplication and one load: its hash function is searched for when the VM is built, until no two
//! groups collide. The cost of an SGI is then that of the targets it names, however many vCPUs there
//! are, and however sparse their affinities. Which of them have the SGI in which group is a mask too,
//! so that the group rule costs one load for all sixteen.

mod search;

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
// Not the model checker's: no protocol is about them.
use core::sync::atomic::{AtomicU16, Ordering};

pub use search::SearchedTargets;

/// Marks an affinity that no vCPU has.
const ABSENT: u16 = u16::MAX;

/// Bounds the search for a hash function without collisions; see [`Routes::new`].
const MAX_SLOTS_LOG2: u32 = 20;

/// The fields of `ICC_SGI1R_EL1` that name a group: Aff3, RS, Aff2, Aff1. Masked with it, a register's
/// value is the group's key.
const KEY: u64 = 0x00ff_f0ff_00ff_0000;

/// `ICC_SGI1R_EL1.IRM`: all but the sender.
const BROADCAST: u64 = 1 << 40;

/// `ICC_SGI1R_EL1.INTID`.
const INTID: u64 = 15 << 24;

/// Sixteen neighbors: Aff0 = 16 * range selector + index.
struct Group {
    key: u64,
    present: u16,
    members: [u16; 16],
    /// For each SGI, the members that have it in Group 1 (`GICR_IGROUPR0`): only such that are there.
    group1: [AtomicU16; 16],
}

/// The group of a vCPU that does not exist.
static NOBODY: Group = Group::new(0);

impl Group {
    const fn new(key: u64) -> Self {
        let group1 = [const { AtomicU16::new(0) }; 16];
        Self { key, present: 0, members: [ABSENT; 16], group1 }
    }

    /// Returns the members that an SGI may reach.
    #[inline(always)] // Hot: part of the SGI path.
    fn reached(&self, intid: u32, group1: bool) -> u32 {
        // Relaxed: a sender may see a change of a target's group late, as on hardware.
        let in_group1 = u32::from(self.group1[(intid & 15) as usize].load(Ordering::Relaxed));
        if group1 { in_group1 } else { u32::from(self.present) & !in_group1 }
    }

    /// Returns the members among `named` that an SGI reaches.
    #[inline(always)] // Hot: part of the SGI path.
    fn targets(&self, register: SgiRegister, value: u64, named: u32) -> SgiTargets<'_> {
        let reached = self.reached(SgiRegister::intid(value), register.reaches_group1());
        SgiTargets { members: &self.members, named: reached & named }
    }
}

/// The table of all vCPUs' affinities.
pub(crate) struct Routes {
    multiplier: u64,
    shift: u32,
    /// The hash table: as many as a power of two, those that are not used without members.
    groups: Box<[Group]>,
    mpidrs: Box<[u64]>,
}

/// Returns the key of the group of an affinity in the format of `MPIDR_EL1`.
const fn key(mpidr: u64) -> u64 {
    let (aff3, aff2, aff1, aff0) = (mpidr >> 32 & 0xff, mpidr >> 16 & 0xff, mpidr >> 8 & 0xff, mpidr & 0xff);
    aff3 << 48 | aff0 >> 4 << 44 | aff2 << 32 | aff1 << 16
}

impl Routes {
    /// Builds the table for vCPUs with these affinities (`MPIDR_EL1` format, other bits ignored).
    /// Returns `None` if two are equal.
    pub(crate) fn new(mpidrs: &[u64]) -> Option<Self> {
        let groups = Self::group(mpidrs)?;
        let smallest = groups.len().max(1).next_power_of_two().ilog2();
        for log2 in smallest..=MAX_SLOTS_LOG2 {
            for n in 0..32u64 {
                // The first keeps dense Aff1 dense; the others are odd and mix all bits upwards.
                let multiplier = 0x9e37_79b9_7f4a_7c15u64.wrapping_mul(n) | 1;
                let shift = if n == 0 { 16 } else { (64 - log2).min(63) };
                if let Some(places) = Self::places(&groups, multiplier, shift, log2) {
                    let groups = Self::table(groups, &places, log2);
                    return Some(Self { multiplier, shift, groups, mpidrs: mpidrs.into() });
                }
            }
        }
        None
    }

    /// Collects the groups; `None` if two vCPUs have the same affinity.
    fn group(mpidrs: &[u64]) -> Option<Vec<Group>> {
        let mut groups: Vec<Group> = Vec::new();
        for (vcpu, &mpidr) in mpidrs.iter().enumerate() {
            let key = key(mpidr);
            let at = groups.iter().position(|group| group.key == key).unwrap_or(groups.len());
            if at == groups.len() {
                groups.push(Group::new(key));
            }
            let group = groups.get_mut(at)?;
            let member = group.members.get_mut((mpidr & 15) as usize)?;
            if *member != ABSENT {
                return None;
            }
            *member = vcpu as u16;
            group.present |= 1 << (mpidr & 15);
        }
        Some(groups)
    }

    /// Returns where one hash function puts each group; `None` if two collide.
    fn places(groups: &[Group], multiplier: u64, shift: u32, log2: u32) -> Option<Vec<usize>> {
        let mut taken = vec![false; 1 << log2];
        let mut places = Vec::with_capacity(groups.len());
        for group in groups {
            let place = (group.key.wrapping_mul(multiplier) >> shift) as usize & (taken.len() - 1);
            let taken = taken.get_mut(place)?;
            if core::mem::replace(taken, true) {
                return None;
            }
            places.push(place);
        }
        Some(places)
    }

    /// Makes the table in which each group is in its place.
    fn table(groups: Vec<Group>, places: &[usize], log2: u32) -> Box<[Group]> {
        let mut table: Vec<Group> = (0..1 << log2).map(|_| Group::new(0)).collect();
        for (group, place) in groups.into_iter().zip(places) {
            if let Some(slot) = table.get_mut(*place) {
                *slot = group;
            }
        }
        table.into()
    }

    #[inline(always)] // Hot: part of the SGI path.
    fn find(&self, key: u64) -> Option<&Group> {
        // The mask is that of the table's size, so the compiler knows the place to be in it, but for an empty table.
        let place =
            (key.wrapping_mul(self.multiplier) >> self.shift) as usize & self.groups.len().wrapping_sub(1);
        let group = self.groups.get(place)?;
        (group.key == key).then_some(group)
    }

    /// Returns the vCPU with an affinity given as Aff3.Aff2.Aff1.Aff0, one byte each.
    pub(crate) fn vcpu(&self, affinity: u32) -> Option<usize> {
        let affinity = u64::from(affinity);
        let group = self.find(key((affinity & 0xff00_0000) << 8 | affinity & 0x00ff_ffff))?;
        let member = group.members[(affinity & 15) as usize];
        (member != ABSENT).then_some(usize::from(member))
    }

    /// Decodes an SGI register's value that names its targets.
    #[inline(always)] // Hot: part of the SGI path, once in each handler.
    pub(crate) fn targets(&self, register: SgiRegister, value: u64) -> SgiTargets<'_> {
        match self.find(value & KEY) {
            Some(group) => group.targets(register, value, value as u32),
            None => SgiTargets { members: &NOBODY.members, named: 0 },
        }
    }

    /// Returns the group of a vCPU; one without members, if there is no such vCPU.
    pub(crate) fn neighbors(&self, vcpu: usize) -> Neighbors<'_> {
        let group = self.mpidr(vcpu).and_then(|mpidr| self.find(key(mpidr)));
        Neighbors(group.unwrap_or(&NOBODY))
    }

    /// Decodes an SGI register's value that names everybody.
    pub(crate) fn broadcast(&self, register: SgiRegister, value: u64) -> impl Iterator<Item = usize> {
        self.groups.iter().flat_map(move |group| group.targets(register, value, u32::MAX))
    }

    /// Notes that each vCPU has all SGIs in Group 1, or none. No vCPU runs.
    pub(crate) fn reset_sgi_groups(&self, group1: bool) {
        for group in &self.groups {
            let members = if group1 { group.present } else { 0 };
            group.group1.iter().for_each(|sgi| sgi.store(members, Ordering::Relaxed));
        }
    }

    /// Notes which SGIs a vCPU has in Group 1.
    pub(crate) fn set_sgi_groups(&self, vcpu: usize, group1: u32) {
        let Some(mpidr) = self.mpidr(vcpu) else { return };
        let Some(group) = self.find(key(mpidr)) else { return };
        let member = 1u16 << (mpidr & 15);
        for (intid, members) in group.group1.iter().enumerate() {
            if group1 >> intid & 1 != 0 {
                members.fetch_or(member, Ordering::Relaxed);
            } else {
                members.fetch_and(!member, Ordering::Relaxed);
            }
        }
    }

    /// Returns the number of vCPUs.
    #[inline] // One load.
    pub(crate) fn len(&self) -> usize {
        self.mpidrs.len()
    }

    /// Returns a vCPU's affinity as in `MPIDR_EL1`.
    #[inline] // One load.
    pub(crate) fn mpidr(&self, vcpu: usize) -> Option<u64> {
        self.mpidrs.get(vcpu).copied()
    }

    /// Returns whether an Aff0 above 15 exists, which needs the range selector.
    pub(crate) fn needs_range_selector(&self) -> bool {
        self.mpidrs.iter().any(|mpidr| mpidr & 0xf0 != 0)
    }
}

/// Names the register an SGI was generated with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SgiRegister {
    /// `ICC_SGI1R_EL1`: reaches targets where the SGI is in Group 1.
    Sgi1r,
    /// `ICC_ASGI1R_EL1`: with one Security state (`GICD_CTLR.DS` = 1) the "other" Group 1 is Group 0,
    /// so it reaches targets where the SGI is in Group 0.
    Asgi1r,
    /// `ICC_SGI0R_EL1`: reaches targets where the SGI is in Group 0.
    Sgi0r,
}

impl SgiRegister {
    /// Returns the INTID in a value of any of them.
    #[inline(always)] // One instruction.
    pub const fn intid(value: u64) -> u32 {
        (value >> 24 & 15) as u32
    }

    /// Returns a value without the INTID: whom it names.
    #[inline(always)] // One instruction.
    pub const fn named(value: u64) -> u64 {
        value & !INTID
    }

    /// Says whether a value of any of them names nobody but vCPUs of the group to which the one belongs that `own` names
    /// ([`Self::naming`]): whether [`Neighbors`] know its targets.
    #[inline(always)] // Three instructions.
    pub const fn names_neighbors(value: u64, own: u64) -> bool {
        (value ^ own) >> 16 & !(INTID >> 16) == 0
    }

    /// Returns the value, without an INTID, that names the vCPU with this affinity (`MPIDR_EL1` format) alone.
    pub const fn naming(mpidr: u64) -> u64 {
        key(mpidr) | 1 << (mpidr & 15)
    }

    /// Says whether a value of any of them names everybody but the sender (`IRM`).
    #[inline(always)] // One instruction.
    pub const fn is_broadcast(value: u64) -> bool {
        value & BROADCAST != 0
    }

    #[inline(always)] // A constant, where the register is one.
    const fn reaches_group1(self) -> bool {
        matches!(self, Self::Sgi1r)
    }
}

/// The vCPUs whose affinities differ from that of one of them in no more than the low four bits of Aff0. An SGI that names
/// somebody among the sender's own has found its group without a look at the table.
#[derive(Clone, Copy)]
pub struct Neighbors<'a>(&'a Group);

impl<'a> Neighbors<'a> {
    /// Does what [`Vgic::sgi_targets`](crate::Vgic::sgi_targets) does, for a value that names nobody else
    /// ([`SgiRegister::names_neighbors`]).
    #[inline(always)] // Hot: part of the SGI path.
    pub fn sgi_targets(self, register: SgiRegister, value: u64) -> SgiTargets<'a> {
        self.0.targets(register, value, value as u32)
    }
}

/// Iterates over the vCPUs that an SGI reaches; see [`Vgic::sgi_targets`](crate::Vgic::sgi_targets).
pub struct SgiTargets<'a> {
    members: &'a [u16; 16],
    /// The members still to come; each is there.
    named: u32,
}

impl Iterator for SgiTargets<'_> {
    type Item = usize;

    #[inline(always)] // Hot: once per target of an SGI.
    fn next(&mut self) -> Option<usize> {
        if self.named == 0 {
            return None;
        }
        let member = self.named.trailing_zeros();
        self.named &= self.named - 1;
        Some(usize::from(self.members[(member & 15) as usize]))
    }
}
