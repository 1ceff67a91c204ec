// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The GICv3 virtual CPU interface: list registers in system registers (IHI 0069, 12.4).

use turnstile_vgic::{Backing, GroupEnables, ListRegister, LrState, Maintenance, VirtualInterface};

use super::{Acknowledged, CpuInterface, Gic, Gicv3, gicv3};
use crate::regs;

/// The virtual CPU interface of this physical CPU. Zero-sized: its state is the hardware's.
#[derive(Debug)]
pub struct Ich;

const HCR_EN: u64 = 1 << 0;
const HCR_LRENPIE: u64 = 1 << 2;
const HCR_NPIE: u64 = 1 << 3;
const HCR_VGRP0EIE: u64 = 1 << 4;
const HCR_VGRP0DIE: u64 = 1 << 5;
const HCR_VGRP1EIE: u64 = 1 << 6;
const HCR_VGRP1DIE: u64 = 1 << 7;
const HCR_TDIR: u64 = 1 << 14;
const HCR_EOICOUNT_SHIFT: u32 = 27;
const LR_STATE_SHIFT: u32 = 62;
const LR_HW: u64 = 1 << 61;
const LR_GROUP1: u64 = 1 << 60;
const LR_EOI: u64 = 1 << 41;
const VMCR_VENG0: u64 = 1 << 0;
const VMCR_VENG1: u64 = 1 << 1;
const VMCR_VEOIM: u64 = 1 << 9;

macro_rules! each_lr {
    ($n:expr, $register:ident => $access:expr, $none:expr) => {
        match $n {
            0 => {
                let $register = regs::ICH_LR0_EL2;
                $access
            }
            1 => {
                let $register = regs::ICH_LR1_EL2;
                $access
            }
            2 => {
                let $register = regs::ICH_LR2_EL2;
                $access
            }
            3 => {
                let $register = regs::ICH_LR3_EL2;
                $access
            }
            4 => {
                let $register = regs::ICH_LR4_EL2;
                $access
            }
            5 => {
                let $register = regs::ICH_LR5_EL2;
                $access
            }
            6 => {
                let $register = regs::ICH_LR6_EL2;
                $access
            }
            7 => {
                let $register = regs::ICH_LR7_EL2;
                $access
            }
            8 => {
                let $register = regs::ICH_LR8_EL2;
                $access
            }
            9 => {
                let $register = regs::ICH_LR9_EL2;
                $access
            }
            10 => {
                let $register = regs::ICH_LR10_EL2;
                $access
            }
            11 => {
                let $register = regs::ICH_LR11_EL2;
                $access
            }
            12 => {
                let $register = regs::ICH_LR12_EL2;
                $access
            }
            13 => {
                let $register = regs::ICH_LR13_EL2;
                $access
            }
            14 => {
                let $register = regs::ICH_LR14_EL2;
                $access
            }
            15 => {
                let $register = regs::ICH_LR15_EL2;
                $access
            }
            _ => $none,
        }
    };
}

/// Encodes ICH_LR<n>_EL2.
#[inline] // A handful of shifts on the injection path.
pub(super) const fn encode(lr: ListRegister) -> u64 {
    let backing = match lr.backing {
        Backing::Software { eoi_maintenance: true } => LR_EOI,
        Backing::Software { eoi_maintenance: false } => 0,
        Backing::Hardware { pintid } => LR_HW | (pintid as u64 & 0x1fff) << 32,
    };
    (lr.state as u64) << LR_STATE_SHIFT
        | backing
        | if lr.group1 { LR_GROUP1 } else { 0 }
        | (lr.priority as u64) << 48
        | lr.intid as u64
}

/// Reads ICH_LR<n>_EL2.
#[cfg(feature = "ablation")]
pub(crate) fn read_raw(n: usize) -> u64 {
    each_lr!(n, register => register.read(), 0)
}

/// Writes ICH_LR<n>_EL2.
pub(crate) fn write_raw(n: usize, value: u64) {
    // SAFETY: list registers reach the guest only; what is written was composed from checked parts.
    each_lr!(n, register => unsafe { register.write(value) }, ());
}

impl Ich {
    /// Returns how many preemption bits there are (5 to 7): how many active priority registers exist.
    pub fn preemption_bits() -> u64 {
        (regs::ICH_VTR_EL2.read() >> 26 & 7) + 1
    }
}

impl CpuInterface for Ich {
    fn list_registers() -> usize {
        (regs::ICH_VTR_EL2.read() & 0x1f) as usize + 1
    }

    fn priority_bits() -> u32 {
        (regs::ICH_VTR_EL2.read() >> 29 & 7) as u32 + 1
    }

    fn start_cpu() {
        for n in 0..Self::list_registers() {
            write_raw(n, 0);
        }
        // SAFETY: state of the guest's interface only.
        unsafe { regs::ICH_HCR_EL2.write(HCR_EN) };
        Self::reset();
    }

    fn reset() {
        // SAFETY: state of the guest's interface only. System register interface on, bypass off, for EL1 to see: a guest
        // may have changed it where the register is writable, or it was off for a guest with a GICv2.
        unsafe {
            regs::ICC_SRE_EL2.write(gicv3::SRE_EL2);
            regs::ICC_SRE_EL1.write(7);
        }
        clear();
    }
}

/// Clears what the guest's CPU interface keeps.
pub(super) fn clear() {
    let preemption_bits = Ich::preemption_bits();
    // SAFETY: state of the guest's interface only; AP registers beyond the implemented preemption bits
    // do not exist and are not touched (IHI 0069, 12.4.5).
    unsafe {
        regs::ICH_AP0R0_EL2.write(0);
        regs::ICH_AP1R0_EL2.write(0);
        if preemption_bits >= 6 {
            regs::ICH_AP0R1_EL2.write(0);
            regs::ICH_AP1R1_EL2.write(0);
        }
        if preemption_bits >= 7 {
            regs::ICH_AP0R2_EL2.write(0);
            regs::ICH_AP1R2_EL2.write(0);
            regs::ICH_AP0R3_EL2.write(0);
            regs::ICH_AP1R3_EL2.write(0);
        }
        // Binary points at their minimum, priority mask closed, groups disabled.
        regs::ICH_VMCR_EL2.write(0);
    }
}

impl VirtualInterface for Ich {
    #[inline] // One register read behind a jump table.
    fn read_lr(&mut self, n: usize) -> LrState {
        let value = each_lr!(n, register => register.read(), 0);
        LrState::new(value >> LR_STATE_SHIFT & 1 != 0, value >> (LR_STATE_SHIFT + 1) & 1 != 0)
    }

    #[inline] // One register write behind a jump table.
    fn write_lr(&mut self, n: usize, lr: ListRegister) {
        write_raw(n, encode(lr));
    }

    #[inline] // One register write behind a jump table.
    fn clear_lr(&mut self, n: usize) {
        write_raw(n, 0);
    }

    #[inline] // One register read.
    fn empty_lrs(&mut self) -> u16 {
        regs::ICH_ELRSR_EL2.read() as u16
    }

    #[inline] // One register read.
    fn eoi_lrs(&mut self) -> u16 {
        regs::ICH_EISR_EL2.read() as u16
    }

    fn take_eoi_count(&mut self) -> u8 {
        let hcr = regs::ICH_HCR_EL2.read();
        let count = hcr >> HCR_EOICOUNT_SHIFT & 0x1f;
        if count != 0 {
            // SAFETY: only the count changes.
            unsafe { regs::ICH_HCR_EL2.write(hcr & !(0x1f << HCR_EOICOUNT_SHIFT)) };
            // With EOImode 1 a write of EOIR deactivates nothing, and DIR traps while this matters. QEMU counts
            // such a write all the same; the architecture does not.
            if regs::ICH_VMCR_EL2.read() & VMCR_VEOIM != 0 {
                return 0;
            }
        }
        count as u8
    }

    fn set_maintenance(&mut self, m: Maintenance) {
        let bit = |on: bool, bit: u64| if on { bit } else { 0 };
        let value = HCR_EN
            | bit(m.lr_entry_not_present, HCR_LRENPIE)
            | bit(m.no_pending, HCR_NPIE)
            | bit(m.group0_enabled, HCR_VGRP0EIE)
            | bit(m.group0_disabled, HCR_VGRP0DIE)
            | bit(m.group1_enabled, HCR_VGRP1EIE)
            | bit(m.group1_disabled, HCR_VGRP1DIE)
            | bit(m.trap_dir, HCR_TDIR);
        // SAFETY: traps and maintenance conditions of the guest's own interface.
        unsafe { regs::ICH_HCR_EL2.write(value) };
    }

    fn group_enables(&mut self) -> GroupEnables {
        let vmcr = regs::ICH_VMCR_EL2.read();
        GroupEnables { group0: vmcr & VMCR_VENG0 != 0, group1: vmcr & VMCR_VENG1 != 0 }
    }

    fn deactivate_physical(&mut self, pintid: u32) {
        Gicv3::deactivate(Acknowledged(pintid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encodes_as_the_manual_lays_it_out() {
        let lr = ListRegister {
            intid: 27,
            source: 0,
            priority: 0xa0,
            group1: true,
            state: LrState::Pending,
            backing: Backing::Hardware { pintid: 27 },
        };
        assert_eq!(encode(lr), 0b01 << 62 | 1 << 61 | 1 << 60 | 0xa0 << 48 | 27 << 32 | 27);
        let soft = Backing::Software { eoi_maintenance: true };
        let lr = ListRegister { state: LrState::PendingActive, backing: soft, group1: false, ..lr };
        assert_eq!(encode(lr), 0b11 << 62 | 0xa0 << 48 | 1 << 41 | 27);
    }
}
