// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ways private interrupts come in: SGIs, timers with a physical interrupt behind them, emulated lines.
//! The usual cases cost one list-register write and are inlined into light exits; the others are cold.

use crate::hardware::{Backing, ListRegister, LrState, VirtualInterface};
use crate::registers::set_bits;
use crate::{Outcome, VcpuGic};

impl VcpuGic {
    /// Composes a pending list register of a private interrupt.
    #[inline] // Hot: every injection.
    pub(crate) fn pending_lr(&self, intid: u32, backing: Backing) -> ListRegister {
        ListRegister {
            intid,
            source: 0,
            priority: self.priority[intid as usize & 31],
            group1: self.group1 >> (intid & 31) & 1 != 0,
            state: LrState::Pending,
            backing,
        }
    }

    /// Makes an own SGI pending; for GICv2 there is [`Self::inject_sgi_from`]. HOT: one list-register write if it has none and one is free; one read
    /// and at most one write if it has one. Accesses nothing if the guest has it disabled.
    #[inline] // Hot: on the light exit of ICC_SGI1R_EL1.
    pub fn inject_sgi<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) -> Outcome {
        let intid = intid & 15;
        if self.is_quick(intid) { self.inject_quick(vif, intid) } else { self.inject_cold(vif, intid) }
    }

    /// Makes an SGI pending that [`Self::is_quick`].
    #[inline] // Hot: two callers, the two ways of an SGI.
    pub(crate) fn inject_quick<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) -> Outcome {
        let Some(n) = self.slot(intid) else {
            if self.free == 0 {
                return self.inject_cold(vif, intid);
            }
            self.latch.insert(intid);
            let lr = self.pending_lr(intid, Backing::Software { eoi_maintenance: false });
            self.attach(vif, self.free.trailing_zeros() as usize, lr);
            return Outcome::Done;
        };
        let state = vif.read_lr(n);
        if state != LrState::Invalid || self.lr[n].state != LrState::Pending {
            return self.merge(vif, n, state);
        }
        // The guest has handled the previous one in full, and nobody has looked since: all that is
        // noted of it is true of this one too.
        vif.write_lr(n, self.pending_lr(intid, Backing::Software { eoi_maintenance: false }));
        Outcome::Done
    }

    /// Merges a new edge into an interrupt whose list register is still in use and was just read.
    #[cold]
    fn merge<V: VirtualInterface>(&mut self, vif: &mut V, n: usize, state: LrState) -> Outcome {
        let intid = self.lr[n & 15].intid;
        self.observe(vif, n, state);
        self.latch.insert(intid);
        self.place_private(vif, intid)
    }

    /// Injects an SGI in all the cases that are not the usual ones.
    #[cold]
    pub(crate) fn inject_cold<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) -> Outcome {
        if let Some(n) = self.planned(intid)
            && !self.is_gicv2()
            && vif.read_lr(n) == LrState::Invalid
        {
            // As in `inject_quick`.
            vif.write_lr(n, self.lr[n & 15]);
            return Outcome::Done;
        }
        self.fold(vif, intid);
        self.note_sources(intid, self.own_source);
        self.place_private(vif, intid)
    }

    /// Injects a private interrupt because its physical twin `pintid` fired and is now active: the
    /// virtual or physical timer. HOT: one list-register write, and no read, if the last one was
    /// hardware-backed too. The guest's deactivation deactivates the physical one. If the guest has it
    /// disabled it is remembered, so that the physical interrupt stays active, and delivered when it is
    /// enabled. Ignores INTIDs that are not PPIs.
    #[inline] // Hot: on the light exit of a timer interrupt.
    pub fn inject_ppi_hw<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, pintid: u32) -> Outcome {
        let bit = 1u32 << (intid & 31);
        if intid.wrapping_sub(16) >= 16 {
            return Outcome::Done;
        }
        let lr = self.pending_lr(intid, Backing::Hardware { pintid });
        if self.quick & bit == 0 {
            return self.hold(vif, intid, pintid);
        }
        let n = match self.slot(intid) {
            // It can fire again only because the guest has deactivated it through this very list
            // register, which is empty therefore; that ended what was pending and active before.
            Some(n) if self.lr[n].backing == lr.backing => {
                self.latch.remove(intid);
                self.active.remove(intid);
                n
            }
            None if self.free != 0 => self.free.trailing_zeros() as usize,
            _ => return self.hold(vif, intid, pintid),
        };
        self.held |= bit;
        self.open |= bit;
        self.pintid[intid as usize & 31] = pintid;
        self.attach(vif, n, lr);
        Outcome::Done
    }

    /// Returns the list register that the planner has given to a private interrupt which was pending then. What comes for it
    /// again belongs there, however many wait outside: with it pending the choice and the conditions are as they were made.
    /// `None` if the planner has something else to do.
    pub(crate) fn planned(&self, intid: u32) -> Option<usize> {
        let decided = self.overflowing && self.resident && !self.is_unsettled();
        let n = self.slot(intid).filter(|_| decided && self.deliverable >> (intid & 31) & 1 != 0)?;
        (self.lr[n & 15].state == LrState::Pending).then_some(n)
    }

    /// Takes charge of an active physical interrupt in all the cases that are not the usual ones.
    #[cold]
    fn hold<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, pintid: u32) -> Outcome {
        let bit = 1u32 << (intid & 31);
        let lr = self.pending_lr(intid, Backing::Hardware { pintid });
        if let Some(n) = self.planned(intid)
            && self.lr[n & 15] == lr
        {
            // As in `inject_ppi_hw`: it is empty.
            self.latch.remove(intid);
            self.active.remove(intid);
            self.held |= bit;
            self.open |= bit;
            vif.write_lr(n, lr);
            return Outcome::Done;
        }
        self.fold(vif, intid);
        self.held |= bit;
        self.open |= bit;
        self.pintid[intid as usize & 31] = pintid;
        self.place_private(vif, intid)
    }

    /// Takes back the physical interrupts that the guest has not acknowledged and whose line has fallen, because their
    /// timer was moved or masked: level-sensitive interrupts are pending while their line is high. Nobody hears of the
    /// fall, so this asks, once for each interrupt that the guest is seen to have taken since, and each time for those
    /// that it has not.
    pub(crate) fn sample_lines<V: VirtualInterface>(&mut self, vif: &mut V) {
        for intid in set_bits(self.held_pending() & !self.edge) {
            if let Some(n) = self.slot(intid)
                && self.lr[n].state.pending()
                && !vif.read_lr(n).pending()
            {
                // Acknowledged; what else the guest did with it is learned when that matters.
                self.open &= !(1 << intid);
            } else if !vif.is_asserted(self.pintid[intid as usize & 31]) {
                self.fold(vif, intid);
                self.drop_held_pending(vif, intid);
                // What it leaves to do is noted as unsettled.
                let _ = self.place_private(vif, intid);
            }
        }
    }

    /// Gives up a physical interrupt that the guest has not acknowledged.
    pub(crate) fn drop_held_pending<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) {
        let bit = 1u32 << (intid & 31);
        if self.held_pending() & bit != 0 {
            self.open &= !bit;
            self.held &= !bit;
            vif.deactivate_physical(self.pintid[intid as usize & 31]);
        }
    }

    /// Sets the level of the input line of a PPI that is emulated (the PMU's, a physical timer that is
    /// not backed by hardware). Accesses nothing if the level is the same, or if the interrupt is
    /// neither to be presented nor in a list register. Ignores INTIDs that are not PPIs.
    #[inline] // The test for "unchanged" is on exit paths; the rest is a call.
    pub fn set_private_line<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, high: bool) -> Outcome {
        if intid.wrapping_sub(16) >= 16 || (self.line >> (intid & 31) & 1 != 0) == high {
            return Outcome::Done;
        }
        self.change_line(vif, intid, high)
    }

    #[cold]
    fn change_line<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, high: bool) -> Outcome {
        let bit = 1u32 << (intid & 31);
        self.fold(vif, intid);
        self.line ^= bit;
        if high && self.edge & bit != 0 {
            self.latch.insert(intid);
        }
        self.place_private(vif, intid)
    }
}
