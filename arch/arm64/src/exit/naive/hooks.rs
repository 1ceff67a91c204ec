// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The links of the chain: what each technique saves, spelled out.

use super::handlers::look;
use turnstile_vm::attention::Reasons;

use crate::cpu::{self, regs};
use crate::exit::light::resident;
use crate::irq::Gicv3;
use crate::irq::ich::Ich;
use crate::state::naive::{RegisterFile, Saved};
use crate::vcpu::frame::Frame;
use crate::vm::Owned;

/// HCR_EL2 of a hypervisor that switches, outside its guests: RW and E2H.
const HCR_HOST: u64 = 1 << 31 | 1 << 34;
/// CPTR_EL2 outside guests: FP, which E2H has in FPEN, untrapped as ever; nothing else trapped.
const CPTR_HOST: u64 = 3 << 20;
/// MDCR_EL2.HPMN, which belongs to the CPU, not to the guest.
const MDCR_HPMN: u64 = 0x1f;

/// Returns the resident vCPU's own part.
#[inline(always)] // Two loads.
fn owned(frame: &Frame) -> &'static mut Owned {
    // SAFETY: the chain runs before the handler, on the CPU where the vCPU is resident, link by link.
    unsafe { resident(frame).owned() }
}

/// Returns where the resident vCPU's registers go.
#[inline(always)] // An address computation.
fn saved(frame: &Frame) -> &'static mut Saved {
    // SAFETY: as above.
    unsafe { resident(frame).saved() }
}

/// Clears the branch history as a Neoverse N1 needs it: two taken branches a turn, as in `guards.S`.
pub(super) extern "C" fn clear_history(_: &mut Frame) {
    #[cfg(target_os = "none")]
    // SAFETY: branches inside of the loop, and barriers.
    unsafe {
        core::arch::asm!(
            "mov {turns:w}, #24",
            "2: b 3f",
            "3: subs {turns:w}, {turns:w}, #1",
            "b.ne 2b",
            "dsb nsh",
            "isb",
            turns = out(reg) _,
            options(nostack)
        );
    }
}

/// Lets SErrors in for a moment, so that one that the guest caused is taken now.
pub(super) extern "C" fn error_window(_: &mut Frame) {
    #[cfg(target_os = "none")]
    // SAFETY: barriers; an SError that is pending here would end the hypervisor, as one does anywhere in it.
    unsafe {
        core::arch::asm!(
            "dsb sy",
            "msr daifclr, #4",
            "isb",
            "msr daifset, #4",
            options(nostack, preserves_flags)
        );
    }
}

/// Reads all list registers and brings the interrupt model up to date.
pub(super) extern "C" fn read_list_registers(frame: &mut Frame) {
    let vcpu = resident(frame);
    vcpu.vm.with_gic::<Gicv3, _>(|cx| owned(frame).gic.synchronize(cx));
}

/// Looks for everything that may be wanted of the vCPU, whether or not its attention word says so.
pub(super) extern "C" fn look_through(frame: &mut Frame) {
    let vcpu = resident(frame);
    let (owned, saved) = (owned(frame), saved(frame));
    let _guard = saved.lock.lock();
    let posted = vcpu.attention.take_only(Reasons::SGIS);
    look(frame, vcpu, owned, posted | Reasons::REMOTE | Reasons::INBOX);
    saved.pending = owned.gic.has_pending(&mut Ich);
}

/// Stores the system registers of EL1 and EL0.
pub(super) extern "C" fn el1_out(frame: &mut Frame) {
    saved(frame).el1.save();
}

/// Loads the system registers of EL1 and EL0.
pub(super) extern "C" fn el1_in(frame: &mut Frame) {
    // SAFETY: saved by the first half of this chain.
    unsafe { saved(frame).el1.load() };
}

/// Stores both timers, stops them, and sets the offset of the virtual counter to zero.
pub(super) extern "C" fn timers_out(frame: &mut Frame) {
    saved(frame).timers.save();
    // SAFETY: state of the guest, which is not running.
    unsafe {
        regs::CNTV_CTL_EL02.write(0);
        regs::CNTP_CTL_EL02.write(0);
        regs::CNTVOFF_EL2.write(0);
    }
    cpu::isb();
}

/// Loads both timers and the offset.
pub(super) extern "C" fn timers_in(frame: &mut Frame) {
    let timers = &saved(frame).timers;
    // SAFETY: saved by the first half of this chain. A timer is started when its offset and time are in effect.
    unsafe {
        regs::CNTVOFF_EL2.write(timers.CNTVOFF_EL2);
        regs::CNTV_CVAL_EL02.write(timers.CNTV_CVAL_EL02);
        regs::CNTP_CVAL_EL02.write(timers.CNTP_CVAL_EL02);
        cpu::isb();
        regs::CNTV_CTL_EL02.write(timers.CNTV_CTL_EL02);
        regs::CNTP_CTL_EL02.write(timers.CNTP_CTL_EL02);
    }
}

/// Stores the guest's CPU interface.
pub(super) extern "C" fn interface_out(frame: &mut Frame) {
    let saved = saved(frame);
    saved.interface.save();
    if saved.preemption_bits >= 6 {
        saved.active6.save();
    }
    if saved.preemption_bits >= 7 {
        saved.active7.save();
    }
}

/// Loads the guest's CPU interface.
pub(super) extern "C" fn interface_in(frame: &mut Frame) {
    let saved = saved(frame);
    // SAFETY: saved by the first half of this chain, the same registers.
    unsafe {
        saved.interface.load();
        if saved.preemption_bits >= 6 {
            saved.active6.load();
        }
        if saved.preemption_bits >= 7 {
            saved.active7.load();
        }
    }
}

/// Reads the maintenance state, acts on it, and switches the virtual interface off.
pub(super) extern "C" fn maintenance_out(frame: &mut Frame) {
    let vcpu = resident(frame);
    let (gic, saved) = (&mut owned(frame).gic, saved(frame));
    let status = regs::ICH_MISR_EL2.read();
    if status != 0 {
        vcpu.vm.with_gic::<Gicv3, _>(|cx| gic.maintenance(cx));
    }
    let (ended, empty) = (regs::ICH_EISR_EL2.read(), regs::ICH_ELRSR_EL2.read());
    saved.maintenance = [status, ended, empty, regs::ICH_HCR_EL2.read()];
    // SAFETY: the guest's interface, and the guest is not running.
    unsafe { regs::ICH_HCR_EL2.write(0) };
}

/// Switches the virtual interface on again.
pub(super) extern "C" fn maintenance_in(frame: &mut Frame) {
    // SAFETY: what it was in the first half of this chain.
    unsafe { regs::ICH_HCR_EL2.write(saved(frame).maintenance[3]) };
}

/// Stores and clears all list registers.
pub(super) extern "C" fn list_registers_out(frame: &mut Frame) {
    saved(frame).take_list_registers();
}

/// Loads all list registers.
pub(super) extern "C" fn list_registers_in(frame: &mut Frame) {
    saved(frame).give_list_registers();
}

/// Takes stage 2 and the traps away, as if the hypervisor could not live with them.
pub(super) extern "C" fn traps_out(frame: &mut Frame) {
    let traps = &saved(frame).traps;
    // SAFETY: with E2H set and TGE clear, none of this changes what EL2 does; interrupts are masked. Nothing runs
    // at EL1 until the guest's values are back.
    unsafe {
        regs::MDCR_EL2.write(traps.MDCR_EL2 & MDCR_HPMN);
        regs::HCR_EL2.write(HCR_HOST);
        regs::CPTR_EL2.write(CPTR_HOST);
        regs::HSTR_EL2.write(0);
        regs::CNTHCTL_EL2.write(traps.CNTHCTL_EL2);
        regs::VTTBR_EL2.write(0);
    }
    cpu::isb();
}

/// Gives the guest its stage 2 and its traps back.
pub(super) extern "C" fn traps_in(frame: &mut Frame) {
    // SAFETY: what the vCPU began with; these do not change while it is resident.
    unsafe { saved(frame).traps.load() };
    cpu::isb();
}

/// Stores the FP and SIMD registers.
pub(super) extern "C" fn fp_out(frame: &mut Frame) {
    saved(frame).fp.save();
}

/// Loads the FP and SIMD registers.
pub(super) extern "C" fn fp_in(frame: &mut Frame) {
    // SAFETY: saved by the first half of this chain.
    unsafe { saved(frame).fp.load() };
}

/// Stores breakpoints and watchpoints.
pub(super) extern "C" fn debug_out(frame: &mut Frame) {
    let saved = saved(frame);
    saved.mdscr = regs::MDSCR_EL1.read();
    saved.points.save();
}

/// Loads breakpoints and watchpoints.
pub(super) extern "C" fn debug_in(frame: &mut Frame) {
    let saved = saved(frame);
    // SAFETY: saved by the first half of this chain. MDSCR_EL1 comes last, as it switches the others on.
    unsafe {
        saved.points.load();
        regs::MDSCR_EL1.write(saved.mdscr);
    }
}
