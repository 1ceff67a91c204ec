// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Model-specific registers and control registers, one zero-sized value each, with `read` and `write`.
//!
//! On the bare machine an access is one `rdmsr`, `wrmsr` or `mov`. Everywhere else it goes to a [`fakes`] recorder,
//! so that host tests run the exit handlers unchanged and assert exactly which registers they touched.
//!
//! Writing such a register can break memory safety, so `write` is `unsafe` everywhere.

#[cfg(not(target_os = "none"))]
pub use turnstile_arch_common::fakes;
use turnstile_arch_common::registers;

/// Reads a model-specific register by its number.
///
/// # Safety
/// The register exists: otherwise this is a fault of the hypervisor.
#[cfg(target_os = "none")]
#[inline(always)] // A few instructions.
pub unsafe fn read_msr(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the caller's promise. Reading changes no memory; the asm is not `pure`, because hardware changes these
    // registers.
    unsafe {
        core::arch::asm!("rdmsr", in("ecx") number, out("eax") low, out("edx") high, options(nomem, nostack, preserves_flags));
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register by its number.
///
/// # Safety
/// The register exists, takes the value, and the value keeps the hypervisor's own execution and the isolation of guests
/// intact.
#[cfg(target_os = "none")]
#[inline(always)] // A few instructions.
pub unsafe fn write_msr(number: u32, value: u64) {
    // SAFETY: the caller's promise. It may order with memory accesses, so it is not `nomem`.
    unsafe {
        core::arch::asm!(
            "wrmsr", in("ecx") number, in("eax") value as u32, in("edx") (value >> 32) as u32,
            options(nostack, preserves_flags)
        );
    }
}

/// Reads a model-specific register: it exists on every CPU that this crate accepts, or the caller has looked.
#[cfg(target_os = "none")]
macro_rules! rdmsr {
    ($number:literal) => {
        // SAFETY: it exists.
        unsafe { read_msr($number) }
    };
}

/// Writes a model-specific register.
#[cfg(target_os = "none")]
macro_rules! wrmsr {
    ($value:expr, $number:literal) => {
        write_msr($number, $value)
    };
}

registers! {
    rdmsr, wrmsr:
    /// Extended feature enable (APM vol. 2, 3.1.7).
    EFER = 0xc000_0080;
    /// Selectors for SYSCALL and SYSRET (APM vol. 2, 6.1.1).
    STAR = 0xc000_0081;
    /// SYSCALL target in 64-bit mode.
    LSTAR = 0xc000_0082;
    /// SYSCALL target in compatibility mode.
    CSTAR = 0xc000_0083;
    /// Flags that SYSCALL clears.
    SFMASK = 0xc000_0084;
    /// FS base.
    FS_BASE = 0xc000_0100;
    /// GS base.
    GS_BASE = 0xc000_0101;
    /// What SWAPGS exchanges with the GS base.
    KERNEL_GS_BASE = 0xc000_0102;
    /// What RDTSCP puts in ECX.
    TSC_AUX = 0xc000_0103;
    /// Where the local APIC is, and its mode (APM vol. 2, 16.3.1).
    APIC_BASE = 0x1b;
    /// Selector for SYSENTER.
    SYSENTER_CS = 0x174;
    /// Stack for SYSENTER.
    SYSENTER_ESP = 0x175;
    /// Target of SYSENTER.
    SYSENTER_EIP = 0x176;
    /// Control of speculation (APM vol. 2, 3.2.9; its bits are in `turnstile_mitigation::x86_64::spec_ctrl`).
    SPEC_CTRL = 0x48;
    /// Commands to the predictors of branches; it is written only (APM vol. 2, 3.2.9).
    PRED_CMD = 0x49;
    /// Machine-check capabilities (APM vol. 2, 9.3.1).
    MCG_CAP = 0x179;
    /// Machine-check status.
    MCG_STATUS = 0x17a;
    /// Page attribute table (APM vol. 2, 7.8).
    PAT = 0x277;
    /// When the local APIC's timer rings in TSC-deadline mode (Intel SDM vol. 3, 11.5.4.1).
    TSC_DEADLINE = 0x6e0;
    /// State components that XSAVES may save (APM vol. 2, 11.5.2).
    XSS = 0xda0;
    /// Virtual machine control (APM vol. 2, 15.30.1).
    VM_CR = 0xc001_0114;
    /// Where VMRUN saves the host's state (APM vol. 2, 15.30.4).
    VM_HSAVE_PA = 0xc001_0117;
    /// SPEC_CTRL's SSBD as a hypervisor below offers it.
    VIRT_SPEC_CTRL = 0xc001_011f;
    /// How loads and stores are carried out; families 15h to 18h.
    LS_CFG = 0xc001_1020;
    /// How instructions are decoded: from family 10h on, whether LFENCE waits.
    DE_CFG = 0xc001_1029;
    /// How branches are predicted, where CPUID says that there is a bit against SRSO.
    BP_CFG = 0xc001_102e;
}

/// Reads a control or debug register.
#[cfg(target_os = "none")]
macro_rules! read_control {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading a control register changes nothing.
        unsafe { core::arch::asm!(concat!("mov {}, ", $name), out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }};
}

/// Writes a control or debug register. It may change how memory is seen, so it is not `nomem`.
#[cfg(target_os = "none")]
macro_rules! write_control {
    ($value:expr, $name:literal) => {
        core::arch::asm!(concat!("mov ", $name, ", {}"), in(reg) $value, options(nostack, preserves_flags))
    };
}

registers! {
    read_control, write_control:
    /// Modes of operation (APM vol. 2, 3.1.1).
    CR0 = "cr0";
    /// Address of the last page fault.
    CR2 = "cr2";
    /// Root of the translation tables.
    CR3 = "cr3";
    /// Features in use (APM vol. 2, 3.1.3).
    CR4 = "cr4";
    /// Address of a breakpoint (APM vol. 2, 13.1.1).
    DR0 = "dr0";
    /// Address of a breakpoint.
    DR1 = "dr1";
    /// Address of a breakpoint.
    DR2 = "dr2";
    /// Address of a breakpoint.
    DR3 = "dr3";
}

/// PKRU (APM vol. 2, 5.6.7) as the guest has it whose vCPU is resident: the CPU has protection keys.
///
/// RDPKRU wants CR4.PKE. The hypervisor has it clear at all other times: the memory of guests is user pages to it, to which
/// the guest's keys would apply.
pub fn pkru() -> u32 {
    #[cfg(target_os = "none")]
    {
        let kept = CR4.read();
        let value: u32;
        // SAFETY: in between nothing but the stack is reached, whose pages are the supervisor's.
        unsafe {
            CR4.write(kept | cr4::PKE);
            core::arch::asm!("rdpkru", in("ecx") 0, out("eax") value, out("edx") _, options(nomem, nostack, preserves_flags));
            CR4.write(kept);
        }
        value
    }
    #[cfg(not(target_os = "none"))]
    {
        fakes::read("PKRU") as u32
    }
}

/// Bits of [`EFER`].
pub mod efer {
    /// SYSCALL and SYSRET.
    pub const SCE: u64 = 1;
    /// Long mode is enabled.
    pub const LME: u64 = 1 << 8;
    /// Long mode is active.
    pub const LMA: u64 = 1 << 10;
    /// No-execute pages.
    pub const NXE: u64 = 1 << 11;
    /// SVM instructions.
    pub const SVME: u64 = 1 << 12;
    /// Automatic IBRS.
    pub const AIBRSE: u64 = 1 << 21;
}

/// RFLAGS (APM vol. 2, 3.1.6).
pub(crate) mod flags {
    pub const TRAP: u64 = 1 << 8;
    pub const INTERRUPT: u64 = 1 << 9;
    pub const DIRECTION: u64 = 1 << 10;
    pub const NESTED: u64 = 1 << 14;
    pub const RESUME: u64 = 1 << 16;
    pub const VIRTUAL_8086: u64 = 1 << 17;
    /// Always set.
    pub const RESERVED: u64 = 1 << 1;
}

/// Bits of [`CR0`].
pub mod cr0 {
    /// Protected mode.
    pub const PE: u64 = 1;
    /// With [`TS`], WAIT faults.
    pub const MP: u64 = 1 << 1;
    /// There is no FP unit.
    pub const EM: u64 = 1 << 2;
    /// FP instructions fault.
    pub const TS: u64 = 1 << 3;
    /// FP errors are exceptions.
    pub const NE: u64 = 1 << 5;
    /// Read-only pages are read-only to the supervisor, too.
    pub const WP: u64 = 1 << 16;
    /// Paging.
    pub const PG: u64 = 1 << 31;
}

/// Bits of [`CR4`].
pub mod cr4 {
    /// Physical address extension.
    pub const PAE: u64 = 1 << 5;
    /// Machine-check exceptions.
    pub const MCE: u64 = 1 << 6;
    /// Global pages.
    pub const PGE: u64 = 1 << 7;
    /// FXSAVE and FXRSTOR move SSE registers, too.
    pub const OSFXSR: u64 = 1 << 9;
    /// SGDT and the like fault in user mode.
    pub const UMIP: u64 = 1 << 11;
    /// Tables of five levels.
    pub const LA57: u64 = 1 << 12;
    /// XSAVE.
    pub const OSXSAVE: u64 = 1 << 18;
    /// Protection keys.
    pub const PKE: u64 = 1 << 22;
    /// The supervisor does not execute user pages.
    pub const SMEP: u64 = 1 << 20;
    /// The supervisor reaches user pages only between STAC and CLAC.
    pub const SMAP: u64 = 1 << 21;
}
