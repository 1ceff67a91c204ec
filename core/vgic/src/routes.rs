// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From affinities to vCPUs (Arm IHI 0069, sections 4.3 and 12.1.10; seed 001).
//!
//! An SGI names a group of sixteen possible targets by Aff3.Aff2.Aff1 and the range selector, and up
//! to sixteen of them by a bit mask. The table maps the group to its sixteen vCPUs by one
//! multiplication and two loads: its hash function is searched for when the VM is built, until no two
//! groups collide. The cost of an SGI is then that of the targets it names, however many vCPUs there
//! are, and however sparse their affinities.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

/// Marks an affinity that no vCPU has.
const ABSENT: u16 = u16::MAX;

/// Bounds the search for a hash function without collisions; see [`Routes::new`].
const MAX_SLOTS_LOG2: u32 = 20;

/// Sixteen neighbors: Aff0 = 16 * range selector + index.
struct Group {
    key: u32,
    present: u16,
    members: [u16; 16],
}

/// The table of all vCPUs' affinities.
pub(crate) struct Routes {
    multiplier: u32,
    shift: u32,
    mask: u32,
    slots: Box<[u16]>,
    groups: Box<[Group]>,
    mpidrs: Box<[u64]>,
}

/// Composes the key of a group.
#[inline] // Hot: part of the SGI path.
const fn key(aff3: u64, aff2: u64, aff1: u64, range: u64) -> u32 {
    ((range & 0xf) << 24 | (aff3 & 0xff) << 16 | (aff2 & 0xff) << 8 | aff1 & 0xff) as u32
}

impl Routes {
    /// Builds the table for vCPUs with these affinities (`MPIDR_EL1` format, other bits ignored).
    /// Returns `None` if two are equal.
    pub(crate) fn new(mpidrs: &[u64]) -> Option<Self> {
        let mut groups: Vec<Group> = Vec::new();
        for (vcpu, &mpidr) in mpidrs.iter().enumerate() {
            let aff0 = mpidr & 0xff;
            let key = key(mpidr >> 32, mpidr >> 16, mpidr >> 8, aff0 >> 4);
            let at = groups.iter().position(|group| group.key == key).unwrap_or(groups.len());
            if at == groups.len() {
                groups.push(Group { key, present: 0, members: [ABSENT; 16] });
            }
            let member = groups[at].members.get_mut((aff0 & 15) as usize)?;
            if *member != ABSENT {
                return None;
            }
            *member = vcpu as u16;
            groups[at].present |= 1 << (aff0 & 15);
        }
        let smallest = groups.len().max(1).next_power_of_two().ilog2();
        for log2 in smallest..=MAX_SLOTS_LOG2 {
            // 1 keeps dense affinities dense; the others are odd and spread the bits upwards.
            for n in 0..32u32 {
                let multiplier = 0x9e37_79b1u32.wrapping_mul(n) | 1;
                let shift = if n == 0 { 0 } else { (32 - log2).min(31) };
                if let Some(slots) = Self::spread(&groups, multiplier, shift, log2) {
                    let mask = (1 << log2) - 1;
                    return Some(Self {
                        multiplier,
                        shift,
                        mask,
                        slots,
                        groups: groups.into(),
                        mpidrs: mpidrs.into(),
                    });
                }
            }
        }
        None
    }

    /// Fills a table with one hash function; `None` if two groups collide.
    fn spread(groups: &[Group], multiplier: u32, shift: u32, log2: u32) -> Option<Box<[u16]>> {
        let mut slots = vec![ABSENT; 1 << log2].into_boxed_slice();
        for (index, group) in groups.iter().enumerate() {
            let slot = group.key.wrapping_mul(multiplier) >> shift & ((1 << log2) - 1);
            let slot = slots.get_mut(slot as usize)?;
            if *slot != ABSENT {
                return None;
            }
            *slot = index as u16;
        }
        Some(slots)
    }

    #[inline] // Hot: part of the SGI path.
    fn group(&self, key: u32) -> Option<&Group> {
        let slot = key.wrapping_mul(self.multiplier) >> self.shift & self.mask;
        let group = self.groups.get(usize::from(*self.slots.get(slot as usize)?))?;
        (group.key == key).then_some(group)
    }

    /// Returns the vCPU with an affinity given as Aff3.Aff2.Aff1.Aff0, one byte each.
    pub(crate) fn vcpu(&self, affinity: u32) -> Option<usize> {
        let a = u64::from(affinity);
        let group = self.group(key(a >> 24, a >> 16, a >> 8, (a & 0xff) >> 4))?;
        let member = group.members[(affinity & 15) as usize];
        (member != ABSENT).then_some(usize::from(member))
    }

    /// Returns the named vCPUs that exist: the group's members and the mask of those named.
    #[inline] // Hot: part of the SGI path.
    pub(crate) fn named(&self, value: u64) -> (&[u16; 16], u16) {
        const NOBODY: [u16; 16] = [ABSENT; 16];
        match self.group(key(value >> 48, value >> 32, value >> 16, value >> 44)) {
            Some(group) => (&group.members, group.present & value as u16),
            None => (&NOBODY, 0),
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

/// Iterates over the vCPUs that an SGI reaches; see [`Vgic::sgi_targets`](crate::Vgic::sgi_targets).
pub struct SgiTargets<'a> {
    pub(crate) vgic: &'a crate::Vgic,
    pub(crate) members: &'a [u16; 16],
    /// The named members still to come.
    pub(crate) named: u16,
    /// The vCPUs of a broadcast still to come: from here to the last, without the sender.
    pub(crate) broadcast: usize,
    pub(crate) sender: usize,
    pub(crate) intid: u32,
    pub(crate) group1: bool,
}

impl Iterator for SgiTargets<'_> {
    type Item = usize;

    #[inline] // Hot: once per target of an SGI.
    fn next(&mut self) -> Option<usize> {
        while self.named != 0 {
            let member = self.named.trailing_zeros();
            self.named &= self.named - 1;
            let vcpu = usize::from(self.members[(member & 15) as usize]);
            if self.vgic.sgi_in_group1(vcpu, self.intid) == self.group1 {
                return Some(vcpu);
            }
        }
        while self.broadcast < self.vgic.vcpus() {
            let vcpu = self.broadcast;
            self.broadcast += 1;
            if vcpu != self.sender && self.vgic.sgi_in_group1(vcpu, self.intid) == self.group1 {
                return Some(vcpu);
            }
        }
        None
    }
}
