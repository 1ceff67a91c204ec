// SPDX-License-Identifier: Apache-2.0 OR MIT
//! RDMSR, WRMSR and XSETBV.

use turnstile_exitstat::Event;
use turnstile_vapic::Fault;
use turnstile_x86policy::msr::{Emulated, Policy, policy};

use super::apic::{self, X2APIC_EOI};
use super::keep::keep;
use super::tier::{Code, control, executed};
use crate::board::mitigation;
use crate::cpu::regs::{PRED_CMD, cr0, cr4, efer};
use crate::cpu::svm::Vmcb;
use crate::cpu::svm::event::Exception;
use crate::time;
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::irq::{self, with_lapic};
use crate::vcpu::kvm;
use crate::vcpu::next::{Next, length, skip_to};
use crate::vcpu::statistics;
use crate::vm::Vcpu;

/// Where x2APIC registers are: the MSRs 800h to 8FFh.
const X2APIC: u32 = 0x800;
/// KVM's MSR by which a guest says whether the hypervisor may poll while it halts (bit 0).
const KVM_POLL_CONTROL: u32 = 0x4b56_4d05;

/// The end of an x2APIC's interrupt, which is half of what interrupts cost. HOT.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
pub(super) extern "C" fn light<N: Next>(frame: &mut Frame, rsi: u64, rdx: u64) -> u32 {
    if N::COUNTS {
        return others::<N>(frame, rsi, rdx);
    }
    match frame.rcx() as u32 {
        X2APIC_EOI => {}
        KVM_POLL_CONTROL => return poll_control::<N>(frame, rsi, rdx),
        _ => return others::<N>(frame, rsi, rdx),
    }
    let vmcb = control(frame);
    // RDX is in no slot yet.
    if rdx as u32 != 0 || vmcb.rax() as u32 != 0 || is_read(vmcb) || !apic::try_eoi(resident(frame), vmcb) {
        return others::<N>(frame, rsi, rdx);
    }
    executed::<N>(frame, vmcb, length::MSR)
}

keep! {
    /// The register that only keeps a bit.
    poll_control => set_polling: rdx 48
}

#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn set_polling<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    let vmcb = control(frame);
    let value = frame.pair(vmcb);
    if is_read(vmcb) || !resident(frame).owned(|owned| owned.polling.set(value)) {
        return Code::FULL;
    }
    executed::<N>(frame, vmcb, length::MSR)
}

keep! {
    /// All registers of local APICs, in all states.
    others => any: rsi 40, rdx 48, r8 24, r9 16, r10 8, r11 0
}

#[inline(always)] // One test.
fn is_read(vmcb: &Vmcb) -> bool {
    vmcb.exit_info()[0] & 1 == 0
}

#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn any<N: Next>(frame: &mut Frame, _: u64, _: u64) -> u32 {
    let vmcb = control(frame);
    if N::COUNTS || is_read(vmcb) {
        return all::<N>(frame);
    }
    let (vcpu, number, value) = (resident(frame), frame.rcx() as u32, frame.pair(vmcb));
    if !apic::try_self_ipi(vcpu, vmcb, number, value) {
        return all::<N>(frame);
    }
    executed::<N>(frame, vmcb, length::MSR)
}

#[inline(never)] // So that a self-IPI is a leaf.
#[cfg_attr(target_os = "none", unsafe(link_section = ".text.hot"))]
extern "C" fn all<N: Next>(frame: &mut Frame) -> u32 {
    answer::<N>(frame, control(frame))
}

/// The registers that are often used; the rest is left to the full tier.
#[inline(always)] // One caller, but for ablation.
pub(super) fn answer<N: Next>(frame: &mut Frame, vmcb: &mut Vmcb) -> u32 {
    let number = frame.rcx() as u32;
    let is_apic = number.wrapping_sub(X2APIC) <= 0xff;
    let is_read = is_read(vmcb);
    statistics::count::<N>(resident(frame), if is_read { Event::MsrRead } else { Event::MsrWrite });
    if is_read {
        return if is_apic { apic::read_msr::<N>(frame, vmcb, number) } else { Code::FULL };
    }
    let value = frame.pair(vmcb);
    if is_apic {
        return apic::write_msr::<N>(frame, vmcb, number, value);
    }
    if number != KVM_POLL_CONTROL || !resident(frame).owned(|owned| owned.polling.set(value)) {
        return Code::FULL;
    }
    executed::<N>(frame, vmcb, length::MSR)
}

/// All others.
pub(super) fn full(frame: &mut Frame, vmcb: &mut Vmcb, vcpu: &'static Vcpu, next: u64) {
    let number = frame.rcx() as u32;
    let result = if vmcb.exit_info()[0] & 1 == 0 {
        read(vmcb, vcpu, number).map(|value| frame.set_pair(vmcb, value))
    } else {
        let value = frame.pair(vmcb);
        if vcpu.vm.life().ram.pooled().is_some() && kvm::is_dry(vcpu, number, value) {
            return;
        }
        write(frame, vmcb, vcpu, number, value)
    };
    match result {
        Ok(()) => skip_to(vmcb, next),
        Err(Fault) => Exception::PROTECTION.inject(vmcb),
    }
}

/// Reads a register.
fn read(vmcb: &mut Vmcb, vcpu: &'static Vcpu, number: u32) -> Result<u64, Fault> {
    match policy(number) {
        Policy::Kept(place) => Ok(vcpu.owned(|owned| owned.registers.read(place))),
        Policy::Constant { value, .. } => Ok(value),
        Policy::Emulated(register) => read_emulated(vmcb, vcpu, number, register),
        // The CPU's own do not exit.
        Policy::Own | Policy::Absent => Err(Fault),
    }
}

fn read_emulated(
    vmcb: &mut Vmcb,
    vcpu: &'static Vcpu,
    number: u32,
    register: Emulated,
) -> Result<u64, Fault> {
    match register {
        Emulated::Tsc => Ok(time::ticks().wrapping_add(vmcb.tsc_offset())),
        Emulated::Pat => Ok(vmcb.pat()),
        Emulated::Efer => Ok(vmcb.efer() & !efer::SVME),
        Emulated::ApicBase => Ok(vcpu.owned(|owned| owned.lapic.base())),
        Emulated::TscDeadline => Ok(vcpu.owned(|owned| owned.lapic.tsc_deadline())),
        Emulated::X2Apic => with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.read_msr(cx, number)),
        Emulated::Kvm => kvm::read(vcpu, number),
        // It is written only (APM vol. 2, 3.2.9).
        Emulated::PredictionCommand => Err(Fault),
        Emulated::SpeculationControl if mitigation::told(&vcpu.cpuid).spec_ctrl() == 0 => Err(Fault),
        Emulated::SpeculationControl => Ok(vcpu.owned(|owned| owned.spec_ctrl)),
    }
}

/// Writes a register.
fn write(
    frame: &mut Frame,
    vmcb: &mut Vmcb,
    vcpu: &'static Vcpu,
    number: u32,
    value: u64,
) -> Result<(), Fault> {
    let if_valid = |valid| if valid { Ok(()) } else { Err(Fault) };
    match policy(number) {
        Policy::Kept(place) => if_valid(vcpu.owned(|owned| owned.registers.write(place, value))),
        Policy::Constant { ignores_writes, .. } => if_valid(ignores_writes),
        Policy::Emulated(Emulated::SpeculationControl) => write_speculation_control(frame, vcpu, value),
        Policy::Emulated(register) => write_emulated(vmcb, vcpu, number, register, value),
        Policy::Own | Policy::Absent => Err(Fault),
    }
}

fn write_emulated(
    vmcb: &mut Vmcb,
    vcpu: &'static Vcpu,
    number: u32,
    register: Emulated,
    value: u64,
) -> Result<(), Fault> {
    match register {
        Emulated::Tsc => {
            irq::set_clock(vcpu, vmcb, value);
            kvm::adjust(vcpu, vmcb);
        }
        Emulated::Pat if is_pat(value) => vmcb.set_pat(value),
        Emulated::Efer => return write_efer(vmcb, vcpu, value),
        Emulated::ApicBase => {
            let ram = &vcpu.vm.life().ram;
            let is_free = |page| page < 1 << crate::cpu::svm::physical_bits() && !ram.contains(page, 1);
            return with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.set_base(cx, value, is_free));
        }
        Emulated::TscDeadline => {
            with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.set_tsc_deadline(cx, value));
        }
        Emulated::X2Apic => {
            return with_lapic::<true, _>(vcpu, vmcb, |lapic, cx| lapic.write_msr(cx, number, value));
        }
        Emulated::Kvm => return kvm::write(vcpu, vmcb, number, value),
        Emulated::PredictionCommand => return command_prediction(vcpu, value),
        Emulated::Pat | Emulated::SpeculationControl => return Err(Fault),
    }
    Ok(())
}

/// Forgets for a guest what the predictors of branches have learnt on this CPU, in one of the ways that it is offered. A guest
/// that is offered none may ask, and gets nothing.
fn command_prediction(vcpu: &Vcpu, value: u64) -> Result<(), Fault> {
    /// IBPB.
    const BARRIER: u64 = 1;
    let offered = mitigation::told(&vcpu.cpuid).pred_cmd();
    if value & !(offered | BARRIER) != 0 {
        return Err(Fault);
    }
    if value & offered != 0 {
        // SAFETY: a guest is offered what CPUID says that all CPUs have, and more is not written: a CPU that has not all of the
        // bits would refuse them. The command slows what comes next, and changes nothing else.
        unsafe { PRED_CMD.write(value & offered) };
    }
    Ok(())
}

/// Takes a guest's SPEC_CTRL, which the run loop loads before it enters the guest. The hypervisor's bits stay set.
fn write_speculation_control(frame: &mut Frame, vcpu: &Vcpu, value: u64) -> Result<(), Fault> {
    let offered = mitigation::told(&vcpu.cpuid).spec_ctrl();
    if offered == 0 || value & !offered != 0 {
        return Err(Fault);
    }
    vcpu.owned(|owned| owned.spec_ctrl = value);
    let [guest, host] = &mut frame.spec_ctrl;
    *guest = value as u32 | *host;
    Ok(())
}

/// Each byte of PAT is one of the memory types (APM vol. 2, 7.8.2).
fn is_pat(value: u64) -> bool {
    value.to_le_bytes().iter().all(|entry| matches!(entry, 0 | 1 | 4..=7))
}

/// EFER (APM vol. 2, 3.1.7): the guest has no SVM, LMA is read-only, and LME does not change under paging.
fn write_efer(vmcb: &mut Vmcb, vcpu: &Vcpu, value: u64) -> Result<(), Fault> {
    let automatic = if mitigation::told(&vcpu.cpuid).auto_ibrs() { efer::AIBRSE } else { 0 };
    let writable = efer::SCE | efer::LME | efer::NXE | automatic;
    let old = vmcb.efer();
    let paging = vmcb.cr0() & cr0::PG != 0;
    if value & !(writable | efer::LMA) != 0 || paging && (value ^ old) & efer::LME != 0 {
        return Err(Fault);
    }
    vmcb.set_efer(value & writable | old & (efer::LMA | efer::SVME));
    Ok(())
}

/// XSETBV (APM vol. 4): XCR0 within what this CPU has and the guest is offered. The exit comes before the CPU looks at the
/// guest's CR4.
pub(super) fn xsetbv(frame: &Frame, vmcb: &mut Vmcb, vcpu: &Vcpu, next: u64) {
    if vmcb.cr4() & cr4::OSXSAVE == 0 {
        return Exception::UNDEFINED.inject(vmcb);
    }
    let value = frame.pair(vmcb);
    if frame.rcx() as u32 != 0 || vmcb.cpl() != 0 || !xcr0_is_valid(value, offered(vcpu)) {
        return Exception::PROTECTION.inject(vmcb);
    }
    #[cfg(target_os = "none")]
    // SAFETY: the CPU takes the value: it was checked. The hypervisor uses no extended state.
    unsafe {
        core::arch::asm!("xsetbv", in("ecx") 0, in("eax") value as u32, in("edx") (value >> 32) as u32, options(nostack));
    }
    skip_to(vmcb, next);
}

/// The state components that the vCPU is offered: leaf Dh of its CPUID.
fn offered(vcpu: &Vcpu) -> u64 {
    let [eax, _, _, edx] = vcpu.cpuid.get(0xd, 0).registers;
    u64::from(edx) << 32 | u64::from(eax)
}

/// XCR0's rules (APM vol. 2, 11.5.2): x87 always; AVX needs SSE; the parts of AVX-512 come together and need AVX.
fn xcr0_is_valid(value: u64, offered: u64) -> bool {
    const X87: u64 = 1;
    const SSE: u64 = 1 << 1;
    const AVX: u64 = 1 << 2;
    const MPX: u64 = 3 << 3;
    const AVX512: u64 = 7 << 5;
    let both = |bits: u64| value & bits == 0 || value & bits == bits;
    value & !offered == 0
        && value & X87 != 0
        && (value & AVX == 0 || value & SSE != 0)
        && (value & AVX512 == 0 || value & AVX != 0)
        && both(AVX512)
        && both(MPX)
}

#[cfg(test)]
mod tests {
    use super::xcr0_is_valid;

    #[test]
    fn xcr0_has_what_belongs_together() {
        let valid = |value| xcr0_is_valid(value, 0x2e7);
        assert!([0x1, 0x3, 0x7, 0xe7, 0x207].into_iter().all(valid));
        assert!(![0x0, 0x2, 0x5, 0x27, 0xe3, 0xf, 0x1f, 0x407, 1 << 63 | 1].into_iter().any(valid));
    }
}
