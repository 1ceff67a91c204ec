// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Armv8-A with one of its interrupt controllers, as `turnstile_threads` sees it.

use core::sync::atomic::AtomicU64;

use turnstile_threads::{Architecture, stack};

use super::thread::{load, prepare, put};
use crate::cpu;
use crate::irq::{Acknowledged, Gic};
use crate::time;
use crate::vcpu::{facility, switch};
use crate::vm::{On, Residue, Thread, Vcpu, own};

impl<G: Gic> Architecture for On<G> {
    type Interrupt = Acknowledged;

    fn set_schedule(at: Option<u64>) {
        time::set_schedule(at);
    }

    fn pause() -> Acknowledged {
        // The timer may have been set just before.
        cpu::isb();
        cpu::wfi();
        let acknowledged = G::acknowledge();
        // What the interrupt announces is read after it: reads of memory are not ordered behind those of system registers.
        cpu::isb();
        acknowledged
    }

    fn idle() {
        cpu::isb();
        own::wait_for_interrupt();
    }

    fn share_cpu() {
        switch::share_cpu();
    }

    fn waited_for(_: Option<&'static Vcpu>, residue: &mut Residue, waited_for: bool) {
        if waited_for != residue.waited_for {
            residue.waited_for = waited_for;
            switch::trap_wfe(waited_for);
        }
    }

    fn prepare(vcpu: &'static Vcpu) {
        prepare(vcpu);
    }

    fn put(vcpu: &'static Vcpu, thread: &'static Thread) -> Option<u64> {
        put::<G>(vcpu, thread)
    }

    fn load(vcpu: &'static Vcpu) {
        load(vcpu);
    }

    fn depart(vcpu: &'static Vcpu) {
        facility::depart(vcpu);
    }

    fn switch_stack(from: &AtomicU64, to: &'static Vcpu) {
        let Some(to) = &to.thread else { return };
        // SAFETY: the stack was left by this function, or made by `prepare`; nobody else uses it, because its vCPU is
        // resident here and nowhere else.
        unsafe { stack::switch(from, &to.common) };
    }
}
