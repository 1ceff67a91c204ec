// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is loaded when a vCPU becomes resident, and its reset.

use turnstile_vm::startup::Start;

use crate::frame::{Frame, number};
use crate::regs::{cr0, cr4, efer};
use crate::svm::vmcb::{Segment, attribute, interrupt};
use crate::svm::{Vmcb, intercept, permission};
use crate::vcpu::Vcpu;

/// In which mode the first vCPU begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Protected mode without paging, flat segments of 32 bits: PVH, multiboot.
    #[default]
    Protected,
    /// 64-bit mode with these page tables: Linux's 64-bit boot protocol.
    Long {
        /// CR3.
        root: u64,
    },
}

/// What the first vCPU begins with; all other registers are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BootState {
    /// Its mode.
    pub mode: Mode,
    /// RIP.
    pub rip: u64,
    /// RSP.
    pub rsp: u64,
    /// RAX.
    pub rax: u64,
    /// RBX.
    pub rbx: u64,
    /// RSI.
    pub rsi: u64,
    /// Selectors of CS, and of DS, ES and SS: those of the protocol's GDT, if it has one.
    pub selectors: [u16; 2],
}

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
    intercept::set(vmcb);
    vmcb.set_iopm(permission::PORTS.address());
    vmcb.set_msrpm(permission::MSRS.address());
    vmcb.set_tsc_offset(vcpu.vm.life().tsc_offset);
    vmcb.set_interrupts(interrupt::MASKING);
    vmcb.set_nested_paging(1);
    vmcb.set_nested_root(vcpu.vm.life().nested_root);
    vmcb.set_efer(efer::SVME);
    vmcb.set_dr6(DR6_RESET);
    vmcb.set_dr7(DR7_RESET);
    vmcb.set_pat(PAT_RESET);
    vmcb.set_rflags(crate::exit::flags::RESERVED);
    let tables = Segment { limit: 0xffff, ..Segment::default() };
    vmcb.set_gdtr(tables);
    vmcb.set_idtr(tables);
    vmcb.set_ldtr(Segment { attributes: attribute::LDT, limit: 0xffff, ..Segment::default() });
    vmcb.set_tr(Segment { attributes: attribute::BUSY_TSS, limit: 0xffff, ..Segment::default() });
    match start {
        Start::Boot => begin_boot(frame, vmcb, vcpu.vm.life().boot),
        Start::Startup(page) => begin_real(frame, vmcb, vcpu, page),
    }
}

/// Real mode at a page of the first MiB, as a startup IPI says (APM vol. 2, 14.1.3; Intel SDM vol. 3A, 11.4.3).
fn begin_real(frame: &mut Frame, vmcb: &mut Vmcb, vcpu: &Vcpu, page: u8) {
    let data = Segment { attributes: attribute::REAL_DATA, limit: 0xffff, ..Segment::default() };
    set_data(vmcb, data);
    let base = u64::from(page) << 12;
    let selector = u16::from(page) << 8;
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
