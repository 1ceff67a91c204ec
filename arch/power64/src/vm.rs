// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual machine and its vCPUs, as exits see them.

use alloc::string::String;
use alloc::vec::Vec;

use spin::Once;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Lifecycle, OnCrash, Stop};

use crate::vcpu::Vcpu;

/// A virtual machine. It exists from boot on; what changes from life to life is its memory and its state.
pub struct Vm {
    /// Its number in the bundle.
    pub id: u8,
    /// Its name.
    pub name: String,
    /// What to do when the guest crashes.
    pub on_crash: OnCrash,
    /// Whether its vCPUs keep statistics of their exits.
    pub statistics: bool,
    /// Start, stop and restart.
    pub lifecycle: Lifecycle,
    vcpus: Once<Vec<&'static Vcpu>>,
}

/// What a VM is made from.
pub struct VmParts {
    /// See [`Vm::id`].
    pub id: u8,
    /// See [`Vm::name`].
    pub name: String,
    /// See [`Vm::on_crash`].
    pub on_crash: OnCrash,
    /// See [`Vm::statistics`].
    pub statistics: bool,
    /// How many vCPUs it has.
    pub vcpus: usize,
}

impl Vm {
    /// Makes a VM that has never run.
    pub fn new(parts: VmParts) -> Self {
        Self {
            id: parts.id,
            name: parts.name,
            on_crash: parts.on_crash,
            statistics: parts.statistics,
            lifecycle: Lifecycle::new(parts.vcpus as u32),
            vcpus: Once::new(),
        }
    }

    /// Gives the VM its vCPUs, once.
    pub fn set_vcpus(&self, vcpus: Vec<&'static Vcpu>) {
        self.vcpus.call_once(|| vcpus);
    }

    /// Returns the vCPUs.
    pub fn vcpus(&self) -> &[&'static Vcpu] {
        self.vcpus.get().map_or(&[], Vec::as_slice)
    }

    /// Returns vCPU `index`.
    pub fn vcpu(&self, index: usize) -> Option<&'static Vcpu> {
        self.vcpus().get(index).copied()
    }

    /// Raises attention with every vCPU.
    pub fn raise_all(&self, reasons: Reasons) {
        for vcpu in self.vcpus() {
            vcpu.post(reasons);
        }
    }

    /// Forgets what its exits cost, for a new life.
    pub fn reset_statistics(&self) {}

    /// Begins to stop the VM, if it runs.
    pub fn stop(&self, reason: Stop) {
        if self.lifecycle.begin_stop(reason) {
            self.raise_all(Reasons::STOP);
        }
    }
}
