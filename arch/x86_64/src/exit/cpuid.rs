// SPDX-License-Identifier: Apache-2.0 OR MIT
//! CPUID: from the vCPU's table, with the few bits that follow its state.

use turnstile_vapic::Mode;
use turnstile_x86policy::Follows;
use turnstile_x86policy::features::{APIC, OSPKE, OSXSAVE};

use super::keep::{keep, keep_rest};
use super::tier::{control, executed};
use crate::cpu::regs::cr4;
use crate::cpu::svm::Vmcb;
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::next::{Next, length};
use crate::vm::Vcpu;

keep! {
    /// CPUID: RBX, RCX and RDX are answers.
    light => constant: rdx 48, rbx 64, r8 24, r9 16
}

keep_rest! {
    /// A leaf of which a part follows the state of the vCPU, and one that there is not.
    following => follow
}

/// Answers from the table alone, as most leaves can be.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn constant<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    let (vcpu, vmcb) = (resident(frame), control(frame));
    match vcpu.cpuid.find(vmcb.rax() as u32, frame.rcx() as u32) {
        Some(answer) if answer.follows == Follows::Nothing => answered::<N>(frame, vmcb, answer.registers),
        _ => following::<N>(frame, 0, 0),
    }
}

extern "C" fn follow<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    answer::<N>(frame, control(frame))
}

/// Answers any leaf.
pub(super) fn answer<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let vcpu = resident(frame);
    let answer = vcpu.cpuid.get(vmcb.rax() as u32, frame.rcx() as u32);
    let registers = complete(vcpu, vmcb, answer.follows, answer.registers);
    answered::<N>(frame, vmcb, registers)
}

#[inline(always)] // Eight stores, and what every exit ends with.
fn answered<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb, [eax, ebx, ecx, edx]: [u32; 4]) -> u32 {
    vmcb.set_rax(eax.into());
    frame.set_rbx(ebx.into());
    frame.set_rcx(ecx.into());
    frame.set_rdx(edx.into());
    executed::<N>(frame, vmcb, length::CPUID)
}

/// Fills in what follows the state of the vCPU.
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
