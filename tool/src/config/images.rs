// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the kernels and initrds that a configuration names, and judges them.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use turnstile_bundle::{Arm64, CpuList, DiskSpec, Machine, Mapping, ServiceSpec, Transport, VmSpec};
use turnstile_service::image;

use super::contents::{bad_arm64_kernel, bad_initrd, bad_pc_kernel, bad_power_kernel};
use super::controllers;
use super::disk::{Disk, DiskSource};
use super::disk_image::{self, DiskImage};
use super::file::{self, Refused};
use super::problem::Problem;
use super::read::At;
use super::size::show_size;
use super::{Config, DebianPart, Program, Service, Source, Vm, flat};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::setup;
use crate::setup::debian::{Drivers, Flavour};

/// What the hypervisor itself takes of the machine's memory, at most, beside the bundle.
pub const HYPERVISOR_MEMORY: u64 = 128 << 20;
/// The longest image that is read, whatever memory its VM has.
const MAX_IMAGE: u64 = 4 << 30;
/// The longest ELF file of a service that is read: most of it may be information for debuggers.
const MAX_PROGRAM: u64 = 64 << 20;
/// Computed sizes of machines are multiples of this.
const MEMORY_STEP: u64 = 256 << 20;

/// What to do about images that are not on this machine yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absent {
    /// Download or build them.
    Get,
    /// Leave them out: they are judged when they are there.
    Skip,
}

/// The images of the VMs, in the order of the configuration.
#[derive(Debug)]
pub struct Images {
    vms: Vec<VmImages>,
    /// The programs of the services.
    services: Vec<Option<Rc<[u8]>>>,
    disks: Vec<DiskImage>,
}

#[derive(Debug)]
struct VmImages {
    kernel: Option<Rc<[u8]>>,
    initrd: Option<Rc<[u8]>>,
}

/// Reads all images and judges them.
///
/// The inner result is about the configuration, the outer one about the machine that the tool runs on.
pub fn load(
    layout: &Layout,
    config: &Config,
    absent: Absent,
) -> Result<std::result::Result<Images, Vec<Problem>>> {
    let isa = config.machine.board.isa();
    let mut loader =
        Loader { layout, absent, files: HashMap::new(), problems: Vec::new(), isa, guests_built: false };
    let mut vms = Vec::new();
    for vm in &config.vms {
        let has_pci = has_pci(config, vms.len());
        vms.push(loader.load_vm(vm, has_pci)?);
    }
    let mut services = Vec::new();
    for service in &config.services {
        // All VMs are of the machine's architecture.
        services.push(loader.load_service(service, config.vms[0].machine.elf())?);
    }
    let server = loader.server(config)?;
    let mut problems = loader.problems;
    let mut disks: Vec<DiskImage> = Vec::new();
    for disk in &config.disks {
        match disk_image::load(disk, server.as_deref()) {
            Ok(mut disk) => {
                disk.share(&disks);
                disks.push(disk);
            }
            Err(problem) => problems.push(problem),
        }
    }
    problems.extend(controllers::linked(&config.disks));
    let images = Images { vms, services, disks };
    if problems.is_empty() {
        images.check_memory(config, &mut problems);
    }
    problems.sort_by_key(|problem| problem.span.start);
    Ok(if problems.is_empty() { Ok(images) } else { Err(problems) })
}

struct Loader<'a> {
    layout: &'a Layout,
    absent: Absent,
    files: HashMap<PathBuf, Rc<[u8]>>,
    problems: Vec<Problem>,
    isa: Isa,
    guests_built: bool,
}

impl Loader<'_> {
    fn load_vm(&mut self, vm: &Vm, has_pci: bool) -> Result<VmImages> {
        // First, because a cache without the drivers is fetched anew, with the kernel that they are of.
        let initrd = match &vm.initrd {
            Some(initrd) => match drivers(vm, initrd).filter(|_| has_pci && self.absent == Absent::Get) {
                Some(flavour) => {
                    let mmio = vm.machine.arm64().is_some_and(|arm64| arm64.virtio == Transport::Mmio);
                    let (entropy, console) =
                        (vm.entropy.is_some(), vm.console.is_some() || !vm.ports.is_empty());
                    let balloon = vm.balloon.is_some();
                    let drivers = Drivers { entropy, mmio, console, balloon };
                    let initrd = setup::debian::initrd_with(self.layout, self.isa, flavour, drivers)?;
                    Some(initrd.into())
                }
                None => self.read(vm, initrd, "initrd")?,
            },
            None => None,
        };
        let kernel = self.read(vm, &vm.kernel, "kernel")?;
        if let Some(kernel) = &kernel {
            self.judge(vm, kernel, initrd.as_deref());
        }
        Ok(VmImages { kernel, initrd })
    }

    /// Gets the image `debian:server` if a disk in memory has it; `None` if it is absent and may be.
    fn server(&self, config: &Config) -> Result<Option<PathBuf>> {
        let is_server =
            |disk: &Disk| disk.image.as_ref().is_some_and(|image| image.value == DiskSource::Server);
        let is_wanted = |disk: &Disk| disk.device.is_none() && is_server(disk);
        match self.absent {
            _ if !config.disks.iter().any(is_wanted) => Ok(None),
            // It takes minutes: mistakes are told first.
            Absent::Get if self.problems.is_empty() => setup::server::ensure(self.layout, self.isa).map(Some),
            _ => Ok(setup::server::cached(self.layout, self.isa)),
        }
    }

    /// Reads the program of a service for an ELF machine; `None` if it is not there and that is recorded or allowed.
    fn load_service(&mut self, service: &Service, isa: u32) -> Result<Option<Rc<[u8]>>> {
        let program = match &service.program.value {
            Program::Ours(name) => {
                let path = match self.absent {
                    Absent::Get => setup::images::service(self.layout, self.isa, name)?,
                    Absent::Skip => self.layout.service(self.isa, name),
                };
                if self.absent == Absent::Skip && !path.is_file() {
                    return Ok(None);
                }
                fs::read(&path).context(|| format!("cannot read {}", path.display()))?
            }
            Program::File(path) => match read_program(path, isa) {
                Ok(program) => program,
                Err((what, help)) => {
                    let what = format!("the program {} {what}", path.display());
                    self.problems.push(Problem::new(service.program.span.clone(), what, help));
                    return Ok(None);
                }
            },
        };
        Ok(Some(program.into()))
    }

    /// Reads an image; `None` if it is not there and that is recorded or allowed.
    fn read(&mut self, vm: &Vm, source: &At<Source>, key: &str) -> Result<Option<Rc<[u8]>>> {
        let path = match &source.value {
            Source::File(path) => path.clone(),
            other => match self.provide(other)? {
                Some(path) => path,
                None => return Ok(None),
            },
        };
        if let Some(bytes) = self.files.get(&path) {
            return Ok(Some(bytes.clone()));
        }
        match file::read(&path, vm.memory.value.saturating_add(flash(vm)).min(MAX_IMAGE)) {
            Ok(bytes) => {
                let bytes: Rc<[u8]> = bytes.into();
                self.files.insert(path, bytes.clone());
                Ok(Some(bytes))
            }
            Err(refused) => {
                self.problems.push(refusal(vm, source, key, &path, &refused));
                Ok(None)
            }
        }
    }

    /// Gets an image of the tool's own; `None` if it is absent and may be.
    fn provide(&mut self, source: &Source) -> Result<Option<PathBuf>> {
        match source {
            Source::File(path) => Ok(Some(path.clone())),
            Source::Debian(DebianPart::UBoot) => Ok(match self.absent {
                Absent::Get => Some(setup::u_boot::ensure(self.layout)?),
                Absent::Skip => setup::u_boot::cached(self.layout),
            }),
            Source::Debian(part) => {
                let debian = match self.absent {
                    Absent::Get => Some(setup::debian::ensure(self.layout, self.isa, flavour(*part))?),
                    Absent::Skip => setup::debian::cached(self.layout, self.isa, flavour(*part)),
                };
                let file = debian.map(|debian| match part {
                    DebianPart::Busybox => debian.initrd,
                    _ => debian.kernel,
                });
                Ok(file.filter(|file| file.is_file()))
            }
            Source::Guest(name) => {
                if self.absent == Absent::Get && !self.guests_built {
                    setup::images::guests(self.layout, self.isa)?;
                    self.guests_built = true;
                }
                Ok(Some(self.layout.guest(self.isa, name))
                    .filter(|file| self.absent == Absent::Get || file.is_file()))
            }
        }
    }

    /// Judges what the images contain, each for itself: where they go the hypervisor decides.
    fn judge_alone(&mut self, vm: &Vm, bad: Option<(String, &'static str)>, initrd: Option<&[u8]>) {
        if let Some((what, help)) = bad {
            let what = format!("{}: {what}", vm.kernel.value);
            self.problems.push(Problem::new(vm.kernel.span.clone(), what, help));
        }
        if let (Some(span), Some(bytes)) = (vm.initrd.as_ref().map(|initrd| &initrd.span), initrd)
            && let Some((what, help)) = bad_initrd(bytes)
        {
            self.problems.push(Problem::new(span.clone(), what, help));
        }
    }

    /// Judges what the images contain, and whether they fit the VM's memory.
    fn judge(&mut self, vm: &Vm, kernel: &[u8], initrd: Option<&[u8]>) {
        let arm64 = match &vm.machine {
            Machine::Arm64(arm64) => arm64,
            Machine::Pc(_) => return self.judge_alone(vm, bad_pc_kernel(kernel), initrd),
            Machine::Pseries(_) => return self.judge_alone(vm, bad_power_kernel(kernel), initrd),
        };
        let foreign = bad_arm64_kernel(kernel);
        let is_foreign = foreign.is_some();
        self.judge_alone(vm, foreign, initrd);
        if is_foreign {
            return;
        }
        let placed = flat::judge(vm, arm64, kernel, initrd.map(|initrd| initrd.len() as u64));
        self.problems.extend(placed.err());
    }
}

/// Says whether the VM of this index has PCI functions.
fn has_pci(config: &Config, index: usize) -> bool {
    let is_function = |service: &Service| service.vm == Some(index) && service.device.is_function();
    config.services.iter().any(is_function) || config.ports.iter().any(|port| port.vm == index)
}

/// Returns the kernel whose drivers of PCI functions belong into a VM's initrd, if both are Debian's.
fn drivers(vm: &Vm, initrd: &At<Source>) -> Option<Flavour> {
    match (&vm.kernel.value, &initrd.value) {
        (Source::Debian(DebianPart::UBoot), _) => None,
        (Source::Debian(kernel), Source::Debian(DebianPart::Busybox)) => Some(flavour(*kernel)),
        _ => None,
    }
}

/// Reads an ELF file that the user named, and makes a service's image of it; or says what is wrong, and what helps.
fn read_program(path: &Path, isa: u32) -> std::result::Result<Vec<u8>, (String, &'static str)> {
    let file = file::read(path, MAX_PROGRAM).map_err(|refused| {
        (refused.to_string(), "paths are relative to this file's folder; \"uart\" is one of Turnstile's own")
    })?;
    let build = "build it as docs/src/services.md says";
    let flat = setup::service::flatten(&file).map_err(|why| (format!("cannot be used: {why}"), build))?;
    match image::Image::parse(&flat, isa) {
        Ok(_) => Ok(flat),
        Err(error) => Err((format!("cannot be used: {error}"), "build it for the architecture of its VM")),
    }
}

/// The bytes of a VM's flash, which it has beside its memory.
fn flash(vm: &Vm) -> u64 {
    vm.machine.arm64().map_or(0, Arm64::flash_bytes)
}

/// The bytes of memory and flash of all VMs, and of the pool that some have memory from.
fn guests(config: &Config) -> u64 {
    let own = |vm: &Vm| if vm.mapping == Mapping::FromPool { 0 } else { vm.memory.value };
    config.pool + config.vms.iter().map(|vm| own(vm) + flash(vm)).sum::<u64>()
}

/// The flavour of Debian's kernel of which a part comes.
fn flavour(part: DebianPart) -> Flavour {
    match part {
        DebianPart::Linux | DebianPart::Busybox | DebianPart::UBoot => Flavour::Cloud,
        DebianPart::Standard => Flavour::Standard,
        DebianPart::SmallPages => Flavour::SmallPages,
    }
}

/// Says why an image was not read, and where to change that: at its name, or at the VM's memory.
fn refusal(vm: &Vm, source: &At<Source>, key: &str, path: &Path, refused: &Refused) -> Problem {
    let path = path.display();
    let at_source =
        |help: &str| Problem::new(source.span.clone(), format!("the {key} {path} {refused}"), help);
    match *refused {
        Refused::Unreadable(ref error) => at_source(file::advice(
            error,
            "paths are relative to this file's folder; \"debian:linux\" and \"debian:busybox\" need none",
        )),
        Refused::NotFile(_) => at_source("name a file"),
        Refused::TooLong { length, .. } if length > MAX_IMAGE => at_source("name another file"),
        Refused::TooLong { length, .. } => {
            let (memory, length) = (show_size(vm.memory.value), length.next_multiple_of(2 << 20));
            let what = format!("{memory} are too small for this VM's images: the {key} {path} is longer");
            // What the kernel and the device tree take besides is known once the image is read.
            let help = format!("give at least {}", show_size(length + (2 << 20)));
            Problem::new(vm.memory.span.clone(), what, help)
        }
    }
}

impl Images {
    /// The machine's memory in bytes: as the file says, or what the VMs need.
    pub fn machine_memory(&self, config: &Config) -> u64 {
        let computed = self.needed(config).next_multiple_of(MEMORY_STEP);
        config.machine.memory.as_ref().map_or(computed, |memory| memory.value)
    }

    /// Checks that the machine's memory holds the VMs, their disks and their images.
    fn check_memory(&self, config: &Config, problems: &mut Vec<Problem>) {
        let Some(memory) = &config.machine.memory else { return };
        let need = self.needed(config);
        if memory.value < need {
            let guests = guests(config) + self.disk_memory(config);
            let what = format!(
                "the machine's {} do not hold {} for the VMs{} and {} for their images and the hypervisor",
                show_size(memory.value),
                show_size(guests),
                if self.disks.is_empty() { "" } else { " with their disks" },
                show_size(need - guests)
            );
            let help = format!("give at least {}, or leave `memory` out", show_size(need));
            problems.push(Problem::new(memory.span.clone(), what, help));
        }
    }

    /// The bytes of memory of all disks. What is only read is there once for each image.
    fn disk_memory(&self, config: &Config) -> u64 {
        let mut shared = HashSet::new();
        let mut bytes = 0;
        for disk in self.disk_specs(config) {
            let memory = disk.memory();
            bytes += memory.own;
            if shared.insert((disk.image.map(<[u8]>::as_ptr), memory.shared)) {
                bytes += memory.shared;
            }
        }
        bytes
    }

    /// The bytes of the disks' images, as the bundle has them: each once.
    fn contents(&self) -> u64 {
        let images = self.disks.iter().filter_map(|disk| disk.image.as_deref());
        images
            .map(|image| (image.as_ptr(), image.len() as u64))
            .collect::<HashSet<_>>()
            .iter()
            .map(|image| image.1)
            .sum()
    }

    /// Describes the disks.
    fn disk_specs<'a>(&'a self, config: &'a Config) -> Vec<DiskSpec<'a>> {
        let disks = config.disks.iter().zip(&self.disks);
        disks
            .map(|(disk, contents)| DiskSpec {
                name: &disk.name.value,
                image: contents.image.as_deref(),
                size: contents.size,
                read_only: disk.read_only,
                writes: disk.writes.as_ref().map(|writes| writes.value),
                drive: disk.device.as_ref().map(|device| device.value.drive),
            })
            .collect()
    }

    /// The memory that the machine must have, in bytes.
    fn needed(&self, config: &Config) -> u64 {
        let length = |image: &Option<Rc<[u8]>>| image.as_ref().map_or(0, |bytes| bytes.len() as u64);
        let bundle: u64 = self.vms.iter().map(|vm| length(&vm.kernel) + length(&vm.initrd)).sum();
        let programs: u64 = self.services.iter().map(length).sum();
        let sum = guests(config)
            + self.disk_memory(config)
            + bundle
            + programs
            + self.contents()
            + HYPERVISOR_MEMORY;
        let sum = sum.next_multiple_of(2 << 20);
        match config.machine.board.firmware_memory() {
            None => sum,
            // What is free between the firmware's parts is in pieces: what is larger lies behind them.
            Some(firmware) if sum <= firmware.free => firmware.end,
            Some(firmware) => firmware.end + sum,
        }
    }

    /// Writes the bundle.
    pub fn bundle(&self, config: &Config) -> Result<Vec<u8>> {
        let mut specs = Vec::new();
        for (vm, images) in config.vms.iter().zip(&self.vms) {
            let kernel =
                images.kernel.as_deref().ok_or_else(|| Failure::failed("a kernel was not loaded"))?;
            specs.push(VmSpec {
                name: &vm.name.value,
                vcpus: vm.vcpus,
                cpus: CpuList::new(&vm.cpus),
                schedule: vm.schedule,
                memory: vm.memory.value,
                mapping: vm.mapping,
                machine: vm.machine,
                on_crash: vm.on_crash,
                statistics: vm.statistics,
                cmdline: &vm.cmdline,
                kernel,
                initrd: images.initrd.as_deref(),
            });
        }
        let mut services = Vec::new();
        for (service, program) in config.services.iter().zip(&self.services) {
            let program = program.as_deref();
            services.push(ServiceSpec {
                name: &service.name.value,
                program: program.ok_or_else(|| Failure::failed("a service's program was not loaded"))?,
                vm: service.vm,
                device: service.device,
                limit: service.limit,
                memory: service.memory,
                disk: service.disk,
                joins: service.joins,
                uplink: service.uplink,
                ports: &service.ports,
                cpu: service.cpu,
            });
        }
        turnstile_bundle::write_with(&specs, &services, &self.disk_specs(config), &config.ports, config.pool)
            .context(|| "cannot write the bundle".into())
    }
}
