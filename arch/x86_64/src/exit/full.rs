// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full exits: all general registers are in the frame.

use turnstile_vm::lifecycle::Stop;

use super::crash::Crash;
use super::tier::Code;
use super::{control, hypercall, memory, msr, port, wait};
use crate::cpu::svm::event::{self, Exception};
use crate::cpu::svm::{Vmcb, code};
use crate::irq::interrupts::{self, Arrived};
use crate::vcpu::frame::{Frame, resident};
use crate::vcpu::next::{Next, length, skip_to};
use crate::vcpu::serve::serve;
use crate::vm::Vcpu;
use crate::vm::monitor::Monitor;
use crate::vm::monitor::monitor;

/// Finishes an exit.
#[inline(always)] // Its callers are what it is for.
pub(super) fn exit<N: Next>(frame: &mut Frame, why: u32) {
    finish(frame, why, N::address);
}

/// Returns where the next instruction is, given the length of this one.
type Address = fn(&Vmcb, u64) -> u64;

/// Nothing here refers to the control block where the vCPU may give its CPU away: another CPU may load it then.
fn finish(frame: &mut Frame, why: u32, next: Address) {
    let vcpu = resident(frame);
    let monitor = monitor();
    let then = match why & Code::KIND {
        Code::FULL => vcpu.with_vmcb(|vmcb| unfinished(frame, vmcb, vcpu, monitor, next)),
        Code::WAIT => Then::Wait,
        Code::STEPPED => {
            vcpu.with_vmcb(event::executed);
            Then::Enter
        }
        Code::ARRIVED => {
            serve(Some(vcpu), monitor, Arrived::from_bits(why));
            Then::Enter
        }
        _ => Then::Enter,
    };
    match then {
        Then::Enter => {}
        Then::Wait => wait::halt(frame, vcpu, monitor),
        Then::GiveWay => wait::give_way(frame, vcpu),
    }
    wait::settle(frame, vcpu, monitor);
}

/// What comes after an exit is handled.
enum Then {
    /// The guest is entered.
    Enter,
    /// The vCPU waits for an interrupt.
    Wait,
    /// The vCPU spins, and lets others run.
    GiveWay,
}

fn unfinished(
    frame: &mut Frame,
    vmcb: &mut Vmcb,
    vcpu: &'static Vcpu,
    monitor: &dyn Monitor,
    next: Address,
) -> Then {
    let exit = vmcb.exit_code() as u32;
    #[cfg(feature = "ablation")]
    match super::naive::handlers::light(frame, vmcb, exit) {
        Code::FULL => {}
        Code::STEPPED => {
            event::executed(vmcb);
            return Then::Enter;
        }
        _ => return Then::Enter,
    }
    match exit {
        code::VMMCALL => {
            hypercall::full(frame, vmcb, vcpu);
            skip_to(vmcb, next(vmcb, length::VMMCALL));
        }
        code::MSR => msr::full(frame, vmcb, vcpu, next(vmcb, length::MSR)),
        code::XSETBV => msr::xsetbv(frame, vmcb, vcpu, next(vmcb, length::XSETBV)),
        code::NESTED_PAGE_FAULT => memory::full(frame, vmcb, vcpu, monitor),
        code::IOIO => port::full(frame, vmcb, vcpu, monitor),
        code::HLT => {
            skip_to(vmcb, next(vmcb, length::HLT));
            return Then::Wait;
        }
        // Nothing of the guest's is in the caches alone: the hardware keeps them coherent.
        code::INVD | code::WBINVD => skip_to(vmcb, next(vmcb, length::CACHE)),
        code::RDPMC => Exception::PROTECTION.inject(vmcb),
        code::PAUSE => {
            skip_to(vmcb, next(vmcb, length::PAUSE));
            return Then::GiveWay;
        }
        code::WRITE_CR8 => control::write_cr8(frame, vmcb, &vcpu.vm.life().ram),
        code::IRET => vcpu.owned(|owned| owned.nmi.iret()),
        code::DEBUG | code::ALIGNMENT if event::was_cut_short(vmcb) => event::deliver_again(vmcb),
        code::DEBUG if vcpu.owned(|owned| owned.nmi.end_step(vmcb)) => {}
        code::DEBUG | code::ALIGNMENT | code::INVALID_TSS..=code::PAGE_FAULT => event::reflect(vmcb, exit),
        // The machine's own: their handlers run now. An INIT is ignored.
        code::INTR | code::NMI | code::INIT | code::MACHINE_CHECK => {
            serve(Some(vcpu), monitor, interrupts::take());
            event::deliver_again(vmcb);
        }
        // What is in the control block now means nothing (APM vol. 2, 15.14.3), and is not entered again.
        code::SHUTDOWN => monitor.shut_down(vcpu),
        code::INVALID => vcpu.vm.stop(Stop::Crash(Crash::State as u16)),
        // What is intercepted because this CPU does not have it for guests.
        _ => Exception::UNDEFINED.inject(vmcb),
    }
    Then::Enter
}
