// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Instructions that Rust has no names for (AMD APM vol. 2 and 3).

use core::arch::asm;

/// Model-specific registers (AMD APM vol. 2, appendix A).
pub mod msr {
    /// Time-stamp counter.
    pub const TSC: u32 = 0x10;
    /// Address and mode of the local APIC.
    pub const APIC_BASE: u32 = 0x1b;
    /// Attributes of memory.
    pub const PAT: u32 = 0x277;
    /// When the APIC's timer fires, in ticks of the TSC.
    pub const TSC_DEADLINE: u32 = 0x6e0;
    /// The first register of the x2APIC.
    pub const X2APIC: u32 = 0x800;
    /// Extended features.
    pub const EFER: u32 = 0xc000_0080;
    /// Base of FS.
    pub const FS_BASE: u32 = 0xc000_0100;
    /// Base of GS.
    pub const GS_BASE: u32 = 0xc000_0101;
    /// What SWAPGS exchanges.
    pub const KERNEL_GS_BASE: u32 = 0xc000_0102;
}

/// Reads a model-specific register.
pub fn read_msr(number: u32) -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: changes no memory; an exception is reported, or expected by the caller.
    unsafe { asm!("rdmsr", in("ecx") number, out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Writes a model-specific register.
pub fn write_msr(number: u32, value: u64) {
    // SAFETY: callers write registers that this program does not depend on, or values that it can work with.
    unsafe {
        asm!("wrmsr", in("ecx") number, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack))
    };
}

/// What CPUID answers: EAX, EBX, ECX, EDX.
pub fn cpuid(leaf: u32, subleaf: u32) -> [u32; 4] {
    let (eax, ebx, ecx, edx): (u32, u64, u32, u32);
    // SAFETY: CPUID changes its four registers only; RBX is the compiler's.
    unsafe {
        asm!("mov {b}, rbx", "cpuid", "xchg {b}, rbx", b = out(reg) ebx, inout("eax") leaf => eax,
            inout("ecx") subleaf => ecx, out("edx") edx, options(nostack));
    }
    [eax, ebx as u32, ecx, edx]
}

/// Returns this CPU's APIC identifier, as CPUID tells it.
pub fn initial_apic_id() -> u64 {
    let [most, ..] = cpuid(0, 0);
    if most >= 0xb {
        let [_, levels, _, id] = cpuid(0xb, 0);
        if levels != 0 {
            return u64::from(id);
        }
    }
    let [_, ebx, ..] = cpuid(1, 0);
    u64::from(ebx >> 24)
}

/// Says whether a bit of leaf 1's ECX is set.
pub fn has(bit: u32) -> bool {
    let [_, _, ecx, _] = cpuid(1, 0);
    ecx >> bit & 1 != 0
}

/// Bits of leaf 1's ECX.
pub mod feature {
    /// The APIC can be driven by MSRs.
    pub const X2APIC: u32 = 21;
    /// The APIC's timer can take a deadline.
    pub const TSC_DEADLINE: u32 = 24;
    /// XSAVE.
    pub const XSAVE: u32 = 26;
    /// There is a hypervisor.
    pub const HYPERVISOR: u32 = 31;
}

/// Masks interrupts.
pub fn mask() {
    // SAFETY: nothing depends on interrupts being let in.
    unsafe { asm!("cli", options(nostack)) };
}

/// Lets interrupts in.
pub fn unmask() {
    // SAFETY: handlers keep all registers.
    unsafe { asm!("sti", options(nostack)) };
}

/// Lets interrupts in and waits for one, without a gap between the two; returns with interrupts masked.
pub fn wait() {
    // SAFETY: as above.
    unsafe { asm!("sti", "hlt", "cli", options(nostack)) };
}

/// Lets pending interrupts in; returns with interrupts masked.
pub fn take_interrupts() {
    // SAFETY: as above. STI holds interrupts off for one instruction.
    unsafe { asm!("sti", "nop", "nop", "cli", options(nostack)) };
}

/// Says that this is a loop that waits.
pub fn relax() {
    core::hint::spin_loop();
}

/// Reads the time-stamp counter, after what comes before it.
pub fn tsc() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: changes two registers only.
    unsafe { asm!("lfence", "rdtsc", out("eax") low, out("edx") high, options(nostack)) };
    u64::from(high) << 32 | u64::from(low)
}

/// Returns RFLAGS.
pub fn flags() -> u64 {
    let flags;
    // SAFETY: pushes and pops.
    unsafe { asm!("pushfq", "pop {}", out(reg) flags) };
    flags
}

/// Reads a control register by its name.
#[macro_export]
macro_rules! read_control {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: changes one general register only.
        unsafe { core::arch::asm!(concat!("mov {}, ", $name), out(reg) value, options(nostack)) };
        value
    }};
}

/// Writes a control register by its name, or a debug register.
#[macro_export]
macro_rules! write_control {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: callers write values that this program can work with, or expect the exception.
        unsafe { core::arch::asm!(concat!("mov ", $name, ", {}"), in(reg) value, options(nostack)) };
    }};
}

/// Waits with interrupts masked: for an NMI.
pub fn halt_masked() {
    // SAFETY: changes nothing.
    unsafe { asm!("cli", "hlt", options(nostack)) };
}
