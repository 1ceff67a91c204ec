// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM on AMD64: its memory with kernel and tables, what its first vCPU begins with, its devices.

mod devices;

use alloc::string::String;
use alloc::vec::Vec;
use core::cmp::Reverse;
use core::fmt;
use core::mem::ManuallyDrop;

use turnstile_bundle::{Apic, Machine as Kind, Paravirt, Pc, Schedule, ServiceDevice, TripleFault, VmSpec};
use turnstile_machine::Functions;
use turnstile_machine::pc;
use turnstile_machine::pc::boot::{self, BootError, Start};
use turnstile_x86policy::features::kvm;

use super::place::{Function, Place, Reach, Site};
use super::shared;
use crate::arch::board::mitigation::Choice;
use crate::arch::boot::Host;
use crate::arch::crew::Crew;
use crate::arch::exit::crash::Crash;
use crate::arch::memory::{self, Backing, GuestMemory, Piece};
use crate::arch::service::Window;
use crate::arch::state::start::{BootState, Mode};
use crate::arch::vm::Thread;
use crate::arch::vm::{Vm, VmParts};
pub use devices::Devices;

/// Why a VM cannot be built or started.
#[derive(Debug)]
pub enum Error {
    /// It is described for another architecture.
    Foreign,
    /// Its kernel cannot be started.
    Boot(BootError),
    /// There is not enough memory.
    Memory(memory::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => write!(f, "it is described for another architecture: write machine = \"pc\""),
            Self::Boot(error) => write!(f, "{error}"),
            Self::Memory(error) => write!(f, "{error}"),
        }
    }
}

/// Says whether the arch crate reads a word of the command line itself: `mitigations=`, by each CPU as it starts.
pub fn is_boot_word(word: &str) -> bool {
    Choice::from_word(word).is_some()
}

/// Says what a crash code of the arch crate, or one of the [`devices`], means.
pub fn explain_crash(code: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    const SHUTDOWN: u16 = Crash::Shutdown as u16;
    const DELIVERY: u16 = Crash::Delivery as u16;
    const STATE: u16 = Crash::State as u16;
    const TABLES: u16 = Crash::Tables as u16;
    match code {
        SHUTDOWN => {
            write!(f, "a fault of the guest could not be delivered, nor the double fault (a triple fault)")
        }
        DELIVERY => write!(f, "the guest's tables for faults and interrupts are not in memory"),
        STATE => write!(f, "the CPU refuses the guest's state (VMEXIT_INVALID)"),
        TABLES => write!(f, "the guest's page tables are not in memory"),
        devices::PANIC => {
            write!(f, "the guest asked for a warm reset (0x1234 at 0x472), as Linux does after a panic")
        }
        code => write!(f, "the guest wrote {} to the debug exit port", code & 0xff),
    }
}

/// Returns KVM's feature bits of what a VM is offered; `None` leaves the hypervisor out of CPUID.
fn kvm_features(offered: Paravirt) -> Option<u32> {
    if offered == Paravirt::NONE {
        return None;
    }
    Some(offered.iter().fold(kvm::NOP_IO_DELAY, |all, feature| all | feature.bits()))
}

/// Delivers a message-signalled interrupt; false if nothing is at that address.
pub fn message(vm: &'static Vm, address: u64, data: u64) -> bool {
    vm.message(address, data)
}

/// Makes memory for a disk of `size` bytes that begins with this image, for ever; returns its physical address.
///
/// # Errors
/// When there is not enough.
pub fn storage(size: u64, image: &[u8]) -> Result<u64, Error> {
    // Nobody runs in it: its tables are never used.
    let mut memory = GuestMemory::new(&[(0, size)], Backing::AtStart, (&Crew::new(), &|| ()))?;
    memory.load(0, image)?;
    Ok(ManuallyDrop::new(memory).base())
}

/// Sets the interrupt line of a device.
pub fn set_line(vm: &'static Vm, line: u32, level: bool) {
    vm.set_irq(line as u8, level);
}

/// What a VM's description becomes on this machine.
pub struct Machine {
    spec: VmSpec<'static>,
    functions: Functions,
    triple_fault: TripleFault,
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
        let Kind::Pc(Pc { apic, paravirt, triple_fault }) = spec.machine else {
            return Err(Error::Foreign);
        };
        let parts = VmParts {
            id,
            name: String::from(spec.name),
            on_crash: shared::on_crash(spec),
            statistics: spec.statistics,
            x2apic: apic == Apic::X2apic,
            kvm: kvm_features(paravirt),
            ports: if functions.is_empty() { &devices::PORTS } else { &devices::PORTS_AND_PCI },
            vcpus: spec.vcpus,
        };
        Ok((Self { spec: *spec, functions, triple_fault }, parts))
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
        Devices::new(self.spec.memory, self.spec.vcpus, self.triple_fault)
    }

    /// Returns how many bytes of memory the VM has now, and how many at most. Its first block is not whole, and so comes from no pool.
    pub fn memory(&self, vm: &Vm) -> (u64, u64) {
        shared::memory(vm, &self.spec, pc::whole_units(self.spec.memory))
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
        let source = shared::source(spec, self.functions);
        let plan = boot::plan(&source).map_err(Error::Boot)?;
        let memory = GuestMemory::new(&pc::ram(spec.memory), shared::backing(vm, spec), crew)?;
        cleared();
        shared::filled(memory, |memory| {
            for load in &plan.loads {
                memory.load(load.address, &load.bytes)?;
            }
            memory.finish_loading();
            Ok(boot_state(&plan.start))
        })
    }

    /// Says where a device of its is that a service can be; a PCI function is in a slot.
    pub fn site(&self, device: ServiceDevice, slot: u64) -> Site {
        Site::Device(match device {
            ServiceDevice::Uart => Place {
                reach: Reach::Ports,
                base: pc::COM1.into(),
                size: devices::UART_PORTS.into(),
                line: pc::COM1_IRQ.into(),
            },
            ServiceDevice::Extra => {
                Place { reach: Reach::Memory, base: pc::SERVICE, size: 0x1000, line: pc::SERVICE_IRQ.into() }
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

    /// Says where the PCI function in a slot is.
    fn function(&self, slot: u64) -> Function {
        Function {
            configuration: Some(pc::pci_configuration(slot)),
            bars: pc::pci_bars(slot),
            window: pc::PCI_MEMORY,
        }
    }

    /// Gives up what it keeps from life to life: nothing.
    ///
    /// # Errors
    /// Never.
    pub fn forget(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Returns where the VM's RAM is, the largest piece first: services look there first.
    pub fn ram(&self, memory: &GuestMemory) -> Vec<Window> {
        let window = |piece: &Piece| {
            let is_pooled = piece.host == Piece::FROM_POOL;
            Window {
                guest: piece.guest,
                // Of blocks that are anywhere, what decides how large the pages may be that lead to them.
                host: if is_pooled { piece.guest } else { piece.host },
                size: piece.size,
                on_demand: is_pooled || memory.ram().is_on_demand(),
                ..Window::default()
            }
        };
        let mut windows: Vec<Window> = memory.ram().pieces().iter().map(window).collect();
        windows.sort_by_key(|window| Reverse(window.size));
        windows
    }

    /// Makes the VM ready for a life in `memory` that begins with `start`. Only while no vCPU runs.
    pub fn prepare(&self, vm: &Vm, memory: &GuestMemory, start: BootState) {
        vm.prepare(memory.tables(), memory.ram().clone(), start);
    }
}

/// The registers of a plan as the arch crate wants them.
fn boot_state(start: &Start) -> BootState {
    BootState {
        mode: match start.mode {
            boot::Mode::Protected => Mode::Protected,
            boot::Mode::Long { root } => Mode::Long { root },
        },
        rip: start.rip,
        rsp: 0,
        rax: start.rax,
        rbx: start.rbx,
        rsi: start.rsi,
        selectors: start.selectors,
    }
}
