// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The links of the chain: what each technique saves, spelled out.

use turnstile_vm::attention::Reasons;

use super::handlers::serve;
use crate::cpu::svm::vmcb::FLUSH_EVERYTHING;
use crate::cpu::svm::{Vmcb, code};
use crate::irq::interrupts;
use crate::state::saved::Saved;
use crate::vcpu::frame::Frame;
use crate::vcpu::frame::resident;
use crate::vcpu::irq;

/// Returns where the resident vCPU's state goes.
#[inline(always)] // An address computation.
fn saved(frame: &Frame) -> &'static mut Saved {
    // SAFETY: the chain runs before the handler, on the CPU where the vCPU is resident, link by link.
    unsafe { resident(frame).saved() }
}

/// Lets interrupts in, and serves what has arrived.
pub(super) extern "C" fn open_gif(frame: &mut Frame, _: &mut Vmcb) {
    serve(resident(frame), interrupts::take());
}

/// Stores what VMRUN does not, loads the hypervisor's own, and the other way round.
pub(super) extern "C" fn switch_segments(frame: &mut Frame, vmcb: &mut Vmcb) {
    let host = core::ptr::from_mut(&mut *saved(frame).host);
    #[cfg(target_os = "none")]
    // SAFETY: the guest's state is back at the end; in between nothing uses what is loaded.
    unsafe {
        core::arch::asm!(
            "vmsave rax", "xchg rax, {host}", "vmload rax", "vmsave rax", "xchg rax, {host}", "vmload rax",
            host = inout(reg) host => _, inout("rax") core::ptr::from_mut(vmcb) => _, options(nostack)
        );
    }
    #[cfg(not(target_os = "none"))]
    let _ = (host, vmcb);
}

/// Stores and loads x87, SSE, AVX and so on: all that XCR0 has.
pub(super) extern "C" fn switch_extended(frame: &mut Frame, _: &mut Vmcb) {
    let area = core::ptr::from_mut(&mut *saved(frame).extended);
    #[cfg(target_os = "none")]
    if crate::cpu::regs::CR4.read() & crate::cpu::regs::cr4::OSXSAVE != 0 {
        // XSTATE_BV keeps the bits of components that a guest has switched off since, and XRSTOR faults on them (APM vol. 2,
        // 11.5.9): it is cleared first.
        // SAFETY: the area is large enough and aligned, and what was stored is loaded again.
        unsafe {
            core::arch::asm!(
                "mov qword ptr [{area} + 512], 0", "xsave64 [{area}]", "xrstor64 [{area}]",
                area = in(reg) area, in("eax") -1, in("edx") -1, options(nostack)
            );
        }
    }
    #[cfg(not(target_os = "none"))]
    let _ = area;
}

/// Forgets decoded instructions, when one is looked for.
pub(super) extern "C" fn forget_instructions(frame: &mut Frame, vmcb: &mut Vmcb) {
    if vmcb.exit_code() as u32 == code::NESTED_PAGE_FAULT {
        resident(frame).owned(|owned| owned.decoded.clear());
    }
}

/// Looks for what others have posted, whether or not the attention word says so.
pub(super) extern "C" fn look_through(frame: &mut Frame, vmcb: &mut Vmcb) {
    let vcpu = resident(frame);
    let _guard = saved(frame).lock.lock();
    irq::drain(vcpu, vmcb, Reasons::MAILBOX);
    irq::timer(vcpu, vmcb);
}

/// All of the control block is loaded.
pub(super) extern "C" fn nothing_is_clean(_: &mut Frame, vmcb: &mut Vmcb) {
    vmcb.set_clean(0);
}

/// The next VMRUN forgets all translations.
pub(super) extern "C" fn flush(_: &mut Frame, vmcb: &mut Vmcb) {
    vmcb.set_tlb_control(FLUSH_EVERYTHING);
}
