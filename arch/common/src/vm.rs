// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a virtual machine is on every architecture: its name, its life, its vCPUs.

use alloc::string::String;
use alloc::vec::Vec;
use core::cell::UnsafeCell;

use spin::Once;
use turnstile_exitstat::Page;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Lifecycle, OnCrash, Phase, Stop};
use turnstile_vm::pause::Pause;

use crate::crew::Crew;
use crate::share::Taken;

/// What every VM has. The architecture's `Vm` adds the rest.
pub struct Vm<V: 'static> {
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
    /// Whether its vCPUs run in this life, or are paused.
    pub pause: Pause,
    /// Its CPUs while they clear its memory.
    pub crew: Crew,
    /// What it has of the machine's pool; nothing if its memory does not come from there.
    pub taken: Taken,
    vcpus: Once<Vec<&'static V>>,
}

/// A vCPU, as what reaches all of a VM needs it.
pub trait Vcpu {
    /// Sets reasons to look, and makes the vCPU do so.
    fn post(&self, reasons: Reasons);
    /// Says whether it has its physical CPU to itself.
    fn is_pinned(&self) -> bool;
    /// Returns what its exits cost, if its VM keeps statistics.
    fn statistics(&self) -> Option<&'static Page>;
    /// A device of its VM has moved: it forgets what it has remembered of where devices are. On any CPU.
    fn device_has_moved(&self) {}
}

impl<V: Vcpu> Vm<V> {
    /// Makes what a VM of so many vCPUs has that has never run.
    pub fn new(id: u8, name: String, on_crash: OnCrash, statistics: bool, vcpus: usize) -> Self {
        let lifecycle = Lifecycle::new(vcpus as u32);
        let pause = Pause::new(vcpus as u32);
        let (crew, taken, vcpus) = (Crew::new(), Taken::new(), Once::new());
        Self { id, name, on_crash, statistics, lifecycle, pause, crew, taken, vcpus }
    }

    /// Gives the VM its vCPUs, once.
    pub fn set_vcpus(&self, vcpus: Vec<&'static V>) {
        self.vcpus.call_once(|| vcpus);
    }

    /// A device of the VM has moved: its vCPUs forget what they have remembered of where devices are.
    pub fn device_has_moved(&self) {
        self.vcpus().iter().for_each(|vcpu| vcpu.device_has_moved());
    }

    /// Returns the vCPUs.
    #[inline] // Finds the target of an interrupt.
    pub fn vcpus(&self) -> &[&'static V] {
        self.vcpus.get().map_or(&[], Vec::as_slice)
    }

    /// Returns vCPU `index`.
    #[inline] // As above.
    pub fn vcpu(&self, index: usize) -> Option<&'static V> {
        self.vcpus().get(index).copied()
    }

    /// Raises `reasons` with every vCPU, kicking those that may be in the guest.
    pub fn raise_all(&self, reasons: Reasons) {
        for vcpu in self.vcpus() {
            vcpu.post(reasons);
        }
    }

    /// Calls the CPUs of all vCPUs but the first, which wait for the VM's start, to help in [`Vm::crew`]: those that no other VM uses.
    pub fn call_crew(&self) {
        self.vcpus()
            .iter()
            .skip(1)
            .filter(|vcpu| vcpu.is_pinned())
            .for_each(|vcpu| vcpu.post(Reasons::START));
    }

    /// Begins to stop the VM, if it runs.
    pub fn stop(&self, reason: Stop) {
        if self.lifecycle.begin_stop(reason) {
            self.raise_all(Reasons::STOP);
        }
    }

    /// Begins to pause the VM. False if it does not run, or is paused already.
    pub fn begin_pause(&self) -> bool {
        let begins = self.lifecycle.phase() == Phase::Running && self.pause.begin();
        if begins {
            self.raise_all(Reasons::STOP);
        }
        begins
    }

    /// Begins a short pause, for what is done while no vCPU is in its guest. Nothing if the VM does not run, or is paused already.
    pub fn begin_short_pause(&self) {
        if self.lifecycle.phase() == Phase::Running && self.pause.begin_short() {
            self.raise_all(Reasons::STOP);
        }
    }

    /// Says whether vCPU `index`, which is out of its guest and whose timers do not ring, is to stay there because its VM is paused.
    /// `paused` is called once in each pause, by the last vCPU that has left. Asked behind the attention word.
    pub fn is_held(&self, index: usize, paused: impl FnOnce()) -> bool {
        // A stop ends a pause. One that begins behind this cannot be finished before this vCPU has acknowledged it.
        if self.lifecycle.phase() != Phase::Running {
            return false;
        }
        if self.pause.acknowledge(index) {
            paused();
        }
        self.pause.holds()
    }

    /// Forgets what its exits cost, for a new life. Only while no vCPU runs: [`Reasons::START`] lets them write again.
    pub fn reset_statistics(&self) {
        self.vcpus().iter().filter_map(|vcpu| vcpu.statistics()).for_each(Page::clear);
    }
}

/// What a VM has for one life: written while none of its vCPUs runs, and read by those that run.
#[derive(Debug, Default)]
pub struct ForLife<T>(UnsafeCell<T>);

// SAFETY: `begin` alone writes, and its contract keeps readers away meanwhile.
unsafe impl<T: Send + Sync> Sync for ForLife<T> {}

impl<T> ForLife<T> {
    /// Makes it, with this for as long as no life has begun.
    pub const fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Sets it for the next life.
    ///
    /// # Safety
    /// Nobody has what [`ForLife::get`] returned, or gets it meanwhile: no vCPU runs, no service reaches the VM's memory, and the start of the VM
    /// is ordered behind this.
    pub unsafe fn begin(&self, value: T) {
        // SAFETY: the caller's promise.
        unsafe { *self.0.get() = value };
    }

    /// Returns it. For the VM's vCPUs, from the start of one to its stop, and for who is inside a service that reaches its memory.
    #[inline(always)] // An address computation.
    pub fn get(&self) -> &T {
        // SAFETY: nobody writes meanwhile, as who writes has promised.
        unsafe { &*self.0.get() }
    }
}
