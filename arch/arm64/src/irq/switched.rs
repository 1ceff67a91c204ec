// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of the interrupt controller goes with a vCPU from one physical CPU to the next, beside its list registers.

use turnstile_vm::attention::KickToken;

use super::gic::{Acknowledged, Gic, SGI_RESCHEDULE, Switched};
use super::gicv2::{self, Gicv2};
use super::gicv3::{self, Gicv3};
use super::ich::Ich;
use super::interface::{InterfaceState, use_system_registers};
use super::legacy::Gicv3Legacy;
use crate::cpu::regs::gicv2::{GICH_APR, GICH_VMCR};
use crate::cpu::{self, regs};

/// Ends the physical interrupts that a vCPU holds, which is being put: a bit for each PPI.
pub fn release_held<G: Gic>(mut held: u32) {
    while held != 0 {
        G::deactivate(Acknowledged(held.trailing_zeros()));
        held &= held - 1;
    }
}

/// Makes the physical interrupts active that a vCPU holds, before its timers are loaded.
pub fn restore_held<G: Gic>(mut held: u32) {
    while held != 0 {
        G::activate(held.trailing_zeros());
        held &= held - 1;
    }
}

impl Switched for Gicv3 {
    #[inline(always)] // Straight code, in one place.
    fn save_interface(state: &mut InterfaceState) {
        (state.sre, state.vmcr) = (regs::ICC_SRE_EL1.read(), regs::ICH_VMCR_EL2.read());
        state.active[0] = [regs::ICH_AP0R0_EL2.read(), regs::ICH_AP1R0_EL2.read()];
        let preemption_bits = Ich::preemption_bits();
        if preemption_bits >= 6 {
            state.active[1] = [regs::ICH_AP0R1_EL2.read(), regs::ICH_AP1R1_EL2.read()];
        }
        if preemption_bits >= 7 {
            state.active[2] = [regs::ICH_AP0R2_EL2.read(), regs::ICH_AP1R2_EL2.read()];
            state.active[3] = [regs::ICH_AP0R3_EL2.read(), regs::ICH_AP1R3_EL2.read()];
        }
    }

    #[inline(always)] // As above.
    unsafe fn load_interface(state: &InterfaceState) {
        let (sre, vmcr) = (state.sre, state.vmcr);
        let [first, second, third, fourth] = &state.active;
        let preemption_bits = Ich::preemption_bits();
        // SAFETY: state of the guest's interface only; registers beyond the implemented preemption bits do not exist
        // and are not touched (IHI 0069, 12.4.5).
        unsafe {
            regs::ICC_SRE_EL1.write(sre);
            regs::ICH_VMCR_EL2.write(vmcr);
            let [group0, group1] = *first;
            regs::ICH_AP0R0_EL2.write(group0);
            regs::ICH_AP1R0_EL2.write(group1);
            if preemption_bits >= 6 {
                let [group0, group1] = *second;
                regs::ICH_AP0R1_EL2.write(group0);
                regs::ICH_AP1R1_EL2.write(group1);
            }
            if preemption_bits >= 7 {
                let ([group0, group1], [last0, last1]) = (*third, *fourth);
                regs::ICH_AP0R2_EL2.write(group0);
                regs::ICH_AP0R3_EL2.write(last0);
                regs::ICH_AP1R2_EL2.write(group1);
                regs::ICH_AP1R3_EL2.write(last1);
            }
        }
    }

    #[cold]
    fn activate(intid: u32) {
        gicv3::activate_private(cpu::this().redistributor, intid);
    }

    fn reschedule(token: KickToken) {
        Self::kick(token | u64::from(SGI_RESCHEDULE) << 24);
    }
}

/// The interface of the hardware is the same; whether it works by system registers goes with the vCPU. A GICv3's, which
/// pay nothing for it, are the usual case, so this one leaves it as they need it.
impl Switched for Gicv3Legacy {
    fn save_interface(state: &mut InterfaceState) {
        Gicv3::save_interface(state);
        use_system_registers(true);
    }

    unsafe fn load_interface(state: &InterfaceState) {
        // First: it decides what ICH_VMCR_EL2 means.
        use_system_registers(false);
        // SAFETY: the caller's promise.
        unsafe { Gicv3::load_interface(state) };
    }

    fn activate(intid: u32) {
        Gicv3::activate(intid);
    }

    fn reschedule(token: KickToken) {
        Gicv3::reschedule(token);
    }
}

impl Switched for Gicv2 {
    #[inline(always)] // Straight code, in one place.
    fn save_interface(state: &mut InterfaceState) {
        state.vmcr = GICH_VMCR.read().into();
        state.active[0][0] = GICH_APR.read().into();
    }

    #[inline(always)] // As above.
    unsafe fn load_interface(state: &InterfaceState) {
        GICH_VMCR.write(state.vmcr as u32);
        GICH_APR.write(state.active[0][0] as u32);
    }

    #[cold]
    fn activate(intid: u32) {
        gicv2::activate_private(intid);
    }

    fn reschedule(token: KickToken) {
        Self::kick(token | u64::from(SGI_RESCHEDULE));
    }
}
