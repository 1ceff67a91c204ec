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

pub mod extended;
#[cfg(test)]
pub(crate) mod tests;

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

use turnstile_exitstat::Event;

use crate::cpu;
use crate::regs::{DR0, DR1, DR2, DR3, TSC_AUX};
use crate::statistics;
use crate::vcpu::Vcpu;
pub use extended::Extended;

/// Whether there is TSC_AUX: with RDTSCP, or with RDPID.
static HAS_TSC_AUX: AtomicBool = AtomicBool::new(false);

/// What a vCPU has that is not in registers.
pub struct State {
    extended: Extended,
    debug: [u64; 4],
    tsc_aux: u64,
}

impl State {
    /// Makes that of a vCPU that has never run.
    pub fn new() -> Self {
        Self { extended: Extended::new(), debug: [0; 4], tsc_aux: 0 }
    }

    /// Stores what is in registers, but what VMSAVE does.
    fn save(&mut self) {
        self.extended.save();
        self.debug = [DR0.read(), DR1.read(), DR2.read(), DR3.read()];
        if HAS_TSC_AUX.load(Ordering::Relaxed) {
            self.tsc_aux = TSC_AUX.read();
        }
    }

    /// Loads it.
    ///
    /// # Safety
    /// Nobody needs what is there.
    unsafe fn load(&self) {
        let [dr0, dr1, dr2, dr3] = self.debug;
        // SAFETY: the caller's promise. #VMEXIT switches breakpoints off (APM vol. 2, 15.6), so they watch the guest alone.
        unsafe {
            self.extended.load();
            DR0.write(dr0);
            DR1.write(dr1);
            DR2.write(dr2);
            DR3.write(dr3);
            if HAS_TSC_AUX.load(Ordering::Relaxed) {
                TSC_AUX.write(self.tsc_aux);
            }
        }
    }
}

impl Default for State {
    fn default() -> Self {
        Self::new()
    }
}

/// Whose state a physical CPU has in its registers. Only that CPU touches it.
#[derive(Debug)]
pub struct Holder(Cell<*const Vcpu>);

// SAFETY: each CPU touches only its own, which the functions of this module reach through `cpu::this`; nothing interrupts
// them.
unsafe impl Sync for Holder {}
// SAFETY: as above; before its CPU starts, the boot CPU alone has it.
unsafe impl Send for Holder {}

impl Holder {
    /// Makes that of a CPU that has not started: nobody.
    pub const fn new() -> Self {
        Self(Cell::new(ptr::null()))
    }
}

impl Default for Holder {
    fn default() -> Self {
        Self::new()
    }
}

/// Sets up this CPU. All are taken to be alike.
pub fn start_cpu() {
    /// CPUID Fn8000_0001_EDX.
    const RDTSCP: u32 = 1 << 27;
    /// CPUID Fn0000_0007_ECX.
    const RDPID: u32 = 1 << 22;
    extended::start_cpu();
    let has = cpu::cpuid(0x8000_0001, 0)[3] & RDTSCP != 0
        || cpu::cpuid(0, 0)[0] >= 7 && cpu::cpuid(7, 0)[2] & RDPID != 0;
    HAS_TSC_AUX.store(has, Ordering::Relaxed);
}

/// Makes a vCPU that becomes resident the holder.
#[inline] // One comparison, for a vCPU that comes back.
pub fn load(vcpu: &'static Vcpu) {
    if !ptr::eq(cpu::this().holder.0.get(), vcpu) {
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
    cpu::this().holder.0.set(vcpu);
}

/// Takes everything of a vCPU out of this CPU, which ran it last, before another CPU loads it.
pub fn depart(vcpu: &Vcpu) {
    if ptr::eq(cpu::this().holder.0.get(), vcpu) {
        release();
    }
}

/// Begins a life of the resident vCPU, of whose control block the part that VMLOAD loads has been reset.
pub fn reset(vcpu: &'static Vcpu) {
    if ptr::eq(cpu::this().holder.0.get(), vcpu) {
        cpu::this().holder.0.set(ptr::null());
    }
    // SAFETY: the vCPU is resident, and nobody refers to its state.
    let state = unsafe { vcpu.facilities() };
    state.extended.reset();
    state.debug = [0; 4];
    state.tsc_aux = 0;
    take(vcpu);
}

/// Stores what the holder has in registers. They are nobody's then.
fn release() {
    let holder = &cpu::this().holder.0;
    // SAFETY: null, or a vCPU, which lives for ever.
    let Some(vcpu) = (unsafe { holder.get().as_ref() }) else { return };
    // SAFETY: this CPU has run it last.
    unsafe { vcpu.facilities().save() };
    vmsave(vcpu);
    holder.set(ptr::null());
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
    crate::regs::fakes::write("VMSAVE", vcpu.index as u64);
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
    crate::regs::fakes::write("VMLOAD", vcpu.index as u64);
}
