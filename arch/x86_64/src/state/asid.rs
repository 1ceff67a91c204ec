// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Address space identifiers (APM vol. 2, 15.16) of those who run on this CPU, vCPUs and services, and flushes of its TLB where there are
//! too few.

use alloc::boxed::Box;
use core::cell::UnsafeCell;

use turnstile_vm::asid::{Flush, Pool, Tag};

use crate::cpu::regs::efer;
use crate::cpu::regs::flags;
use crate::cpu::svm::vmcb::{FLUSH_ASID, FLUSH_EVERYTHING, Segment, attribute, interrupt};
use crate::cpu::svm::{Features, Vmcb, intercept};
use crate::cpu::{self, PerCpu};

/// What a physical CPU needs to tell translations apart. For that CPU alone.
pub struct Asids(UnsafeCell<Local>);

// SAFETY: each CPU touches only its own, in functions of this module that do not call each other's callers.
unsafe impl Sync for Asids {}
// SAFETY: as above; before its CPU starts, the boot CPU alone has it.
unsafe impl Send for Asids {}

/// How many identifiers of a CPU are for services alone. A service runs while a vCPU is resident, which is not asked again whether it still
/// has its own: so no service may take that.
const SERVICES: u32 = 4;

struct Local {
    /// Those of vCPUs.
    pool: Pool,
    /// Those of services, whose numbers follow.
    services: Pool<{ SERVICES as usize }>,
    /// The control block of a guest that is run to flush; of a CPU that runs vCPUs there is one.
    flusher: Option<Box<Vmcb>>,
}

impl Local {
    /// Writes a new identifier, and flushes what has to be.
    fn begin(&mut self, asid: u32, flush: Flush, vmcb: &mut Vmcb) {
        vmcb.set_asid(asid);
        vmcb.set_clean(0);
        match flush {
            Flush::Nothing => {}
            Flush::Own => self.flush(asid, FLUSH_ASID),
            Flush::Everything => self.flush(asid, FLUSH_EVERYTHING),
        }
    }

    fn flush(&mut self, asid: u32, control: u8) {
        if let Some(flusher) = &mut self.flusher {
            run_flusher(flusher, asid, control);
        }
    }
}

impl Asids {
    /// Makes those of a CPU that runs no vCPUs yet.
    pub const fn none() -> Self {
        Self(UnsafeCell::new(Local {
            pool: Pool::new(0, 0, false),
            services: Pool::new(0, 0, false),
            flusher: None,
        }))
    }

    /// Makes those of CPU `index`, which has `count` of them and can flush one alone, or not.
    pub fn new(index: usize, count: u32, by_asid: bool) -> Self {
        let number = index as u32;
        Self(UnsafeCell::new(Local {
            pool: Pool::new(number, count.saturating_sub(SERVICES), by_asid),
            services: Pool::new(number, SERVICES + 1, by_asid),
            flusher: Some(Vmcb::boxed()),
        }))
    }

    /// Makes those of CPU `index` as this one has them: all CPUs are alike.
    pub fn of_machine(index: usize) -> Self {
        Self::new(index, Features::asids(), Features::of_this_cpu().contains(Features::FLUSH_BY_ASID))
    }
}

#[inline(always)] // A few instructions.
fn with<R>(cpu: &'static PerCpu, f: impl FnOnce(&mut Local) -> R) -> R {
    // SAFETY: this CPU alone gets here, nothing interrupts it, and the callers' closures do not come back.
    f(unsafe { &mut *cpu.slot::<Asids>().0.get() })
}

/// Gives who becomes resident on this CPU an identifier of it, unless it has one.
#[inline(always)] // Of each switch, and of each way into a service.
pub fn load(cpu: &'static PerCpu, tag: &mut Tag, vmcb: &mut Vmcb) {
    if !with(cpu, |local| local.pool.has(tag)) {
        renew(tag, vmcb);
    }
}

/// How many identifiers of this CPU are vCPUs': those below that.
#[cfg(test)]
pub fn vcpus() -> u32 {
    with(cpu::this(), |local| local.pool.size())
}

/// Gives a service that is entered on this CPU an identifier of those for services, unless it has one.
#[inline(always)] // Of each way into a service.
pub fn load_service(cpu: &'static PerCpu, tag: &mut Tag, vmcb: &mut Vmcb) {
    if !with(cpu, |local| local.services.has(tag)) {
        renew_service(tag, vmcb);
    }
}

/// Gives it one without translations, as [`renew`] does. If the CPU cannot flush one alone, those of vCPUs are flushed, too, and stay
/// theirs.
#[inline(never)] // As for vCPUs.
fn renew_service(tag: &mut Tag, vmcb: &mut Vmcb) {
    with(cpu::this(), |local| {
        let flush = local.services.renew(tag);
        local.begin(local.pool.size() + tag.asid(), flush, vmcb);
    });
}

/// Gives who is resident on this CPU an identifier without translations. It may have come from another CPU: nothing that this one has
/// kept of its control block is of use.
#[inline(never)] // Who comes back to its CPU is not to pay for its registers.
pub fn renew(tag: &mut Tag, vmcb: &mut Vmcb) {
    with(cpu::this(), |local| {
        let flush = local.pool.renew(tag);
        local.begin(tag.asid(), flush, vmcb);
    });
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
