// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Distributor registers that need the owners of SPIs (Arm IHI 0069, section 12.9; Arm IHI 0048, section 4.3).

use crate::hardware::VirtualInterface;
use crate::registers::{Bank, bank, block, config_to_bits, gicd, is_word, set_bits};
use crate::spi::{Flag, SpiWord};
use crate::{Context, GROUPS_CHANGED, Host, Model, RemoteOp, VcpuGic};

/// Bounds how often an activation runs after an SPI whose owner keeps changing. Each turn needs
/// another vCPU to have acknowledged and ended it, so a guest that does not provoke it needs one.
const ACTIVATE_ATTEMPTS: usize = 16;

impl VcpuGic {
    /// Reads a distributor register for this vCPU. Reserved offsets and wrong sizes read as zero.
    pub fn dist_read<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        offset: u32,
        size: u8,
    ) -> u64 {
        if let Some(value) = cx.vgic.dist_read_shared(offset, size) {
            return value;
        }
        if offset == gicd::CTLR && size == 4 {
            return self.read_control(cx);
        }
        if cx.vgic.model() == Model::Gicv2
            && let Some(value) = self.read_gicv2(cx, offset, size)
        {
            return value;
        }
        let block = block(offset);
        let state = self.state_of_owners(cx, block);
        let value = match bank(offset) {
            Bank::SetPending | Bank::ClearPending => {
                cx.vgic.gather(32 * block, SpiWord::pending) | state as u32
            }
            _ => (state >> 32) as u32,
        };
        self.settle(cx);
        u64::from(value)
    }

    /// Reads `GICD_CTLR`. With GICv3 a write to it is in progress (`RWP`) while a vCPU that has not looked at the group
    /// enables may be in its guest; this one is not, and looks before it is again.
    fn read_control<V: VirtualInterface, H: Host>(&self, cx: &Context<V, H>) -> u64 {
        // Before the others are looked at, as in `read_control_light`.
        let control = cx.vgic.control();
        let waits = cx.vgic.behind().any(|vcpu| vcpu != self.index && cx.host.is_resident(vcpu));
        u64::from(control | if waits { gicd::CTLR_RWP } else { 0 })
    }

    /// Asks each vCPU that owns an SPI of a block for what it holds.
    fn state_of_owners<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, block: u32) -> u64 {
        let mut state = 0;
        let mut asked = 0;
        for n in 0..32 {
            let owner = cx.vgic.spi(32 * block + n).and_then(|spi| spi.load().owner());
            // One question serves all that the same vCPU owns.
            let Some(owner) = owner else { continue };
            if asked >> n & 1 != 0 {
                continue;
            }
            asked |= cx.vgic.gather(32 * block, |word| word.owner() == Some(owner));
            state |= if owner == self.index {
                self.spi_state(cx, block)
            } else {
                cx.host.remote(self, cx.vif, owner, RemoteOp::State { block })
            };
        }
        state
    }

    /// Writes a distributor register for this vCPU. Reserved offsets, wrong sizes and read-only
    /// registers are ignored.
    pub fn dist_write<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        offset: u32,
        size: u8,
        value: u64,
    ) {
        if cx.vgic.model() == Model::Gicv2 && self.write_gicv2(cx, offset, size, value) {
            // Done: no register that a GICv3 has there.
        } else if (gicd::ROUTER..gicd::ROUTER_END).contains(&offset) {
            write_router(cx, offset, size, value);
        } else if bank(offset) == Bank::Priority && (size == 1 || is_word(offset, size)) {
            for byte in 0..u32::from(size) {
                let priority = (value >> (8 * byte)) as u8 & cx.vgic.priority_mask;
                configure(cx, offset - gicd::PRIORITY + byte, |word| word.with_priority(priority));
            }
        } else if bank(offset) == Bank::Control && (is_word(offset, size) || size == 2) {
            self.write_control(cx, offset, size, value as u32);
        } else if is_word(offset, size) {
            self.write_bank(cx, offset, value as u32);
        }
        self.settle(cx);
    }

    /// Writes `GICD_CTLR` or one of the registers for message-based SPIs.
    fn write_control<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        offset: u32,
        size: u8,
        value: u32,
    ) {
        let intid = value & 0x3ff;
        match offset {
            gicd::CTLR if size == 4 => self.write_groups(cx, value),
            // The message takes the place of the line: a level-sensitive interrupt stays asserted
            // until the message that clears it.
            gicd::SETSPI_NSR => {
                if is_edge(cx, intid) {
                    cx.vgic.pulse_spi(cx.host, intid);
                } else {
                    cx.vgic.set_spi_line(cx.host, intid, true);
                }
            }
            gicd::CLRSPI_NSR if intid >= 32 => {
                if is_edge(cx, intid) {
                    self.clear_spi_pending(cx, intid);
                } else {
                    cx.vgic.set_spi_line(cx.host, intid, false);
                }
            }
            _ => {}
        }
    }

    /// Changes the group enables. The other vCPUs are told and not waited for: there may be hundreds, and each looks
    /// in its own time, before it is in its guest again. With GICv3 `RWP` says when all have.
    fn write_groups<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, value: u32) {
        let new = value & gicd::CTLR_GROUPS;
        // First: who reads the new enables finds this vCPU behind until all others are.
        cx.vgic.set_behind(self.index);
        let old = cx.vgic.set_groups(new);
        if old != new {
            for vcpu in (0..cx.vgic.vcpus()).filter(|vcpu| *vcpu != self.index) {
                cx.vgic.set_behind(vcpu);
                cx.host.post(vcpu, GROUPS_CHANGED);
            }
        }
        self.groups_changed(cx);
        if new & !old != 0 {
            // Owners, too: one that saw the group off may be giving up just now.
            cx.vgic.signal_each(cx.host, |word| word.owner() != Some(self.index));
        }
    }

    /// Writes a register with one or two bits per INTID.
    fn write_bank<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, offset: u32, value: u32) {
        let first = 32 * block(offset);
        match bank(offset) {
            Bank::Group => {
                for n in 0..32 {
                    configure(cx, first + n, |word| word.with(Flag::Group1, value >> n & 1 != 0));
                }
            }
            Bank::Config => {
                let edges = config_to_bits(value);
                for n in 0..16 {
                    let intid = 4 * (offset - gicd::CONFIG) + n;
                    configure(cx, intid, |word| word.with(Flag::Edge, edges >> n & 1 != 0));
                }
            }
            Bank::SetEnable => {
                for n in set_bits(value) {
                    configure(cx, first + n, |word| word.with(Flag::Enabled, true));
                }
            }
            Bank::SetPending => {
                for n in set_bits(value) {
                    cx.vgic.pulse_spi(cx.host, first + n);
                }
            }
            Bank::ClearEnable => set_bits(value).for_each(|n| self.disable_spi(cx, first + n)),
            Bank::ClearPending => set_bits(value).for_each(|n| self.clear_spi_pending(cx, first + n)),
            Bank::SetActive => set_bits(value).for_each(|n| self.activate_spi(cx, first + n)),
            Bank::ClearActive => set_bits(value).for_each(|n| {
                if first != 0 {
                    self.dir(cx, first + n);
                }
            }),
            _ => {}
        }
    }

    /// Disables an SPI and takes it out of its owner's list registers before returning, so that the
    /// guest, for which `GICD_CTLR.RWP` reads as zero, does not take it afterwards.
    fn disable_spi<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        let Some(spi) = cx.vgic.spi(intid) else { return };
        if let Some((_, new)) = spi.update(|word| Some(word.with(Flag::Enabled, false)))
            && let Some(owner) = new.owner()
        {
            if owner == self.index {
                self.reconcile(cx, intid);
            } else {
                cx.host.remote(self, cx.vif, owner, RemoteOp::Recall { intid });
            }
        }
    }

    fn clear_spi_pending<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        let Some(spi) = cx.vgic.spi(intid) else { return };
        spi.update(|word| Some(word.with(Flag::Latch, false)));
        match spi.load().owner() {
            None => {}
            Some(owner) if owner == self.index => self.clear_pending(cx, intid),
            Some(owner) => {
                cx.host.remote(self, cx.vif, owner, RemoteOp::ClearPending { intid });
            }
        }
    }

    /// Makes an SPI active in its owner's custody, or in this vCPU's if it has no owner.
    fn activate_spi<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, intid: u32) {
        let Some(spi) = cx.vgic.spi(intid) else { return };
        for _ in 0..ACTIVATE_ATTEMPTS {
            let done = match spi.load().owner() {
                Some(owner) if owner != self.index => {
                    cx.host.remote(self, cx.vif, owner, RemoteOp::Activate { intid }) != 0
                }
                _ => self.activate(cx, intid),
            };
            if done {
                return;
            }
        }
    }
}

fn is_edge<V, H>(cx: &Context<V, H>, intid: u32) -> bool {
    cx.vgic.spi(intid).is_some_and(|spi| spi.load().has(Flag::Edge))
}

/// Changes an SPI's configuration and tells whom it concerns.
pub(crate) fn configure<V, H: Host>(cx: &Context<V, H>, intid: u32, change: impl Fn(SpiWord) -> SpiWord) {
    if let Some(spi) = cx.vgic.spi(intid)
        && let Some((_, new)) = spi.update(|word| Some(change(word)))
    {
        cx.vgic.signal(cx.host, intid, new);
    }
}

/// Writes `GICD_IROUTER<n>` or one half of it.
fn write_router<V, H: Host>(cx: &Context<V, H>, offset: u32, size: u8, value: u64) {
    let mask = match (offset & 7, size) {
        (0, 8) => !0,
        (0, 4) => 0xffff_ffff,
        (4, 4) => 0xffff_ffff << 32,
        _ => return,
    };
    let value = if offset & 4 != 0 { value << 32 } else { value };
    configure(cx, (offset - gicd::ROUTER) / 8, |word| word.with_router(word.router() & !mask | value & mask));
}
