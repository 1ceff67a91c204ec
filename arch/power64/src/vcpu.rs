// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A vCPU.

use turnstile_exitstat::Page;
use turnstile_vm::attention::{Attention, Posted, Reasons};

use crate::cpu::{self, PerCpu};
use crate::sched::Thread;
use crate::vm::Vm;

/// A vCPU.
pub struct Vcpu {
    /// Why it must look before it enters its guest.
    pub attention: Attention,
    /// Its VM.
    pub vm: &'static Vm,
    /// Its number in the VM.
    pub index: usize,
    /// The physical CPU it is pinned to, or where it begins.
    pub cpu: &'static PerCpu,
    /// What its exits cost, if its VM keeps statistics.
    pub statistics: Option<&'static Page>,
    /// What it has if it shares CPUs with others; `None` if it is pinned.
    pub thread: Option<Thread>,
}

impl Vcpu {
    /// Makes vCPU `index` of `vm`, pinned to `cpu`; or a thread that begins there.
    pub fn new(vm: &'static Vm, index: usize, cpu: &'static PerCpu, thread: Option<Thread>) -> Self {
        Self { attention: Attention::new(), vm, index, cpu, statistics: None, thread }
    }

    /// Sets reasons to look, and makes the vCPU do so.
    pub fn post(&self, reasons: Reasons) {
        match self.attention.post(reasons) {
            Posted::Kick(token) => cpu::ring(token),
            Posted::Seen | Posted::Wake => {}
        }
    }
}
