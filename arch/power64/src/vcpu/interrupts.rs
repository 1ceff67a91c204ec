// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupts of a vCPU: what of them moves with it, and what it is told of.

use core::ptr;
use core::sync::atomic::{AtomicPtr, Ordering};

use turnstile_vm::attention::Reasons;

use crate::cpu::regs::{DEC, DPDES};
use crate::irq::{escalation, queue};
use crate::time;
use crate::vm::Vcpu;
use crate::vm::monitor::monitor;

/// The vCPUs that can be woken, by the numbers that their events have.
static SLEEPERS: [AtomicPtr<Vcpu>; escalation::NUMBERS] =
    [const { AtomicPtr::new(ptr::null_mut()) }; escalation::NUMBERS];

/// The vCPU becomes resident on this CPU.
pub(crate) fn load(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.irq.load(&vcpu.interrupts.icp));
}

/// The vCPU leaves this CPU. What comes for it from now on wakes it, if it waits.
pub(crate) fn put(vcpu: &'static Vcpu) {
    let pending = vcpu.owned(|owned| {
        owned.irq.arm(|number| {
            // Release: who is woken by the event finds the vCPU.
            SLEEPERS[number].store(ptr::from_ref(vcpu).cast_mut(), Ordering::Release);
        });
        owned.irq.put()
    });
    if pending {
        vcpu.attention.raise(Reasons::EXTERNAL);
    }
}

/// What is silent of a vCPU whose VM is paused.
#[derive(Debug)]
pub(crate) struct Silent {
    doorbell: bool,
}

/// The VM is paused: what is pending for the vCPU, which is resident, does not end STOP, until [`sound`]. The controller keeps what
/// comes. A vCPU that shares its CPU may give it away, which does the same.
pub(crate) fn silence(vcpu: &'static Vcpu) -> Silent {
    let doorbell = DPDES.read() != 0;
    set_doorbell(false);
    if vcpu.thread.is_none() {
        vcpu.owned(|owned| owned.irq.put());
    }
    Silent { doorbell }
}

/// The VM goes on: what is pending, and what has come meanwhile, interrupts the guest.
pub(crate) fn sound(vcpu: &'static Vcpu, Silent { doorbell }: Silent) {
    if vcpu.thread.is_none() {
        load(vcpu);
    }
    if doorbell {
        set_doorbell(true);
    }
}

/// Serves what the controller has for the hypervisor on this CPU: wakes the vCPUs for which something has come, and tells of
/// interrupts of the machine's devices, which have the numbers behind.
pub(crate) fn serve() {
    queue::serve(|number| {
        let sleeper = SLEEPERS.get(number).map_or(ptr::null_mut(), |sleeper| sleeper.load(Ordering::Acquire));
        // SAFETY: a vCPU that lives for ever, or null.
        match unsafe { sleeper.as_ref() } {
            Some(vcpu) => vcpu.post(Reasons::EXTERNAL),
            None if number >= queue::EVENTS => monitor().interrupt(number as u32),
            // Of a vCPU that sleeps no more.
            None => {}
        }
    });
}

/// The vCPU, which is resident, begins anew. What it was sent since it was to start it finds.
pub(crate) fn begin(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.irq.begin(&vcpu.interrupts.icp));
}

/// Lets the resident vCPU have the external interrupt that its presentation controller presents: another CPU may have changed
/// it, then the attention word has said so.
#[inline(always)] // Two loads and a comparison.
pub(crate) fn drain(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.irq.follow(vcpu.interrupts.icp.is_presented()));
}

/// Lets the resident vCPU have the doorbell that another thread of its core has rung. Not with external interrupts: those are
/// frequent.
pub(crate) fn receive(vcpu: &'static Vcpu) {
    if vcpu.interrupts.take_doorbell() {
        set_doorbell(true);
    }
}

/// Lets the doorbell of the resident vCPU ring, or not.
pub(crate) fn set_doorbell(rings: bool) {
    // SAFETY: the vCPU's own interrupt.
    unsafe { DPDES.write(u64::from(rings)) };
}

/// The vCPU is prodded: by itself, or by another one, of which the attention word has told.
#[inline(always)] // One store.
pub(crate) fn prod(vcpu: &'static Vcpu) {
    vcpu.owned(|owned| owned.irq.prod());
}

/// Says whether the vCPU, which is resident, has a reason not to wait: a prod, which is taken, or an interrupt.
#[inline(always)] // On the light path of H_CEDE, which calls no function.
pub(crate) fn wakes(vcpu: &'static Vcpu) -> bool {
    vcpu.owned(|owned| owned.irq.take_prod() || owned.irq.is_interrupted())
        || is_expired()
        || DPDES.read() != 0
}

/// Says whether the guest's decrementer has passed zero. LPCR has no LD: it has 32 bits.
#[inline(always)] // Two instructions.
fn is_expired() -> bool {
    time::signed(DEC.read()) < 0
}
