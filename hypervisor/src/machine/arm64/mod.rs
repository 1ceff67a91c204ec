// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM on Armv8-A: its interrupt controller, its memory with kernel and device tree, its devices.

mod devices;
mod flash;

use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;
use core::mem::ManuallyDrop;

use turnstile_bundle::{Arm64, Format, Mapping, Pmu, Schedule, ServiceDevice, Transport, VmSpec};
use turnstile_machine::map::{self, IPA_BITS, Pci, SPI_COUNT};
use turnstile_machine::{
    Functions, GicVersion, ImageError, Layout, LayoutError, MapError, Platform, fdt, flat, image, layout,
    mpidr,
};
use turnstile_vgic::{Model, Vgic, VgicConfig};
use turnstile_vm::psci;

use super::place::{Function, Place, Reach, Site};
use super::shared;
use crate::arch::board::mitigation::Choice;
use crate::arch::boot::Host;
use crate::arch::cpu::mode::Wanted;
use crate::arch::crew::Crew;
use crate::arch::exit::full::Crash;
use crate::arch::irq;
use crate::arch::memory::flash::Access;
use crate::arch::memory::stolen::{Records, StolenTime};
use crate::arch::memory::{self, Backing, GuestMemory};
use crate::arch::service::Window;
use crate::arch::state::{common, pmu};
use crate::arch::vm::{Thread, Vm, VmParts};
pub use devices::Devices;
use flash::Flash;

/// Why a VM cannot be built or started.
#[derive(Debug)]
pub enum Error {
    /// Its kernel is not an arm64 Image, or is said to be a flat image and is none.
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Image(error) => write!(f, "its kernel cannot be started: {error}"),
            Self::Map(error) => write!(f, "{error}"),
            Self::Layout(error) => write!(f, "{error}"),
            Self::Fdt(error) => write!(f, "its device tree cannot be built: {error}"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::Unsupported(what) => write!(f, "{what}"),
            Self::Vgic => write!(f, "its interrupt controller cannot be built"),
        }
    }
}

/// Says whether the arch crate reads a word of the command line itself: `mode=vhe` and `mode=nvhe`, by the boot code,
/// before anything else; `mitigations=`, by each CPU as it starts.
pub fn is_boot_word(word: &str) -> bool {
    Wanted::from_word(word).is_some() || Choice::from_word(word).is_some()
}

/// Says what a crash code means.
pub fn explain_crash(code: u16, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    f.write_str(if code == Crash::SError as u16 {
        "an access of the guest ended in an SError"
    } else {
        "the guest asked for a warm reset (PSCI SYSTEM_RESET2), as Linux does after a panic"
    })
}

/// Refuses what a description may ask for and this version does not do.
fn supported(chosen: &Arm64) -> Result<(), Error> {
    let refuse = |what| Err(Error::Unsupported(what));
    match chosen {
        Arm64 { pmu: Pmu::Owned | Pmu::Trapped, .. } if !pmu::exists() => {
            refuse("the CPU has no PMU (PMUv3): leave `pmu` out")
        }
        Arm64 { sve: true, .. } if common::vector_length() == 0 => {
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
    let mut memory = GuestMemory::new(0, size, IPA_BITS, Backing::AtStart, (&Crew::new(), &|| ()))?;
    memory.load(0, image)?;
    memory.finish_loading();
    Ok(ManuallyDrop::new(memory).base())
}

/// Sets the interrupt line of a device.
pub fn set_line(vm: &'static Vm, line: u32, level: bool) {
    vm.set_spi_line(line, level);
}

/// Returns the place of a device.
const fn place(device: map::Device) -> Place {
    Place { reach: Reach::Memory, base: device.region.base, size: device.region.size, line: device.intid }
}

/// What a VM's description becomes on this machine.
pub struct Machine {
    spec: VmSpec<'static>,
    chosen: Arm64,
    gic: GicVersion,
    /// The page of the machine that is a GICv2's CPU interface.
    gicv: Option<u64>,
    /// The records of its stolen time, if its vCPUs share CPUs.
    records: Option<Records>,
    flash: Flash,
    /// How many virtio devices it has behind MMIO.
    virtio: usize,
}

impl Machine {
    /// Finds out what the VM with index `id`, which has these virtio devices, needs of this machine, and the parts it is made from.
    ///
    /// # Errors
    /// When the machine lacks what the description asks for.
    pub fn new(
        id: u8,
        spec: &VmSpec<'static>,
        functions: Functions,
        host: &Host,
    ) -> Result<(Self, VmParts), Error> {
        let chosen = *spec.machine.arm64().ok_or(Error::Unsupported(
            "its machine is a PC, and this is the hypervisor for arm64: write machine = \"virt\"",
        ))?;
        supported(&chosen)?;
        let gic = chosen.gic.on(host.gic());
        chosen.map.map().check(gic, spec.vcpus, spec.memory).map_err(Error::Map)?;
        chosen.map.map().check_flash(chosen.flash).map_err(Error::Map)?;
        let gicv = gicv(gic, host)?;
        let records = match spec.schedule {
            Schedule::Shared(_) => Some(memory::stolen_time_records(spec.vcpus)?),
            Schedule::Pinned => None,
        };
        let flash = Flash::new(chosen.map.map(), chosen.flash);
        let virtio = match chosen.virtio {
            Transport::Pci => 0,
            Transport::Mmio => functions.count,
        };
        let machine = Self { spec: *spec, chosen, gic, gicv, records, flash, virtio };
        let parts = machine.parts(id)?;
        Ok((machine, parts))
    }

    fn parts(&self, id: u8) -> Result<VmParts, Error> {
        let spec = &self.spec;
        Ok(VmParts {
            id,
            name: String::from(spec.name),
            machine: self.chosen.map,
            on_crash: shared::on_crash(spec),
            pmu: match self.chosen.pmu {
                Pmu::Off => pmu::Kind::Off,
                Pmu::Trapped => pmu::Kind::Trapped,
                Pmu::Owned => pmu::Kind::Owned,
            },
            sve: self.chosen.sve,
            statistics: spec.statistics,
            vgic: self.vgic()?,
            memory: spec.memory,
            flash: self.chosen.flash,
            virtio: self.virtio,
            stolen_time: self.records.map(|_| self.chosen.map.map().stolen_time.base),
        })
    }

    fn vgic(&self) -> Result<Vgic, Error> {
        let spec = &self.spec;
        let mpidrs: Vec<u64> = (0..spec.vcpus).filter_map(mpidr).collect();
        let mut vgic = Vgic::new(&VgicConfig {
            model: match self.gic {
                GicVersion::V2 => Model::Gicv2,
                GicVersion::V3 => Model::Gicv3,
            },
            mpidrs: &mpidrs,
            spis: SPI_COUNT,
            priority_bits: irq::priority_bits().min(8) as u8,
            group1_at_reset: true,
        })
        .map_err(|_| Error::Vgic)?;
        vgic.split_redistributors(self.chosen.map.map().gicr(spec.vcpus, spec.memory).in_first());
        Ok(vgic)
    }

    /// Makes what vCPU `index` has as a thread with this number; `None` if it is pinned.
    ///
    /// # Errors
    /// When there is no memory for its stack.
    pub fn thread(&self, number: u32, index: usize) -> Result<Option<Thread>, Error> {
        let Some(records) = self.records else { return Ok(None) };
        Ok(Some(Thread::new(number, memory::vcpu_stack()?, StolenTime::new(records, index))))
    }

    /// Makes the devices in their reset state.
    pub fn devices(&self, vm: &Vm) -> Devices {
        Devices::new(self.chosen.map.map(), vm)
    }

    /// Returns how many bytes of memory the VM has now, and how many at most.
    pub fn memory(&self, vm: &Vm) -> (u64, u64) {
        shared::memory(vm, &self.spec, self.spec.memory)
    }

    /// Returns fresh memory with the VM's images in it, and where its first vCPU starts. Says when the memory is
    /// `cleared`, as far as it is before the start.
    ///
    /// # Errors
    /// When they do not fit; nothing is kept then.
    pub fn furnish(
        &self,
        vm: &'static Vm,
        cleared: impl FnOnce(),
    ) -> Result<(GuestMemory, psci::Start), Error> {
        let crew: (&Crew, &dyn Fn()) = (&vm.crew, &|| vm.call_crew());
        let ram = self.chosen.map.map().ram_base;
        let memory =
            GuestMemory::new(ram, self.spec.memory, IPA_BITS, shared::backing(vm, &self.spec), crew)?;
        cleared();
        shared::filled(memory, |memory| self.fill(vm, memory))
    }

    /// Makes the VM ready for a life in `memory` that begins at `start`. Only while no vCPU runs.
    pub fn prepare(&self, vm: &Vm, memory: &GuestMemory, start: psci::Start) {
        vm.reset_interrupts();
        self.flash.reset(vm, memory);
        vm.prepare(memory.vtcr(), memory.tables(), memory.later());
        vm.psci.reset(start);
    }

    /// Returns where the VM's RAM is.
    pub fn ram(&self, memory: &GuestMemory) -> Vec<Window> {
        let (guest, size) = (self.chosen.map.map().ram_base, self.spec.memory);
        let on_demand = memory.comes_later();
        // Of blocks of a pool that are anywhere, what decides how large the pages may be that lead to them.
        let host = if self.spec.mapping == Mapping::FromPool { guest } else { memory.base() };
        vec![Window { guest, host, size, on_demand, ..Window::default() }]
    }

    fn fill(&self, vm: &Vm, memory: &mut GuestMemory) -> Result<psci::Start, Error> {
        if let Some(records) = self.records {
            memory.show(self.chosen.map.map().stolen_time.base, records)?;
        }
        self.load(vm, memory)
    }

    /// Carries out an access of a vCPU to the flash; returns what was read. `None` if it is to be repeated.
    pub fn flash(&self, vm: &Vm, access: Access) -> Option<u64> {
        self.flash.access(vm, access)
    }

    /// Says where a device of its is that a service can be; a PCI function is in a slot, as is a virtio device behind MMIO.
    pub fn site(&self, device: ServiceDevice, slot: u64) -> Site {
        let map = self.chosen.map.map();
        match device {
            ServiceDevice::Uart => Site::Device(place(map.uart)),
            ServiceDevice::Extra => Site::Device(place(map.service)),
            ServiceDevice::Pci
            | ServiceDevice::Network
            | ServiceDevice::Entropy
            | ServiceDevice::Balloon
            | ServiceDevice::Console
            | ServiceDevice::Ports => {
                let window = map.virtio.device(slot.saturating_sub(1) as usize);
                match window.filter(|_| self.chosen.virtio == Transport::Mmio) {
                    Some(window) => Site::Mmio(place(window)),
                    None => Site::Function(self.function(slot)),
                }
            }
        }
    }

    /// Says where the PCI function in a slot is.
    fn function(&self, slot: u64) -> Function {
        let Pci { ecam, memory, .. } = self.chosen.map.map().pci;
        // The guest places BARs itself.
        Function { configuration: Some(ecam.base + (slot << 15)), bars: 0, window: memory.base..memory.end() }
    }

    /// Gives up what it keeps from life to life: the VM stays stopped.
    ///
    /// # Errors
    /// When memory cannot be given back.
    pub fn forget(&self) -> Result<(), Error> {
        Ok(self.flash.release()?)
    }

    /// Decides where kernel, initial RAM disk and device tree go.
    fn layout(&self) -> Result<Layout, Error> {
        let spec = &self.spec;
        let map = self.chosen.map.map();
        let (kernel, initrd) = (spec.kernel.len() as u64, spec.initrd.map(|bytes| bytes.len() as u64));
        let plan = match self.chosen.format {
            Format::Image => {
                let header = image::parse(spec.kernel).map_err(Error::Image)?;
                layout(map, spec.memory, &header, kernel, initrd)
            }
            Format::Flat(flat) => {
                flat::check(spec.kernel).map_err(Error::Image)?;
                flat::layout(map, spec.memory, self.chosen.flash, flat, kernel, initrd)
            }
        };
        plan.map_err(Error::Layout)
    }

    /// Puts kernel, initial RAM disk and device tree in place.
    fn load(&self, vm: &Vm, memory: &mut GuestMemory) -> Result<psci::Start, Error> {
        let spec = &self.spec;
        let plan = self.layout()?;
        let registers = self.chosen.map.map().service.region;
        let tree = fdt::build(&Platform {
            machine: self.chosen.map,
            gic: self.gic,
            vcpus: spec.vcpus,
            memory: spec.memory,
            bootargs: spec.cmdline,
            initrd: plan.initrd.clone(),
            pmu: self.chosen.pmu != Pmu::Off,
            flash: self.chosen.flash,
            service: vm.services().is_some_and(|all| all.at_address(registers.base).is_some()),
            pci: devices::has_functions(vm),
            virtio: self.virtio,
        })
        .map_err(Error::Fdt)?;
        if let Some(page) = self.gicv {
            memory.map_device(self.chosen.map.map().gicc.base, page)?;
        }
        self.flash.furnish(plan.kernel.start, spec.kernel)?;
        self.flash.map(memory)?;
        // What lies in flash is there already.
        memory.load(plan.kernel.start, spec.kernel)?;
        if let (Some(range), Some(bytes)) = (&plan.initrd, spec.initrd) {
            memory.load(range.start, bytes)?;
        }
        memory.load(plan.dtb.start, &tree)?;
        memory.finish_loading();
        Ok(psci::Start { entry: plan.entry, context: plan.dtb.start })
    }
}
