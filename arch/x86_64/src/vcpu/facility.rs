// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a vCPU is in registers that neither an exit nor VMRUN touches: extended state, the debug address registers,
//! TSC_AUX, and what VMLOAD and VMSAVE move (APM vol. 2, 15.5.2): FS, GS, TR, LDTR, KernelGSBase, the MSRs of SYSCALL and
//! SYSENTER. The hypervisor uses none of it.
//!
//! It is left in a physical CPU until another vCPU is to run there. Each CPU knows whose it is, the *holder*. [`load`] stores
//! what the holder has left and loads what the next one has, so that a vCPU that comes back to find nobody in between pays
//! nothing. A vCPU that goes to another CPU takes everything along ([`depart`]). A life begins with everything in its reset
//! state ([`reset`]); nothing that one guest has left is ever seen by another, or by its own next life.
//!
//! Nothing here waits for a first use: a trap of FP instructions (CR0.TS) would cost an exit for each vCPU that uses them,
//! which they all do, and a write of CR0 for each switch; and a CPU that speculates past it would find the registers of the
//! guest before.

#[cfg(test)]
pub(crate) mod tests;

use turnstile_arch_common::of_cpu;
use turnstile_exitstat::Event;

use crate::cpu;
use crate::vcpu::statistics;
use crate::vm::Vcpu;

/// Whose state a physical CPU has in its registers. This module alone sees who it is.
pub struct Holder(of_cpu::Holder<Vcpu>);

impl Holder {
    /// Makes that of a CPU that has not started: nobody.
    ///
    /// # Safety
    /// As for [`of_cpu::OfCpu::new`].
    pub const unsafe fn nobody() -> Self {
        // SAFETY: the caller's promise.
        Self(unsafe { of_cpu::Holder::nobody() })
    }
}

/// Whose state this CPU has.
#[inline(always)] // An address computation.
fn holder() -> &'static of_cpu::Holder<Vcpu> {
    let holder: &'static Holder = cpu::this().slot();
    &holder.0
}

/// Makes a vCPU that becomes resident the holder.
#[inline] // One comparison, for a vCPU that comes back.
pub fn load(vcpu: &'static Vcpu) {
    if !holder().is(vcpu) {
        take(vcpu);
    }
}

#[inline(never)] // Who comes back is not to pay for its registers.
fn take(vcpu: &'static Vcpu) {
    release();
    // SAFETY: the vCPU becomes resident here, and the registers are nobody's.
    unsafe {
        vcpu.facilities().load();
        vmload(vcpu);
    }
    statistics::add(vcpu, Event::FpLoaded);
    holder().set(vcpu);
}

/// Takes everything of a vCPU out of this CPU, which ran it last, before another CPU loads it.
pub fn depart(vcpu: &Vcpu) {
    if holder().is(vcpu) {
        release();
    }
}

/// Begins a life of the resident vCPU, of whose control block the part that VMLOAD loads has been reset.
pub fn reset(vcpu: &'static Vcpu) {
    if holder().is(vcpu) {
        holder().forget();
    }
    // SAFETY: the vCPU is resident, and nobody refers to its state.
    unsafe { vcpu.facilities().reset() };
    take(vcpu);
}

/// Stores what the holder has in registers. They are nobody's then.
#[inline(always)] // Half of a switch, which finds the holder once.
fn release() {
    let holder = holder();
    let Some(vcpu) = holder.get() else { return };
    // SAFETY: this CPU has run it last.
    unsafe { vcpu.facilities().save() };
    vmsave(vcpu);
    holder.forget();
}

/// Stores the part of a vCPU's control block that VMRUN leaves in the CPU.
fn vmsave(vcpu: &Vcpu) {
    #[cfg(target_os = "none")]
    // SAFETY: the control block of a vCPU whose state this CPU has; nobody refers to it, because it is in no exit. The
    // address is physical, too.
    unsafe {
        core::arch::asm!("vmsave rax", in("rax") vcpu.vmcb(), options(nostack, preserves_flags));
    }
    #[cfg(not(target_os = "none"))]
    crate::cpu::regs::fakes::write("VMSAVE", vcpu.index as u64);
}

/// Loads it.
///
/// # Safety
/// Nobody needs what is in the CPU.
unsafe fn vmload(vcpu: &Vcpu) {
    #[cfg(target_os = "none")]
    // SAFETY: as above, and the caller's promise. The hypervisor uses none of what is loaded.
    unsafe {
        core::arch::asm!("vmload rax", in("rax") vcpu.vmcb(), options(nostack, preserves_flags));
    }
    #[cfg(not(target_os = "none"))]
    crate::cpu::regs::fakes::write("VMLOAD", vcpu.index as u64);
}
