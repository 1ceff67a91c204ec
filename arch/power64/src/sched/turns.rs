// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest is told of the turns of a vCPU that shares its CPU: `turnstile_papr::dispatch` on this machine. A guest that has
//! registered no area pays a comparison.

use turnstile_papr::dispatch::{Kept, Left, Turn};

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

/// The VM is paused: until [`go_on`] the guest is told nothing of this vCPU's turns.
pub(super) fn keep(vcpu: &'static Vcpu) -> Option<Kept> {
    vcpu.owned(|owned| owned.areas.keep(time::ticks(), vcpu.vm))
}

/// The pause is over, in which the time base went on: the time is stolen, whether the vCPU has its CPU for itself, or shares it and has
/// been put meanwhile, or has not. `pc` and `msr` say where the guest goes on.
pub(super) fn go_on(vcpu: &'static Vcpu, kept: Option<Kept>, [pc, msr]: [u64; 2]) {
    let Some(kept) = kept else { return };
    let now = time::ticks();
    let turn = Turn { processor: cpu::this().pir as u16, now, ready: now, stolen: 0, pc, msr };
    vcpu.owned(|owned| owned.areas.go_on_after(kept, &turn, vcpu.vm));
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
