// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The SGIs of a GICv2: every pair of an SGI and the vCPU that sent it is pending on its own (Arm IHI 0048,
//! sections 4.3.15 to 4.3.17).
//!
//! A sender sets its bit in the target's [`Incoming`](crate::incoming::Incoming) and then posts the SGI. The target takes all bits at
//! once when it delivers the post, or when the guest looks; from then on they are its own, in
//! [`VcpuGic::sources`]. A bit is set before the post that announces it, and posts are sticky, so none is
//! lost; it is taken by one exchange, so none comes twice.
//!
//! The architecture forbids an INTID in two list registers, and a list register has room for one sender. So
//! one is presented at a time, in turn, and while others wait the list register asks for maintenance at its
//! end. Only when the one that is active is also the only one that waits can both be in the list register.

use crate::hardware::{Backing, ListRegister, LrState, VirtualInterface};
use crate::sync::Ordering;
use crate::{Context, Host, Outcome, VcpuGic, Vgic};

/// Iterates over the vCPUs that an SGI of a GICv2 names; see
/// [`Vgic::sgir_targets`](crate::Vgic::sgir_targets).
#[derive(Clone, Debug)]
pub struct SgirTargets(u8);

impl Iterator for SgirTargets {
    type Item = usize;

    #[inline] // Hot: once per target of an SGI.
    fn next(&mut self) -> Option<usize> {
        let target = (self.0 != 0).then(|| self.0.trailing_zeros() as usize);
        self.0 &= self.0.wrapping_sub(1);
        target
    }
}

impl Vgic {
    /// Decodes a write to `GICD_SGIR` by vCPU `sender`: the INTID, and the vCPUs it names (`TargetListFilter`
    /// and `CPUTargetList`). HOT. vCPUs that do not exist are ignored, and so is `NSATT`: there is one
    /// Security state, in which an SGI has the group that its target gives it. Without targets if this is
    /// not a GICv2.
    #[inline] // Hot: on the light exit of a write to GICD_SGIR.
    pub fn sgir_targets(&self, value: u32, sender: usize) -> (u32, SgirTargets) {
        let myself = 1 << (sender & 7);
        let named = match value >> 24 & 3 {
            0 => (value >> 16) as u8,
            1 => !myself,
            2 => myself,
            _ => 0,
        };
        (value & 15, SgirTargets(named & self.present))
    }

    /// Sends an SGI of a GICv2 from vCPU `sender` to another one. HOT: one atomic operation and the post. To
    /// itself a vCPU sends it with [`VcpuGic::inject_sgi_from`].
    #[inline] // Hot: on the light exit of a write to GICD_SGIR.
    pub fn post_sgi<H: Host>(&self, host: &H, target: usize, intid: u32, sender: usize) {
        self.note_sender(target, intid, sender);
        host.post(target, intid);
    }

    /// Notes who sends an SGI, for a target to which it is posted then. HOT: one atomic operation.
    #[inline(always)] // Hot: on the light exit of a write to GICD_SGIR.
    pub fn note_sender(&self, target: usize, intid: u32, sender: usize) {
        if let Some(incoming) = self.incoming.get(target) {
            // Release: the target's guest is to see what the sender's wrote before.
            incoming.0[intid as usize & 15].fetch_or(1 << (sender & 7), Ordering::Release);
        }
    }
}

/// Returns the first of a set of senders in turn after `last`.
const fn next(senders: u8, last: u8) -> u8 {
    let later = senders & !((2u16 << last) - 1) as u8;
    (if later != 0 { later } else { senders }).trailing_zeros() as u8 & 7
}

impl VcpuGic {
    /// Makes a GICv2 guest's SGI from vCPU `sender` pending. HOT: one list-register write if it has none and
    /// one is free; one read and one write if the guest has handled the previous one.
    #[inline] // Hot: on the light exit of a write to GICD_SGIR.
    pub fn inject_sgi_from<V: VirtualInterface>(
        &mut self,
        vif: &mut V,
        intid: u32,
        sender: usize,
    ) -> Outcome {
        self.add_sources(vif, intid & 15, 1 << (sender & 7))
    }

    /// Merges senders into those that wait, of which at least one is new.
    #[inline] // Hot: two callers, the two ways of an SGI.
    fn add_sources<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, senders: u8) -> Outcome {
        let at = intid as usize & 15;
        let waiting = self.sources[at];
        if self.quick_sourced >> intid & 1 == 0 || !senders.is_power_of_two() {
            return self.add_sources_cold(vif, intid, senders);
        }
        let source = senders.trailing_zeros() as u8 & 7;
        let backing = Backing::Software { eoi_maintenance: false };
        let lr = ListRegister { source, ..self.pending_lr(intid, backing) };
        let Some(n) = self.slot(intid) else {
            if self.free == 0 || waiting != 0 {
                return self.add_sources_cold(vif, intid, senders);
            }
            self.sources[at] = senders;
            self.latch.insert(intid);
            self.attach(vif, self.free.trailing_zeros() as usize, lr);
            return Outcome::Done;
        };
        let (last, state) = (self.lr[n], vif.read_lr(n));
        if state != LrState::Invalid || last.state != LrState::Pending || waiting != 1 << (last.source & 7) {
            return self.merge_sources(vif, n, state, senders);
        }
        self.present_again(vif, n, senders, lr)
    }

    /// Presents an SGI from another sender, or the same, in the list register where the guest has handled the previous one in
    /// full, and nobody has looked since: what is noted of it is true of this one too, but for the sender.
    #[inline] // Hot: the usual case of a sender.
    fn present_again<V: VirtualInterface>(
        &mut self,
        vif: &mut V,
        n: usize,
        senders: u8,
        lr: ListRegister,
    ) -> Outcome {
        let at = lr.intid as usize & 15;
        self.sources[at] = senders;
        self.last_source[at] = self.lr[n & 15].source;
        self.write(vif, n, lr);
        Outcome::Done
    }

    /// Merges senders into an SGI whose list register is still in use and was just read.
    #[cold]
    fn merge_sources<V: VirtualInterface>(
        &mut self,
        vif: &mut V,
        n: usize,
        state: LrState,
        senders: u8,
    ) -> Outcome {
        let intid = self.lr[n & 15].intid;
        self.observe(vif, n, state);
        self.note_sources(intid, senders);
        self.place_private(vif, intid)
    }

    #[cold]
    fn add_sources_cold<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, senders: u8) -> Outcome {
        if let Some(n) = self.planned(intid).filter(|_| senders.is_power_of_two())
            && self.sources[intid as usize & 15] == 1 << (self.lr[n & 15].source & 7)
            && vif.read_lr(n) == LrState::Invalid
        {
            let source = senders.trailing_zeros() as u8 & 7;
            let backing = Backing::Software { eoi_maintenance: false };
            let lr = ListRegister { source, ..self.pending_lr(intid, backing) };
            return self.present_again(vif, n, senders, lr);
        }
        self.fold(vif, intid);
        self.note_sources(intid, senders);
        self.place_private(vif, intid)
    }

    /// Notes that an SGI is pending from more senders. With GICv3, where there are none, it is only pending.
    pub(crate) fn note_sources(&mut self, intid: u32, senders: u8) {
        self.sources[intid as usize & 15] |= senders;
        self.latch.insert(intid);
    }

    /// Notes that the guest has acknowledged what a list register presented: it is pending no more, but for
    /// an SGI that others have sent as well.
    pub(crate) fn take_latch(&mut self, lr: ListRegister) {
        if let Some(waiting) = self.sources.get_mut(lr.intid as usize) {
            *waiting &= !(1 << (lr.source & 7));
            self.last_source[lr.intid as usize & 15] = lr.source;
            if *waiting != 0 {
                return;
            }
        }
        self.latch.remove(lr.intid);
    }

    /// Receives a GICv2 guest's SGI from whoever has sent it. Does nothing if nobody has.
    pub(crate) fn receive<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        let Some(incoming) = cx.vgic.incoming.get(self.index) else { return };
        let senders = incoming.take(intid);
        if senders != 0 {
            // What it leaves to do is noted as unsettled.
            let _ = self.add_sources(cx.vif, intid & 15, senders);
        }
    }

    /// Composes the list register that a GICv2 guest's SGI should have, if any.
    pub(crate) fn evaluate_sourced(&self, intid: u32) -> Option<ListRegister> {
        let at = intid as usize & 15;
        let waiting = if self.deliverable >> at & 1 != 0 { self.sources[at] } else { 0 };
        let last = self.last_source[at] & 7;
        let (state, source) = if self.active.contains(intid) {
            (LrState::new(waiting == 1 << last, true), last)
        } else if waiting != 0 {
            (LrState::Pending, next(waiting, last))
        } else {
            return None;
        };
        let presented = if state.pending() { 1 << source } else { 0 };
        let backing = Backing::Software { eoi_maintenance: waiting != presented };
        Some(ListRegister { source, state, ..self.pending_lr(intid, backing) })
    }

    /// Makes a GICv2 guest's SGI pending from `senders`: a write to `GICD_SPENDSGIR<n>`.
    pub(crate) fn set_sources<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, senders: u8) {
        if senders != 0 {
            // What it leaves to do is noted as unsettled.
            let _ = self.add_sources_cold(vif, intid, senders);
        }
    }

    /// Takes `senders` from those of a GICv2 guest's SGI: a write to `GICD_CPENDSGIR<n>`.
    pub(crate) fn clear_sources<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        intid: u32,
        senders: u8,
    ) {
        self.receive(cx, intid);
        self.fold(cx.vif, intid);
        let waiting = &mut self.sources[intid as usize & 15];
        *waiting &= !senders;
        self.latch.put(intid, *waiting != 0);
        // What it leaves to do is noted as unsettled.
        let _ = self.place_private(cx.vif, intid);
    }

    /// Returns the senders of a GICv2 guest's SGI that is pending: `GICD_SPENDSGIR<n>`.
    pub(crate) fn sources_of<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        intid: u32,
    ) -> u8 {
        self.receive(cx, intid);
        self.reconcile(cx, intid);
        self.sources[intid as usize & 15]
    }
}
