// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The control block of a service: what a service can do, and why not more.
//!
//! It is the boundary: whatever a service does, it is left through this block, and the guest's is as it was. What a guest has in the
//! CPU while the service runs is one of these:
//!
//! | state | why a service neither sees nor changes it |
//! |---|---|
//! | general registers | in the frame; those that are no arguments are zero at the entry |
//! | segments, tables, control registers, EFER, DR6 and DR7, PAT, CR2, RFLAGS | the control block's |
//! | FS, GS, TR, LDTR, STAR, LSTAR, CSTAR, SFMASK, KernelGSBase, SYSENTER | exchanged by VMSAVE and VMLOAD (`entry.S`) |
//! | x87, MMX, SSE | CR0.EM and CR0.TS are set, CR4.OSFXSR is clear: #UD or #NM, also of WAIT |
//! | AVX, XCR0, XSAVE's state | CR4.OSXSAVE is clear: #UD; XSETBV is intercepted |
//! | PKRU, shadow stacks, FSBASE and GSBASE by instructions | CR4 has neither PKE, CET nor FSGSBASE: #UD |
//! | DR0 to DR3 | accesses are intercepted, and DR7 enables none of them |
//! | MSRs, CR8, performance counters, MONITOR's address | intercepted, all of them |
//! | TSC, CPUID | intercepted: who must not use them sees it at once |
//! | TSC_AUX | RDPID reads it; it cannot be changed |
//! | translations of the guest | another ASID; INVLPG and its kind are intercepted |
//! | virtual interrupts | the guest's control block; here V_IRQ is clear |
//!
//! SYSCALL, SYSENTER and interrupts by instruction have nowhere to go: EFER.SCE is clear, and both descriptor tables are empty. So is the
//! LDT, whatever the guest has, and the TSS: there is no way to another privilege level.

use crate::cpu::regs::{cr0, cr4, efer, flags};
use crate::cpu::svm::vmcb::{Segment, attribute, interrupt};
use crate::cpu::svm::{Vmcb, intercept, permission};
use crate::service::pages::ROOT;

/// CR0.ET: always one (APM vol. 2, 3.1.1).
const CR0_ET: u64 = 1 << 4;
/// DR6 and DR7 after a reset: no breakpoint is armed (APM vol. 2, 14.1.3).
const DR6_RESET: u64 = 0xffff_0ff0;
/// See [`DR6_RESET`].
const DR7_RESET: u64 = 0x400;
/// PAT after a reset (APM vol. 2, 7.8.2).
const PAT_RESET: u64 = 0x0007_0406_0007_0406;
/// The privilege level of a service's code.
const USER: u8 = 3;
/// The same in the attributes of a segment.
const DPL: u16 = (USER as u16) << 5;

/// Makes a control block that of a service that has never run: nothing is left of what it was. All of it is loaded at the next entry
/// but the ASID, which stays.
pub fn reset(vmcb: &mut Vmcb, nested_root: u64, has_umip: bool) {
    let asid = vmcb.asid();
    *vmcb = Vmcb::new();
    vmcb.set_asid(asid);
    intercept::everything(vmcb);
    vmcb.set_iopm(permission::PORTS.address());
    // Larger than a map of MSRs, and all ones as well.
    vmcb.set_msrpm(permission::PORTS.address());
    vmcb.set_interrupts(interrupt::MASKING);
    vmcb.set_nested_paging(1);
    vmcb.set_nested_root(nested_root);
    vmcb.set_efer(efer::SVME | efer::LME | efer::LMA);
    vmcb.set_cr0(cr0::PE | cr0::MP | cr0::EM | cr0::TS | CR0_ET | cr0::NE | cr0::WP | cr0::PG);
    vmcb.set_cr3(ROOT);
    vmcb.set_cr4(cr4::PAE | if has_umip { cr4::UMIP } else { 0 });
    vmcb.set_dr6(DR6_RESET);
    vmcb.set_dr7(DR7_RESET);
    vmcb.set_pat(PAT_RESET);
    vmcb.set_rflags(flags::RESERVED);
    let flat = Segment { limit: u32::MAX, ..Segment::default() };
    let data = Segment { selector: 0x2b, attributes: attribute::FLAT_DATA | DPL, ..flat };
    vmcb.set_cs(Segment { selector: 0x33, attributes: attribute::LONG_CODE | DPL, ..flat });
    vmcb.set_ss(data);
    vmcb.set_ds(data);
    vmcb.set_es(data);
    vmcb.set_cpl(USER);
    // VMLOAD takes FS, GS and the registers of SYSCALL and SYSENTER from here, which are zero, and these two.
    vmcb.set_ldtr(Segment { attributes: attribute::LDT & !attribute::PRESENT, ..Segment::default() });
    vmcb.set_tr(Segment { attributes: attribute::BUSY_TSS, ..Segment::default() });
}

/// Returns the name of an exit code that is a service's fault.
pub fn name(code: u32) -> &'static str {
    use crate::cpu::svm::code;
    match code {
        0x40 => "#DE, a division",
        0x41 => "#DB, a debug exception",
        0x46 => "#UD, an undefined instruction",
        0x47 => "#NM, an instruction of the FP unit",
        0x4c => "#SS, a stack fault",
        0x4d => "#GP, a general-protection fault",
        0x4e => "#PF, a page fault",
        0x51 => "#AC, an alignment check",
        _ if (0x40..=0x5f).contains(&code) => "an exception",
        0..=0x1f => "an access to a control register",
        0x20..=0x3f => "an access to a debug register",
        0x66..=0x6d => "an access to descriptor tables",
        0x6e => "RDTSC",
        code::RDPMC => "RDPMC",
        0x70 => "PUSHF",
        0x71 => "POPF",
        code::CPUID => "CPUID",
        code::IRET => "IRET",
        0x75 => "INT",
        code::PAUSE => "PAUSE",
        code::HLT => "HLT",
        code::IOIO => "IN or OUT",
        code::MSR => "RDMSR or WRMSR",
        code::SHUTDOWN => "a shutdown",
        0x80 | 0x82..=0x86 => "an SVM instruction",
        0x87 => "RDTSCP",
        0x88 => "ICEBP",
        0x8a..=0x8c => "MONITOR or MWAIT",
        code::XSETBV => "XSETBV",
        code::NESTED_PAGE_FAULT => "an access that its pages do not allow",
        code::INVALID => "a control block that VMRUN refuses",
        _ => "an instruction that is intercepted",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_intercepted() {
        let mut vmcb = Vmcb::new();
        reset(&mut vmcb, 0x1000, true);
        assert_eq!(
            (vmcb.cr_intercepts(), vmcb.dr_intercepts(), vmcb.exception_intercepts()),
            (u32::MAX, u32::MAX, u32::MAX)
        );
        // APM vol. 2, table B-1: all of the first word, VMRUN to RDPRU of the second.
        assert_eq!(vmcb.intercepts(), [u32::MAX, 0x7fff, 0]);
        assert_eq!((vmcb.iopm() % 4096, vmcb.msrpm()), (0, vmcb.iopm()));
        assert_eq!(vmcb.interrupts(), 1 << 24, "physical interrupts come, whatever RFLAGS.IF is");
    }

    #[test]
    fn no_facility_is_open() {
        let mut vmcb = Vmcb::new();
        reset(&mut vmcb, 0x1000, true);
        assert_eq!(vmcb.cr4(), 1 << 5 | 1 << 11, "PAE and UMIP alone");
        assert_eq!(vmcb.cr0() & 0x2e, 0x2e, "MP, EM, TS, NE");
        assert_eq!(vmcb.efer(), 1 << 8 | 1 << 10 | 1 << 12, "no SYSCALL");
        assert_eq!(vmcb.dr7(), 0x400, "no breakpoint");
        assert_eq!(vmcb.cpl(), 3);
        assert_eq!([vmcb.gdtr(), vmcb.idtr(), vmcb.fs(), vmcb.gs()], [Segment::default(); 4]);
        assert_eq!((vmcb.ldtr().limit, vmcb.tr().limit), (0, 0));
        reset(&mut vmcb, 0x1000, false);
        assert_eq!(vmcb.cr4(), 1 << 5, "without UMIP the intercepts keep the same instructions away");
    }

    #[test]
    fn nothing_is_left_after_a_reset() {
        let (mut vmcb, mut fresh) = (Vmcb::boxed(), Vmcb::boxed());
        reset(&mut fresh, 0x1000, true);
        fresh.set_asid(7);
        // SAFETY: integers, for which all bits may be set.
        unsafe { core::ptr::from_mut(&mut *vmcb).cast::<u8>().write_bytes(0xff, size_of::<Vmcb>()) };
        vmcb.set_asid(7);
        reset(&mut vmcb, 0x1000, true);
        // SAFETY: both are initialized integers.
        let bytes =
            [&vmcb, &fresh].map(|block| unsafe { *core::ptr::from_ref(&**block).cast::<[u8; 4096]>() });
        assert!(bytes[0] == bytes[1]);
    }
}
