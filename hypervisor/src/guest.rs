// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One VM: built from the bundle once, then started and stopped as often as its guest likes.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use spin::Mutex;
use turnstile_arm64::cpu::PerCpu;
use turnstile_arm64::exit::full::Crash;
use turnstile_arm64::facility::{common, pmu};
use turnstile_arm64::memory::{self, GuestMemory};
use turnstile_arm64::sched::{Tenant, Thread};
use turnstile_arm64::stolen::{Records, StolenTime};
use turnstile_arm64::vcpu::Vcpu;
use turnstile_arm64::vm::{Vm, VmParts};
use turnstile_arm64::{fault, irq};
use turnstile_bundle::{Class, OnCrash, Pmu, Schedule, VmSpec};
use turnstile_link::{Event, StopReason};
use turnstile_machine::map::{IPA_BITS, SPI_COUNT};
use turnstile_machine::{GicVersion, ImageError, LayoutError, MapError, Platform, fdt, image, layout, mpidr};
use turnstile_vgic::{Model, Vgic, VgicConfig};
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
    gic: GicVersion,
    /// The page of the machine that is a GICv2's CPU interface.
    gicv: Option<u64>,
    /// The records of its stolen time, if its vCPUs share CPUs.
    records: Option<Records>,
    memory: Mutex<Option<GuestMemory>>,
    devices: Mutex<Devices>,
    /// Held from the moment in which its statistics are forgotten until the life is counted that makes new ones.
    /// Apart from `memory`, which is held as long as it takes to clear and load it.
    beginning: Mutex<()>,
    /// What is to become of a stopped VM: [`REST`], [`WANTED`] or [`STARTING`].
    plan: AtomicU8,
    /// It is to stay down: stopped from outside, whatever its guest asks for.
    down: AtomicBool,
}

/// Nothing is to happen to the VM.
const REST: u8 = 0;
/// It is to be started by the CPU of its first vCPU.
const WANTED: u8 = 1;
/// That CPU is starting it.
const STARTING: u8 = 2;

/// Why a VM cannot start.
#[derive(Debug)]
pub enum Error {
    /// It wants a physical CPU that does not run.
    NoCpu(u16),
    /// Its kernel is not an arm64 Image.
    Image(ImageError),
    /// It does not fit its machine.
    Map(MapError),
    /// Its images do not fit its memory.
    Layout(LayoutError),
    /// Its device tree cannot be built.
    Fdt(fdt::Error),
    /// There is not enough memory.
    Memory(memory::Error),
    /// Its interrupt controller cannot be built.
    Vgic,
    /// It wants what this version does not do; the text names it and says what to write instead.
    Unsupported(&'static str),
    /// It runs already.
    Running,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCpu(cpu) => write!(f, "physical CPU {cpu} is not there: give the machine more CPUs"),
            Self::Image(error) => write!(f, "its kernel cannot be started: {error}"),
            Self::Map(error) => write!(f, "{error}"),
            Self::Layout(error) => write!(f, "{error}"),
            Self::Fdt(error) => write!(f, "its device tree cannot be built: {error}"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::Unsupported(what) => write!(f, "{what}"),
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

/// Refuses what a description may ask for and this version does not do.
fn supported(spec: &VmSpec<'_>) -> Result<(), Error> {
    let refuse = |what| Err(Error::Unsupported(what));
    match spec {
        VmSpec { pmu: Pmu::Owned | Pmu::Trapped, .. } if !pmu::exists() => {
            refuse("the CPU has no PMU (PMUv3): leave `pmu` out")
        }
        VmSpec { sve: true, .. } if common::vector_length() == 0 => {
            refuse("the CPUs have no SVE: leave `sve` out, or use newer ones (under QEMU: -cpu max)")
        }
        _ => Ok(()),
    }
}

/// Returns the page of the machine that becomes the CPU interface of a guest with a GICv2. None with a GICv3.
fn gicv(gic: GicVersion, host: &Host) -> Result<Option<u64>, Error> {
    match (gic, host.gic()) {
        (GicVersion::V3, GicVersion::V3) => Ok(None),
        (GicVersion::V3, GicVersion::V2) => Err(Error::Unsupported(
            "this machine has a GICv2, which cannot be a GICv3 to guests: leave `gic` out",
        )),
        (GicVersion::V2, _) => host.gicv().map(Some).ok_or(Error::Unsupported(
            "this machine's GICv3 has no GICv2 interface for guests: leave `gic` out",
        )),
    }
}

/// Finds the physical CPUs of a VM: at least one.
fn areas(spec: &VmSpec<'_>, host: &Host, running: usize) -> Result<Vec<&'static PerCpu>, Error> {
    let area = |cpu: u16| {
        let area = host.cpus.get(usize::from(cpu)).copied().filter(|area| area.index < running);
        area.ok_or(Error::NoCpu(cpu))
    };
    spec.cpus.iter().map(area).collect()
}

fn share(class: Class) -> turnstile_sched::Class {
    match class {
        Class::Fair { weight } => turnstile_sched::Class::Fair { weight },
        Class::RealTime { priority } => turnstile_sched::Class::RealTime { priority },
    }
}

impl Guest {
    /// Builds the VM with index `id`, its vCPUs pinned to the physical CPUs its description names, or added to the
    /// `tenants` that share CPUs.
    ///
    /// # Errors
    /// When a physical CPU is missing, or the interrupt controller cannot be built.
    pub fn build(
        id: u8,
        spec: &VmSpec<'static>,
        host: &Host,
        running: usize,
        tenants: &mut Vec<Tenant>,
    ) -> Result<Self, Error> {
        supported(spec)?;
        let gic = spec.gic.on(host.gic());
        spec.machine.map().check(gic, spec.vcpus, spec.memory).map_err(Error::Map)?;
        let gicv = gicv(gic, host)?;
        let mpidrs: Vec<u64> = (0..spec.vcpus).filter_map(mpidr).collect();
        let mut vgic = Vgic::new(&VgicConfig {
            model: match gic {
                GicVersion::V2 => Model::Gicv2,
                GicVersion::V3 => Model::Gicv3,
            },
            mpidrs: &mpidrs,
            spis: SPI_COUNT,
            priority_bits: irq::priority_bits().min(8) as u8,
            group1_at_reset: true,
        })
        .map_err(|_| Error::Vgic)?;
        vgic.split_redistributors(spec.machine.map().gicr(spec.vcpus, spec.memory).in_first());
        let on_crash = match spec.on_crash {
            OnCrash::Stop => lifecycle::OnCrash::Stop,
            OnCrash::Restart => lifecycle::OnCrash::Restart,
        };
        let records = match spec.schedule {
            Schedule::Shared(_) => Some(memory::stolen_time_records(spec.vcpus)?),
            Schedule::Pinned => None,
        };
        let vm: &'static Vm = Box::leak(Box::new(Vm::new(VmParts {
            id,
            name: String::from(spec.name),
            machine: spec.machine,
            on_crash,
            pmu: match spec.pmu {
                Pmu::Off => pmu::Kind::Off,
                Pmu::Trapped => pmu::Kind::Trapped,
                Pmu::Owned => pmu::Kind::Owned,
            },
            sve: spec.sve,
            statistics: spec.statistics,
            vgic,
            memory: spec.memory,
            stolen_time: records.map(|_| spec.machine.map().stolen_time.base),
        })));
        let areas = areas(spec, host, running)?;
        let mut vcpus = Vec::new();
        for index in 0..spec.vcpus {
            let area = areas[index % areas.len()];
            let (Schedule::Shared(class), Some(records)) = (spec.schedule, records) else {
                vcpus.push(&*Box::leak(Box::new(Vcpu::new(vm, index, area, None))));
                continue;
            };
            let thread =
                Thread::new(tenants.len() as u32, memory::vcpu_stack()?, StolenTime::new(records, index));
            let vcpu = &*Box::leak(Box::new(Vcpu::new(vm, index, area, Some(thread))));
            let cpus = (0..areas.len()).map(|n| areas[(index + n) % areas.len()].index as u32).collect();
            tenants.push(Tenant { vcpu, class: share(class), cpus });
            vcpus.push(vcpu);
        }
        vm.set_vcpus(vcpus);
        let devices = Mutex::new(Devices::new(spec.machine.map()));
        let (memory, beginning) = (Mutex::new(None), Mutex::new(()));
        let (plan, down) = (AtomicU8::new(REST), AtomicBool::new(false));
        Ok(Self { vm, spec: *spec, gic, gicv, records, memory, devices, beginning, plan, down })
    }

    /// Reads the memory of the VM, once it runs, as nothing else does: to see that it cannot be read
    /// (`provoke=read-guest`). Not on the CPU that starts it.
    pub fn provoke_read(&self) {
        while !self.is_running() {
            turnstile_arm64::cpu::relax();
        }
        if let Some(memory) = self.memory.lock().as_ref() {
            fault::read_guest(memory.base());
        }
    }

    /// Asks for a start of the VM, which its own CPU carries out. False if it runs, or stops, or starts already.
    pub fn want(&self) -> bool {
        if !self.is_resting() {
            return false;
        }
        // Before the wish can be seen: who sees it must not find the VM put down by an earlier command. Commands
        // come one at a time, so nobody puts it down meanwhile.
        let was_down = self.down.swap(false, Ordering::SeqCst);
        let wanted = self.plan.compare_exchange(REST, WANTED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if wanted {
            self.announce();
        } else {
            self.down.store(was_down, Ordering::SeqCst);
        }
        wanted
    }

    /// Says whether the VM has never run, or has stopped and is taken down.
    fn is_resting(&self) -> bool {
        matches!(self.vm.lifecycle.phase(), Phase::Created | Phase::Stopped(_))
    }

    /// Makes the CPU of the first vCPU look at what is wanted.
    fn announce(&self) {
        if let Some(first) = self.vm.vcpu(0) {
            first.post(Reasons::START);
        }
    }

    /// Stops the VM for good, or keeps it from starting. False if it is down already.
    pub fn put_down(&self) -> bool {
        let up = self.is_running() || self.plan.load(Ordering::Acquire) != REST || self.is_stopping();
        self.down.store(true, Ordering::SeqCst);
        self.vm.stop(Stop::Killed);
        up
    }

    /// Says whether the VM was put down from outside.
    pub fn is_down(&self) -> bool {
        self.down.load(Ordering::SeqCst)
    }

    fn is_stopping(&self) -> bool {
        matches!(self.vm.lifecycle.phase(), Phase::Stopping(_))
    }

    /// Starts the VM if that is wanted; for the CPU of its first vCPU alone. False if it was wanted and the VM
    /// stays down.
    pub fn start_if_wanted(&self) -> bool {
        // A wish may be there before the stop is finished: it is announced again when it is.
        if !self.is_resting()
            || self.plan.compare_exchange(WANTED, STARTING, Ordering::AcqRel, Ordering::Relaxed).is_err()
        {
            return true;
        }
        let starts = !self.is_down() && self.start_or_report();
        self.plan.store(REST, Ordering::Release);
        if starts && self.is_down() {
            // Put down while it was being started.
            self.vm.stop(Stop::Killed);
        }
        starts
    }

    /// Says whether the VM runs.
    pub fn is_running(&self) -> bool {
        matches!(self.vm.lifecycle.phase(), Phase::Running)
    }

    /// Gives the VM fresh memory with its images and starts its first vCPU.
    ///
    /// # Errors
    /// When it does not fit; nothing is kept then.
    fn start(&self) -> Result<(), Error> {
        let mut slot = self.memory.lock();
        if slot.is_some() {
            return Err(Error::Running);
        }
        let map = self.spec.machine.map();
        let mut memory = GuestMemory::new(map.ram_base, self.spec.memory, IPA_BITS)?;
        let start = match self.furnish(&mut memory) {
            Ok(start) => start,
            Err(error) => {
                memory.release()?;
                return Err(error);
            }
        };
        let mut devices = self.devices.lock();
        *devices = Devices::new(map);
        self.vm.reset_interrupts();
        drop(devices);
        self.vm.prepare(memory.vtcr(), memory.tables());
        *slot = Some(memory);
        drop(slot);
        self.vm.psci.reset(start);
        let beginning = self.beginning.lock();
        self.vm.reset_statistics();
        let (free_memory, arena) = memory::free_bytes();
        let boots = self.vm.lifecycle.boots() + 1;
        line::event(self.vm, Event::Started { boots, free_memory, free_tables: (arena / 4096) as u32 });
        self.vm.lifecycle.start();
        drop(beginning);
        self.vm.raise_all(Reasons::START);
        Ok(())
    }

    /// Gives the memory its contents.
    fn furnish(&self, memory: &mut GuestMemory) -> Result<psci::Start, Error> {
        if let Some(records) = self.records {
            memory.show(self.spec.machine.map().stolen_time.base, records)?;
        }
        self.load(memory)
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
            gic: self.gic,
            vcpus: spec.vcpus,
            memory: spec.memory,
            bootargs: spec.cmdline,
            initrd: plan.initrd.clone(),
            pmu: spec.pmu != Pmu::Off,
        })
        .map_err(Error::Fdt)?;
        if let Some(page) = self.gicv {
            memory.map_device(spec.machine.map().gicc.base, page)?;
        }
        memory.load(plan.kernel.start, spec.kernel)?;
        if let (Some(range), Some(bytes)) = (&plan.initrd, spec.initrd) {
            memory.load(range.start, bytes)?;
        }
        memory.load(plan.dtb.start, &tree)?;
        memory.finish_loading();
        Ok(psci::Start { entry: plan.entry(), context: plan.dtb.start })
    }

    /// Takes the VM down after all its vCPUs have stopped. Returns whether it is to run again.
    pub fn stopped(&self, stop: Stop) -> bool {
        let mut restarts = stop.next(self.vm.on_crash) == Next::Restart && !self.is_down();
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
        if restarts {
            // Before the VM counts as stopped: nobody else may ask for the same start.
            self.plan.store(WANTED, Ordering::Release);
        }
        self.vm.lifecycle.finish();
        if restarts {
            self.announce();
        }
        restarts
    }

    /// Starts the VM, or says why it does not.
    fn start_or_report(&self) -> bool {
        match self.start() {
            Ok(()) => true,
            Err(error) => {
                line::crash(self.vm, format_args!("{} does not start: {error}", self.vm.name));
                false
            }
        }
    }

    /// Sends its statistics, if it keeps any; says whether it does.
    pub fn report_statistics(&self) -> bool {
        // No life begins meanwhile, so that all figures are of the one that is named with them.
        let _beginning = self.beginning.lock();
        if self.vm.statistics {
            line::statistics(self.vm);
        }
        self.vm.statistics
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
        let mut devices = self.devices.lock();
        if self.is_running() {
            devices.tick(self.vm);
        }
    }

    /// Takes what was typed into the VM's console.
    pub fn receive(&self, bytes: &[u8]) {
        // Looked at under the lock: a VM that is starting replaces its devices under it.
        let mut devices = self.devices.lock();
        if self.is_running() {
            devices.receive(self.vm, bytes);
        }
    }
}
