// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtual machine and its vCPUs, as exits see them.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::UnsafeCell;

use spin::Once;
use turnstile_exitstat::Page;
use turnstile_paging::{Blocks, Nested};
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Lifecycle, OnCrash, Phase, Stop};
use turnstile_vm::startup::Startup;
use turnstile_x86policy::Processor;

use crate::irq::Board;
use crate::memory::{GuestRam, user};
use crate::switch::BootState;
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
    /// Whether its local APICs can be x2APICs.
    pub x2apic: bool,
    /// KVM's features that it is offered.
    pub kvm: Option<u32>,
    /// Its interrupt controllers.
    pub board: Board,
    /// How its vCPUs start.
    pub startup: Startup,
    /// Start, stop and restart.
    pub lifecycle: Lifecycle,
    vcpus: Once<Vec<&'static Vcpu>>,
    life: UnsafeCell<Life>,
}

/// What a VM has for one life.
#[derive(Debug, Default)]
pub struct Life {
    /// The root of the nested page tables.
    pub nested_root: u64,
    /// What is added to the time-stamp counter: it starts from zero.
    pub tsc_offset: u64,
    /// What its first vCPU begins with.
    pub boot: BootState,
    /// Where its RAM is.
    pub ram: GuestRam,
    /// What maps it on demand, if it is not mapped from the start.
    pub blocks: Option<Blocks<Nested>>,
}

// SAFETY: `life` is written by `Vm::prepare` alone, while no vCPU runs, and read by vCPUs that run.
unsafe impl Sync for Vm {}

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
    /// See [`Vm::x2apic`].
    pub x2apic: bool,
    /// See [`Vm::kvm`].
    pub kvm: Option<u32>,
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
            x2apic: parts.x2apic,
            kvm: parts.kvm,
            board: Board::new(parts.vcpus),
            startup: Startup::new(parts.vcpus),
            lifecycle: Lifecycle::new(parts.vcpus as u32),
            vcpus: Once::new(),
            life: UnsafeCell::default(),
        }
    }

    /// What a vCPU of the VM is.
    pub fn processor(&self, index: usize) -> Processor {
        let count = self.startup.vcpus() as u32;
        Processor { id: index as u32, count, x2apic: self.x2apic, kvm: self.kvm }
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

    /// Prepares the VM's next life: the root of its nested page tables, its RAM and what maps it on demand, and what its first
    /// vCPU begins with. Nothing if the VM runs.
    pub fn prepare(&self, nested_root: u64, ram: GuestRam, blocks: Option<Blocks<Nested>>, boot: BootState) {
        if matches!(self.lifecycle.phase(), Phase::Running | Phase::Stopping(_)) {
            return;
        }
        let tsc_offset = crate::time::ticks().wrapping_neg();
        // SAFETY: no vCPU runs; the CPU of the first vCPU alone gets here, and starts the VM afterwards.
        unsafe { *self.life.get() = Life { nested_root, tsc_offset, boot, ram, blocks } };
        self.board.reset();
        self.startup.reset();
    }

    /// What it has for this life. For its vCPUs, from the start of one to its stop.
    #[inline(always)] // An address computation.
    pub fn life(&self) -> &Life {
        // SAFETY: nobody writes while a vCPU runs; the start of the VM is ordered behind that (`Lifecycle`, `Startup`).
        unsafe { &*self.life.get() }
    }

    /// Reads a word of its RAM; `None` outside. For exits of its vCPUs.
    pub fn read_word(&self, address: u64) -> Option<u16> {
        let mut bytes = [0; 2];
        let host = self.life().ram.host(address, bytes.len() as u64)?;
        // SAFETY: RAM of this VM, which runs.
        unsafe { user::copy_from(host, &mut bytes) };
        Some(u16::from_le_bytes(bytes))
    }

    /// Raises attention with every vCPU.
    pub fn raise_all(&self, reasons: Reasons) {
        for vcpu in self.vcpus() {
            vcpu.post(reasons);
        }
    }

    /// Forgets what its exits cost, for a new life. Only while no vCPU runs: [`Reasons::START`] lets them write again.
    pub fn reset_statistics(&self) {
        self.vcpus().iter().filter_map(|vcpu| vcpu.statistics).for_each(Page::clear);
    }

    /// Begins to stop the VM, if it runs.
    pub fn stop(&self, reason: Stop) {
        if self.lifecycle.begin_stop(reason) {
            self.raise_all(Reasons::STOP);
        }
    }
}
