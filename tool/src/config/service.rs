// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads one `[[service]]`, and judges services together.

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use toml::de::DeTable;
use turnstile_bundle::{
    Class, GuestMachine, MAX_FUNCTIONS, MAX_NAME, MAX_SERVICES, Schedule, ServiceDevice, ServiceSpec, Uplink,
};

use super::problem::{Problem, did_you_mean};
use super::read::{At, Reader, named};
use super::{NetworkCard, Surroundings, Vm, vm};

const KEYS: [&str; 8] =
    ["name", "program", "vm", "device", "memory", "time-limit", "cpus", "beside-realtime"];
/// What a `[[service]]` can be.
const DEVICES: [ServiceDevice; 3] = [ServiceDevice::Uart, ServiceDevice::Extra, ServiceDevice::Pci];
const TIME_ADVICE: &str = "write a time of 100us to 1s, such as \"2ms\"";

/// A service: a program that is a device of a VM, or a network of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Its name, with the letters of a VM's.
    pub name: At<String>,
    /// Its program.
    pub program: At<Program>,
    /// The index of the VM that it serves, unless it is a network.
    pub vm: Option<usize>,
    /// Which device of its VM it is.
    pub device: ServiceDevice,
    /// How long it may take for an event, in nanoseconds.
    pub limit: u64,
    /// Whether it reads and writes the RAM of its VM, or of all its VMs.
    pub memory: bool,
    /// The index of the disk that it is.
    pub disk: Option<usize>,
    /// The index of the earlier service that drives the controller of its disk, of which this one is a function.
    pub joins: Option<usize>,
    /// The machine's network card that it drives.
    pub uplink: Option<Uplink>,
    /// The names of its ports, with a space between them.
    pub ports: String,
    /// Which card that is in QEMU.
    pub card: NetworkCard,
    /// The physical CPU that alone runs it.
    pub cpu: Option<u16>,
}

/// How a service runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runs {
    /// How long it may take for an event, in nanoseconds.
    pub limit: u64,
    /// Whether it may keep real-time VMs waiting.
    pub beside_realtime: bool,
    /// The physical CPU that alone runs it; without it, those of its VMs do.
    pub cpu: Option<At<u64>>,
}

impl Runs {
    /// Reads the keys that say it; `usual` is the limit if none is given. `None` if one is wrong.
    pub fn read(reader: &mut Reader<'_, '_>, usual: u64) -> Option<Self> {
        let limit = read_limit(reader, usual);
        let beside_realtime = reader.boolean("beside-realtime").is_some_and(|at| at.value);
        Some(Self { cpu: read_cpu(reader)?, limit: limit?, beside_realtime })
    }
}

/// Reads which CPU a service has for itself; `None` if that is wrong.
fn read_cpu(reader: &mut Reader<'_, '_>) -> Option<Option<At<u64>>> {
    const HELP: &str = "name the one CPU that is to run it, such as [3], or leave `cpus` out";
    if reader.is_list("cpus") {
        let mut cpus = reader.numbers("cpus")?;
        return match (cpus.value.pop(), cpus.value.is_empty()) {
            (Some(cpu), true) => Some(Some(cpu)),
            (last, _) => {
                let count = cpus.value.len() + usize::from(last.is_some());
                reader.problem(cpus.span, format!("a service runs on one CPU, not on {count}"), HELP);
                None
            }
        };
    }
    reader.choice("cpus", &[("inline", ())]);
    Some(None)
}

impl Service {
    /// What the file calls it.
    const fn kind(&self) -> &'static str {
        match (self.device, self.disk) {
            (ServiceDevice::Network, _) => "network",
            (ServiceDevice::Entropy, _) => "entropy device",
            (ServiceDevice::Console, _) => "virtio console",
            (ServiceDevice::Ports, _) => "service of ports",
            (ServiceDevice::Balloon, _) => "balloon",
            (_, Some(_)) => "disk",
            _ => "service",
        }
    }
}

/// Where a program comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Program {
    /// A folder of `services/`.
    Ours(String),
    /// An ELF file.
    File(PathBuf),
}

/// Whom a service serves, as the file has it.
#[derive(Debug)]
enum Serves {
    /// The VM of this name.
    Vm(At<String>),
    /// The VMs of these indexes, as their network.
    Members(Vec<usize>),
}

/// A service as the file has it: its VM is a name yet.
#[derive(Debug)]
pub struct Draft {
    service: Service,
    serves: Serves,
    /// The place of the device, or of the service where nothing is said.
    device: Range<usize>,
    /// How it runs.
    runs: Runs,
}

impl Draft {
    /// Returns its name, and how it runs.
    pub const fn running(&self) -> (&At<String>, &Runs) {
        (&self.service.name, &self.runs)
    }

    /// Makes the service that is this disk in the VM of this name, by this program of ours. Its place is where the VM names the disk.
    pub fn of_disk(name: At<String>, disk: usize, program: &str, runs: Runs, vm: &str) -> Self {
        let mut draft = Self::of_function(name, program, runs, vm);
        draft.service.disk = Some(disk);
        draft
    }

    /// It is a function of the service with this index.
    #[must_use]
    pub const fn joining(mut self, joins: Option<usize>) -> Self {
        self.service.joins = joins;
        self
    }

    /// Makes the service that is this device of the VM of this name, by this program of ours. Its place is where the VM says that it has
    /// the device.
    pub fn of_device(name: At<String>, device: ServiceDevice, program: &str, runs: Runs, vm: &str) -> Self {
        let mut draft = Self::of_function(name, program, runs, vm);
        draft.service.device = device;
        draft
    }

    /// It has the ports of these names.
    #[must_use]
    pub fn with_ports(mut self, names: &[At<String>]) -> Self {
        self.service.ports = names.iter().map(|name| name.value.as_str()).collect::<Vec<_>>().join(" ");
        self
    }

    /// Makes a service of ours that is a PCI function of the VM of this name, and reaches its memory. Its place is that of its name.
    fn of_function(name: At<String>, program: &str, runs: Runs, vm: &str) -> Self {
        let span = name.span.clone();
        Self {
            service: Service {
                name,
                program: At::new(Program::Ours(program.to_owned()), span.clone()),
                vm: None,
                device: ServiceDevice::Pci,
                limit: runs.limit,
                memory: true,
                disk: None,
                joins: None,
                uplink: None,
                ports: String::new(),
                card: NetworkCard::default(),
                cpu: None,
            },
            serves: Serves::Vm(At::new(vm.to_owned(), span.clone())),
            device: span.clone(),
            runs,
        }
    }

    /// Makes the service that is the network of this name, of the VMs of these indexes. It drives this network card, which is such a one in QEMU.
    pub fn of_network(
        name: &At<String>,
        runs: Runs,
        members: Vec<usize>,
        uplink: Option<(Uplink, NetworkCard)>,
    ) -> Self {
        let span = name.span.clone();
        Self {
            service: Service {
                name: name.clone(),
                program: At::new(Program::Ours("switch".to_owned()), span.clone()),
                vm: None,
                device: ServiceDevice::Network,
                limit: runs.limit,
                memory: true,
                disk: None,
                joins: None,
                uplink: uplink.map(|(uplink, _)| uplink),
                ports: String::new(),
                card: uplink.map(|(_, card)| card).unwrap_or_default(),
                cpu: None,
            },
            serves: Serves::Members(members),
            device: span.clone(),
            runs,
        }
    }
}

/// Reads a service; `None` if something that it cannot do without is missing or wrong.
pub fn read(
    table: &DeTable<'_>,
    span: Range<usize>,
    surroundings: &Surroundings<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Draft> {
    let header = span.start..span.end.min(span.start + "[[service]]".len());
    let mut reader = Reader::new(table, header.clone(), &KEYS, &[], problems);
    let name = vm::read_name(&mut reader, "service", "console", MAX_NAME);
    let program = reader
        .required_string("program", "give \"uart\", or the path of an ELF file")
        .and_then(|text| read_program(&mut reader, &text, surroundings));
    let vm = reader.required_string("vm", "give the name of the VM that it serves");
    let device = reader.choice("device", &named(&DEVICES, ServiceDevice::name));
    let memory = reader.boolean("memory");
    let runs = Runs::read(&mut reader, ServiceSpec::LIMIT);
    let place = device.as_ref().map_or(header, |device| device.span.clone());
    let memory = memory.is_some_and(|memory| memory.value);
    let device = device.map_or(ServiceDevice::Uart, |device| device.value);
    let (vm, runs) = (vm?, runs?);
    Some(Draft {
        service: Service {
            name: name?,
            program: program?,
            vm: None,
            device,
            limit: runs.limit,
            memory,
            disk: None,
            joins: None,
            uplink: None,
            ports: String::new(),
            card: NetworkCard::default(),
            cpu: None,
        },
        serves: Serves::Vm(vm),
        device: place,
        runs,
    })
}

/// What has a slash or a dot is a path; a name is one of ours.
fn read_program(
    reader: &mut Reader<'_, '_>,
    text: &At<String>,
    surroundings: &Surroundings<'_>,
) -> Option<At<Program>> {
    let names: Vec<&str> = surroundings.services.iter().map(String::as_str).collect();
    let program = match text.value.as_str() {
        name if names.contains(&name) => Program::Ours(name.to_owned()),
        path if path.contains(['/', '.']) => Program::File(surroundings.folder.join(vm::from_home(path))),
        name => {
            let help = format!("{}; a path has a slash: \"./{name}\"", did_you_mean(name, &names));
            reader.problem(text.span.clone(), format!("there is no service program `{name}`"), help);
            return None;
        }
    };
    Some(At::new(program, text.span.clone()))
}

/// Reads the bound of an event's time, in nanoseconds, which is `usual` if nothing is said; `None` if it is wrong.
fn read_limit(reader: &mut Reader<'_, '_>, usual: u64) -> Option<u64> {
    let Some(text) = reader.string("time-limit") else { return Some(usual) };
    let time = humantime::parse_duration(&text.value).ok();
    let time = time.map(|time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
    let (what, help) = match time {
        Some(time) if ServiceSpec::LIMITS.contains(&time) => return Some(time),
        Some(_) => (format!("a service cannot have `{}` for an event", text.value), TIME_ADVICE),
        None => (format!("`{}` is not a time", text.value), TIME_ADVICE),
    };
    reader.problem(text.span, what, help);
    None
}

/// Chooses the serial port of the machine: those with kvmtool's addresses have a 16550.
fn suit(program: &mut Program, vm: &Vm) {
    let kvmtool = vm.machine.arm64().is_some_and(|arm64| arm64.map == GuestMachine::Kvmtool);
    if kvmtool && *program == Program::Ours("uart".to_owned()) {
        *program = Program::Ours("uart-16550".to_owned());
    }
}

/// Finds the services' VMs, and what two of them cannot both be or have.
pub fn finish(drafts: Vec<Draft>, vms: &[Vm], problems: &mut Vec<Problem>) -> Vec<Service> {
    if let Some(beyond) = drafts.get(MAX_SERVICES) {
        let what = format!("{} services are more than {MAX_SERVICES}", drafts.len());
        problems.push(Problem::new(beyond.service.name.span.clone(), what, "take the others out"));
    }
    let names: Vec<&str> = vms.iter().map(|vm| vm.name.value.as_str()).collect();
    let mut services: Vec<Service> = Vec::new();
    for draft in drafts {
        let Draft { mut service, serves, device, runs } = draft;
        // Whether the machine has it is known.
        service.cpu = runs.cpu.and_then(|cpu| u16::try_from(cpu.value).ok());
        if services.iter().any(|other| other.name.value == service.name.value) {
            let what = format!("there are two services with the name `{}`", service.name.value);
            problems.push(Problem::new(service.name.span.clone(), what, "give each its own"));
        }
        let place = match &serves {
            Serves::Vm(vm) => vm.span.clone(),
            Serves::Members(_) => service.name.span.clone(),
        };
        let members = match serves {
            Serves::Members(members) => members,
            Serves::Vm(vm) => {
                let Some(index) = names.iter().position(|name| *name == vm.value) else {
                    let what = format!("there is no VM `{}`", vm.value);
                    problems.push(Problem::new(vm.span, what, did_you_mean(&vm.value, &names)));
                    continue;
                };
                service.vm = Some(index);
                suit(&mut service.program.value, &vms[index]);
                let same = same_device(&services, &service, &vm.value);
                problems.extend(same.map(|(what, help)| Problem::new(device, what, help)));
                vec![index]
            }
        };
        if !runs.beside_realtime {
            let waits = keeps_any_waiting(&service, &members, vms);
            let help = match service.device {
                ServiceDevice::Entropy => "give the VMs CPUs of their own by `cpus`, or take `entropy` out",
                ServiceDevice::Console => "give the VMs CPUs of their own by `cpus`, or take `console` out",
                ServiceDevice::Ports => "give the VMs CPUs of their own by `cpus`, or take `ports` out",
                ServiceDevice::Balloon => "give the VMs CPUs of their own by `cpus`, or take `balloon` out",
                _ => "give the VMs CPUs of their own by `cpus`, or write beside-realtime = true",
            };
            problems.extend(waits.map(|what| Problem::new(place, what, help)));
        }
        services.push(service);
    }
    services
}

/// Says that a VM has more PCI functions than it can have.
pub fn too_many_functions(vm: &str) -> String {
    format!("the VM `{vm}` has more than {MAX_FUNCTIONS} disks, networks and other PCI functions")
}

/// Says why a service cannot be its device beside earlier ones, and what to do.
fn same_device(earlier: &[Service], service: &Service, vm: &str) -> Option<(String, &'static str)> {
    if service.device.is_function() {
        let is_function = |other: &&Service| other.vm == service.vm && other.device.is_function();
        let is_beyond = earlier.iter().filter(is_function).count() == MAX_FUNCTIONS;
        return is_beyond.then(|| (too_many_functions(vm), "take the others out"));
    }
    let is_same = |other: &&Service| (other.vm, other.device) == (service.vm, service.device);
    let (name, device) = (&earlier.iter().find(is_same)?.name.value, service.device.name());
    let what = format!("the service `{name}` is the device `{device}` of the VM `{vm}` already");
    Some((what, "write another `device`, or take one service out"))
}

/// Says which real-time VM a service of these VMs may keep waiting, if it may.
fn keeps_any_waiting(service: &Service, members: &[usize], vms: &[Vm]) -> Option<String> {
    let mut pairs = members.iter().flat_map(|&member| vms.iter().map(move |other| (&vms[member], other)));
    let (served, other) = pairs.find(|(served, other)| keeps_waiting(served, other))?;
    let kind = service.kind();
    Some(format!(
        "the {kind} `{}` may keep the real-time VM `{}` waiting: `{}` shares a CPU with it",
        service.name.value, other.name.value, served.name.value
    ))
}

/// Says whether a service of a VM may run on a CPU where another, real-time VM would come first: a service is not interrupted for
/// it, and neither is who waits for the answer of one that has a CPU of its own.
fn keeps_waiting(served: &Vm, other: &Vm) -> bool {
    let priority = |vm: &Vm| match vm.schedule {
        Schedule::Shared(Class::RealTime { priority }) => Some(priority),
        _ => None,
    };
    // Nothing is less than a priority.
    priority(served) < priority(other) && served.cpus.iter().any(|cpu| other.cpus.contains(cpu))
}
