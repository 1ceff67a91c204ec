// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUID: from the vCPU's table, with the few bits that follow its state.

use turnstile_vapic::Mode;
use turnstile_x86policy::Follows;
use turnstile_x86policy::features::{APIC, OSPKE, OSXSAVE};

use super::tier::done;
use crate::cpu::regs::cr4;
use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::next::{Next, length, skip};
use crate::vm::Vcpu;

/// Answers. RBX is in the frame.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, _: u32) -> u32 {
    let vcpu = resident(frame);
    let answer = vcpu.cpuid.get(vmcb.rax() as u32, frame.rcx() as u32);
    let mut registers = answer.registers;
    if answer.follows != Follows::Nothing {
        registers = complete(vcpu, vmcb, answer.follows, registers);
    }
    let [eax, ebx, ecx, edx] = registers;
    vmcb.set_rax(eax.into());
    frame.set_rbx(ebx.into());
    frame.set_rcx(ecx.into());
    frame.set_rdx(edx.into());
    skip::<N>(vmcb, length::CPUID);
    done::<N>(frame, vmcb)
}

/// Fills in what follows the state of the vCPU.
#[inline(never)] // Most leaves are constant.
fn complete(vcpu: &Vcpu, vmcb: &Vmcb, follows: Follows, registers: [u32; 4]) -> [u32; 4] {
    let [eax, mut ebx, mut ecx, mut edx] = registers;
    match follows {
        Follows::Nothing => {}
        Follows::Features => {
            if vmcb.cr4() & cr4::OSXSAVE != 0 {
                ecx |= OSXSAVE;
            }
            if vcpu.owned(|owned| owned.lapic.mode()) == Mode::Disabled {
                edx &= !APIC;
            }
        }
        Follows::Ospke if vmcb.cr4() & cr4::PKE != 0 => ecx |= OSPKE,
        Follows::Ospke => {}
        Follows::XsaveSize => ebx = vcpu.cpuid.xsave_size(xcr0()),
        Follows::CompactedSize => ebx = vcpu.cpuid.compacted_size(xcr0()),
    }
    [eax, ebx, ecx, edx]
}

/// XCR0 of the resident vCPU, which is in the CPU. A CPU without XSAVE has no leaf that asks for it.
fn xcr0() -> u64 {
    #[cfg(target_os = "none")]
    {
        let (low, high): (u32, u32);
        // SAFETY: the CPU has XSAVE, and the hypervisor's CR4.OSXSAVE is set where it has.
        unsafe {
            core::arch::asm!("xgetbv", in("ecx") 0, out("eax") low, out("edx") high, options(nomem, nostack))
        };
        u64::from(high) << 32 | u64::from(low)
    }
    #[cfg(not(target_os = "none"))]
    crate::cpu::regs::fakes::read("XCR0")
}
