// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest is told of the turns of a vCPU that shares its CPU: `turnstile_papr::dispatch` on this machine. A guest that has
//! registered no area pays a comparison.

use turnstile_papr::dispatch::{Left, Turn};

use crate::cpu;
use crate::time;
use crate::vcpu::frame::Frame;
use crate::vm::queues::Power;
use crate::vm::{Thread, Vcpu};

/// The vCPU gives its CPU away.
#[inline(always)] // A comparison of each switch.
pub(super) fn leave(vcpu: &'static Vcpu) {
    if vcpu.owned(|owned| owned.areas.vpa.is_some()) {
        told_leave(vcpu);
    }
}

/// The vCPU has a CPU again.
#[inline(always)] // A comparison of each switch.
pub(super) fn dispatch(vcpu: &'static Vcpu) {
    if vcpu.owned(|owned| owned.areas.vpa.is_some()) {
        told_dispatch(vcpu);
    }
}

#[inline(never)] // Apart from the switch of those that want to know nothing.
fn told_leave(vcpu: &'static Vcpu) {
    let Some(thread) = &vcpu.thread else { return };
    let left = Left { now: time::ticks(), stolen: turnstile_threads::stolen::<Power>(thread) };
    vcpu.owned(|owned| owned.areas.leave(left, vcpu.vm));
}

#[inline(never)] // As above.
fn told_dispatch(vcpu: &'static Vcpu) {
    let Some(thread) = &vcpu.thread else { return };
    let noted = noted(thread);
    let turn = Turn {
        processor: cpu::this().pir as u16,
        now: time::ticks(),
        ready: turnstile_threads::ready_at::<Power>(thread),
        stolen: turnstile_threads::stolen::<Power>(thread),
        pc: noted.pc,
        msr: noted.msr,
    };
    vcpu.owned(|owned| owned.areas.dispatch(&turn, vcpu.vm));
}

/// What the frame has of the exit that is being handled.
struct Noted {
    pc: u64,
    msr: u64,
}

fn noted(thread: &Thread) -> Noted {
    let frame = thread.frame() as *const Frame;
    // SAFETY: the frame at the top of a stack lives for ever, and nobody writes it while its vCPU is put or loaded by this CPU;
    // its fields are read, and no reference is made, because the exit that is being handled has one.
    unsafe { Noted { pc: (&raw const (*frame).pc).read(), msr: (&raw const (*frame).msr).read() } }
}
