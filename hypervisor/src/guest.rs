// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One VM: built from the bundle once, then started and stopped as often as its guest likes.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use spin::Mutex;
use turnstile_arm64::exit::full::Crash;
use turnstile_arm64::irq::ich::Ich;
use turnstile_arm64::memory::{self, GuestMemory};
use turnstile_arm64::vcpu::Vcpu;
use turnstile_arm64::vm::{Vm, VmParts};
use turnstile_bundle::{OnCrash, Pmu, VmSpec};
use turnstile_link::{Event, StopReason};
use turnstile_machine::map::{IPA_BITS, SPI_COUNT};
use turnstile_machine::{ImageError, LayoutError, Platform, fdt, image, layout, mpidr};
use turnstile_vgic::{Vgic, VgicConfig};
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Next, Phase, Stop};
use turnstile_vm::{lifecycle, psci};

use crate::devices::Devices;
use crate::line;
use turnstile_arm64::boot::Host;

/// A VM and what it is made of.
pub struct Guest {
    /// What exits see of it.
    pub vm: &'static Vm,
    spec: VmSpec<'static>,
    memory: Mutex<Option<GuestMemory>>,
    devices: Mutex<Devices>,
}

/// Why a VM cannot start.
#[derive(Debug)]
pub enum Error {
    /// It wants a physical CPU that does not run.
    NoCpu(u16),
    /// Its kernel is not an arm64 Image.
    Image(ImageError),
    /// Its images do not fit its memory.
    Layout(LayoutError),
    /// Its device tree cannot be built.
    Fdt(fdt::Error),
    /// There is not enough memory.
    Memory(memory::Error),
    /// Its interrupt controller cannot be built.
    Vgic,
    /// It runs already.
    Running,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu(cpu) => write!(f, "physical CPU {cpu} is not there: give the machine more CPUs"),
            Self::Image(error) => write!(f, "its kernel cannot be started: {error}"),
            Self::Layout(error) => write!(f, "{error}"),
            Self::Fdt(error) => write!(f, "its device tree cannot be built: {error}"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::Vgic => write!(f, "its interrupt controller cannot be built"),
            Self::Running => write!(f, "it runs already"),
        }
    }
}

impl From<memory::Error> for Error {
    fn from(error: memory::Error) -> Self {
        Self::Memory(error)
    }
}

impl Guest {
    /// Builds the VM with index `id`, its vCPUs pinned to the physical CPUs its description names.
    ///
    /// # Errors
    /// When a physical CPU is missing, or the interrupt controller cannot be built.
    pub fn build(id: u8, spec: &VmSpec<'static>, host: &Host, running: usize) -> Result<Self, Error> {
        let mpidrs: Vec<u64> = (0..spec.vcpus()).filter_map(mpidr).collect();
        let vgic = Vgic::new(&VgicConfig {
            mpidrs: &mpidrs,
            spis: SPI_COUNT,
            priority_bits: Ich::priority_bits().min(8) as u8,
            group1_at_reset: true,
        })
        .map_err(|_| Error::Vgic)?;
        let on_crash = match spec.on_crash {
            OnCrash::Stop => lifecycle::OnCrash::Stop,
            OnCrash::Restart => lifecycle::OnCrash::Restart,
        };
        let vm: &'static Vm = Box::leak(Box::new(Vm::new(VmParts {
            id,
            name: String::from(spec.name),
            machine: spec.machine,
            on_crash,
            pmu: spec.pmu == Pmu::Trapped,
            vgic,
            memory: spec.memory,
        })));
        let mut vcpus = Vec::new();
        for (index, cpu) in spec.cpus.iter().enumerate() {
            let area = host.cpus.get(usize::from(*cpu)).filter(|area| area.index < running);
            let area = area.ok_or(Error::NoCpu(*cpu))?;
            vcpus.push(&*Box::leak(Box::new(Vcpu::new(vm, index, area))));
        }
        vm.set_vcpus(vcpus);
        let devices = Mutex::new(Devices::new(spec.machine.map()));
        Ok(Self { vm, spec: spec.clone(), memory: Mutex::new(None), devices })
    }

    /// Says whether the VM runs.
    pub fn is_running(&self) -> bool {
        matches!(self.vm.lifecycle.phase(), Phase::Running)
    }

    /// Gives the VM fresh memory with its images and starts its first vCPU.
    ///
    /// # Errors
    /// When it does not fit; nothing is kept then.
    pub fn start(&self) -> Result<(), Error> {
        let mut slot = self.memory.lock();
        if slot.is_some() {
            return Err(Error::Running);
        }
        let map = self.spec.machine.map();
        let mut memory = GuestMemory::new(map.ram_base, self.spec.memory, IPA_BITS)?;
        let start = match self.load(&mut memory) {
            Ok(start) => start,
            Err(error) => {
                memory.release()?;
                return Err(error);
            }
        };
        *self.devices.lock() = Devices::new(map);
        self.vm.prepare(memory.vtcr(), memory.tables());
        *slot = Some(memory);
        drop(slot);
        self.vm.psci.reset(start);
        let (free_memory, arena) = memory::free_bytes();
        let boots = self.vm.lifecycle.boots() + 1;
        line::event(self.vm, Event::Started { boots, free_memory, free_tables: (arena / 4096) as u32 });
        self.vm.lifecycle.start();
        self.vm.raise_all(Reasons::START);
        Ok(())
    }

    /// Puts kernel, initial RAM disk and device tree in place.
    fn load(&self, memory: &mut GuestMemory) -> Result<psci::Start, Error> {
        let spec = &self.spec;
        let header = image::parse(spec.kernel).map_err(Error::Image)?;
        let initrd_size = spec.initrd.map(|bytes| bytes.len() as u64);
        let plan = layout(spec.machine.map(), spec.memory, &header, spec.kernel.len() as u64, initrd_size)
            .map_err(Error::Layout)?;
        let tree = fdt::build(&Platform {
            machine: spec.machine,
            vcpus: spec.vcpus(),
            memory: spec.memory,
            bootargs: spec.cmdline,
            initrd: plan.initrd.clone(),
            pmu: spec.pmu == Pmu::Trapped,
        })
        .map_err(Error::Fdt)?;
        memory.load(plan.kernel.start, spec.kernel)?;
        if let (Some(range), Some(bytes)) = (&plan.initrd, spec.initrd) {
            memory.load(range.start, bytes)?;
        }
        memory.load(plan.dtb.start, &tree)?;
        Ok(psci::Start { entry: plan.entry(), context: plan.dtb.start })
    }

    /// Takes the VM down after all its vCPUs have stopped, and starts it again if it is to run on. Returns
    /// whether it does.
    pub fn stopped(&self, stop: Stop) -> bool {
        let mut restarts = stop.next(self.vm.on_crash) == Next::Restart;
        let reason = match stop {
            Stop::PowerOff => StopReason::PowerOff,
            Stop::Reset => StopReason::Reset,
            Stop::Killed => StopReason::Killed,
            Stop::Crash(code) => {
                let text = if code == Crash::SError as u16 {
                    "an access of the guest ended in an SError"
                } else {
                    "the guest asked for a warm reset (PSCI SYSTEM_RESET2), as Linux does after a panic"
                };
                line::crash(self.vm, format_args!("{text}"));
                StopReason::Crash
            }
        };
        line::event(self.vm, Event::Stopped { reason, restarts });
        if let Some(memory) = self.memory.lock().take()
            && let Err(error) = memory.release()
        {
            line::crash(self.vm, format_args!("its memory is lost: {error}"));
            restarts = false;
        }
        self.vm.lifecycle.finish();
        restarts && self.start_or_report()
    }

    /// Starts the VM, or says why it does not.
    pub fn start_or_report(&self) -> bool {
        match self.start() {
            Ok(()) => true,
            Err(error) => {
                line::crash(self.vm, format_args!("{} does not start: {error}", self.vm.name));
                false
            }
        }
    }

    /// Reads a device register.
    pub fn read(&self, address: u64, size: u8) -> Option<u64> {
        self.devices.lock().read(self.vm, address, size)
    }

    /// Writes a device register.
    pub fn write(&self, address: u64, size: u8, value: u64) -> bool {
        self.devices.lock().write(self.vm, address, size, value)
    }

    /// Lets the VM's clock go on.
    pub fn tick(&self) {
        if self.is_running() {
            self.devices.lock().tick(self.vm);
        }
    }

    /// Takes what was typed into the VM's console.
    pub fn receive(&self, bytes: &[u8]) {
        if self.is_running() {
            self.devices.lock().receive(self.vm, bytes);
        }
    }
}
