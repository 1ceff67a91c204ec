// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Armv8-A with one of its interrupt controllers, as `turnstile_threads` sees it.

use core::marker::PhantomData;
use core::sync::atomic::AtomicU64;

use spin::Once;
use turnstile_threads::Architecture;
use turnstile_vm::attention::{Attention, KickToken, Posted};

use super::thread::{load, prepare, put, switch_stack};
use super::{Residue, Scheduler, System, Thread};
use crate::cpu::{self, PerCpu};
use crate::facility;
use crate::irq::{Acknowledged, Gic};
use crate::switch;
use crate::time;
use crate::vcpu::Vcpu;

static SYSTEM: Once<System> = Once::new();

/// The architecture with the GIC `G`.
pub struct On<G>(PhantomData<G>);

impl<G: Gic> Architecture for On<G> {
    type Cpu = PerCpu;
    type Vcpu = Vcpu;
    type Thread = Thread;
    type Residue = Residue;
    type Interrupt = Acknowledged;

    fn system() -> &'static Once<System> {
        &SYSTEM
    }

    fn this() -> &'static PerCpu {
        cpu::this()
    }

    fn index(cpu: &PerCpu) -> usize {
        cpu.index
    }

    fn kick_token(cpu: &PerCpu) -> KickToken {
        cpu.kick_token()
    }

    fn scheduler(cpu: &PerCpu) -> &Once<Scheduler> {
        &cpu.scheduler
    }

    fn attention(vcpu: &Vcpu) -> &Attention {
        &vcpu.attention
    }

    fn thread(vcpu: &Vcpu) -> Option<&Thread> {
        vcpu.thread.as_ref()
    }

    fn notify(vcpu: &Vcpu, posted: Posted) {
        vcpu.notify::<G>(posted);
    }

    fn ticks() -> u64 {
        time::ticks()
    }

    fn set_schedule(at: Option<u64>) {
        time::set_schedule(at);
    }

    fn reschedule(token: KickToken) {
        G::reschedule(token);
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
        crate::exit::wait::wait_for_interrupt();
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
        switch_stack(from, to);
    }
}
