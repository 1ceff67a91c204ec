// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What reaches an interrupt of this vCPU from outside its list registers: posted interrupts, register writes, the
//! operations of other vCPUs.

use crate::hardware::VirtualInterface;
use crate::registers::set_bits;
use crate::vcpu::NEVER_ACKNOWLEDGED;
use crate::{Context, GROUPS_CHANGED, Host, Model, Outcome, RemoteOp, VcpuGic};

impl VcpuGic {
    /// Receives a posted interrupt: makes an SGI pending; claims an SPI, or brings the one in custody in
    /// line with its distributor state. Call [`Self::settle`] after the last one of a batch.
    pub fn deliver<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        if intid < 16 {
            // What it leaves to do is noted as unsettled.
            let _ = self.deliver_sgi(cx, intid);
        } else if intid == GROUPS_CHANGED {
            self.groups_changed(cx);
        } else if !self.present_spi(cx, intid) {
            self.reconcile(cx, intid);
        }
    }

    /// Receives a posted SGI. HOT: as [`Self::inject_sgi`].
    #[inline(always)] // Hot: the receiving half of every SGI.
    pub fn deliver_sgi<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        intid: u32,
    ) -> Outcome {
        if self.is_quick(intid) {
            return self.inject_quick(cx.vif, intid);
        }
        if !self.is_gicv2() {
            return self.inject_cold(cx.vif, intid);
        }
        self.receive(cx, intid);
        if self.is_unsettled() { Outcome::Slow } else { Outcome::Done }
    }

    /// Takes the pending state of an interrupt of this vCPU's; a level line that is high stays.
    pub(crate) fn clear_pending<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        self.fold(cx.vif, intid);
        self.latch.remove(intid);
        if intid < 32 {
            // A physical line that is still high fires again.
            self.drop_held_pending(cx.vif, intid);
        }
        self.realign(cx, intid);
    }

    /// Makes an interrupt active. Returns whether it could: an SPI may be in another's custody.
    pub(crate) fn activate<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        intid: u32,
    ) -> bool {
        self.fold(cx.vif, intid);
        if intid >= 32 {
            let Some(spi) = cx.vgic.spi(intid) else { return true };
            let claim = spi.update(|word| word.owner().is_none().then(|| word.with_owner(Some(self.index))));
            if claim.is_none() && spi.load().owner() != Some(self.index) {
                return false;
            }
            self.owned.insert(intid);
        }
        if !self.active.contains(intid) {
            self.active.insert(intid);
            self.active_key[intid as usize & 1023] = NEVER_ACKNOWLEDGED;
            if let Some(source) = self.last_source.get_mut(intid as usize) {
                // Nobody has sent what becomes active by a write; the guest's end of it names the writer.
                *source = self.index as u8;
            }
        }
        self.realign(cx, intid);
        true
    }

    /// Deactivates an interrupt of this vCPU's.
    pub(crate) fn deactivate<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        self.fold(cx.vif, intid);
        if self.active.contains(intid) {
            self.end(cx.vif, intid, false);
        }
        self.realign(cx, intid);
    }

    /// Handles a trapped write to `ICC_DIR_EL1` or `GICV_DIR`: deactivates an interrupt, of another vCPU's if
    /// that one acknowledged the SPI. Does nothing if it is not active.
    pub fn dir<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        // The sender of an SGI (bits 12:10 of `GICV_DIR`) need not be looked at: only one can be active.
        let intid = if cx.vgic.model() == Model::Gicv2 { intid & 0x3ff } else { intid };
        let owner = cx.vgic.spi(intid).and_then(|spi| spi.load().owner());
        match owner {
            Some(owner) if owner != self.index => {
                cx.host.remote(self, cx.vif, owner, RemoteOp::Deactivate { intid });
            }
            None if intid >= 32 => {}
            _ => {
                self.deactivate(cx, intid);
                self.settle(cx);
            }
        }
    }

    /// Executes an operation that another vCPU asked for, and returns its result.
    pub fn apply<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, op: RemoteOp) -> u64 {
        let result = match op {
            RemoteOp::RedistRead { offset, size } => self.own_redist_read(cx, offset, size),
            RemoteOp::RedistWrite { offset, size, value } => {
                self.own_redist_write(cx, offset, size, value);
                0
            }
            RemoteOp::State { block } => self.spi_state(cx, block),
            RemoteOp::Recall { intid } => {
                self.reconcile(cx, intid);
                0
            }
            RemoteOp::ClearPending { intid } => {
                self.clear_pending(cx, intid);
                0
            }
            RemoteOp::Activate { intid } => u64::from(self.activate(cx, intid)),
            RemoteOp::Deactivate { intid } => {
                self.deactivate(cx, intid);
                0
            }
        };
        self.settle(cx);
        result
    }

    /// Returns the SPIs of a block that are held pending (bits 31:0) and active (63:32).
    pub(crate) fn spi_state<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        block: u32,
    ) -> u64 {
        if block == 0 {
            return 0;
        }
        for n in set_bits(self.owned.block(block)) {
            self.reconcile(cx, 32 * block + n);
        }
        let owned = self.owned.block(block);
        u64::from(self.latch.block(block) & owned) | u64::from(self.active.block(block) & owned) << 32
    }

    /// Takes over the group enables of `GICD_CTLR`, if they are others than this vCPU has.
    #[cold]
    pub(crate) fn groups_changed<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        let groups = cx.vgic.take_groups(self.index);
        if core::mem::replace(&mut self.groups, groups) == groups {
            return;
        }
        self.refresh_deliverable();
        for intid in 0..32 {
            self.reconcile(cx, intid);
        }
        self.reconcile_owned(cx);
    }
}
