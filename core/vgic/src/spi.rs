// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of one SPI: a single atomic word, and who owns it.
//!
//! # Why no interrupt is lost
//!
//! All of an SPI's state that more than one physical CPU can touch is in one 64-bit word: enable,
//! group, configuration, priority, route, the pending latch, the line's level, and the *owner*, the
//! vCPU in whose custody the interrupt currently is (in a list register or waiting for one, pending
//! or active). Every change is one compare-and-swap, so all changes of one SPI are in one order that
//! everybody agrees on, and each of them sees the whole state before and after it. The rules:
//!
//! 1. *Whoever makes it deliverable, tells.* The change after which the interrupt is pending and
//!    enabled posts it: to the owner if there is one, else to the vCPU it is routed to.
//! 2. *Only its target claims.* A vCPU that finds a posted interrupt unowned, pending, enabled, its
//!    group enabled and routed to itself, sets itself as the owner and takes the latch in the same
//!    compare-and-swap. If the route has moved on, whoever moved it has posted it to the new target.
//! 3. *An owner absorbs.* What is posted to the owner is merged into what it holds: it looks at its
//!    list register first, so an interrupt acknowledged since becomes active and pending.
//! 4. *Whoever gives up, re-evaluates.* The owner gives up (on deactivation; on a withdrawal, a disable
//!    or a change of route while only pending, giving the latch back) by one compare-and-swap, and then
//!    applies rule 1 to the word it has left behind.
//!
//! Take any event that makes the interrupt pending. It comes before or after the owner's giving up in
//! the word's order. Before: the giving-up leaves a word that is pending, and rule 4 posts. After: the
//! event saw no owner, and rule 1 posts. Likewise against a claim: before, the claim takes the latch;
//! after, the event saw the owner and posted to it. Posts are sticky bits, so they cannot be lost; one
//! too many is harmless, because delivering is idempotent: it only brings custody in line with the word.
//!
//! The enables of the groups are in another word (`GICD_CTLR`). A claim that is declined because of it
//! has read it as off after the post; enabling a group stores it first and then walks all words. Both
//! are sequentially consistent, so either the claim sees the group on or the walk sees the word pending.
//! An owner that gives up because it has read the group as off may do so behind the walk's look at the
//! word: therefore the walk posts to owners, too, and the owner looks once more, when it has given up.
//! Disabling stores first and then tells each vCPU to look (`GROUPS_CHANGED`), which it does either
//! after a claim, and recalls it, or before, and then the claim sees the group off. Until it has looked
//! its guest may take what it has claimed: `GICD_CTLR.RWP` tells of that.
//!
//! The tests under `--cfg loom` check this by enumeration.

use crate::sync::{AtomicU64, Ordering};

/// The state of an SPI: `affinity` in bits 31:0 (Aff3 first; with GICv2 the mask of its targets), the priority in 39:32, flags in 47:40,
/// the owner plus one in 63:48.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SpiWord(u64);

const PRIORITY_SHIFT: u32 = 32;
const OWNER_SHIFT: u32 = 48;

/// The flags of a [`SpiWord`].
#[derive(Clone, Copy)]
#[repr(u64)]
pub(crate) enum Flag {
    Enabled = 1 << 40,
    Group1 = 1 << 41,
    Edge = 1 << 42,
    /// The pending latch, when the owner has not taken it.
    Latch = 1 << 43,
    /// The level of the input line.
    Line = 1 << 44,
    /// `GICD_IROUTER<n>.Interrupt_Routing_Mode`.
    AnyVcpu = 1 << 45,
}

impl SpiWord {
    pub(crate) const fn reset(group1: bool) -> Self {
        Self(if group1 { Flag::Group1 as u64 } else { 0 })
    }

    /// Returns the value of a GICv2's `GICD_ITARGETSR` byte.
    pub(crate) const fn targets(self) -> u8 {
        self.0 as u8
    }

    #[must_use]
    pub(crate) const fn with_targets(self, targets: u8) -> Self {
        Self(self.0 & !0xff | targets as u64)
    }

    pub(crate) const fn has(self, flag: Flag) -> bool {
        self.0 & flag as u64 != 0
    }

    #[must_use]
    pub(crate) const fn with(self, flag: Flag, on: bool) -> Self {
        Self(if on { self.0 | flag as u64 } else { self.0 & !(flag as u64) })
    }

    pub(crate) const fn priority(self) -> u8 {
        (self.0 >> PRIORITY_SHIFT) as u8
    }

    #[must_use]
    pub(crate) const fn with_priority(self, priority: u8) -> Self {
        Self(self.0 & !(0xff << PRIORITY_SHIFT) | (priority as u64) << PRIORITY_SHIFT)
    }

    pub(crate) const fn owner(self) -> Option<usize> {
        match self.0 >> OWNER_SHIFT {
            0 => None,
            owner => Some(owner as usize - 1),
        }
    }

    #[must_use]
    pub(crate) const fn with_owner(self, owner: Option<usize>) -> Self {
        let owner = match owner {
            None => 0,
            Some(vcpu) => vcpu as u64 + 1,
        };
        Self(self.0 & ((1 << OWNER_SHIFT) - 1) | owner << OWNER_SHIFT)
    }

    /// Returns Aff3.Aff2.Aff1.Aff0.
    pub(crate) const fn affinity(self) -> u32 {
        self.0 as u32
    }

    /// Returns what says where it goes with a GICv3: the affinity, unless it may go to any vCPU.
    pub(crate) const fn destination(self) -> u64 {
        self.0 & (Flag::AnyVcpu as u64 | 0xffff_ffff)
    }

    /// Returns what [`Self::destination`] is of what goes to the vCPU with this affinity, as in `MPIDR_EL1`, alone.
    pub(crate) const fn destination_of(mpidr: u64) -> u64 {
        Self(0).with_router(mpidr & 0xff_00ff_ffff).destination()
    }

    /// Returns the value of `GICD_IROUTER<n>`.
    pub(crate) const fn router(self) -> u64 {
        let any = if self.has(Flag::AnyVcpu) { 1 << 31 } else { 0 };
        (self.0 & 0xff00_0000) << 8 | any | self.0 & 0x00ff_ffff
    }

    #[must_use]
    pub(crate) const fn with_router(self, router: u64) -> Self {
        let affinity = router >> 8 & 0xff00_0000 | router & 0x00ff_ffff;
        Self(self.0 & !0xffff_ffff | affinity).with(Flag::AnyVcpu, router & 1 << 31 != 0)
    }

    /// Returns whether the line is asserted and counts as pending by itself.
    pub(crate) const fn level(self) -> bool {
        self.has(Flag::Line) && !self.has(Flag::Edge)
    }

    /// Returns whether the interrupt is pending, apart from what its owner has taken.
    pub(crate) const fn pending(self) -> bool {
        self.has(Flag::Latch) || self.level()
    }
}

/// One SPI.
pub(crate) struct Spi(AtomicU64);

impl Spi {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    pub(crate) fn reset(&self, word: SpiWord) {
        self.0.store(word.0, Ordering::Relaxed);
    }

    #[inline] // Hot: register reads of configuration.
    pub(crate) fn load(&self) -> SpiWord {
        SpiWord(self.0.load(Ordering::SeqCst))
    }

    /// Applies `change` atomically and returns the word before and after, or `None` if `change` did
    /// (nothing is to be done) or changed nothing.
    pub(crate) fn update(
        &self,
        mut change: impl FnMut(SpiWord) -> Option<SpiWord>,
    ) -> Option<(SpiWord, SpiWord)> {
        let mut old = self.load();
        loop {
            let new = change(old)?;
            if new == old {
                return None;
            }
            match self.exchange(old, new) {
                Ok(()) => return Some((old, new)),
                Err(seen) => old = seen,
            }
        }
    }

    /// Sets the latch if `may` says so of the word; returns the word, with the latch, if it was not set before.
    ///
    /// The word is exchanged even if it stays the same: whoever takes the latch afterwards then knows of all that was done before
    /// this edge. A load would not order what was written before it.
    pub(crate) fn latch(&self, may: impl Fn(SpiWord) -> bool) -> Option<SpiWord> {
        let mut old = self.load();
        while may(old) {
            let new = old.with(Flag::Latch, true);
            match self.exchange(old, new) {
                Ok(()) => return (new != old).then_some(new),
                Err(seen) => old = seen,
            }
        }
        None
    }

    /// Replaces the word if it is still `old`, else returns what it is.
    pub(crate) fn exchange(&self, old: SpiWord, new: SpiWord) -> Result<(), SpiWord> {
        // Sequentially consistent because of `GICD_CTLR`: see the module documentation.
        match self.0.compare_exchange(old.0, new.0, Ordering::SeqCst, Ordering::SeqCst) {
            Ok(_) => Ok(()),
            Err(seen) => Err(SpiWord(seen)),
        }
    }
}
