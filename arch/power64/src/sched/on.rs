// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a switch moves, for `turnstile_threads`.

use core::sync::atomic::AtomicU64;

use turnstile_threads::Architecture;

use super::thread::{load, prepare, put, switch_stack};
use crate::time;
use crate::vcpu::{facility, idle};
use crate::vm::queues::Power;
use crate::vm::{Thread, Vcpu};

impl Architecture for Power {
    /// Whether a deadline of the hypervisor's has come.
    type Interrupt = bool;

    fn set_schedule(at: Option<u64>) {
        time::set_schedule(at);
    }

    fn pause() -> bool {
        idle::wait()
    }

    fn idle() {
        idle::wait_for_interrupt();
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
