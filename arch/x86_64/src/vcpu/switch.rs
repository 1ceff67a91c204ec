// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is loaded when a vCPU becomes resident, and its reset.

use turnstile_vm::startup::Start;

use crate::board::mitigation;
use crate::cpu::regs::{cr0, cr4, efer};
use crate::cpu::svm::vmcb::{Segment, attribute, interrupt};
use crate::cpu::svm::{self, Features, Vmcb, intercept, permission};
use crate::state::start::{BootState, Mode};
use crate::vcpu::frame::{Frame, number};
use crate::vm::Vcpu;

/// CR0.ET: always one (APM vol. 2, 3.1.1).
const CR0_ET: u64 = 1 << 4;
/// DR6 and DR7 after a reset (APM vol. 2, 14.1.3).
const DR6_RESET: u64 = 0xffff_0ff0;
/// See [`DR6_RESET`].
const DR7_RESET: u64 = 0x400;
/// PAT after a reset (APM vol. 2, 7.8.2).
const PAT_RESET: u64 = 0x0007_0406_0007_0406;

/// Puts a vCPU's registers into the state of its start. Everything that a guest can change is set, also what it changes
/// without an exit: nothing is left of its earlier life.
pub fn reset_vcpu(frame: &mut Frame, vmcb: &mut Vmcb, vcpu: &Vcpu, start: Start) {
    *vmcb = Vmcb::new();
    // The guest's is zero, and the hypervisor's bits hold for it, too.
    frame.spec_ctrl = [mitigation::host_spec_ctrl() as u32; 2];
    intercept::set(vmcb);
    vmcb.set_iopm(permission::PORTS.address());
    vmcb.set_msrpm(msr_map(vcpu, svm::features()).address());
    vmcb.set_tsc_offset(vcpu.vm.life().tsc_offset());
    vmcb.set_interrupts(interrupt::MASKING);
    vmcb.set_nested_paging(1);
    vmcb.set_nested_root(vcpu.vm.life().nested_root);
    vmcb.set_efer(efer::SVME);
    vmcb.set_dr6(DR6_RESET);
    vmcb.set_dr7(DR7_RESET);
    vmcb.set_pat(PAT_RESET);
    vmcb.set_rflags(crate::cpu::regs::flags::RESERVED);
    let tables = Segment { limit: 0xffff, ..Segment::default() };
    vmcb.set_gdtr(tables);
    vmcb.set_idtr(tables);
    vmcb.set_ldtr(Segment { attributes: attribute::LDT, limit: 0xffff, ..Segment::default() });
    vmcb.set_tr(Segment { attributes: attribute::BUSY_TSS, limit: 0xffff, ..Segment::default() });
    match start {
        Start::Boot => begin_boot(frame, vmcb, vcpu.vm.life().boot),
        Start::Startup(page) => begin_real(frame, vmcb, vcpu, [0, u16::from(page) << 8]),
        Start::Resume => begin_real(frame, vmcb, vcpu, RESUME.map(|at| vcpu.vm.read_word(at).unwrap_or(0))),
    }
}

/// The map of the MSRs that a vCPU reaches: SPEC_CTRL among them where VMRUN switches it and the vCPU was told of it.
fn msr_map(vcpu: &Vcpu, features: Features) -> &'static permission::Map<{ permission::MSR_BYTES }> {
    match mitigation::told(&vcpu.cpuid).spec_ctrl() {
        1.. if features.contains(Features::VIRTUAL_SPEC_CTRL) => &permission::MSRS_AND_SPEC_CTRL,
        _ => &permission::MSRS,
    }
}

/// Where the firmware finds the address at which it is to go on: IP and CS.
const RESUME: [u64; 2] = [0x467, 0x469];

/// Real mode at this IP and CS, as a startup IPI or the firmware wants it (APM vol. 2, 14.1.3; Intel SDM vol. 3A, 11.4.3).
fn begin_real(frame: &mut Frame, vmcb: &mut Vmcb, vcpu: &Vcpu, [ip, selector]: [u16; 2]) {
    let data = Segment { attributes: attribute::REAL_DATA, limit: 0xffff, ..Segment::default() };
    set_data(vmcb, data);
    let base = u64::from(selector) << 4;
    vmcb.set_rip(ip.into());
    vmcb.set_cs(Segment { selector, attributes: attribute::REAL_CODE, limit: 0xffff, base });
    vmcb.set_cr0(CR0_ET);
    let [signature, ..] = vcpu.cpuid.get(1, 0).registers;
    frame.set(vmcb, number::RDX, signature.into());
}

fn set_data(vmcb: &mut Vmcb, data: Segment) {
    vmcb.set_ds(data);
    vmcb.set_es(data);
    vmcb.set_ss(data);
    vmcb.set_fs(data);
    vmcb.set_gs(data);
}

fn begin_boot(frame: &mut Frame, vmcb: &mut Vmcb, boot: BootState) {
    let [code, data] = boot.selectors;
    let flat = Segment { limit: u32::MAX, ..Segment::default() };
    set_data(vmcb, Segment { selector: data, attributes: attribute::FLAT_DATA, ..flat });
    let attributes = match boot.mode {
        Mode::Protected => {
            vmcb.set_cr0(cr0::PE | CR0_ET);
            attribute::FLAT_CODE
        }
        Mode::Long { root } => {
            vmcb.set_cr3(root);
            vmcb.set_cr4(cr4::PAE);
            vmcb.set_efer(efer::SVME | efer::LME | efer::LMA);
            vmcb.set_cr0(cr0::PE | cr0::PG | CR0_ET);
            attribute::LONG_CODE
        }
    };
    vmcb.set_cs(Segment { selector: code, attributes, ..flat });
    vmcb.set_rip(boot.rip);
    vmcb.set_rsp(boot.rsp);
    vmcb.set_rax(boot.rax);
    frame.set(vmcb, number::RBX, boot.rbx);
    frame.set(vmcb, number::RSI, boot.rsi);
}

/// Stores what VMRUN does not: FS, GS, TR, LDTR and the MSRs of SYSCALL and SYSENTER. They stay in the CPU, too.
pub fn save_hidden(vmcb: &mut Vmcb) {
    #[cfg(target_os = "none")]
    // SAFETY: the control block is that of the vCPU that is resident.
    unsafe {
        core::arch::asm!("vmsave rax", in("rax") core::ptr::from_mut(vmcb), options(nostack));
    }
    #[cfg(not(target_os = "none"))]
    let _ = vmcb;
}

#[cfg(test)]
mod tests {
    use core::ptr;

    use super::*;
    use crate::board::mitigation::tests::{EMULATED, ZEN2, ZEN5};
    use crate::board::mitigation::{Choice, pretend};
    use crate::exit::tests::machine;

    #[test]
    fn spec_ctrl_is_a_guests_own_where_vmrun_switches_it() {
        let virtualized = Features::VIRTUAL_SPEC_CTRL;
        for (cpu, features, own) in
            [(&ZEN5, virtualized, true), (&ZEN2, Features::empty(), false), (&EMULATED, virtualized, false)]
        {
            pretend(cpu, Choice::Auto);
            let (vcpu, ..) = machine();
            let expected = if own { &permission::MSRS_AND_SPEC_CTRL } else { &permission::MSRS };
            assert!(ptr::eq(msr_map(vcpu, features), expected), "{cpu:x?}");
        }
    }
}
