// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is loaded when a vCPU becomes resident, and its reset.

use turnstile_papr::processors::Start;

use crate::cpu;
use crate::frame::Frame;
use crate::regs::{AMOR, DEC, HFSCR, HMEER, LPCR, LPIDR, PCR, lpcr, msr};
use crate::vcpu::Vcpu;

/// What the first vCPU begins with; all other registers are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootState {
    /// Where it begins.
    pub pc: u64,
    /// R3: the device tree's address.
    pub r3: u64,
    /// The byte order in which vCPUs begin, and take interrupts until they say otherwise.
    pub little_endian: bool,
}

/// LPCR of every guest, but for what it sets itself: radix translation by tables of its own, TLBIE and TLBSYNC for its own
/// translations, its own interrupts to itself, the hypervisor's to the hypervisor. All of them end STOP, which is why HEIC is
/// off: an external interrupt of the guest's would not end the hypervisor's. MSR.EE, which is 0, keeps it from being taken.
pub const GUEST_LPCR: u64 =
    lpcr::VPM1 | lpcr::UPRT | lpcr::HR | lpcr::GTSE | lpcr::LPES0 | lpcr::HVICE | lpcr::HDICE | lpcr::PECE;

/// What becomes of DEC while its vCPU does not run: far from ringing.
const FAR: u64 = 0x7fff_ffff;

/// Sets this CPU up.
pub fn start_cpu() {
    // SAFETY: the hypervisor runs in real mode: none of it has an effect on what it does. Guests may write all of AMR; what a
    // processor compatibility mode takes away stays.
    unsafe {
        LPIDR.write(0);
        LPCR.write(GUEST_LPCR);
        HFSCR.write(0);
        AMOR.write(u64::MAX);
        PCR.write(0);
        HMEER.write(0);
        DEC.write(FAR);
    }
    cpu::isync();
}

/// Puts a vCPU's registers into the state of its start; special-purpose registers have been reset.
pub fn reset_vcpu(frame: &mut Frame, vcpu: &Vcpu, start: Start) {
    frame.clear();
    frame.pc = start.entry;
    frame.set_gpr(3, start.argument);
    frame.msr = msr::SF | msr::ME | if vcpu.vm.lpcr() & lpcr::ILE != 0 { msr::LE } else { 0 };
}

/// Keeps the decrementer of a vCPU that does not run from ringing.
pub fn quiet() {
    // SAFETY: the vCPU is in no life, or its decrementer has been stored.
    unsafe { DEC.write(FAR) };
}

/// Has all CPUs done with the invalidations that this one has sent (Power ISA 3.0B Book III, 5.9.3.3).
pub fn finish_invalidations() {
    cpu::eieio();
    #[cfg(target_os = "none")]
    // SAFETY: waits.
    unsafe {
        core::arch::asm!("tlbsync", options(nostack, preserves_flags));
    }
    #[cfg(not(target_os = "none"))]
    crate::regs::fakes::write("TLBSYNC", 0);
    cpu::ptesync();
}
