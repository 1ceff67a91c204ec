// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Feature bits by leaf and register, and which of them guests may have (AMD APM vol. 3, appendix E; Intel SDM vol. 2A,
//! CPUID). Each list says what passes from the physical CPU; what the hypervisor adds by itself is in `compose`.

/// Makes the mask of bit numbers.
const fn bits(numbers: &[u32]) -> u32 {
    let mut mask = 0;
    let mut at = 0;
    while at < numbers.len() {
        mask |= 1 << numbers[at];
        at += 1;
    }
    mask
}

/// Leaf 1 ECX: the initial APIC has an x2APIC mode.
pub const X2APIC: u32 = 1 << 21;
/// Leaf 1 ECX: the APIC timer has a TSC deadline mode.
pub const TSC_DEADLINE: u32 = 1 << 24;
/// Leaf 1 ECX: XSAVE and XCR0.
pub const XSAVE: u32 = 1 << 26;
/// Leaf 1 ECX: CR4.OSXSAVE as it is.
pub const OSXSAVE: u32 = 1 << 27;
/// Leaf 1 ECX: there is a hypervisor.
pub const HYPERVISOR: u32 = 1 << 31;
/// Leaf 1 EDX: several logical processors.
pub const HTT: u32 = 1 << 28;
/// Leaf 1 EDX, and 8000_0001 EDX: a local APIC that is enabled.
pub const APIC: u32 = 1 << 9;
/// Leaf 7 ECX: CR4.PKE as it is.
pub const OSPKE: u32 = 1 << 4;
/// Leaf 8000_0001 ECX: one thread of several per package, by the legacy method.
pub const CMP_LEGACY: u32 = 1 << 1;
/// Leaf 8000_0001 ECX: leaves 8000_001d and 8000_001e.
pub const TOPOLOGY: u32 = 1 << 22;
/// Leaf 6 EAX: the APIC timer runs in every power state.
pub const ARAT: u32 = 1 << 2;

/// Leaf 1 ECX: SSE3, PCLMULQDQ, SSSE3, FMA, CX16, PCID, SSE4.1, SSE4.2, MOVBE, POPCNT, AES, XSAVE, AVX, F16C, RDRAND.
/// Without MONITOR, whose wait nobody could end; performance monitoring; virtualization.
pub const LEAF_1_ECX: u32 = bits(&[0, 1, 9, 12, 13, 17, 19, 20, 22, 23, 25, 26, 28, 29, 30]);

/// Leaf 1 EDX: x87, VME, DE, PSE, TSC, MSR, PAE, MCE, CX8, APIC, SYSENTER, MTRR, PGE, MCA, CMOV, PAT, PSE36, CLFLUSH,
/// MMX, FXSR, SSE, SSE2.
pub const LEAF_1_EDX: u32 =
    bits(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 19, 23, 24, 25, 26]);

/// Leaf 7 EBX: FSGSBASE, BMI1, AVX2, SMEP, BMI2, ERMS, INVPCID, AVX512F, AVX512DQ, RDSEED, ADX, SMAP, AVX512IFMA,
/// CLFLUSHOPT, CLWB, AVX512CD, SHA, AVX512BW, AVX512VL. Without TSC_ADJUST, resource control and MPX.
pub const LEAF_7_EBX: u32 = bits(&[0, 3, 5, 7, 8, 9, 10, 16, 17, 18, 19, 20, 21, 23, 24, 28, 29, 30, 31]);

/// Leaf 7 ECX: AVX512_VBMI, UMIP, PKU, AVX512_VBMI2, GFNI, VAES, VPCLMULQDQ, AVX512_VNNI, AVX512_BITALG, VPOPCNTDQ, LA57,
/// RDPID.
pub const LEAF_7_ECX: u32 = bits(&[1, 2, 3, 6, 8, 9, 10, 11, 12, 14, 16, 22]);

/// Leaf 7 EDX: fast short REP MOV, VP2INTERSECT.
pub const LEAF_7_EDX: u32 = bits(&[4, 8]);

/// Leaf 7, subleaf 1, EAX: AVX-VNNI, AVX512_BF16, the fast short forms of REP.
pub const LEAF_7_1_EAX: u32 = bits(&[4, 5, 10, 11, 12]);

/// XCR0 that may be offered: x87, SSE, AVX, AVX-512 (three parts), PKRU.
pub const XCR0: u64 = bits(&[0, 1, 2, 5, 6, 7, 9]) as u64;

/// Leaf d, subleaf 1, EAX: XSAVEOPT, XSAVEC, XGETBV of 1. Without XSAVES, whose supervisor state is not offered.
pub const LEAF_D_1_EAX: u32 = bits(&[0, 1, 2]);

/// Leaf 8000_0001 ECX: LAHF, alternative CR8 by LOCK MOV, ABM, SSE4A, misaligned SSE, 3DNow! prefetch, XOP, FMA4, TBM.
/// Without SVM, IBS, SKINIT, lightweight profiling, watchdog, performance counters and MONITORX.
pub const EXTENDED_1_ECX: u32 = bits(&[0, 4, 5, 6, 7, 8, 11, 16, 21]);

/// Leaf 8000_0001 EDX: what leaf 1 has, too, and SYSCALL, NX, the extensions of MMX, fast FXSAVE, 1 GiB pages, RDTSCP,
/// long mode, 3DNow! and its extensions.
pub const EXTENDED_1_EDX: u32 =
    bits(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 20, 22, 23, 24, 25, 26, 27, 29, 30, 31]);

/// Leaf 8000_0007 EDX: the TSC's rate does not change.
pub const EXTENDED_7_EDX: u32 = bits(&[8]);

/// Leaf 8000_0008 EBX: CLZERO, error pointers kept by XSAVE, WBNOINVD. What is about speculation comes with
/// [`crate::Processor::speculation`], here and below.
pub const EXTENDED_8_EBX: u32 = bits(&[0, 2, 9]);

/// Leaf 8000_0021 EAX: no nested data breakpoints, null selectors clear bases.
pub const EXTENDED_21_EAX: u32 = bits(&[0, 6]);

/// KVM's features, EAX of leaf 4000_0001 (Linux, Documentation/virt/kvm/x86/cpuid.rst).
pub mod kvm {
    /// kvmclock at MSRs 0x11 and 0x12.
    pub const CLOCKSOURCE: u32 = 1 << 0;
    /// Ports need no delay after an access.
    pub const NOP_IO_DELAY: u32 = 1 << 1;
    /// kvmclock at MSRs 0x4b564d00 and 0x4b564d01.
    pub const CLOCKSOURCE2: u32 = 1 << 3;
    /// Steal time, MSR 0x4b564d03.
    pub const STEAL_TIME: u32 = 1 << 5;
    /// Paravirtual EOI, MSR 0x4b564d04.
    pub const PV_EOI: u32 = 1 << 6;
    /// KVM_HC_KICK_CPU.
    pub const PV_UNHALT: u32 = 1 << 7;
    /// Flushes of the TLB of a vCPU that does not run are left to the hypervisor.
    pub const PV_TLB_FLUSH: u32 = 1 << 9;
    /// KVM_HC_SEND_IPI.
    pub const PV_SEND_IPI: u32 = 1 << 11;
    /// MSR 0x4b564d05.
    pub const POLL_CONTROL: u32 = 1 << 12;
    /// kvmclock is monotonic across vCPUs.
    pub const CLOCKSOURCE_STABLE: u32 = 1 << 24;
}
