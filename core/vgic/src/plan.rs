// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The list-register planner: who is in a list register when there are not enough.
//!
//! The order is: pending interrupts of groups that the guest's CPU interface has enabled, by priority;
//! then active ones (pending as well or not), those first whose end comes first; then pending ones of
//! disabled groups. The reasons:
//!
//! - *Pending first*, because only a list register can make the CPU take an interrupt. The pending ones
//!   outside all have a lower or equal priority than those inside, so the guest sees the right one as
//!   long as one inside is pending. When none is left, `NPIE` says so. It is armed only when all list
//!   registers hold a pending interrupt, so it is never true at once.
//! - *Active next.* An active interrupt outside needs nothing until its end, which `LRENPIE` reports:
//!   with EOImode 0 the interface counts ends of interrupts that no list register has, and they come in
//!   the order of preemption. With EOImode 1, DIR traps and names the interrupt (a GICv2's always traps). Those whose end comes
//!   first are inside, so that fewest ends cost an exit. Pending-and-active ones have no turn of their
//!   own: outside, their end costs the same exit as that of a merely active one.
//! - *Disabled groups last.* Such an interrupt would occupy a list register without being signaled, and
//!   keep `NPIE` from becoming true while one of the other group waits. The group's enable condition
//!   brings it back.
//!
//! `UIE` (at most one list register valid) is not used: what waits outside is announced by the
//! conditions above, no later than it matters; refilling earlier would only cost more exits. And with
//! one list register it is always true: the guest would never run.
//!
//! A maintenance interrupt is only a hint that something needs a look.

use crate::hardware::{GroupEnables, ListRegister, LrState, Maintenance, VirtualInterface};
use crate::registers::set_bits;
use crate::vcpu::UNSETTLED;
use crate::{Context, Host, MAX_LIST_REGISTERS, VcpuGic};

/// The reasons to be in a list register, best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Pending,
    Active,
    Blocked,
}

/// The best candidates so far, in order, and what had to stay outside.
struct Selection {
    limit: usize,
    chosen: [Option<(u64, ListRegister)>; MAX_LIST_REGISTERS],
    enables: GroupEnables,
    /// Whether pending interrupts of Group 0 and 1 are outside.
    pending_outside: [bool; 2],
    /// Whether pending interrupts of the disabled Group 0 or 1 are outside.
    blocked_outside: [bool; 2],
    active_outside: bool,
}

impl Selection {
    fn class(&self, lr: &ListRegister) -> Class {
        let enabled = if lr.group1 { self.enables.group1 } else { self.enables.group0 };
        match lr.state {
            LrState::Pending if enabled => Class::Pending,
            LrState::Pending => Class::Blocked,
            _ => Class::Active,
        }
    }

    /// Offers a candidate; the worst one goes out.
    fn offer(&mut self, lr: ListRegister, active_key: u32, inside: bool) {
        let class = self.class(&lr);
        let rank = if class == Class::Active {
            u64::from(active_key)
        } else {
            // Among equals the one that is inside stays, which saves a write.
            u64::from(lr.priority) << 1 | u64::from(!inside)
        };
        let mut candidate = ((class as u64) << 48 | rank << 12 | u64::from(lr.intid), lr);
        for place in self.chosen.iter_mut().take(self.limit) {
            match place {
                None => {
                    *place = Some(candidate);
                    return;
                }
                Some(held) if candidate.0 < held.0 => core::mem::swap(held, &mut candidate),
                Some(_) => {}
            }
        }
        let lr = candidate.1;
        match self.class(&lr) {
            Class::Pending => self.pending_outside[usize::from(lr.group1)] = true,
            Class::Active => self.active_outside = true,
            Class::Blocked => self.blocked_outside[usize::from(lr.group1)] = true,
        }
    }

    fn has(&self, intid: u32) -> bool {
        self.chosen.iter().flatten().any(|(_, lr)| lr.intid == intid)
    }

    /// Returns the conditions under which this choice stops being the right one; with `dir_traps`, DIR traps
    /// whatever they say.
    fn maintenance(&self, baseline: Maintenance, dir_traps: bool) -> Maintenance {
        let chosen_pending = |group1| {
            self.chosen
                .iter()
                .flatten()
                .any(|(_, lr)| lr.group1 == group1 && self.class(lr) == Class::Pending)
        };
        let [pending0, pending1] = self.pending_outside;
        Maintenance {
            lr_entry_not_present: self.active_outside,
            no_pending: pending0 || pending1,
            group0_enabled: self.blocked_outside[0],
            group1_enabled: self.blocked_outside[1],
            group0_disabled: pending1 && chosen_pending(false),
            group1_disabled: pending0 && chosen_pending(true),
            trap_dir: baseline.trap_dir || self.active_outside && !dir_traps,
        }
    }
}

impl VcpuGic {
    /// Takes back what is no longer asserted and the guest has not acknowledged, and plans the list registers again if
    /// something has changed that needs it. HOT when there is neither: one test.
    /// Call it before the guest is entered, after the last of a batch of deliveries.
    #[inline] // Hot: the test is on every exit about interrupts.
    pub fn settle<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        if self.open != 0 && self.resident {
            self.settle_open(cx);
        }
    }

    #[cold]
    fn settle_open<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        self.sample_lines(cx.vif);
        if self.is_unsettled() {
            self.plan(cx);
        }
    }

    #[cold]
    fn plan<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        if self.overflowing || !self.fill(cx) {
            self.fold_all(cx.vif);
            let selection = self.select(cx);
            self.commit(cx.vif, &selection);
        }
        self.tidy(cx.vif);
        self.open &= !UNSETTLED;
    }

    /// Puts what waits outside into free list registers, looking for empty ones first if none is known.
    /// Returns whether all found one.
    fn fill<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) -> bool {
        if self.free == 0 {
            for n in set_bits(u32::from(cx.vif.empty_lrs() & self.all_lrs)) {
                self.observe(cx.vif, n as usize, LrState::Invalid);
            }
        }
        let mut from = 0;
        while let Some(intid) = self.outside.next(from) {
            from = intid + 1;
            let wanted = self.evaluate(cx, intid);
            self.place(cx.vif, intid, wanted);
        }
        self.outside.is_empty()
    }

    /// Learns what the guest did with everything in list registers, and with what was outside.
    pub(crate) fn fold_all<V: VirtualInterface>(&mut self, vif: &mut V) {
        let used = self.all_lrs & !self.free;
        let empty = if used != 0 { vif.empty_lrs() } else { 0 };
        for n in set_bits(u32::from(used)) {
            let state = if empty >> n & 1 != 0 { LrState::Invalid } else { vif.read_lr(n as usize) };
            self.observe(vif, n as usize, state);
        }
        self.resolve_eoi_count(vif);
    }

    /// Reads every list register and learns from each in use, whether or not anybody asks: to be measured
    /// against what is done otherwise, which is to look when the answer matters.
    pub fn synchronize<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        if !self.resident {
            return;
        }
        let used = self.all_lrs & !self.free;
        let empty = cx.vif.empty_lrs();
        for n in set_bits(u32::from(self.all_lrs)) {
            let read = cx.vif.read_lr(n as usize);
            if used >> n & 1 != 0 {
                let state = if empty >> n & 1 != 0 { LrState::Invalid } else { read };
                self.observe(cx.vif, n as usize, state);
            }
        }
        self.resolve_eoi_count(cx.vif);
        self.settle(cx);
    }

    /// Chooses among all interrupts in custody; releases those that are to be presented no more.
    fn select<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) -> Selection {
        let mut selection = Selection {
            limit: self.all_lrs.count_ones() as usize,
            chosen: [None; MAX_LIST_REGISTERS],
            enables: cx.vif.group_enables(),
            pending_outside: [false; 2],
            blocked_outside: [false; 2],
            active_outside: false,
        };
        for n in set_bits(u32::from(self.all_lrs & !self.free)) {
            let intid = self.lr[n as usize & 15].intid;
            match self.evaluate(cx, intid) {
                None => self.detach(n as usize),
                Some(lr) => selection.offer(lr, self.active_key[intid as usize & 1023], true),
            }
        }
        let mut from = 0;
        while let Some(intid) = self.outside.next(from) {
            from = intid + 1;
            match self.evaluate(cx, intid) {
                None => self.outside.remove(intid),
                Some(lr) => selection.offer(lr, self.active_key[intid as usize & 1023], false),
            }
        }
        selection
    }

    /// Makes the list registers and the conditions those of the choice.
    fn commit<V: VirtualInterface>(&mut self, vif: &mut V, selection: &Selection) {
        for n in set_bits(u32::from(self.all_lrs & !self.free)) {
            let intid = self.lr[n as usize & 15].intid;
            if !selection.has(intid) {
                self.detach(n as usize);
                self.outside.insert(intid);
            }
        }
        for &(_, lr) in selection.chosen.iter().flatten() {
            if let Some(n) = self.slot(lr.intid) {
                if self.lr[n] != lr {
                    self.write(vif, n, lr);
                }
            } else {
                self.outside.remove(lr.intid);
                self.attach(vif, self.next_free(), lr);
            }
        }
        self.arm(vif, selection.maintenance(self.baseline, self.is_gicv2()));
        self.overflowing = !self.outside.is_empty();
        self.refresh_deliverable();
    }

    /// Writes the conditions if they are not those in the hardware.
    pub(crate) fn arm<V: VirtualInterface>(&mut self, vif: &mut V, maintenance: Maintenance) {
        if self.armed != maintenance {
            self.armed = maintenance;
            self.is_conditional = maintenance != self.baseline;
            vif.set_maintenance(maintenance);
        }
    }

    /// Handles a maintenance interrupt. It is only a hint: a spurious one does no harm.
    pub fn maintenance<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        if !self.resident {
            return;
        }
        if !self.overflowing && self.eoi != 0 {
            for n in set_bits(u32::from(cx.vif.eoi_lrs() & self.eoi)) {
                self.observe(cx.vif, n as usize, LrState::Invalid);
            }
        }
        self.open |= u32::from(self.overflowing) * UNSETTLED;
        self.settle(cx);
    }
}
