// SPDX-License-Identifier: Apache-2.0 OR MIT
//! POWER, as `turnstile_threads` sees it.

use core::sync::atomic::AtomicU64;

use spin::Once;
use turnstile_threads::Architecture;
use turnstile_vm::attention::{Attention, KickToken, Posted};

use super::thread::{load, prepare, put, switch_stack};
use super::{Scheduler, System, Thread};
use crate::cpu::{self, PerCpu};
use crate::facility;
use crate::irq;
use crate::time;
use crate::vcpu::Vcpu;

static SYSTEM: Once<System> = Once::new();

/// The architecture.
pub struct Power;

impl Architecture for Power {
    type Cpu = PerCpu;
    type Vcpu = Vcpu;
    type Thread = Thread;
    type Residue = ();
    /// Whether a deadline of the hypervisor's has come.
    type Interrupt = bool;

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
        vcpu.notify(posted);
    }

    fn ticks() -> u64 {
        time::ticks()
    }

    fn set_schedule(at: Option<u64>) {
        time::set_schedule(at);
    }

    fn reschedule(token: KickToken) {
        // Its vCPU's attention word does not say so: there the doorbell does (`crate::exit::listen`).
        cpu::ring(token);
    }

    fn pause() -> bool {
        irq::wait()
    }

    fn idle() {
        crate::exit::wait::wait_for_interrupt();
    }

    fn share_cpu() {
        time::share_cpu();
    }

    /// Nothing: a guest says by a call that it could wait (H_CONFER).
    fn waited_for(_: Option<&'static Vcpu>, _: &mut (), _: bool) {}

    fn prepare(vcpu: &'static Vcpu) {
        prepare(vcpu);
    }

    fn put(vcpu: &'static Vcpu, _: &'static Thread) -> Option<u64> {
        put(vcpu)
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
