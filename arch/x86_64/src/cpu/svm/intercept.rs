// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What leaves the guest (APM vol. 2, 15.7 to 15.13), with the reason for each. What is not here stays the guest's own:
//! control registers, whose state nested paging keeps apart; CR8, by virtual interrupt masking, but on QEMU's TCG; debug registers; INVLPG;
//! RDTSC and RDTSCP, which add the guest's offset; task switches and RSM, which the CPU does within the guest's memory.

use super::vmcb::Vmcb;

/// Exceptions by vector.
mod exceptions {
    /// #DB and #AC whose delivery raises them again would keep the CPU in its microcode, with interrupts off, for ever.
    pub const DEBUG: u32 = 1 << 1;
    /// See [`DEBUG`].
    pub const ALIGNMENT: u32 = 1 << 17;
    /// A machine check is the machine's, not the guest's.
    pub const MACHINE_CHECK: u32 = 1 << 18;
    /// All of these.
    pub const ALWAYS: u32 = DEBUG | ALIGNMENT | MACHINE_CHECK;
    /// What IRET raises besides, #TS, #NP, #SS, #GP and #PF: only while one is stepped over.
    pub const OF_IRET: u32 = 0x1f << 10;
}

/// The first word (offset 0Ch).
mod first {
    /// Physical interrupts are the hypervisor's.
    pub const INTR: u32 = 1 << 0;
    /// So are NMIs.
    pub const NMI: u32 = 1 << 1;
    /// A virtual interrupt that the guest would take: only for the guest that is run to flush (`state::asid`).
    pub const VINTR: u32 = 1 << 4;
    /// A physical INIT must not reset the guest's registers in place of the CPU's.
    pub const INIT: u32 = 1 << 3;
    /// The machine's performance counters tell what others do.
    pub const RDPMC: u32 = 1 << 15;
    /// The guest sees a CPU of its own.
    pub const CPUID: u32 = 1 << 18;
    /// IRET ends the masking of NMIs: only while they are masked.
    pub const IRET: u32 = 1 << 20;
    /// It would drop what others have written and is still in the caches.
    pub const INVD: u32 = 1 << 22;
    /// A vCPU that spins may hold the CPU of the one it spins for: only where CPUs are shared.
    pub const PAUSE: u32 = 1 << 23;
    /// A vCPU that waits gives its CPU away, or at least lets it sleep until something is there for it.
    pub const HLT: u32 = 1 << 24;
    /// INVLPGA acts on other ASIDs.
    pub const INVLPGA: u32 = 1 << 26;
    /// Ports, by the permission map.
    pub const IOIO: u32 = 1 << 27;
    /// MSRs, by the permission map.
    pub const MSR: u32 = 1 << 28;
    /// A shutdown of the guest is not one of the machine.
    pub const SHUTDOWN: u32 = 1 << 31;
}

/// The second word (offset 10h).
mod second {
    /// Demanded by VMRUN itself; like the other SVM instructions #UD to the guest, whose EFER has SVME set only because
    /// VMRUN demands that, too.
    pub const VMRUN: u32 = 1 << 0;
    /// The hypercall.
    pub const VMMCALL: u32 = 1 << 1;
    /// See [`VMRUN`].
    pub const VMLOAD: u32 = 1 << 2;
    /// See [`VMRUN`].
    pub const VMSAVE: u32 = 1 << 3;
    /// See [`VMRUN`]: GIF is the hypervisor's.
    pub const STGI: u32 = 1 << 4;
    /// See [`STGI`].
    pub const CLGI: u32 = 1 << 5;
    /// It would start another hypervisor.
    pub const SKINIT: u32 = 1 << 6;
    /// It empties the caches of everybody, and takes long.
    pub const WBINVD: u32 = 1 << 9;
    /// Not offered: MWAIT would hold a CPU that the hypervisor could give to others.
    pub const MONITOR: u32 = 1 << 10;
    /// See [`MONITOR`].
    pub const MWAIT: u32 = 1 << 11;
    /// See [`MONITOR`].
    pub const MWAIT_ARMED: u32 = 1 << 12;
    /// XCR0 decides what of a vCPU has to be stored: it holds nothing that the machine's CPUID does not offer the guest.
    pub const XSETBV: u32 = 1 << 13;
    /// Not offered: it reads the machine's counters.
    pub const RDPRU: u32 = 1 << 14;
}

/// Writes of CR8, in the word of the control registers: always where a guest must not execute them. To intercept them only while
/// an interrupt is offered would cost each offer.
const WRITE_CR8: u32 = 1 << (16 + 8);

/// Sets the intercepts that every vCPU has.
pub fn set(vmcb: &mut Vmcb) {
    set_for(vmcb, super::carries_out_cr8());
}

/// See [`set`]; `with_cr8` says whether the guest's writes of CR8 are carried out for it.
fn set_for(vmcb: &mut Vmcb, with_cr8: bool) {
    vmcb.set_cr_intercepts(if with_cr8 { WRITE_CR8 } else { 0 });
    vmcb.set_dr_intercepts(0);
    vmcb.set_exception_intercepts(exceptions::ALWAYS);
    let first = first::INTR
        | first::NMI
        | first::INIT
        | first::RDPMC
        | first::CPUID
        | first::INVD
        | first::HLT
        | first::INVLPGA
        | first::IOIO
        | first::MSR
        | first::SHUTDOWN;
    let second = second::VMRUN
        | second::VMMCALL
        | second::VMLOAD
        | second::VMSAVE
        | second::STGI
        | second::CLGI
        | second::SKINIT
        | second::WBINVD
        | second::MONITOR
        | second::MWAIT
        | second::MWAIT_ARMED
        | second::XSETBV
        | second::RDPRU;
    vmcb.set_intercepts([first, second, 0]);
}

/// Sets the intercepts of a guest that leaves because of its virtual interrupt, and executes nothing.
pub fn set_virtual_interrupt(vmcb: &mut Vmcb) {
    vmcb.set_intercepts([first::INTR | first::NMI | first::INIT | first::VINTR, second::VMRUN, 0]);
}

/// Sets every intercept there is, as a service has them. Left out are the traps behind writes of control registers, which are
/// intercepted before, and the third word: what it holds is undefined or faults at the privilege level of a service.
pub fn everything(vmcb: &mut Vmcb) {
    /// VMRUN to RDPRU.
    const SECOND: u32 = second::RDPRU | (second::RDPRU - 1);
    vmcb.set_cr_intercepts(u32::MAX);
    vmcb.set_dr_intercepts(u32::MAX);
    vmcb.set_exception_intercepts(u32::MAX);
    vmcb.set_intercepts([u32::MAX, SECOND, 0]);
}

fn change(vmcb: &mut Vmcb, bit: u32, on: bool) {
    let [first, second, third] = vmcb.intercepts();
    let changed = if on { first | bit } else { first & !bit };
    if changed != first {
        vmcb.set_intercepts([changed, second, third]);
    }
}

/// Lets the next IRET leave the guest, or no longer.
pub fn iret(vmcb: &mut Vmcb, on: bool) {
    change(vmcb, first::IRET, on);
}

/// Lets the faults of IRET leave the guest, or no longer.
pub fn faults(vmcb: &mut Vmcb, on: bool) {
    vmcb.set_exception_intercepts(exceptions::ALWAYS | if on { exceptions::OF_IRET } else { 0 });
}

/// Lets PAUSE leave the guest, or no longer.
pub fn pause(vmcb: &mut Vmcb, on: bool) {
    change(vmcb, first::PAUSE, on);
}

/// Says whether IRET leaves the guest.
pub fn has_iret(vmcb: &Vmcb) -> bool {
    vmcb.intercepts()[0] & first::IRET != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_of_cr8_leave_only_where_they_must() {
        for with_cr8 in [false, true] {
            let mut vmcb = Vmcb::new();
            set_for(&mut vmcb, with_cr8);
            // CR8 is bit 8 of the writes, which are the high half.
            assert_eq!(vmcb.cr_intercepts(), u32::from(with_cr8) << 24);
        }
    }

    #[test]
    fn what_belongs_to_the_machine_leaves() {
        let mut vmcb = Vmcb::new();
        set(&mut vmcb);
        // By number (APM vol. 2, appendix B, table B-1), not by the names above.
        assert_eq!(vmcb.exception_intercepts(), 1 << 1 | 1 << 17 | 1 << 18, "#DB, #AC, #MC");
        let [first, second, third] = vmcb.intercepts();
        let bits = |word: u32| (0..32).filter(|bit| word >> bit & 1 != 0).collect::<std::vec::Vec<u32>>();
        // INTR, NMI, INIT, RDPMC, CPUID, INVD, HLT, INVLPGA, ports, MSRs, shutdown.
        assert_eq!(bits(first), [0, 1, 3, 15, 18, 22, 24, 26, 27, 28, 31]);
        // VMRUN, VMMCALL, VMLOAD, VMSAVE, STGI, CLGI, SKINIT, WBINVD, MONITOR, MWAIT twice, XSETBV, RDPRU.
        assert_eq!(bits(second), [0, 1, 2, 3, 4, 5, 6, 9, 10, 11, 12, 13, 14]);
        assert_eq!((third, vmcb.dr_intercepts()), (0, 0));
    }
}
