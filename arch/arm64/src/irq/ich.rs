// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The GICv3 virtual CPU interface: list registers in system registers (IHI 0069, 12.4).

use turnstile_vgic::{Backing, GroupEnables, ListRegister, LrState, Maintenance, VirtualInterface};

use super::gic::CpuInterface;
use super::{control, interface, lines};
use crate::cpu::regs;

/// The virtual CPU interface of this physical CPU. Zero-sized: its state is the hardware's.
#[derive(Debug)]
pub struct Ich;

const HCR_TDIR: u64 = 1 << 14;
const LR_STATE_SHIFT: u32 = 62;
const LR_HW: u64 = 1 << 61;
const LR_GROUP1: u64 = 1 << 60;
const LR_EOI: u64 = 1 << 41;

#[cfg(not(target_os = "none"))]
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

/// Goes to the instruction for ICH_LR<n>_EL2: a register's name is part of the instruction, so there is one for each,
/// and a branch behind it. Five instructions for every n; what a compiler makes of a `match` is longer.
#[cfg(target_os = "none")]
macro_rules! indexed_lr {
    ($instruction:literal, $($operand:tt)*) => {
        core::arch::asm!(
            "adr {way}, 2f",
            "add {way}, {way}, {n}, lsl #3",
            "br {way}",
            "2:",
            concat!(".irp n, 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n", $instruction, "\nb 3f\n.endr"),
            "3:",
            $($operand)*
        )
    };
}

/// Reads ICH_LR<n>_EL2.
#[inline(always)] // Five instructions on the path of every injection.
#[cfg(target_os = "none")]
pub(crate) fn read_raw(n: usize) -> u64 {
    let value;
    // SAFETY: the mask keeps the branch among the sixteen instructions; the model names no register that is not there.
    unsafe {
        indexed_lr!("mrs {value}, ich_lr\\n\\()_el2", n = in(reg) n & 15, way = out(reg) _, value = out(reg) value, options(nomem, nostack, preserves_flags));
    }
    value
}

/// Writes ICH_LR<n>_EL2.
#[inline(always)] // As above.
#[cfg(target_os = "none")]
pub(crate) fn write_raw(n: usize, value: u64) {
    // SAFETY: as above; list registers reach the guest only, and what is written was composed from checked parts.
    unsafe {
        indexed_lr!("msr ich_lr\\n\\()_el2, {value}", n = in(reg) n & 15, way = out(reg) _, value = in(reg) value, options(nomem, nostack, preserves_flags));
    }
}

/// Reads ICH_LR<n>_EL2.
#[cfg(not(target_os = "none"))]
pub(crate) fn read_raw(n: usize) -> u64 {
    each_lr!(n, register => register.read(), 0)
}

/// Writes ICH_LR<n>_EL2.
#[cfg(not(target_os = "none"))]
pub(crate) fn write_raw(n: usize, value: u64) {
    // SAFETY: a fake.
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
        unsafe { regs::ICH_HCR_EL2.write(control::EN.into()) };
        Self::reset();
    }

    fn reset() {
        // A guest may have changed it where the register is writable, or it was off for a guest with a GICv2.
        interface::use_system_registers(true);
        clear();
    }
}

/// Deactivates a physical interrupt of this CPU.
#[inline(always)] // One instruction.
pub(super) fn deactivate(intid: u32) {
    // SAFETY: deactivating an interrupt of this CPU only lets it come again.
    unsafe { regs::ICC_DIR_EL1.write(intid.into()) };
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
    #[inline] // One register read.
    fn read_lr(&mut self, n: usize) -> LrState {
        LrState::from_bits(read_raw(n) >> LR_STATE_SHIFT)
    }

    #[inline] // One register write.
    fn write_lr(&mut self, n: usize, lr: ListRegister) {
        write_raw(n, encode(lr));
    }

    fn encode(lr: ListRegister) -> u64 {
        encode(lr)
    }

    #[inline(always)] // One register read and one write: one register tells of all of them, without a branch to an instruction.
    fn write_if_invalid(&mut self, n: usize, _: ListRegister, encoded: u64) -> bool {
        let invalid = regs::ICH_ELRSR_EL2.read() >> (n & 15) & 1 != 0;
        if invalid {
            write_raw(n, encoded);
        }
        invalid
    }

    #[inline(always)] // One register write.
    fn write_encoded(&mut self, n: usize, _: ListRegister, encoded: u64) {
        write_raw(n, encoded);
    }

    #[inline] // One register write.
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
        let (count, rest) = control::split_eoi_count(regs::ICH_HCR_EL2.read() as u32);
        if count != 0 {
            // SAFETY: only the count changes.
            unsafe { regs::ICH_HCR_EL2.write(rest.into()) };
            // With EOImode 1 a write of EOIR deactivates nothing, and DIR traps while this matters. QEMU counts
            // such a write all the same; the architecture does not.
            if control::has_eoi_mode_1(regs::ICH_VMCR_EL2.read() as u32) {
                return 0;
            }
        }
        count
    }

    #[inline(always)] // Where the conditions are known, a constant.
    fn set_maintenance(&mut self, m: Maintenance) {
        let trap = if m.trap_dir { HCR_TDIR } else { 0 };
        // SAFETY: traps and maintenance conditions of the guest's own interface.
        unsafe { regs::ICH_HCR_EL2.write(u64::from(control::maintenance(&m)) | trap) };
    }

    fn group_enables(&mut self) -> GroupEnables {
        control::group_enables(regs::ICH_VMCR_EL2.read() as u32)
    }

    fn is_asserted(&mut self, pintid: u32) -> bool {
        lines::is_high(pintid)
    }

    fn deactivate_physical(&mut self, pintid: u32) {
        deactivate(pintid);
    }
}
