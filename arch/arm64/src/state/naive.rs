// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a vCPU's registers are between the two halves of a switch.

use turnstile_vgic::MAX_LIST_REGISTERS;

use crate::cpu::regs;
use crate::irq::CpuInterface;
use crate::irq::ich::{self, Ich};
use crate::state::debug::Points;
use crate::state::fp::Fp;

/// Registers that are stored and loaded together.
pub(crate) trait RegisterFile {
    /// Stores the registers.
    fn save(&mut self);

    /// Loads the registers.
    ///
    /// # Safety
    /// They were saved from the vCPU that is resident here.
    unsafe fn load(&self);
}

/// Defines a group of registers.
macro_rules! register_file {
    ($(#[$doc:meta])* $file:ident: $($register:ident)*) => {
        $(#[$doc])*
        #[derive(Debug, Default)]
        #[allow(non_snake_case, reason = "the architecture's names")]
        pub(crate) struct $file { $(pub(crate) $register: u64,)* }

        impl RegisterFile for $file {
            #[inline(always)] // Into one hook each.
            fn save(&mut self) {
                $(self.$register = regs::$register.read();)*
            }

            #[inline(always)] // Into one hook each.
            unsafe fn load(&self) {
                // SAFETY: the caller's promise: the guest gets back what it had.
                unsafe { $(regs::$register.write(self.$register);)* }
            }
        }
    };
}

register_file! {
    /// What EL1 and EL0 have.
    El1: SCTLR_EL12 CPACR_EL12 TTBR0_EL12 TTBR1_EL12 TCR_EL12 SPSR_EL12 ELR_EL12 AFSR0_EL12 AFSR1_EL12 ESR_EL12
        FAR_EL12 MAIR_EL12 AMAIR_EL12 VBAR_EL12 CONTEXTIDR_EL12 CNTKCTL_EL12 PAR_EL1 SP_EL1 SP_EL0 TPIDR_EL0
        TPIDRRO_EL0 TPIDR_EL1 CSSELR_EL1
}
register_file! {
    /// The guest's timers.
    Timers: CNTV_CTL_EL02 CNTV_CVAL_EL02 CNTP_CTL_EL02 CNTP_CVAL_EL02 CNTVOFF_EL2
}
register_file! {
    /// Traps and translation of the guest.
    Traps: VTCR_EL2 VTTBR_EL2 HCR_EL2 CPTR_EL2 MDCR_EL2 HSTR_EL2 CNTHCTL_EL2
}
register_file! {
    /// The guest's CPU interface.
    Interface: ICH_VMCR_EL2 ICH_AP0R0_EL2 ICH_AP1R0_EL2
}
register_file! {
    /// Active priorities with six preemption bits.
    Active6: ICH_AP0R1_EL2 ICH_AP1R1_EL2
}
register_file! {
    /// Active priorities with seven preemption bits.
    Active7: ICH_AP0R2_EL2 ICH_AP0R3_EL2 ICH_AP1R2_EL2 ICH_AP1R3_EL2
}

/// A vCPU's registers, while they are not in the CPU; and what of its CPU does not change.
#[derive(Debug, Default)]
pub struct Saved {
    pub(crate) el1: El1,
    pub(crate) timers: Timers,
    pub(crate) traps: Traps,
    /// ICH_MISR_EL2, ICH_EISR_EL2, ICH_ELRSR_EL2 and ICH_HCR_EL2.
    pub(crate) maintenance: [u64; 4],
    pub(crate) interface: Interface,
    pub(crate) active6: Active6,
    pub(crate) active7: Active7,
    pub(crate) preemption_bits: u64,
    pub(crate) list_registers: usize,
    pub(crate) lr: [u64; MAX_LIST_REGISTERS],
    pub(crate) fp: Fp,
    pub(crate) points: Points,
    pub(crate) mdscr: u64,
    /// Guards what others post, where they post under a lock.
    pub(crate) lock: spin::mutex::TicketMutex<()>,
    /// What the last look through said: something is pending for the guest.
    pub(crate) pending: bool,
}

impl Saved {
    /// Takes note of what a vCPU runs with, when it is resident and reset.
    pub fn begin(&mut self) {
        self.traps.save();
        self.list_registers = Ich::list_registers().min(MAX_LIST_REGISTERS);
        self.preemption_bits = Ich::preemption_bits();
        self.points = Points::new();
    }

    pub(crate) fn take_list_registers(&mut self) {
        for (n, place) in self.lr.iter_mut().enumerate().take(self.list_registers) {
            *place = ich::read_raw(n);
            ich::write_raw(n, 0);
        }
    }

    pub(crate) fn give_list_registers(&self) {
        for (n, value) in self.lr.iter().enumerate().take(self.list_registers) {
            ich::write_raw(n, *value);
        }
    }
}
