// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers of a CPU that runs vCPUs: what is set once, and when a vCPU starts.

use turnstile_papr::processors::Start;

use super::frame::Frame;
#[cfg(target_os = "none")]
use crate::board::mitigation;
use crate::cpu;
use crate::cpu::regs::{AMOR, DEC, HFSCR, HMEER, LPCR, LPIDR, PCR, PSSCR, msr};
use crate::vm::GUEST_LPCR;

/// What becomes of DEC while its vCPU does not run: far from ringing.
const FAR: u64 = 0x7fff_ffff;

/// Sets this CPU up.
pub fn start_cpu() {
    // SAFETY: the hypervisor runs in real mode: none of it has an effect on what it does. Guests may write all of AMR; what a
    // processor compatibility mode takes away stays; their STOP reaches no level that loses anything.
    unsafe {
        LPIDR.write(0);
        LPCR.write(GUEST_LPCR);
        HFSCR.write(0);
        AMOR.write(u64::MAX);
        PCR.write(0);
        HMEER.write(0);
        PSSCR.write(0);
        DEC.write(FAR);
    }
    cpu::isync();
}

/// Puts a vCPU's registers into the state of its start; special-purpose registers have been reset.
pub fn reset_vcpu(frame: &mut Frame, start: Start) {
    frame.clear();
    frame.pc = start.entry;
    frame.set_gpr(3, start.argument);
    frame.msr = msr::SF | msr::ME | if start.little_endian { msr::LE } else { 0 };
}

/// Says whether an address is that of an instruction by which a guest is entered: in the vectors, or in the image they are copied
/// from, where most calls and exits with statistics end.
pub fn is_return(address: u64) -> bool {
    #[cfg(target_os = "none")]
    {
        unsafe extern "C" {
            static turnstile_vectors: u8;
            static turnstile_return_exit: u8;
        }
        let vectors = &raw const turnstile_vectors as u64;
        let exit = &raw const turnstile_return_exit as u64;
        // Of the vectors, those that are executed are a copy.
        let is = |place: u64| [place, place.wrapping_sub(vectors)].contains(&address);
        is(exit) || mitigation::call_returns().iter().any(|place| is(*place))
    }
    #[cfg(not(target_os = "none"))]
    {
        let _ = address;
        false
    }
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
    crate::cpu::regs::fakes::write("TLBSYNC", 0);
    cpu::ptesync();
}
