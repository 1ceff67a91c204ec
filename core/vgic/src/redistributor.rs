// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The redistributor's registers: the RD frame and the SGI frame (Arm IHI 0069, sections 12.10 and
//! 12.11).

use crate::hardware::VirtualInterface;
use crate::registers::{
    self, Bank, bank, block, config_from_bits, config_to_bits, gicd, gicr, is_word, set_bits,
};
use crate::{Context, Host, RemoteOp, VcpuGic, Vgic};

impl VcpuGic {
    /// Reads a register of this vCPU's own redistributor that needs no hardware: all but the pending and
    /// active registers, for which it returns `None`. `offset` counts from the RD frame. HOT. Reserved
    /// offsets and wrong sizes read as zero.
    #[inline] // Hot: on the light exit of a data abort; the caller knows the frame.
    pub fn redist_read_light(&self, vgic: &Vgic, offset: u32, size: u8) -> Option<u64> {
        if offset < gicr::SGI_FRAME {
            return Some(self.read_rd_frame(vgic, offset, size));
        }
        let offset = offset - gicr::SGI_FRAME;
        let bank = bank(offset);
        if bank == Bank::Priority {
            return Some(self.read_priority(offset - gicd::PRIORITY, size));
        }
        // Of the banks with one bit per INTID only the first register exists.
        if !is_word(offset, size) || block(offset) != 0 && bank != Bank::Config {
            return Some(0);
        }
        Some(u64::from(match bank {
            Bank::Group => self.group1,
            Bank::SetEnable | Bank::ClearEnable => self.enabled,
            Bank::SetPending | Bank::ClearPending | Bank::SetActive | Bank::ClearActive => return None,
            Bank::Config => match offset - gicd::CONFIG {
                0 => config_from_bits(self.edge & 0xffff),
                4 => config_from_bits(self.edge >> 16),
                _ => 0,
            },
            _ => 0,
        }))
    }

    fn read_rd_frame(&self, vgic: &Vgic, offset: u32, size: u8) -> u64 {
        match (offset, size) {
            (gicr::WAKER, 4) => u64::from(self.waker),
            // GICR_CTLR is zero too: there are no LPIs to enable, and writes are never outstanding.
            _ => identity(vgic, self.index, offset, size).unwrap_or(0),
        }
    }

    fn read_priority(&self, first: u32, size: u8) -> u64 {
        if size != 1 && !is_word(first, size) {
            return 0;
        }
        (0..u32::from(size)).fold(0, |value, byte| {
            let priority = self.priority.get((first + byte) as usize).copied().unwrap_or(0);
            value | u64::from(priority) << (8 * byte)
        })
    }

    /// Reads a register of a vCPU's redistributor. Reserved offsets and wrong sizes read as zero, as do
    /// vCPUs that do not exist.
    pub fn redist_read<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        vcpu: usize,
        offset: u32,
        size: u8,
    ) -> u64 {
        if vcpu == self.index {
            let value = self.own_redist_read(cx, offset, size);
            self.settle(cx);
            value
        } else if vcpu >= cx.vgic.vcpus() {
            0
        } else if let Some(value) = identity(cx.vgic, vcpu, offset, size) {
            // What every vCPU looks for its own redistributor by disturbs nobody.
            value
        } else {
            cx.host.remote(self, cx.vif, vcpu, RemoteOp::RedistRead { offset, size })
        }
    }

    /// Writes a register of a vCPU's redistributor. Reserved offsets, wrong sizes, read-only registers
    /// and vCPUs that do not exist are ignored.
    pub fn redist_write<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        vcpu: usize,
        offset: u32,
        size: u8,
        value: u64,
    ) {
        if vcpu == self.index {
            self.own_redist_write(cx, offset, size, value);
            self.settle(cx);
        } else if vcpu < cx.vgic.vcpus() {
            cx.host.remote(self, cx.vif, vcpu, RemoteOp::RedistWrite { offset, size, value });
        }
    }

    pub(crate) fn own_redist_read<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        offset: u32,
        size: u8,
    ) -> u64 {
        if let Some(value) = self.redist_read_light(cx.vgic, offset, size) {
            return value;
        }
        // What the guest has done with the interrupts is in the list registers.
        for intid in 0..32 {
            if self.slot(intid).is_some() || self.outside.contains(intid) {
                self.reconcile(cx, intid);
            }
        }
        u64::from(match bank(offset - gicr::SGI_FRAME) {
            Bank::SetPending | Bank::ClearPending => self.pending_bank(cx.vif),
            _ => self.active.block(0),
        })
    }

    /// Returns `GICR_ISPENDR0`: latches, and the lines of level-sensitive interrupts, active or not.
    fn pending_bank<V: VirtualInterface>(&mut self, vif: &mut V) -> u32 {
        self.sample_lines(vif);
        let mut lines = self.line;
        for intid in set_bits(self.held & !self.held_pending()) {
            lines |= u32::from(vif.is_asserted(self.pintid[intid as usize & 31])) << intid;
        }
        self.latch.block(0) | lines & !self.edge | self.held_pending()
    }

    pub(crate) fn own_redist_write<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        offset: u32,
        size: u8,
        value: u64,
    ) {
        if offset == gicr::WAKER && size == 4 {
            // The children wake up and fall asleep at once. Delivery does not depend on it: guests
            // that were written for KVM do not wake their redistributor.
            let sleep = value as u32 & gicr::PROCESSOR_SLEEP;
            self.waker = sleep | if sleep != 0 { gicr::CHILDREN_ASLEEP } else { 0 };
        }
        let Some(offset) = offset.checked_sub(gicr::SGI_FRAME) else { return };
        let bank = bank(offset);
        if bank == Bank::Priority {
            if size == 1 || is_word(offset, size) {
                self.write_priority(cx, offset - gicd::PRIORITY, size, value);
            }
        } else if is_word(offset, size) && (block(offset) == 0 || bank == Bank::Config) {
            self.write_sgi_frame(cx, bank, offset, value as u32);
        }
    }

    fn write_priority<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        first: u32,
        size: u8,
        value: u64,
    ) {
        for byte in 0..u32::from(size) {
            let new = (value >> (8 * byte)) as u8 & cx.vgic.priority_mask;
            let intid = first + byte;
            if let Some(priority) = self.priority.get_mut(intid as usize)
                && *priority != new
            {
                *priority = new;
                self.reconcile(cx, intid);
            }
        }
        self.refresh_encoded();
    }

    fn write_sgi_frame<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        bank: Bank,
        offset: u32,
        value: u32,
    ) {
        match bank {
            Bank::Group => {
                let changed = self.group1 ^ value;
                self.group1 = value;
                self.refresh_encoded();
                cx.vgic.set_sgi_groups(self.index, value);
                self.reconfigured(cx, changed);
            }
            Bank::SetEnable => {
                let changed = !self.enabled & value;
                self.enabled |= value;
                self.reconfigured(cx, changed);
            }
            Bank::ClearEnable => {
                let changed = self.enabled & value;
                self.enabled &= !value;
                self.reconfigured(cx, changed);
            }
            // GICR_ICFGR0 is read-only: SGIs are edge-triggered.
            Bank::Config if offset == gicd::CONFIG + 4 => {
                let edge = config_to_bits(value) << 16 | 0xffff;
                let changed = self.edge ^ edge;
                self.edge = edge;
                self.reconfigured(cx, changed);
            }
            Bank::SetPending => {
                for intid in set_bits(value) {
                    self.fold(cx.vif, intid);
                    self.latch.insert(intid);
                    // What it leaves to do is noted as unsettled.
                    let _ = self.place_private(cx.vif, intid);
                }
            }
            Bank::ClearPending => set_bits(value).for_each(|intid| self.clear_pending(cx, intid)),
            Bank::SetActive => set_bits(value).for_each(|intid| {
                self.activate(cx, intid);
            }),
            Bank::ClearActive => set_bits(value).for_each(|intid| self.deactivate(cx, intid)),
            _ => {}
        }
    }

    /// Brings interrupts in line after a change of their configuration.
    fn reconfigured<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, changed: u32) {
        self.refresh_deliverable();
        set_bits(changed).for_each(|intid| self.reconcile(cx, intid));
    }
}

/// Reads a register that says which redistributor it is; `None` if it is another one.
fn identity(vgic: &Vgic, vcpu: usize, offset: u32, size: u8) -> Option<u64> {
    const TYPER_HIGH: u32 = gicr::TYPER + 4;
    const PIDR2: u32 = registers::GICV3_PIDR2.0;
    Some(match (offset, size) {
        (gicr::IIDR, 4) => u64::from(registers::IIDR),
        (gicr::TYPER, 8) => typer(vgic, vcpu),
        (gicr::TYPER, 4) => typer(vgic, vcpu) & 0xffff_ffff,
        (TYPER_HIGH, 4) => typer(vgic, vcpu) >> 32,
        (PIDR2, 4) => u64::from(registers::GICV3_PIDR2.1),
        _ => return None,
    })
}

/// Composes `GICR_TYPER`: the affinity, the number, and whether this is the last redistributor of its region.
fn typer(vgic: &Vgic, vcpu: usize) -> u64 {
    let mpidr = vgic.mpidr(vcpu).unwrap_or(0);
    let affinity = mpidr >> 8 & 0xff00_0000 | mpidr & 0x00ff_ffff;
    let last = u64::from([vgic.vcpus(), vgic.first_region].contains(&(vcpu + 1)));
    affinity << 32 | (vcpu as u64) << 8 | last << 4
}
