// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load and put, reset, and turning the vCPU off and on.

use crate::bits::IntidSet;
use crate::hardware::{ListRegister, LrState, Maintenance, VirtualInterface};
use crate::registers::set_bits;
use crate::vcpu::{NO_SLOT, UNSETTLED};
use crate::{Context, Host, Model, VcpuGic, Vgic};

impl VcpuGic {
    /// Puts the vCPU's interrupts into this physical CPU's list registers, which must be empty: before
    /// the vCPU first runs here, and when it comes back after [`Self::put`].
    pub fn load<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        if self.resident {
            return;
        }
        self.resident = true;
        self.overflowing = false;
        self.free = self.all_lrs;
        (self.quick, self.quick_sourced) = self.quick_when_loaded;
        // Whatever the one before has left armed. Of the baseline, DIR is all that varies.
        self.armed = Maintenance { trap_dir: self.baseline.trap_dir, ..Maintenance::NONE };
        self.is_conditional = false;
        cx.vif.set_maintenance(self.armed);
        if !self.outside.is_empty() {
            self.open |= UNSETTLED;
        }
        self.settle(cx);
    }

    /// Takes everything out of the list registers and leaves them empty, with no condition armed.
    pub fn put<V: VirtualInterface>(&mut self, vif: &mut V) {
        if !self.resident {
            return;
        }
        self.forget_handled_sgis(vif);
        if self.free != self.all_lrs || !self.outside.is_empty() {
            self.take_out(vif);
        }
        // What is always armed announces nothing, and whoever is loaded next arms what it needs.
        if self.is_conditional {
            self.arm(vif, self.baseline);
        }
        self.free = 0;
        self.resident = false;
        // Nothing is injected into a vCPU that is in no CPU.
        (self.quick, self.quick_sourced) = (0, 0);
    }

    /// Empties the list registers of SGIs that the guest has handled in full: what a vCPU that waits usually leaves.
    #[inline] // One caller.
    fn forget_handled_sgis<V: VirtualInterface>(&mut self, vif: &mut V) {
        let used = self.all_lrs & !self.free & !self.eoi;
        if used == 0 {
            return;
        }
        let gicv2 = self.is_gicv2();
        for n in set_bits(u32::from(vif.empty_lrs() & used)) {
            let ListRegister { intid, state, source, .. } = self.lr[n as usize & 15];
            if intid < 16 && state == LrState::Pending {
                if gicv2 {
                    let waiting = &mut self.sources[intid as usize & 15];
                    if *waiting != 1 << (source & 7) {
                        // Others have sent it, too.
                        continue;
                    }
                    *waiting = 0;
                    self.last_source[intid as usize & 15] = source;
                }
                self.latch.remove(intid);
                self.slot[intid as usize & 15] = NO_SLOT;
                self.free |= 1 << n;
            }
        }
    }

    /// Takes what is left out of the list registers.
    #[inline(never)] // Most vCPUs that wait have nothing left.
    fn take_out<V: VirtualInterface>(&mut self, vif: &mut V) {
        self.fold_all(vif);
        // What the guest has done with is not to be planned for when it comes back.
        for intid in set_bits(self.outside.block(0)) {
            if self.evaluate_private(intid).is_none() {
                self.outside.remove(intid);
            }
        }
        for n in set_bits(u32::from(self.all_lrs & !self.free)) {
            self.outside.insert(self.lr[n as usize & 15].intid);
            self.detach(n as usize);
        }
        self.tidy(vif);
    }

    /// Returns the private interrupts whose physical twins are active for this vCPU, a bit each: between [`Self::put`]
    /// and [`Self::load`] the caller makes them inactive, so that others get theirs, and active again.
    pub fn held(&self) -> u32 {
        self.held
    }

    /// Returns the vCPU's interrupts to their reset state: nothing pending or active, list registers
    /// clear, physical interrupts deactivated, the vCPU on. For a reset of the whole VM, after
    /// [`Vgic::reset`]; SPIs in custody are forgotten.
    pub fn reset<V: VirtualInterface>(&mut self, vgic: &Vgic, vif: &mut V) {
        if self.resident {
            // What the guest has ended takes no physical interrupt along any more.
            self.fold_all(vif);
            for n in set_bits(u32::from(self.all_lrs & !self.free)) {
                self.detach(n as usize);
            }
            self.tidy(vif);
            self.arm(vif, self.baseline);
        }
        for intid in set_bits(self.held) {
            vif.deactivate_physical(self.pintid[intid as usize & 31]);
        }
        self.held = 0;
        self.open = 0;
        self.slot = [NO_SLOT; 1024];
        for set in [&mut self.latch, &mut self.active, &mut self.owned, &mut self.outside] {
            *set = IntidSet::EMPTY;
        }
        self.sources = [0; 16];
        self.last_source = [0; 16];
        self.overflowing = false;
        self.on = true;
        self.reset_registers(vgic);
    }

    /// Takes the vCPU off (`CPU_OFF`): pending SPIs go back to the distributor, so that the guest can
    /// route them elsewhere; active ones stay until somebody deactivates them. Until
    /// [`Self::power_on`] posts to this vCPU may be dropped; remote operations must still be executed.
    pub fn power_off<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        self.on = false;
        cx.vgic.set_on(self.index, false);
        self.reconcile_owned(cx);
        self.settle(cx);
        if cx.vgic.model() == Model::Gicv2 {
            // What was posted here and not claimed is for the next of its targets.
            cx.vgic.signal_each(cx.host, |word| word.targets() >> self.index & 1 != 0);
        }
    }

    /// Brings the vCPU on (`CPU_ON`) while the others go on: its private interrupts and redistributor
    /// are reset, SPIs that were active here become inactive, and the SPIs that wait for this vCPU are
    /// posted to it. With GICv2, SPIs go only to vCPUs that this has brought on.
    pub fn power_on<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        self.on = false;
        let mut from = 32;
        while let Some(intid) = self.owned.next(from) {
            from = intid + 1;
            self.deactivate(cx, intid);
        }
        self.reset(cx.vgic, cx.vif);
        cx.vgic.set_on(self.index, true);
        // With GICv2 a later target may hold what is this one's now: it gives back what is only pending.
        cx.vgic.signal_each(cx.host, |word| cx.vgic.route(word) == Some(self.index));
    }

    /// Brings all SPIs in custody in line with their words.
    pub(crate) fn reconcile_owned<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>) {
        let mut from = 32;
        while let Some(intid) = self.owned.next(from) {
            from = intid + 1;
            self.reconcile(cx, intid);
        }
    }
}
