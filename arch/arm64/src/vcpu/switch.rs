// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Load and reset: where a vCPU's system state meets the physical CPU.
//!
//! Nothing here runs on an exit. What belongs to the CPU is set once ([`start_cpu`]); what belongs to the VM
//! when its vCPU becomes resident ([`load`]); what belongs to the vCPU when it is reset ([`reset_vcpu`]), and
//! from then on it is the guest's own, in the registers (seed 004: EL1 state is never switched on an exit). Where vCPUs
//! share a CPU, `sched` stores and loads that.

use crate::cpu;
use crate::cpu::mode::{Mode, in_mode};
use crate::cpu::regs::{self, guest};
use crate::irq::{CpuInterface, Gic, in_gic};
use crate::memory::{coherence, service};
use crate::state::{Deferred, Timers};
use crate::vcpu::facility;
use crate::vm::Residence;

/// HCR_EL2 while a guest is resident, and so for ever, without what the mode adds ([`Mode::HCR`]). Bits that an older
/// CPU does not define are RES0 there: writing them has no effect.
const HCR_GUEST: u64 = 1 << 0 // VM: stage 2
    | 1 << 1 // SWIO: set/way invalidation cleans too, so it cannot drop others' dirty lines
    | 1 << 2 // PTW: a walk of the guest's in device memory faults in stage 2; one that EL2 asks for (AT) would abort there
    | 1 << 3 | 1 << 4 | 1 << 5 // FMO, IMO, AMO: physical interrupts to EL2, virtual ones to the guest
    | 1 << 18 // TID3: ID registers
    | 1 << 19 // TSC: SMC
    | 1 << 20 // TIDCP: implementation-defined registers
    | 1 << 21 // TACR: ACTLR_EL1
    | 1 << 31 // RW: EL1 is AArch64
    | 1 << 35 // TLOR: limited ordering regions
    | 1 << 36 // TERR: error records
    | 1 << 37; // TEA: external aborts to EL2
/// TID5: GMID_EL1. Defined from Armv8.5 on (MTE), RES0 before.
const HCR_TID5: u64 = 1 << 58;

/// What vCPUs that share a CPU need: FB and BSU (maintenance is broadcast, barriers are inner shareable), TWI.
const HCR_SHARED: u64 = 1 << 9 | 1 << 10 | 1 << 13;
/// TWE: WFE traps.
const HCR_TWE: u64 = 1 << 14;

/// SCTLR_EL1 at reset: RES1 bits only; MMU and caches off.
const SCTLR_RESET: u64 = 0x30d0_0800;
/// SPSR_EL2 for a reset vCPU: EL1h, all exceptions masked.
const SPSR_RESET: u64 = 0x3c5;

fn id_field(value: u64, shift: u32) -> u64 {
    value >> shift & 0xf
}

/// Sets up what all guests on this CPU share.
pub fn start_cpu() {
    in_mode!(start_cpu_in());
}

pub(crate) fn start_cpu_in<M: Mode>() {
    let mmfr0 = regs::ID_AA64MMFR0_EL1.read();
    let mmfr1 = regs::ID_AA64MMFR1_EL1.read();
    let pfr1 = regs::ID_AA64PFR1_EL1.read();
    // SAFETY: traps and controls of guests; none of these affects the hypervisor's own execution. Zero in the
    // fine-grained trap registers traps what their "n" bits name (features that are not offered) and nothing
    // else. Registers of optional features are written only where ID registers say they exist.
    unsafe {
        let mte = if id_field(pfr1, 8) >= 2 { HCR_TID5 } else { 0 };
        regs::HCR_EL2.write(HCR_GUEST | M::HCR | coherence::hcr() | mte);
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
        regs::HSTR_EL2.write(0);
        regs::VPIDR_EL2.write(regs::MIDR_EL1.read());
        regs::CNTHCTL_EL2.write(M::CNTHCTL);
        regs::CNTHP_CTL_EL2.write(0);
        if id_field(mmfr1, 8) != 0 {
            regs::CNTHV_CTL_EL2.write(0);
        }
        cpu::isb();
    }
    facility::start_cpu::<M>();
    in_gic!(start_interface());
    stop_timers_in::<M>();
}

fn start_interface<G: Gic>() {
    G::Interface::start_cpu();
}

/// Makes the VM of a vCPU, and its MPIDR_EL1 in it, those of this CPU.
#[inline] // Four registers of each switch.
pub fn load(residence: &Residence, vmpidr: u64) {
    // SAFETY: the tables belong to the VM and live until it has been put everywhere.
    unsafe {
        regs::VTCR_EL2.write(residence.vtcr);
        regs::VTTBR_EL2.write(residence.vttbr);
        regs::VMPIDR_EL2.write(vmpidr);
        regs::CNTVOFF_EL2.write(residence.cntvoff);
    }
}

/// Sets this CPU up to run services alone: nobody is resident here, and what a guest would have in its registers is reset.
pub fn run_services() {
    load(&Residence { vtcr: service::translation_control(), vttbr: 0, cntvoff: 0 }, 0);
    reset_vcpu(0);
}

/// Invalidates what all CPUs know of the translations of the resident vCPU's VM: before it begins a life, because there
/// may be some of an earlier one.
pub fn forget_vm() {
    cpu::isb();
    cpu::dsb_ishst();
    cpu::tlbi_vmalls12e1is();
    cpu::dsb_ish();
    cpu::isb();
}

/// Invalidates what this CPU knows of the first stage of the resident vCPU's VM. The entry to its guest synchronizes.
#[inline(always)] // Three instructions where two vCPUs of a VM take turns.
pub fn forget_stage1() {
    cpu::isb();
    cpu::tlbi_vmalle1();
    cpu::dsb_nsh();
}

/// Sets up what vCPUs that share this CPU need beside what all do. What a guest invalidates on its CPU it invalidates on
/// all, because it may have run there, and its barriers reach as far.
pub fn share_cpu() {
    // SAFETY: traps and the reach of maintenance of guests.
    unsafe { regs::HCR_EL2.write(regs::HCR_EL2.read() | HCR_SHARED) };
    cpu::isb();
}

/// Makes WFE trap, or not: while another vCPU waits for this CPU.
pub fn trap_wfe(trap: bool) {
    let hcr = regs::HCR_EL2.read() & !HCR_TWE;
    // SAFETY: a trap of guests; it takes effect when one is entered.
    unsafe { regs::HCR_EL2.write(hcr | if trap { HCR_TWE } else { 0 }) };
}

/// Puts the system registers of the resident vCPU into their reset state (Arm ARM D1.9),
/// with execution to begin at `entry`.
pub fn reset_vcpu(entry: u64) {
    in_mode!(reset_vcpu_in(entry));
}

pub(crate) fn reset_vcpu_in<M: Mode>(entry: u64) {
    // SAFETY: state of the guest only, none of which is used at EL2.
    unsafe {
        guest::SCTLR.write::<M>(SCTLR_RESET);
        guest::CPACR.write::<M>(0);
        guest::TTBR0.write::<M>(0);
        guest::TTBR1.write::<M>(0);
        guest::TCR.write::<M>(0);
        guest::SPSR.write::<M>(0);
        guest::ELR.write::<M>(0);
        guest::AFSR0.write::<M>(0);
        guest::AFSR1.write::<M>(0);
        guest::ESR.write::<M>(0);
        guest::FAR.write::<M>(0);
        guest::MAIR.write::<M>(0);
        guest::AMAIR.write::<M>(0);
        guest::VBAR.write::<M>(0);
        guest::CONTEXTIDR.write::<M>(0);
        guest::CNTKCTL.write::<M>(0);
        guest::CNTP_CTL.write::<M>(0);
        guest::CNTP_CVAL.write::<M>(0);
        guest::CNTV_CTL.write::<M>(0);
        guest::CNTV_CVAL.write::<M>(0);
        regs::PAR_EL1.write(0);
        regs::SP_EL1.write(0);
        regs::SP_EL0.write(0);
        regs::TPIDR_EL0.write(0);
        regs::TPIDRRO_EL0.write(0);
        regs::TPIDR_EL1.write(0);
        regs::CSSELR_EL1.write(0);
        regs::MDCCINT_EL1.write(0);
        Deferred::default().load();
        if id_field(regs::ID_AA64DFR0_EL1.read(), 36) == 0 {
            regs::OSDLR_EL1.write(0);
        }
        regs::ELR_EL2.write(entry);
        regs::SPSR_EL2.write(SPSR_RESET);
    }
    cpu::isb();
}

/// Takes the timers of the resident vCPU out of the CPU, where they are silent then: its VM is paused.
pub fn take_timers() -> Timers {
    fn take<M: Mode>() -> Timers {
        let mut timers = Timers::default();
        timers.put::<M>();
        timers
    }
    let timers = in_mode!(take());
    cpu::isb();
    timers
}

/// Gives the resident vCPU its timers back, and the clock that has stood still meanwhile.
pub fn return_timers(timers: &Timers, cntvoff: u64) {
    fn load<M: Mode>(timers: &Timers) {
        // SAFETY: those of the resident vCPU.
        unsafe { timers.load::<M>() };
    }
    // SAFETY: the clock of the guest, which does not run.
    unsafe { regs::CNTVOFF_EL2.write(cntvoff) };
    in_mode!(load(timers));
    cpu::isb();
}

/// Silences the timers of a vCPU that stops: their lines must not keep interrupting the CPU.
pub fn stop_timers() {
    in_mode!(stop_timers_in());
}

fn stop_timers_in<M: Mode>() {
    // SAFETY: timers of the guest, which is not running.
    unsafe {
        guest::CNTV_CTL.write::<M>(0);
        guest::CNTP_CTL.write::<M>(0);
    }
    cpu::isb();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::mode::{Nvhe, Vhe};
    use crate::cpu::regs::fakes::{self, Access};

    /// The names of registers that one mode has in the place of the other's: alias with VHE, own name without.
    const RENAMED: [(&str, &str); 20] = [
        ("SCTLR_EL12", "SCTLR_EL1"),
        ("CPACR_EL12", "CPACR_EL1"),
        ("TTBR0_EL12", "TTBR0_EL1"),
        ("TTBR1_EL12", "TTBR1_EL1"),
        ("TCR_EL12", "TCR_EL1"),
        ("SPSR_EL12", "SPSR_EL1"),
        ("ELR_EL12", "ELR_EL1"),
        ("AFSR0_EL12", "AFSR0_EL1"),
        ("AFSR1_EL12", "AFSR1_EL1"),
        ("ESR_EL12", "ESR_EL1"),
        ("FAR_EL12", "FAR_EL1"),
        ("MAIR_EL12", "MAIR_EL1"),
        ("AMAIR_EL12", "AMAIR_EL1"),
        ("VBAR_EL12", "VBAR_EL1"),
        ("CONTEXTIDR_EL12", "CONTEXTIDR_EL1"),
        ("CNTKCTL_EL12", "CNTKCTL_EL1"),
        ("CNTP_CTL_EL02", "CNTP_CTL_EL0"),
        ("CNTP_CVAL_EL02", "CNTP_CVAL_EL0"),
        ("CNTV_CTL_EL02", "CNTV_CTL_EL0"),
        ("CNTV_CVAL_EL02", "CNTV_CVAL_EL0"),
    ];

    fn written(f: impl FnOnce()) -> Vec<(&'static str, u64)> {
        fakes::reset();
        // One CPU's ID registers, with VHE: HCR_EL2 and the like are written as they say.
        fakes::set("ID_AA64MMFR1_EL1", 1 << 8);
        f();
        let writes = fakes::take_log().into_iter().filter_map(|access| match access {
            Access::Write(name, value) => Some((name, value)),
            Access::Read(_) => None,
        });
        writes.collect()
    }

    #[test]
    fn the_modes_reset_the_same_registers_by_their_own_names() {
        let vhe = written(|| reset_vcpu_in::<Vhe>(0x4000_0000));
        let nvhe = written(|| reset_vcpu_in::<Nvhe>(0x4000_0000));
        let renamed = |name| RENAMED.iter().find(|(alias, _)| *alias == name).map_or(name, |(_, own)| *own);
        let expected: Vec<_> = vhe.iter().map(|(name, value)| (renamed(name), *value)).collect();
        assert_eq!(nvhe, expected);
        for (alias, _) in RENAMED {
            assert!(vhe.iter().any(|(name, _)| *name == alias), "{alias} is not reset");
        }
    }

    /// Bits of HCR_EL2 (Arm ARM D24.2.48) by what a guest could do without them.
    const KEEPS_GUESTS: [(u32, &str); 14] = [
        (0, "reach all memory"),
        (1, "drop what others have in caches"),
        (2, "walk tables in device memory"),
        (3, "take the machine's FIQs"),
        (4, "take the machine's interrupts"),
        (5, "take the machine's SErrors"),
        (18, "read the CPU's own ID registers"),
        (19, "call the firmware"),
        (20, "use what the CPU's maker has added"),
        (21, "change ACTLR_EL1"),
        (31, "run AArch32 at EL1"),
        (35, "use limited ordering regions"),
        (36, "read error records"),
        (37, "take external aborts that are EL2's"),
    ];

    #[test]
    fn guests_are_kept_from_what_is_the_machines() {
        for writes in [written(start_cpu_in::<Vhe>), written(start_cpu_in::<Nvhe>)] {
            let hcr = writes.iter().rfind(|(name, _)| *name == "HCR_EL2").expect("it is written").1;
            for (bit, what) in KEEPS_GUESTS {
                assert!(hcr >> bit & 1 != 0, "a guest could {what}");
            }
        }
    }

    /// A vCPU may have run on other CPUs than the one on which it invalidates something.
    #[test]
    fn on_shared_cpus_maintenance_and_barriers_reach_all_and_waiting_traps() {
        const OTHERS: u64 = 1 << 31 | 1;
        fakes::reset();
        fakes::set("HCR_EL2", OTHERS);
        share_cpu();
        let (broadcast, inner_shareable, wait) = (1 << 9, 1 << 10, 1 << 13);
        assert_eq!(fakes::get("HCR_EL2"), OTHERS | broadcast | inner_shareable | wait);
    }

    #[test]
    fn a_cpu_is_set_up_in_the_formats_of_the_mode() {
        let value = |writes: &[(&str, u64)], register| {
            writes.iter().rfind(|(name, _)| *name == register).map(|(_, value)| *value).unwrap()
        };
        let (vhe, nvhe) = (written(start_cpu_in::<Vhe>), written(start_cpu_in::<Nvhe>));
        let differing = ["HCR_EL2", "CPTR_EL2", "CNTHCTL_EL2"];
        let of = |writes: &[(&str, u64)]| differing.map(|register| value(writes, register));
        let [hcr, cptr, cnthctl] = of(&vhe);
        assert_eq!((hcr >> 34 & 1, cptr, cnthctl), (1, 0x5000_0000, 0xc00));
        assert_eq!(of(&nvhe), [hcr & !(1 << 34), 0x4010_37ff, 3]);
        // The tables that force accesses to be cacheable mean something else without this bit.
        coherence::force();
        assert_eq!(value(&written(start_cpu_in::<Vhe>), "HCR_EL2"), hcr | 1 << 46);
        let timers = ["CNTV_CTL_EL0", "CNTP_CTL_EL0"].map(|register| value(&nvhe, register));
        assert_eq!(timers, [0, 0]);
        assert!(!nvhe.iter().any(|(name, _)| name.ends_with("_EL12") || name.ends_with("_EL02")));
    }
}
