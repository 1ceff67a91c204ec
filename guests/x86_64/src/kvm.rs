// SPDX-License-Identifier: Apache-2.0 OR MIT
//! KVM's paravirtual interface, as its documents describe it (Linux, Documentation/virt/kvm/x86: cpuid.rst, msr.rst,
//! hypercalls.rst).

use core::arch::asm;

use crate::cpu;

/// Bits of the features that the signature's next leaf has in EAX.
pub mod feature {
    /// The clock, by the MSRs of today.
    pub const CLOCK: u32 = 3;
    /// Stolen time.
    pub const STEAL_TIME: u32 = 5;
    /// Paravirtual EOI.
    pub const EOI: u32 = 6;
    /// A kick for a halted CPU.
    pub const UNHALT: u32 = 7;
    /// TLB flush by the record of stolen time.
    pub const TLB_FLUSH: u32 = 9;
    /// Interrupts to many CPUs by hypercall.
    pub const SEND_IPI: u32 = 11;
    /// Polling of the host before it halts can be switched off.
    pub const POLL_CONTROL: u32 = 12;
    /// The clock's stable bit can be believed.
    pub const CLOCK_STABLE: u32 = 24;
}

/// Model-specific registers.
pub mod msr {
    /// Wall clock at boot.
    pub const WALL_CLOCK: u32 = 0x4b56_4d00;
    /// The clock of a CPU.
    pub const SYSTEM_TIME: u32 = 0x4b56_4d01;
    /// Asynchronous page faults.
    pub const ASYNC_PF: u32 = 0x4b56_4d02;
    /// Stolen time.
    pub const STEAL_TIME: u32 = 0x4b56_4d03;
    /// Paravirtual EOI.
    pub const PV_EOI: u32 = 0x4b56_4d04;
    /// Polling.
    pub const POLL_CONTROL: u32 = 0x4b56_4d05;
}

/// Hypercalls.
pub mod call {
    /// Wakes a halted CPU: flags, APIC identifier.
    pub const KICK_CPU: u64 = 5;
    /// Sends an interrupt: two words of a bitmap, its first APIC identifier, the ICR's low half.
    pub const SEND_IPI: u64 = 10;
}

/// The answer to an unknown hypercall.
pub const ENOSYS: u64 = -1000_i64 as u64;

/// Returns the leaf of KVM's signature.
pub fn base() -> Option<u32> {
    if !cpu::has(cpu::feature::HYPERVISOR) {
        return None;
    }
    (0x4000_0000..0x4001_0000).step_by(0x100).find(|leaf| {
        let [_, ebx, ecx, edx] = cpu::cpuid(*leaf, 0);
        // "KVMKVMKVM" and three zero bytes.
        [ebx, ecx, edx] == [0x4b4d_564b, 0x564b_4d56, 0x4d]
    })
}

/// Says whether the hypervisor offers a feature.
pub fn has(feature: u32) -> bool {
    base().is_some_and(|leaf| {
        let [eax, ..] = cpu::cpuid(leaf + 1, 0);
        eax >> feature & 1 != 0
    })
}

/// Makes a hypercall (VMMCALL).
pub fn hypercall(number: u64, arguments: [u64; 4]) -> u64 {
    let [b, c, d, s] = arguments;
    let result;
    // SAFETY: RBX, which is the compiler's, is put back; the hypervisor changes RAX only, and what the call is about.
    unsafe {
        asm!("xchg {b}, rbx", "vmmcall", "xchg {b}, rbx", b = inout(reg) b => _, inout("rax") number => result,
            in("rcx") c, in("rdx") d, in("rsi") s, options(nostack));
    }
    result
}
