// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The GICv2 virtual CPU interface: list registers in the memory of the GICH block (IHI 0048, 5.3).

use turnstile_vgic::{
    Backing, GroupEnables, ListRegister, LrState, MAX_LIST_REGISTERS, Maintenance, VirtualInterface,
};

use super::gic::CpuInterface;
use super::{control, lines};
use crate::cpu::regs::gicv2::{
    GICC_DIR, GICH_APR, GICH_EISR0, GICH_ELRSR0, GICH_HCR, GICH_LR, GICH_VMCR, GICH_VTR,
};

/// The virtual CPU interface of this physical CPU. Zero-sized: its state is the hardware's.
#[derive(Debug)]
pub struct Gich;

const LR_STATE_SHIFT: u32 = 28;
const LR_STATE: u32 = 3 << LR_STATE_SHIFT;
const LR_HW: u32 = 1 << 31;
const LR_GROUP1: u32 = 1 << 30;
const LR_EOI: u32 = 1 << 19;
const LR_PHYSICAL_SHIFT: u32 = 10;
/// CPUID: who sent an SGI.
const LR_SOURCE_SHIFT: u32 = 10;
const LR_PRIORITY_SHIFT: u32 = 23;
/// List registers keep the upper five bits of a priority.
const LR_PRIORITY_DROPPED: u32 = 3;

/// Encodes GICH_LR<n>.
#[inline] // A handful of shifts on the injection path.
pub(super) const fn encode(lr: ListRegister) -> u32 {
    let backing = match lr.backing {
        Backing::Software { eoi_maintenance: true } => LR_EOI,
        Backing::Software { eoi_maintenance: false } => 0,
        Backing::Hardware { pintid } => LR_HW | (pintid & 0x3ff) << LR_PHYSICAL_SHIFT,
    };
    // Never both: what is backed by hardware is no SGI.
    let source = (lr.source as u32 & 7) << LR_SOURCE_SHIFT;
    (lr.state as u32) << LR_STATE_SHIFT
        | backing
        | source
        | if lr.group1 { LR_GROUP1 } else { 0 }
        | (lr.priority as u32 >> LR_PRIORITY_DROPPED) << LR_PRIORITY_SHIFT
        | lr.intid & 0x3ff
}

impl CpuInterface for Gich {
    fn list_registers() -> usize {
        ((GICH_VTR.read() & 0x3f) as usize + 1).min(MAX_LIST_REGISTERS)
    }

    fn priority_bits() -> u32 {
        (GICH_VTR.read() >> 29 & 7) + 1
    }

    fn start_cpu() {
        for n in 0..Self::list_registers() {
            GICH_LR.write(n, 0);
        }
        GICH_HCR.write(control::EN);
        Self::reset();
    }

    fn reset() {
        GICH_APR.write(0);
        GICH_VMCR.write(0);
    }
}

impl VirtualInterface for Gich {
    #[inline] // One register read.
    fn read_lr(&mut self, n: usize) -> LrState {
        let value = GICH_LR.read(n);
        LrState::new(value >> LR_STATE_SHIFT & 1 != 0, value >> (LR_STATE_SHIFT + 1) & 1 != 0)
    }

    #[inline] // One register write.
    fn write_lr(&mut self, n: usize, lr: ListRegister) {
        GICH_LR.write(n, encode(lr));
    }

    fn encode(lr: ListRegister) -> u64 {
        encode(lr).into()
    }

    #[inline(always)] // One register read and one write.
    fn write_if_invalid(&mut self, n: usize, _: ListRegister, encoded: u64) -> bool {
        let invalid = GICH_LR.read(n) & LR_STATE == 0;
        if invalid {
            GICH_LR.write(n, encoded as u32);
        }
        invalid
    }

    #[inline(always)] // One register write.
    fn write_encoded(&mut self, n: usize, _: ListRegister, encoded: u64) {
        GICH_LR.write(n, encoded as u32);
    }

    #[inline] // One register write.
    fn clear_lr(&mut self, n: usize) {
        GICH_LR.write(n, 0);
    }

    #[inline] // One register read.
    fn empty_lrs(&mut self) -> u16 {
        GICH_ELRSR0.read() as u16
    }

    #[inline] // One register read.
    fn eoi_lrs(&mut self) -> u16 {
        GICH_EISR0.read() as u16
    }

    fn take_eoi_count(&mut self) -> u8 {
        let (count, rest) = control::split_eoi_count(GICH_HCR.read());
        if count != 0 {
            GICH_HCR.write(rest);
            // With EOImode 1 a write of GICV_EOIR deactivates nothing.
            if control::has_eoi_mode_1(GICH_VMCR.read()) {
                return 0;
            }
        }
        count
    }

    #[inline(always)] // Where the conditions are known, a constant.
    fn set_maintenance(&mut self, m: Maintenance) {
        GICH_HCR.write(control::maintenance(&m));
    }

    fn group_enables(&mut self) -> GroupEnables {
        control::group_enables(GICH_VMCR.read())
    }

    fn is_asserted(&mut self, pintid: u32) -> bool {
        lines::is_high(pintid)
    }

    fn deactivate_physical(&mut self, pintid: u32) {
        GICC_DIR.write(pintid);
    }
}
