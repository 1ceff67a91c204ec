// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts that come again, which is the usual case. SGIs and timers are presented by light exits, in few registers and without a
//! call.
//!
//! The guest has handled the last one in full, and nobody has looked since. All that is noted of the last one is true of the
//! next, so one access to the list register does: it is written if it is found invalid. Everything else is left, with nothing
//! done, to [`VcpuGic::inject_sgi`], [`VcpuGic::inject_sgi_from`] and [`VcpuGic::deliver`].

use core::num::NonZeroU32;

use crate::hardware::{ListRegister, LrState, VirtualInterface, with_source};
use crate::spi::{Flag, SpiWord};
use crate::sync::Ordering;
use crate::{Context, Host, VcpuGic, Vgic};

/// The SGIs among private interrupts.
const SGIS: u32 = 0xffff;

impl VcpuGic {
    /// Makes an SGI of a GICv3 pending where it was the last time; `false` if that is not possible. HOT.
    #[inline(always)] // Hot: a call would cost the light exit its registers.
    #[must_use = "an SGI that is not presented has to be injected"]
    pub fn present_sgi<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) -> bool {
        self.may_present(self.quick, 1 << (intid & 15)) && self.present(vif, intid & 15)
    }

    /// [`Self::present_sgi`] of the one SGI that was posted, as a bit; `true` for none. `false` for bit 16, which is another reason
    /// to look and no SGI.
    #[inline(always)] // As above.
    #[must_use = "an SGI that is not presented has to be delivered"]
    pub fn present_posted_sgi<V: VirtualInterface>(&mut self, vif: &mut V, posted: u32) -> bool {
        debug_assert!(posted < 1 << 17);
        // The bit of PPI 16 is never among these.
        match NonZeroU32::new(self.quick & posted) {
            Some(bit) => self.present(vif, bit.trailing_zeros()),
            None => posted == 0 || self.present_decided(vif, posted & SGIS),
        }
    }

    /// The same of an SGI that is not quick.
    #[inline(always)] // As above.
    fn present_decided<V: VirtualInterface>(&mut self, vif: &mut V, posted: u32) -> bool {
        self.is_decided() && self.deliverable & posted != 0 && self.present(vif, posted.trailing_zeros() & 15)
    }

    #[inline(always)] // As above.
    fn present<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) -> bool {
        let Some(n) = self.encoded_slot(intid) else { return false };
        vif.write_if_invalid(n, self.lr[n & 15], self.encoded[intid as usize & 31])
    }

    /// Says whether an SGI may have the list register again that it had: it is among those of `quick`; or, where more wait than
    /// there are list registers, the planner gave it this one and has nothing else to do since ([`Self::planned`]).
    #[inline(always)] // As above.
    fn may_present(&self, quick: u32, bit: u32) -> bool {
        quick & bit != 0 || self.is_decided() && self.deliverable & bit != 0
    }

    #[inline(always)] // As above.
    fn is_decided(&self) -> bool {
        self.overflowing && self.resident && !self.is_unsettled()
    }

    /// [`Self::present_sgi`] if a guest's `ICC_SGI1R_EL1` reaches the vCPU with it: if it is in Group 1.
    #[inline(always)] // As above.
    #[must_use = "an SGI that is not presented has to be injected"]
    pub fn present_group1_sgi<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) -> bool {
        self.is_in_group1(intid) && self.present_sgi(vif, intid)
    }

    /// Says whether the vCPU has an SGI in Group 1.
    #[inline] // One bit.
    pub fn is_in_group1(&self, intid: u32) -> bool {
        self.group1 >> (intid & 15) & 1 != 0
    }

    /// Makes a GICv2 guest's SGI pending from vCPU `sender` where it was the last time; `false` if that is not possible, or if
    /// other senders wait. HOT.
    #[inline(always)] // As above.
    #[must_use = "an SGI that is not presented has to be injected"]
    pub fn present_sgi_from<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32, sender: usize) -> bool {
        let at = intid as usize & 15;
        if !self.may_present(self.quick_sourced, 1 << at) {
            return false;
        }
        let Some(n) = self.encoded_slot(intid) else { return false };
        let last = self.lr[n & 15];
        if self.sources[at] != 1 << (last.source & 7) {
            return false;
        }
        let source = sender as u8 & 7;
        let lr = ListRegister { source, ..last };
        if !vif.write_if_invalid(n, lr, with_source(self.encoded[at], source)) {
            return false;
        }
        if source != last.source {
            self.sources[at] = 1 << source;
            self.last_source[at] = last.source;
            self.lr[n & 15].source = source;
        }
        true
    }

    /// Presents a GICv2 guest's SGI that was posted, to whoever has sent it, as [`Self::present_sgi_from`] does. What cannot be
    /// presented waits with its senders as before. HOT.
    #[inline(always)] // As above.
    #[must_use = "an SGI that is not presented has to be delivered"]
    pub fn present_sent_sgi<V: VirtualInterface>(&mut self, vgic: &Vgic, vif: &mut V, intid: u32) -> bool {
        let Some(incoming) = vgic.incoming.get(self.index) else { return false };
        let senders = incoming.take(intid);
        if senders.is_power_of_two() && self.present_sgi_from(vif, intid, senders.trailing_zeros() as usize) {
            return true;
        }
        // Release: as by the senders, of whose writes this vCPU's guest shall know.
        incoming.0[intid as usize & 15].fetch_or(senders, Ordering::Release);
        false
    }

    /// Makes a PPI pending again whose physical twin of the same number has fired, as [`VcpuGic::inject_ppi_hw`] does where it was
    /// the last time; `false`, with nothing done, if that is not possible, or if more has to be noted. HOT.
    #[inline(always)] // As above.
    #[must_use = "an interrupt that is not presented has to be injected"]
    pub fn present_ppi_hw<V: VirtualInterface>(&mut self, vif: &mut V, intid: u32) -> bool {
        let bit = 1u32 << (intid & 31);
        if self.quick & bit == 0 || (self.latch.block(0) | self.active.block(0)) & bit != 0 {
            return false;
        }
        // It has come because the guest has deactivated it through this list register, which is empty therefore.
        let Some(n) = self.encoded_slot(intid) else { return false };
        self.held |= bit;
        self.open |= bit;
        vif.write_encoded(n, self.lr[n & 15], self.encoded[intid as usize & 31]);
        true
    }

    /// Makes an edge of an SPI in this vCPU's custody pending where the last edge was; `false`, with nothing done, if that is not
    /// possible, or if anything has changed of what its list register tells. It is rule 3 of the `spi` module, in short.
    pub(crate) fn present_spi<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        intid: u32,
    ) -> bool {
        let (Some(spi), Some((n, word))) = (cx.vgic.spi(intid), self.place_of_edge(cx, intid)) else {
            return false;
        };
        // This vCPU has the latch of the last edge, which the guest took and nobody has noted: it is that of the next one.
        if !word.has(Flag::Latch) || spi.exchange(word, word.with(Flag::Latch, false)).is_err() {
            return false;
        }
        cx.vif.write_lr(n, self.lr[n]);
        true
    }

    /// [`Vgic::edge_spi`] by who is on the CPU of this vCPU, which owns the SPI: it is presented as [`Self::deliver`] does it, without being
    /// posted. `false`, with nothing done, if it is not that easy. HOT.
    ///
    /// The edge is latched and taken at once, at the moment at which the SPI's word is read, so the word need not change. Whatever
    /// changes it later is posted to this vCPU, and found before its guest is entered.
    #[must_use = "an edge that is not presented has to be posted"]
    pub fn present_edge<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) -> bool {
        let Some((n, word)) = self.place_of_edge(cx, intid) else { return false };
        if word.has(Flag::Latch) || word.has(Flag::Line) || !word.has(Flag::Edge) {
            return false;
        }
        cx.vif.write_lr(n, self.lr[n]);
        true
    }

    /// Returns the list register in which the last edge of an SPI in this vCPU's custody was, and the SPI's word, if the next one can be
    /// pending there as it is.
    ///
    /// The enable of its group is not looked at: whoever disables that makes the owner look again, and `GICD_CTLR.RWP` says when it has.
    #[inline(always)] // Its two callers.
    fn place_of_edge<V: VirtualInterface, H: Host>(
        &self,
        cx: &mut Context<V, H>,
        intid: u32,
    ) -> Option<(usize, SpiWord)> {
        let (Some(n), Some(spi)) = (self.slot(intid), cx.vgic.spi(intid)) else { return None };
        let (lr, word) = (self.lr[n], spi.load());
        debug_assert!(
            self.resident && word.owner() == Some(self.index),
            "what has a list register is in custody"
        );
        let is_as_it_was = !self.overflowing
            && lr.state == LrState::Pending
            // It was pending because of a level otherwise, which was not kept.
            && self.latch.contains(intid)
            && word.priority() == lr.priority
            && word.has(Flag::Group1) == lr.group1
            && word.has(Flag::Enabled)
            && !word.level()
            && (word.destination() == self.home || cx.vgic.route(word) == Some(self.index))
            && cx.vif.read_lr(n) == LrState::Invalid;
        is_as_it_was.then_some((n, word))
    }
}
