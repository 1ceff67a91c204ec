// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The address space identifiers of this CPU's vCPUs (APM vol. 2, 15.16), and flushes of its TLB where there are too few.

use alloc::boxed::Box;
use core::cell::UnsafeCell;

use turnstile_vm::asid::{Flush, Pool, Tag};

use crate::cpu;
use crate::cpu::regs::efer;
use crate::cpu::regs::flags;
use crate::cpu::svm::vmcb::{FLUSH_ASID, FLUSH_EVERYTHING, Segment, attribute, interrupt};
use crate::cpu::svm::{Features, Vmcb, intercept};
use crate::vm::Vcpu;

/// What a physical CPU needs to tell the translations of vCPUs apart. For that CPU alone.
pub struct Asids(UnsafeCell<Local>);

// SAFETY: each CPU touches only its own, in functions of this module that do not call each other's callers.
unsafe impl Sync for Asids {}
// SAFETY: as above; before its CPU starts, the boot CPU alone has it.
unsafe impl Send for Asids {}

struct Local {
    pool: Pool,
    /// The control block of a guest that is run to flush; of a CPU that runs vCPUs there is one.
    flusher: Option<Box<Vmcb>>,
}

impl Local {
    fn flush(&mut self, asid: u32, control: u8) {
        if let Some(flusher) = &mut self.flusher {
            run_flusher(flusher, asid, control);
        }
    }
}

impl Asids {
    /// Makes those of a CPU that runs no vCPUs yet.
    pub const fn none() -> Self {
        Self(UnsafeCell::new(Local { pool: Pool::new(0, 0, false), flusher: None }))
    }

    /// Makes those of CPU `index`, which has `count` of them and can flush one alone, or not.
    pub fn new(index: usize, count: u32, by_asid: bool) -> Self {
        let pool = Pool::new(index as u32, count, by_asid);
        Self(UnsafeCell::new(Local { pool, flusher: Some(Vmcb::boxed()) }))
    }

    /// Makes those of CPU `index` as this one has them: all CPUs are alike.
    pub fn of_machine(index: usize) -> Self {
        Self::new(index, Features::asids(), Features::of_this_cpu().contains(Features::FLUSH_BY_ASID))
    }
}

fn with<R>(f: impl FnOnce(&mut Local) -> R) -> R {
    // SAFETY: this CPU alone gets here, nothing interrupts it, and the callers' closures do not come back.
    f(unsafe { &mut *cpu::this().slot::<Asids>().0.get() })
}

/// Gives a vCPU that becomes resident an identifier of this CPU, unless it has one.
#[inline] // Of each switch.
pub fn load(vcpu: &Vcpu, vmcb: &mut Vmcb) {
    let flush = vcpu.owned(|owned| with(|local| local.pool.assign(&mut owned.asid)));
    if let Some(flush) = flush {
        begin(vcpu, vmcb, flush);
    }
}

/// Makes this CPU forget the translations of the resident vCPU.
pub fn renew(vcpu: &Vcpu, vmcb: &mut Vmcb) {
    let flush = vcpu.owned(|owned| with(|local| local.pool.renew(&mut owned.asid)));
    begin(vcpu, vmcb, flush);
}

/// The vCPU runs with another identifier from here on. It may have come from another CPU: nothing that this one has kept of
/// its control block is of use.
#[inline(never)] // Who comes back to its CPU is not to pay for its registers.
fn begin(vcpu: &Vcpu, vmcb: &mut Vmcb, flush: Flush) {
    let asid = vcpu.owned(|owned| Tag::asid(&owned.asid));
    vmcb.set_asid(asid);
    vmcb.set_clean(0);
    match flush {
        Flush::Nothing => {}
        Flush::Own => with(|local| local.flush(asid, FLUSH_ASID)),
        Flush::Everything => with(|local| local.flush(asid, FLUSH_EVERYTHING)),
    }
}

/// Flushes translations of this CPU.
///
/// TLB_CONTROL acts at VMRUN, and stays what it is (15.16.1). The run loop does not touch it, so a flush has a VMRUN of
/// its own: of a guest that executes nothing, because an interrupt is pending for it, and intercepted.
fn run_flusher(block: &mut Vmcb, asid: u32, control: u8) {
    /// CR0.ET, always one (APM vol. 2, 3.1.1).
    const CR0_ET: u64 = 1 << 4;
    *block = Vmcb::new();
    intercept::set_virtual_interrupt(block);
    block.set_asid(asid);
    block.set_tlb_control(control);
    block.set_interrupts(
        interrupt::MASKING | interrupt::PENDING | interrupt::IGNORE_TPR | interrupt::PRIORITY,
    );
    block.set_efer(efer::SVME);
    block.set_cr0(CR0_ET);
    block.set_cs(Segment { attributes: attribute::REAL_CODE, limit: 0xffff, ..Segment::default() });
    block.set_rflags(flags::RESERVED | flags::INTERRUPT);
    #[cfg(target_os = "none")]
    // SAFETY: no register of the guest that is resident changes: not one instruction is executed, and VMRUN restores
    // the host's.
    unsafe {
        core::arch::asm!("vmrun rax", in("rax") core::ptr::from_mut(block), options(nostack));
    }
    #[cfg(not(target_os = "none"))]
    crate::cpu::regs::fakes::write("TLB_CONTROL", control.into());
}
