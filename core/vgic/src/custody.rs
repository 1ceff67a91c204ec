// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Learning what the guest did with an interrupt, and bringing its list register in line.

use crate::hardware::{Backing, ListRegister, LrState, VirtualInterface};
use crate::registers::set_bits;
use crate::spi::Flag;
use crate::vcpu::{NEVER_ACKNOWLEDGED, NO_SLOT, UNSETTLED};
use crate::{Context, Host, Outcome, VcpuGic};

impl VcpuGic {
    /// Learns what the guest did with an interrupt: reads its list register if it has one.
    pub(crate) fn fold<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) {
        if let Some(n) = self.slot(intid) {
            let state = vif.read_lr(n);
            self.observe(vif, n, state);
        } else if self.outside.contains(intid) {
            self.resolve_eoi_count(vif);
        }
    }

    /// Takes over the state in which list register `n` was seen. The guest can only have acknowledged
    /// what was pending and deactivated what was, or so became, active.
    pub(crate) fn observe<V: VirtualInterface>(&mut self, vif: &mut V, n: usize, now: LrState) {
        let lr @ ListRegister { intid, priority, state: old, backing, .. } = self.lr[n & 15];
        if now == old {
            return;
        }
        let by_hardware = matches!(backing, Backing::Hardware { .. });
        if old.active() {
            self.end(vif, intid, by_hardware);
        }
        if old.pending() && !now.pending() {
            self.take_latch(lr);
            // An SGI is not held, and the bit of the first is another's (`UNSETTLED`).
            if (16..32).contains(&intid) {
                self.open &= !(1 << intid);
            }
            self.acknowledged(intid, priority);
            if !now.active() {
                self.end(vif, intid, by_hardware);
            }
        }
        self.lr[n & 15].state = now;
        self.note(n, self.lr[n & 15]);
        if now == LrState::Invalid {
            self.detach(n);
            if self.eoi >> n & 1 == 0 {
                // Nothing is outstanding in it.
                self.stale &= !(1 << n);
            }
            self.outside.insert(intid);
            self.open |= UNSETTLED;
        }
    }

    /// Frees a list register; what is still in the hardware has to be overwritten or cleared.
    pub(crate) fn detach(&mut self, n: usize) {
        self.slot[self.lr[n & 15].intid as usize & 1023] = NO_SLOT;
        self.free |= 1 << n;
        self.stale |= 1 << n;
    }

    /// Finishes a slow operation: clears what [`Self::detach`] left in the hardware and nobody has
    /// overwritten, and forgets about planning if nothing is left outside.
    pub(crate) fn tidy<V: VirtualInterface>(&mut self, vif: &mut V) {
        let stale = self.stale & self.free;
        for n in set_bits(u32::from(stale)) {
            vif.clear_lr(n as usize);
        }
        self.eoi &= !stale;
        self.stale = 0;
        if !self.overflowing && self.outside.is_empty() {
            self.open &= !UNSETTLED;
        }
    }

    /// Ends the active state of an interrupt, and of the physical one that came with it unless the
    /// hardware has done that.
    pub(crate) fn end<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, by_hardware: bool) {
        self.active.remove(intid);
        if intid < 32 && self.held & !self.held_pending() & 1 << intid != 0 {
            self.held &= !(1 << intid);
            if !by_hardware {
                vif.deactivate_physical(self.pintid[intid as usize & 31]);
            }
        }
    }

    /// Attributes the deactivations that the hardware has counted to active interrupts outside the
    /// list registers: the one with the highest priority first, then the one acknowledged last.
    pub(crate) fn resolve_eoi_count<V: VirtualInterface>(&mut self, vif: &mut V) {
        if !self.armed.lr_entry_not_present {
            return;
        }
        for _ in 0..vif.take_eoi_count() {
            let mut ended = (NEVER_ACKNOWLEDGED, None);
            let mut from = 0;
            while let Some(intid) = self.outside.next(from) {
                from = intid + 1;
                let key = self.active_key[intid as usize & 1023];
                if self.active.contains(intid) && key < ended.0 {
                    ended = (key, Some(intid));
                }
            }
            let Some(intid) = ended.1 else { break };
            self.end(vif, intid, false);
            self.open |= UNSETTLED;
        }
    }

    /// Composes the list register that an interrupt in this vCPU's custody should have, if any. For an
    /// SPI this settles the custody first: it is claimed, its latch is taken, or it is released.
    pub(crate) fn evaluate<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        intid: u32,
    ) -> Option<ListRegister> {
        if intid < 32 { self.evaluate_private(intid) } else { self.evaluate_spi(cx, intid) }
    }

    pub(crate) fn evaluate_private(&self, intid: u32) -> Option<ListRegister> {
        if intid < 16 && self.is_gicv2() {
            return self.evaluate_sourced(intid);
        }
        let bit = 1u32 << (intid & 31);
        let deliverable = self.deliverable & bit != 0;
        let level = self.line & !self.edge & bit != 0;
        let held = self.held & bit != 0;
        let held_pending = self.held_pending() & bit != 0;
        let active = self.active.contains(intid);
        let pending = deliverable && (level || held_pending || self.latch.contains(intid));
        // The hardware bit fits while the physical interrupt is what the next deactivation ends.
        // Otherwise the deactivation has to be seen: something comes after it.
        let backing =
            if held && self.backed && pending != active && held_pending == pending && !(pending && level) {
                Backing::Hardware { pintid: self.pintid[intid as usize & 31] }
            } else {
                Backing::Software { eoi_maintenance: held || deliverable && level }
            };
        (pending || active).then(|| ListRegister {
            intid,
            source: 0,
            priority: self.priority[intid as usize & 31],
            group1: self.group1 & bit != 0,
            state: LrState::new(pending, active),
            backing,
        })
    }

    /// Implements the rules of the `spi` module on the owner's or target's side.
    fn evaluate_spi<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        intid: u32,
    ) -> Option<ListRegister> {
        let spi = cx.vgic.spi(intid)?;
        let mut word = spi.load();
        loop {
            let target = cx.vgic.route(word);
            let here = target == Some(self.index);
            let may = self.on && word.has(Flag::Enabled) && cx.vgic.group_enabled(word);
            let mut new = word;
            if word.owner() != Some(self.index) {
                if word.owner().is_some() || !word.pending() || !here || !may {
                    return None;
                }
                new = new.with_owner(Some(self.index));
            }
            // The latch is taken where it can be presented, and given back where it cannot.
            let mut latch = self.latch.contains(intid);
            if here {
                latch |= word.has(Flag::Latch);
                new = new.with(Flag::Latch, false);
            } else {
                new = new.with(Flag::Latch, latch | word.has(Flag::Latch));
                latch = false;
            }
            let active = self.active.contains(intid);
            let pending = may && here && (latch || word.level());
            let released = !active && !pending;
            if released {
                new = new.with_owner(None).with(Flag::Latch, latch | new.has(Flag::Latch));
                latch = false;
            }
            if new != word
                && let Err(seen) = spi.exchange(word, new)
            {
                word = seen;
                continue;
            }
            self.latch.put(intid, latch);
            self.owned.put(intid, !released);
            if released {
                if target != Some(self.index) {
                    cx.vgic.signal(cx.host, intid, new);
                }
                return None;
            }
            return Some(ListRegister {
                intid,
                source: 0,
                priority: new.priority(),
                group1: new.has(Flag::Group1),
                state: LrState::new(pending, active),
                // What is still pending in the word comes after the deactivation.
                backing: Backing::Software { eoi_maintenance: may && new.pending() },
            });
        }
    }

    /// Brings the list registers in line with what [`Self::evaluate`] says of an interrupt.
    pub(crate) fn place<V: VirtualInterface>(
        &mut self,
        vif: &mut V,
        intid: u32,
        wanted: Option<ListRegister>,
    ) {
        self.open |= u32::from(self.overflowing) * UNSETTLED;
        match (self.slot(intid), wanted) {
            (None, None) => self.outside.remove(intid),
            (Some(n), None) => {
                self.detach(n);
                self.outside.remove(intid);
            }
            (Some(n), Some(lr)) => {
                self.outside.remove(intid);
                if self.lr[n] != lr {
                    self.write(vif, n, lr);
                }
            }
            (None, Some(lr)) if self.free != 0 && !self.overflowing => {
                self.outside.remove(intid);
                self.attach(vif, self.next_free(), lr);
            }
            (None, Some(_)) => {
                self.outside.insert(intid);
                self.open |= UNSETTLED;
            }
        }
    }

    /// Returns a free list register, one that would have to be cleared first. There must be one.
    pub(crate) fn next_free(&self) -> usize {
        let stale = self.free & self.stale;
        let from = if stale != 0 { stale } else { self.free };
        from.trailing_zeros() as usize & 15
    }

    /// Brings a private interrupt's list register in line.
    pub(crate) fn place_private<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) -> Outcome {
        let wanted = self.evaluate_private(intid);
        self.place(vif, intid, wanted);
        self.tidy(vif);
        if self.is_unsettled() { Outcome::Slow } else { Outcome::Done }
    }

    /// Learns what the guest did with an interrupt and brings custody and list register in line with
    /// its registers. Idempotent.
    pub(crate) fn reconcile<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        self.fold(cx.vif, intid);
        self.realign(cx, intid);
    }

    /// Brings custody and list register in line when the list register has just been read.
    pub(crate) fn realign<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        let wanted = self.evaluate(cx, intid);
        self.place(cx.vif, intid, wanted);
        self.tidy(cx.vif);
    }
}
