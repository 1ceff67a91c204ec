// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The registers that only the distributor of a GICv2 has (Arm IHI 0048, section 4.3): those of the accessing vCPU's private
//! interrupts, targets by mask, and SGIs. All others are in `distributor` and `mmio`.

use crate::hardware::VirtualInterface;
use crate::mmio::configure;
use crate::registers::{Bank, bank, block, gicd, gicr, is_word};
use crate::{Context, Host, VcpuGic, Vgic};

/// Says whether a register is of INTIDs 0 to 31, which each vCPU has for itself.
fn is_banked(offset: u32) -> bool {
    match bank(offset) {
        Bank::Reserved | Bank::Control => false,
        Bank::Priority => offset < gicd::PRIORITY + 32,
        Bank::Targets => offset < gicd::TARGETS + 32,
        Bank::Config => offset < gicd::CONFIG + 8,
        Bank::Sgi => true,
        _ => block(offset) == 0,
    }
}

/// Returns the bytes of an access as offsets from its first, or none if it has a wrong size.
fn bytes(offset: u32, size: u8) -> core::ops::Range<u32> {
    if size == 1 || is_word(offset, size) { 0..u32::from(size) } else { 0..0 }
}

impl Vgic {
    /// Reads `GICD_ITARGETSR<n>` of SPIs. With one vCPU there is nothing to choose: it reads as zero.
    pub(crate) fn read_targets(&self, offset: u32, size: u8) -> u64 {
        let targets = |byte: u32| {
            let spi = self.spi(offset + byte - gicd::TARGETS).filter(|_| self.vcpus() > 1);
            spi.map_or(0, |spi| u64::from(spi.load().targets()))
        };
        bytes(offset, size).fold(0, |value, byte| value | targets(byte) << (8 * byte))
    }
}

impl VcpuGic {
    /// Reads a register that needs neither the owners of SPIs nor what is shared alone, or returns `None`.
    pub(crate) fn read_gicv2<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        offset: u32,
        size: u8,
    ) -> Option<u64> {
        if is_banked(offset) {
            let value = self.read_banked(cx, offset, size);
            self.settle(cx);
            return Some(value);
        }
        match bank(offset) {
            Bank::SetPending | Bank::ClearPending | Bank::SetActive | Bank::ClearActive
                if is_word(offset, size) =>
            {
                None
            }
            _ => Some(cx.vgic.read_config(offset, size)),
        }
    }

    /// Reads a register of this vCPU's own private interrupts.
    fn read_banked<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        offset: u32,
        size: u8,
    ) -> u64 {
        match bank(offset) {
            Bank::Targets if cx.vgic.vcpus() == 1 => 0,
            Bank::Targets => {
                bytes(offset, size).fold(0, |value, byte| value | 1 << (self.index as u32 & 7) << (8 * byte))
            }
            Bank::Sgi => bytes(offset, size).fold(0, |value, byte| {
                let senders = sgi_of(offset + byte).map_or(0, |(intid, _)| self.sources_of(cx, intid));
                value | u64::from(senders) << (8 * byte)
            }),
            bank => {
                if matches!(bank, Bank::SetPending | Bank::ClearPending) {
                    (0..16).for_each(|intid| self.receive(cx, intid));
                }
                self.own_redist_read(cx, gicr::SGI_FRAME + offset, size)
            }
        }
    }

    /// Writes a register that a GICv3 does not have, or has elsewhere. Returns whether it was one.
    pub(crate) fn write_gicv2<V: VirtualInterface, H: Host>(
        &mut self,
        cx: &mut Context<V, H>,
        offset: u32,
        size: u8,
        value: u64,
    ) -> bool {
        match bank(offset) {
            Bank::Control => return offset != gicd::CTLR,
            Bank::Targets => {
                for byte in bytes(offset, size) {
                    let targets = (value >> (8 * byte)) as u8 & cx.vgic.present;
                    if cx.vgic.vcpus() > 1 {
                        configure(cx, offset + byte - gicd::TARGETS, |word| word.with_targets(targets));
                    }
                }
            }
            Bank::Sgi if offset == gicd::SGIR && size == 4 => self.send_sgi(cx, value as u32),
            Bank::Sgi => {
                for byte in bytes(offset, size) {
                    let senders = (value >> (8 * byte)) as u8 & cx.vgic.present;
                    match sgi_of(offset + byte) {
                        Some((intid, true)) => self.set_sources(cx.vif, intid, senders),
                        Some((intid, false)) => self.clear_sources(cx, intid, senders),
                        None => {}
                    }
                }
            }
            bank if is_banked(offset) => {
                // The pending states of SGIs are those of their senders.
                let read_only =
                    if matches!(bank, Bank::SetPending | Bank::ClearPending) { 0xffff } else { 0 };
                self.own_redist_write(cx, gicr::SGI_FRAME + offset, size, value & !read_only);
            }
            // The rest of the frame, and what a GICv3 has behind it.
            Bank::Reserved => {}
            _ => return false,
        }
        true
    }

    /// Sends an SGI in the full tier.
    fn send_sgi<V: VirtualInterface, H: Host>(&mut self, cx: &mut Context<V, H>, value: u32) {
        let (intid, targets) = cx.vgic.sgir_targets(value, self.index);
        for target in targets {
            if target == self.index {
                // What it leaves to do is noted as unsettled.
                let _ = self.inject_sgi_from(cx.vif, intid, self.index);
            } else {
                cx.vgic.post_sgi(cx.host, target, intid, self.index);
            }
        }
    }
}

/// Returns the SGI of a byte of `GICD_CPENDSGIR<n>` or `GICD_SPENDSGIR<n>`, and whether it is the latter.
const fn sgi_of(offset: u32) -> Option<(u32, bool)> {
    match offset {
        gicd::CLEAR_SGI..gicd::SET_SGI => Some((offset - gicd::CLEAR_SGI, false)),
        gicd::SET_SGI..gicd::SET_SGI_END => Some((offset - gicd::SET_SGI, true)),
        _ => None,
    }
}
