// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM on POWER: its memory with kernel, firmware and device tree, what its first vCPU begins with, its devices.

mod devices;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::mem::ManuallyDrop;

use turnstile_bundle::{Machine as Kind, Pseries, Schedule, ServiceDevice, VmSpec};
use turnstile_machine::Functions;
use turnstile_machine::pseries::boot::{self, BootError, Partition};
use turnstile_machine::pseries::{Interrupts, PCI, SERVICE, TERMINAL_SOURCE, pci_bars};

use super::place::{Function, Place, Reach, Site};
use super::shared;
use crate::arch::board::discover;
use crate::arch::board::mitigation::Choice;
use crate::arch::boot::{Host, NO_INPUT};
use crate::arch::crew::Crew;
use crate::arch::exit::crash::Crash;
use crate::arch::irq::{self, Board, Presentation, Window};
use crate::arch::memory::{self, Backing, GuestMemory};
use crate::arch::service;
use crate::arch::time;
use crate::arch::vm::Thread;
use crate::arch::vm::{BootState, Vm, VmParts};
pub use devices::Devices;

/// Why a VM cannot be built or started.
#[derive(Debug)]
pub enum Error {
    /// It is described for another architecture.
    Foreign,
    /// Its kernel cannot be started.
    Boot(BootError),
    /// The interrupt controller cannot serve it.
    Interrupts(irq::Error),
    /// There is not enough memory.
    Memory(memory::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => {
                write!(f, "it is described for another architecture: write machine = \"pseries\"")
            }
            Self::Boot(error) => write!(f, "{error}"),
            Self::Interrupts(irq::Error(code)) => {
                write!(f, "the machine's interrupt controller has nothing left for it (OPAL says {code})")
            }
            Self::Memory(error) => write!(f, "{error}"),
        }
    }
}

/// Says whether the arch crate reads a word of the command line itself.
pub fn is_boot_word(word: &str) -> bool {
    word == NO_INPUT || Choice::from_word(word).is_some() || discover::bundle(word).is_some()
}

/// Says what a crash code of the arch crate means.
pub fn explain_crash(code: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const MACHINE_CHECK: u16 = Crash::MachineCheck as u16;
    const TABLES: u16 = Crash::Tables as u16;
    const FETCH: u16 = Crash::Fetch as u16;
    const TERMINATED: u16 = Crash::Terminated as u16;
    match code {
        MACHINE_CHECK => write!(f, "a machine check came while the guest ran"),
        TABLES => write!(f, "the guest's process or page tables are not in its memory"),
        FETCH => write!(f, "the guest runs where it has no memory"),
        TERMINATED => {
            write!(f, "the guest says that it cannot go on (ibm,os-term), as Linux does in a panic")
        }
        code => write!(f, "crash code {code}"),
    }
}

/// The source of a device that interrupts nobody.
const NO_SOURCE: u32 = 0;

/// Delivers a message-signalled interrupt; false if nothing is at that address.
pub fn message(vm: &'static Vm, address: u64, data: u64) -> bool {
    vm.board.message(vm, address, data)
}

/// Makes memory for a disk of `size` bytes that begins with this image, for ever; returns its physical address.
///
/// # Errors
/// When there is not enough.
pub fn storage(size: u64, image: &[u8]) -> Result<u64, Error> {
    // Nobody runs in it: its tables are never used.
    let mut memory = GuestMemory::new(size, Backing::AtStart, (&Crew::new(), &|| ()))?;
    memory.load(0, image)?;
    Ok(ManuallyDrop::new(memory).base())
}

/// Sets the interrupt line of a device: sources are edges.
pub fn set_line(vm: &'static Vm, line: u32, level: bool) {
    if level && line != NO_SOURCE {
        vm.board.raise(vm, line);
    }
}

/// What a VM's description becomes on this machine.
pub struct Machine {
    spec: VmSpec<'static>,
    interrupts: Interrupts,
    threads: usize,
    /// Its PCI functions.
    functions: Functions,
    /// What of the interrupt controller the guest reaches itself.
    windows: Vec<Window>,
}

impl Machine {
    /// Finds out what the VM with index `id`, which has these PCI functions, needs of this machine, and the parts it is made from.
    ///
    /// # Errors
    /// When it cannot be run here.
    pub fn new(
        id: u8,
        spec: &VmSpec<'static>,
        functions: Functions,
        _: &Host,
    ) -> Result<(Self, VmParts), Error> {
        let Kind::Pseries(Pseries { interrupts, threads }) = spec.machine else { return Err(Error::Foreign) };
        // POWER9 and later have it.
        let interrupts = interrupts.on(true);
        let presentation = match interrupts {
            Interrupts::Xive => Presentation::Xive,
            Interrupts::Xics => Presentation::Xics,
        };
        let board = Board::new(spec.vcpus, functions.count, presentation).map_err(Error::Interrupts)?;
        let windows = board.windows().collect();
        let parts = VmParts {
            id,
            name: String::from(spec.name),
            on_crash: shared::on_crash(spec),
            statistics: spec.statistics,
            board,
            vcpus: spec.vcpus,
            threads: threads.into(),
        };
        Ok((Self { spec: *spec, interrupts, threads: threads.into(), functions, windows }, parts))
    }

    /// Makes what a vCPU has as a thread with this number; `None` if it is pinned.
    ///
    /// # Errors
    /// When there is no memory for its stack.
    pub fn thread(&self, number: u32, _: usize) -> Result<Option<Thread>, Error> {
        match self.spec.schedule {
            Schedule::Pinned => Ok(None),
            Schedule::Shared(_) => Ok(Some(Thread::new(number, memory::stack()?))),
        }
    }

    /// Makes the devices in their reset state.
    pub fn devices(&self, _: &Vm) -> Devices {
        Devices::new()
    }

    /// Returns how many bytes of memory the VM has now, and how many at most.
    pub fn memory(&self, vm: &Vm) -> (u64, u64) {
        shared::memory(vm, &self.spec, self.spec.memory)
    }

    /// Returns fresh memory with the VM's images in it, and what its first vCPU begins with. Says when the memory is
    /// `cleared`, as far as it is before the start.
    ///
    /// # Errors
    /// When they do not fit; nothing is kept then.
    pub fn furnish(
        &self,
        vm: &'static Vm,
        cleared: impl FnOnce(),
    ) -> Result<(GuestMemory, BootState), Error> {
        let crew: (&Crew, &dyn Fn()) = (&vm.crew, &|| vm.call_crew());
        let spec = &self.spec;
        let partition =
            Partition { threads: self.threads, interrupts: self.interrupts, timebase: time::frequency() };
        let plan = boot::plan(&shared::source(spec, self.functions), &partition).map_err(Error::Boot)?;
        let memory = GuestMemory::new(spec.memory, shared::backing(vm, spec), crew)?;
        cleared();
        shared::filled(memory, |memory| {
            self.fill(memory, &plan)?;
            Ok(boot_state(&plan.start))
        })
    }

    fn fill(&self, memory: &mut GuestMemory, plan: &boot::Plan<'_>) -> Result<(), memory::Error> {
        for window in &self.windows {
            memory.map_device(window.guest, window.host, window.size)?;
        }
        for load in &plan.loads {
            memory.load(load.address, &load.bytes)?;
        }
        for (address, bytes) in plan.relocations.iter() {
            memory.load(address, &bytes)?;
        }
        memory.finish_loading();
        Ok(())
    }

    /// Says where a device of its is that a service can be; a PCI function is in a slot. Registers beside the others interrupt nobody.
    pub fn site(&self, device: ServiceDevice, slot: u64) -> Site {
        Site::Device(match device {
            ServiceDevice::Uart => Place { reach: Reach::Calls, base: 0, size: 1, line: TERMINAL_SOURCE },
            ServiceDevice::Extra => {
                Place { reach: Reach::Memory, base: SERVICE.base, size: SERVICE.size, line: NO_SOURCE }
            }
            ServiceDevice::Pci
            | ServiceDevice::Network
            | ServiceDevice::Entropy
            | ServiceDevice::Balloon
            | ServiceDevice::Console
            | ServiceDevice::Ports => {
                return Site::Function(self.function(slot));
            }
        })
    }

    /// Says where the PCI function in a slot is: the firmware reaches its configuration space.
    fn function(&self, slot: u64) -> Function {
        Function { configuration: None, bars: pci_bars(slot), window: PCI.base..PCI.base + PCI.size }
    }

    /// Gives up what it keeps from life to life: nothing.
    ///
    /// # Errors
    /// Never.
    pub fn forget(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns where the VM's RAM is.
    pub fn ram(&self, memory: &GuestMemory) -> Vec<service::Window> {
        let (host, size) = (memory.base(), memory.ram().size());
        let on_demand = memory.ram().comes_later();
        vec![service::Window { host, size, on_demand, ..service::Window::default() }]
    }

    /// Makes the VM ready for a life in `memory` that begins with `start`. Only while no vCPU runs.
    pub fn prepare(&self, vm: &Vm, memory: &GuestMemory, start: BootState) {
        vm.prepare(memory.tables(), memory.ram().clone(), start);
    }
}

/// The registers of a plan as the arch crate wants them.
fn boot_state(start: &boot::Start) -> BootState {
    BootState { pc: start.entry, r3: start.tree, little_endian: start.little_endian }
}
