// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Full exits: all general registers are in the frame.

use turnstile_vm::lifecycle::Stop;

use super::event::{self, Exception};
use super::{Code, Next, code, hypercall, interrupt, memory, msr, port, resident, skip_to, wait};
use crate::frame::Frame;
use crate::interrupts::{self, Arrived};
use crate::svm::Vmcb;
use crate::vcpu::Vcpu;
use crate::{Monitor, monitor};

/// Why a VM was stopped by the hypervisor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Crash {
    /// The guest's exceptions led to a shutdown (a triple fault) without an intent that can be seen.
    Shutdown = 1,
    /// The delivery of an exception or interrupt ran into memory that is not there.
    Delivery = 2,
    /// VMRUN refused the guest's state.
    State = 3,
    /// The guest's page tables are not in memory.
    Tables = 4,
}

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
        Code::ARRIVED => {
            interrupt::serve(Some(vcpu), monitor, Arrived::from_bits(why));
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
    if super::naive::light(frame, vmcb, exit) != Code::FULL {
        return Then::Enter;
    }
    match exit {
        code::VMMCALL => {
            hypercall::full(frame, vmcb, vcpu);
            skip_to(vmcb, next(vmcb, hypercall::LENGTH));
        }
        code::MSR => msr::full(frame, vmcb, vcpu, next(vmcb, msr::LENGTH)),
        code::XSETBV => msr::xsetbv(frame, vmcb, vcpu, next(vmcb, XSETBV)),
        code::NESTED_PAGE_FAULT => memory::full(frame, vmcb, vcpu, monitor),
        code::IOIO => port::full(frame, vmcb, vcpu, monitor),
        code::HLT => {
            skip_to(vmcb, next(vmcb, wait::LENGTH));
            return Then::Wait;
        }
        // Nothing of the guest's is in the caches alone: the hardware keeps them coherent.
        code::INVD | code::WBINVD => skip_to(vmcb, next(vmcb, CACHE)),
        code::RDPMC => Exception::PROTECTION.inject(vmcb),
        code::PAUSE => {
            skip_to(vmcb, next(vmcb, PAUSE));
            return Then::GiveWay;
        }
        code::IRET => vcpu.owned(|owned| owned.nmi.iret(vmcb)),
        code::DEBUG | code::ALIGNMENT if event::was_cut_short(vmcb) => event::deliver_again(vmcb),
        code::DEBUG | code::ALIGNMENT => event::reflect(vmcb, exit),
        // The machine's own: their handlers run now. An INIT is ignored.
        code::INTR | code::NMI | code::INIT | code::MACHINE_CHECK => {
            interrupt::serve(Some(vcpu), monitor, interrupts::take());
            event::deliver_again(vmcb);
        }
        code::SHUTDOWN => vcpu.vm.stop(Stop::Crash(Crash::Shutdown as u16)),
        code::INVALID => vcpu.vm.stop(Stop::Crash(Crash::State as u16)),
        // What is intercepted because this CPU does not have it for guests.
        _ => Exception::UNDEFINED.inject(vmcb),
    }
    Then::Enter
}

/// Lengths of instructions.
const XSETBV: u64 = 3;
/// INVD and WBINVD.
const CACHE: u64 = 2;
/// F3 90.
const PAUSE: u64 = 2;
