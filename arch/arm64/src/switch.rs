// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load and reset: where a vCPU's system state meets the physical CPU.
//!
//! Nothing here runs on an exit. What belongs to the CPU is set once ([`start_cpu`]); what belongs to the VM
//! when its vCPU becomes resident ([`load`]); what belongs to the vCPU when it is reset ([`reset_vcpu`]), and
//! from then on it is the guest's own, in the registers (seed 004: EL1 state is never switched on an exit).

use crate::cpu;
use crate::fp;
use crate::irq::ich::Ich;
use crate::regs;

/// HCR_EL2 while a guest is resident, and so for ever: E2H=1 with TGE=0 keeps the hypervisor in the EL2&0
/// regime, so nothing is toggled between guest and hypervisor.
const HCR_GUEST: u64 = 1 << 0 // VM: stage 2
    | 1 << 1 // SWIO: set/way invalidation cleans too, so it cannot drop others' dirty lines
    | 1 << 3 | 1 << 4 | 1 << 5 // FMO, IMO, AMO: physical interrupts to EL2, virtual ones to the guest
    | 1 << 18 // TID3: ID registers
    | 1 << 19 // TSC: SMC
    | 1 << 20 // TIDCP: implementation-defined registers
    | 1 << 21 // TACR: ACTLR_EL1
    | 1 << 31 // RW: EL1 is AArch64
    | 1 << 34 // E2H
    | 1 << 35 // TLOR: limited ordering regions
    | 1 << 36 // TERR: error records
    | 1 << 37; // TEA: external aborts to EL2
/// TID5: GMID_EL1. Defined from Armv8.5 on (MTE), RES0 before.
const HCR_TID5: u64 = 1 << 58;

/// CPTR_EL2 (E2H format): FP untrapped, SVE and SME trapped, trace and activity monitors trapped.
const CPTR_GUEST: u64 = 3 << 20 | 1 << 28 | 1 << 30;

/// MDCR_EL2 without HPMN: PMU, SPE, trace filter and the debug communications channel trap; breakpoints,
/// watchpoints and the OS lock are the guest's.
const MDCR_GUEST: u64 = 1 << 5 | 1 << 6 | 1 << 14 | 1 << 19 | 1 << 27;

/// CNTHCTL_EL2 (E2H format): the guest's EL1 and EL0 use the physical counter and timer directly.
const CNTHCTL_GUEST: u64 = 1 << 10 | 1 << 11;

/// SCTLR_EL1 at reset: RES1 bits only; MMU and caches off.
const SCTLR_RESET: u64 = 0x30d0_0800;
/// SPSR_EL2 for a reset vCPU: EL1h, all exceptions masked.
const SPSR_RESET: u64 = 0x3c5;

fn id_field(value: u64, shift: u32) -> u64 {
    value >> shift & 0xf
}

/// Whether the CPU has a PMUv3 (0xf: an implementation-defined one).
fn has_pmu() -> bool {
    !matches!(id_field(regs::ID_AA64DFR0_EL1.read(), 8), 0 | 0xf)
}

/// Sets up what all guests on this CPU share.
pub fn start_cpu() {
    let mmfr0 = regs::ID_AA64MMFR0_EL1.read();
    let mmfr1 = regs::ID_AA64MMFR1_EL1.read();
    let pfr1 = regs::ID_AA64PFR1_EL1.read();
    let has_pmu = has_pmu();
    // SAFETY: traps and controls of guests; none of these affects the hypervisor's own execution. Zero in the
    // fine-grained trap registers traps what their "n" bits name (features that are not offered) and nothing
    // else. Registers of optional features are written only where ID registers say they exist.
    unsafe {
        let mte = if id_field(pfr1, 8) >= 2 { HCR_TID5 } else { 0 };
        regs::HCR_EL2.write(HCR_GUEST | mte);
        if id_field(regs::ID_AA64PFR0_EL1.read(), 40) != 0 || id_field(pfr1, 16) != 0 {
            // MPAM is not offered: EL1 must not choose its own partition (TRAPMPAM0EL1, TRAPMPAM1EL1).
            regs::MPAM2_EL2.write(1 << 49 | 1 << 48);
        }
        if id_field(mmfr1, 40) != 0 {
            regs::HCRX_EL2.write(0);
        }
        let fgt = id_field(mmfr0, 56);
        if fgt >= 1 {
            regs::HFGRTR_EL2.write(0);
            regs::HFGWTR_EL2.write(0);
            regs::HFGITR_EL2.write(0);
            regs::HDFGRTR_EL2.write(0);
            regs::HDFGWTR_EL2.write(0);
            if id_field(regs::ID_AA64PFR0_EL1.read(), 44) != 0 {
                regs::HAFGRTR_EL2.write(0);
            }
        }
        if fgt >= 2 {
            regs::HFGRTR2_EL2.write(0);
            regs::HFGWTR2_EL2.write(0);
            regs::HDFGRTR2_EL2.write(0);
            regs::HDFGWTR2_EL2.write(0);
            regs::HFGITR2_EL2.write(0);
        }
        regs::CPTR_EL2.write(CPTR_GUEST);
        regs::HSTR_EL2.write(0);
        let counters = if has_pmu { regs::PMCR_EL0.read() >> 11 & 0x1f } else { 0 };
        regs::MDCR_EL2.write(MDCR_GUEST | counters);
        if has_pmu {
            // One free-running 64-bit cycle counter that counts EL1 and EL0 only: what a trapped PMU shows.
            regs::PMCCFILTR_EL0.write(0);
            regs::PMCNTENSET_EL0.write(1 << 31);
            regs::PMCR_EL0.write(1 << 6 | 1);
        }
        regs::CNTHCTL_EL2.write(CNTHCTL_GUEST);
        regs::CNTHP_CTL_EL2.write(0);
        regs::CNTHV_CTL_EL2.write(0);
        cpu::isb();
    }
    Ich::start_cpu();
    stop_timers();
}

/// What a vCPU needs in EL2 registers to be resident.
#[derive(Clone, Copy, Debug)]
pub struct Residence {
    /// Stage 2 control.
    pub vtcr: u64,
    /// Stage 2 tables and VMID.
    pub vttbr: u64,
    /// Its MPIDR_EL1.
    pub vmpidr: u64,
    /// Subtracted from the physical counter.
    pub cntvoff: u64,
}

/// Makes a vCPU resident on this CPU.
pub fn load(residence: &Residence) {
    // SAFETY: the tables belong to the VM and live until it has been put everywhere. The CPU may hold
    // translations of an earlier life of this VMID; they are invalidated before the guest runs.
    unsafe {
        regs::VTCR_EL2.write(residence.vtcr);
        regs::VTTBR_EL2.write(residence.vttbr);
        regs::VPIDR_EL2.write(regs::MIDR_EL1.read());
        regs::VMPIDR_EL2.write(residence.vmpidr | 1 << 31);
        regs::CNTVOFF_EL2.write(residence.cntvoff);
        cpu::isb();
        cpu::dsb_ishst();
        cpu::tlbi_vmalls12e1is();
        cpu::dsb_ish();
        cpu::isb();
    }
}

/// Puts the system registers, FP and debug state of the resident vCPU into their reset state (Arm ARM D1.9),
/// with execution to begin at `entry`.
pub fn reset_vcpu(entry: u64) {
    // SAFETY: state of the guest only, none of which is used at EL2.
    unsafe {
        regs::SCTLR_EL12.write(SCTLR_RESET);
        regs::CPACR_EL12.write(0);
        regs::TTBR0_EL12.write(0);
        regs::TTBR1_EL12.write(0);
        regs::TCR_EL12.write(0);
        regs::SPSR_EL12.write(0);
        regs::ELR_EL12.write(0);
        regs::AFSR0_EL12.write(0);
        regs::AFSR1_EL12.write(0);
        regs::ESR_EL12.write(0);
        regs::FAR_EL12.write(0);
        regs::MAIR_EL12.write(0);
        regs::AMAIR_EL12.write(0);
        regs::VBAR_EL12.write(0);
        regs::CONTEXTIDR_EL12.write(0);
        regs::CNTKCTL_EL12.write(0);
        regs::CNTP_CTL_EL02.write(0);
        regs::CNTP_CVAL_EL02.write(0);
        regs::CNTV_CTL_EL02.write(0);
        regs::CNTV_CVAL_EL02.write(0);
        regs::PAR_EL1.write(0);
        regs::SP_EL1.write(0);
        regs::SP_EL0.write(0);
        regs::TPIDR_EL0.write(0);
        regs::TPIDRRO_EL0.write(0);
        regs::TPIDR_EL1.write(0);
        regs::CSSELR_EL1.write(0);
        regs::MDSCR_EL1.write(0);
        regs::OSLAR_EL1.write(0);
        regs::MDCCINT_EL1.write(0);
        if id_field(regs::ID_AA64DFR0_EL1.read(), 36) == 0 {
            regs::OSDLR_EL1.write(0);
        }
        // System register interface on, bypass off: where the register is writable the guest may have changed it.
        regs::ICC_SRE_EL1.write(7);
        if has_pmu() {
            regs::PMUSERENR_EL0.write(0);
        }
        regs::ELR_EL2.write(entry);
        regs::SPSR_EL2.write(SPSR_RESET);
    }
    fp::reset();
    crate::debug::reset();
    Ich::reset();
    cpu::isb();
}

/// Silences the timers of a vCPU that stops: their lines must not keep interrupting the CPU.
pub fn stop_timers() {
    // SAFETY: timers of the guest, which is not running.
    unsafe {
        regs::CNTV_CTL_EL02.write(0);
        regs::CNTP_CTL_EL02.write(0);
    }
    cpu::isb();
}
