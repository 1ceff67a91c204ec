// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: built from the bundle once, at boot, and what their calls reach: the console and the interrupt lines of the VM that
//! each serves, or the PCI functions of its members, the hypervisor's log, an alarm.
//!
//! | file | what |
//! |---|---|
//! | `connect` | which services are a VM's devices |
//! | `calls` | what their calls reach |
//! | `ports` | the named ports of a VM |

pub mod calls;
pub mod connect;
mod ports;

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering};

use spin::{Mutex, Once};
use turnstile_bundle::{ServiceDevice, ServiceSpec};
use turnstile_devices::Keyboard;
use turnstile_pool::{BATCH, Parts, Released};
use turnstile_service::abi;
use turnstile_service::gate::Pending;
use turnstile_service::image::{self, BY_PLACE, Doorbells, Image};
use turnstile_vm::lifecycle::Phase;

use ports::Ports;

use crate::alarm;
use crate::arch::cpu::{self, PerCpu};
use crate::arch::memory;
use crate::arch::pci::Unlent;
use crate::arch::service::{Device, ISA, Outside, Port, Service, Space, Storage, Window};
use crate::arch::vm::Vm;
use crate::driven::{self, Driven};
use crate::line::{self, PortMessage};
use crate::machine::Site;

/// The most characters of a line of a service in the log.
const LINE: usize = 160;
/// How many bytes a page of a balloon has, whatever the guest's pages are.
const PAGE: u64 = 4096;
/// How many bytes a VM gives back at once: it stands still meanwhile, and its services with it. TLBs are told once.
const AT_ONCE: u64 = BATCH as u64 * abi::BLOCK;

/// A VM that a service serves, and what the service is to it. It may be several things to one VM, which is several members then.
#[derive(Clone)]
pub struct Member {
    /// The VM.
    pub vm: &'static Vm,
    /// The slot in which it is, if it is a PCI function.
    pub slot: u64,
    /// Where the service is among its devices.
    pub site: Site,
    /// What the service gets to know of it, in two words.
    pub settings: [u64; 2],
}

/// A service and what it is connected with.
pub struct Hosted {
    name: String,
    device: ServiceDevice,
    /// The VMs that it serves: at least one. Their order is that of their numbers.
    members: Vec<Member>,
    /// Whether they come and go while it runs.
    is_shared: bool,
    doorbells: Doorbells,
    /// Whether it reaches its VMs' memory.
    memory: bool,
    /// The memory of its disk.
    storage: Option<Storage>,
    /// The machine's PCI function that it drives.
    driven: Option<Driven>,
    /// The physical CPU that alone runs it, if there is one.
    cpu: Option<&'static PerCpu>,
    /// The number of its alarm.
    alarm: usize,
    /// What was typed for it.
    typed: Mutex<Keyboard>,
    /// Its named ports, if it is those of its VM.
    ports: Mutex<Ports>,
    /// If it is a balloon: how many pages its guest is to give, in all. Whoever is inside of it reads that for [`Pending::INPUT`].
    wanted_pages: AtomicU64,
    /// What its guest does not need of its memory.
    released: Mutex<Released>,
    /// How often it needed memory of a VM that was not mapped.
    touches: AtomicU64,
    /// How many characters it has printed, in all its lives.
    printed: AtomicU64,
    /// The line that it has begun to write to the log.
    line: Mutex<heapless::String<LINE>>,
    service: Once<&'static Service>,
}

/// Why a service cannot be built.
#[derive(Debug)]
pub enum Error {
    /// Its program cannot be used.
    Program(image::Error),
    /// There is no memory for it.
    Memory(memory::Error),
    /// The VM that it serves does not exist.
    Vm,
    /// Its doorbells are not those of a service that several VMs share.
    Doorbells,
    /// The machine's PCI function that it is to drive.
    Driven(driven::Error),
    /// The physical CPU that is to run it does not.
    NoCpu(u16),
    /// It gives its VM random numbers, and the CPU has no generator of them, or a broken one.
    NoRandom,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(error) => write!(f, "{error}"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::Vm => f.write_str("there is no VM for it"),
            Self::Driven(error) => write!(f, "{error}"),
            Self::NoCpu(cpu) => write!(f, "physical CPU {cpu} is not there: give the machine more CPUs"),
            Self::NoRandom => f.write_str(
                "the CPU has no generator of random numbers that works: take `entropy` out of its VM",
            ),
            Self::Doorbells => f.write_str("its doorbells cannot be shared"),
        }
    }
}

impl Member {
    fn port(&self) -> Port {
        let (bars, vm) = match &self.site {
            Site::Device(_) => (0, None),
            Site::Function(function) => (function.bars, Some(self.vm.id)),
            Site::Mmio(place) => (abi::MMIO | place.base, Some(self.vm.id)),
        };
        Port { bars, settings: self.settings, vm }
    }

    fn is_running(&self) -> bool {
        matches!(self.vm.lifecycle.phase(), Phase::Running)
    }
}

/// Says whether this CPU has a generator of random numbers. One that is broken says the same again and again: some of AMD's did.
fn random_works() -> bool {
    matches!((cpu::random(), cpu::random()), (Some(one), Some(other)) if one != other)
}

impl Hosted {
    /// Builds the service of this number, which serves these members, with the memory of its disk, or the PCI function that it drives;
    /// on this physical CPU, or on those of its VMs.
    ///
    /// # Errors
    /// When its program cannot be used, or there is no memory for it.
    #[inline(never)] // What it needs of the stack is given back; the boot CPU's is in use for ever.
    pub fn build(
        number: usize,
        spec: &ServiceSpec<'static>,
        members: Vec<Member>,
        storage: Option<Storage>,
        driven: Option<(Driven, Device)>,
        cpu: Option<&'static PerCpu>,
    ) -> Result<&'static Self, Error> {
        let image = Image::parse(spec.program, ISA).map_err(Error::Program)?;
        if spec.device == ServiceDevice::Entropy && !random_works() {
            return Err(Error::NoRandom);
        }
        let doorbells = image.header().doorbells;
        let ports: Vec<Port> = members.iter().map(Member::port).collect();
        let &[first, ..] = ports.as_slice() else { return Err(Error::Vm) };
        let is_shared = spec.device == ServiceDevice::Network || members.len() > 1;
        // A guest rings its own queues alone: their numbers come from where it writes, and each has a bit.
        let area = u64::from(doorbells.size).div_ceil(4);
        if is_shared && (doorbells.by != BY_PLACE || area > abi::MEMBER_QUEUES) {
            return Err(Error::Doorbells);
        }
        let space = Space::new(image, spec.limit).map_err(Error::Memory)?;
        let (driven, device) = driven.unzip();
        let hosted: &'static Self = Box::leak(Box::new(Self {
            name: String::from(spec.name),
            device: spec.device,
            members,
            is_shared,
            doorbells,
            memory: spec.memory,
            storage,
            driven,
            cpu,
            alarm: alarm::FIRST_SERVICE + number,
            typed: Mutex::new(Keyboard::default()),
            ports: Mutex::new(Ports::new(spec.port_names())),
            wanted_pages: AtomicU64::new(0),
            released: Mutex::new(Released::default()),
            touches: AtomicU64::new(0),
            printed: AtomicU64::new(0),
            line: Mutex::new(heapless::String::new()),
            service: Once::new(),
        }));
        let name = String::from(spec.name);
        let mut service = match is_shared {
            true => Service::shared(name, space, hosted, &ports),
            false => Service::new(name, space, hosted, first),
        };
        if let Some(device) = device {
            service.drive(device).map_err(Error::Memory)?;
        }
        if cpu.is_some() {
            service = service.on_own_cpu();
        }
        hosted.service.call_once(|| Box::leak(Box::new(service)));
        Ok(hosted)
    }

    /// Tells what it is, and what is counted of it.
    pub fn introduce(&self) {
        if let (Some(service), [first, ..]) = (self.service.get(), self.members.as_slice()) {
            let number = self.alarm - alarm::FIRST_SERVICE;
            line::service(number as u8, first.vm, &self.name, &service.figures());
        }
    }

    /// Returns which members a VM is, with their numbers: none if it does not serve it.
    fn members_of(&self, vm: &Vm) -> impl Iterator<Item = (usize, &Member)> {
        let id = vm.id;
        self.members.iter().enumerate().filter(move |(_, member)| member.vm.id == id)
    }

    /// Says whether it serves a VM.
    pub fn serves(&self, vm: &Vm) -> bool {
        self.members_of(vm).next().is_some()
    }

    /// Says whether VMs share it, or a VM is several of its members.
    const fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the service if this is the physical CPU that alone runs it.
    pub fn runs_on(&self, cpu: &PerCpu) -> Option<&'static Service> {
        self.cpu.filter(|own| own.index == cpu.index).and_then(|_| self.service.get().copied())
    }

    /// Returns the VM that has it for itself.
    fn owner(&self) -> Option<&'static Vm> {
        let [only, ..] = self.members.as_slice() else { return None };
        (!self.is_shared()).then_some(only.vm)
    }

    /// Returns the number of its alarm.
    pub const fn alarm(&self) -> usize {
        self.alarm
    }

    /// Says whether it is this device of its VM.
    pub fn is(&self, device: ServiceDevice) -> bool {
        self.device == device
    }

    /// The terminal of its VM's console has another size. A VM that does not run is told when it starts.
    pub fn resize(&self, columns: u16, rows: u16) {
        self.typed.lock().resize(abi::terminal_size(columns, rows));
        if self.members.iter().any(Member::is_running) {
            self.want(Pending::INPUT);
        }
    }

    /// Its guest, which runs, is to give so many bytes, in all.
    pub fn inflate(&self, bytes: u64) {
        // Relaxed: what is wanted below is released, and taken before this is read.
        self.wanted_pages.store(bytes / PAGE, Ordering::Relaxed);
        self.want(Pending::INPUT);
    }

    /// Takes what was typed into the VM's console. Who sends more than there is room for loses it.
    pub fn receive(&self, bytes: &[u8]) {
        self.typed.lock().push(bytes);
        self.want(Pending::INPUT);
    }

    /// Takes what the tool says of a named port. One that is not there is ignored.
    pub fn hear_of_port(&self, port: u8, message: PortMessage<'_>) {
        let Some(vm) = self.owner() else { return };
        let wants = self.ports.lock().hear(vm, port, message);
        if wants && self.members.iter().any(Member::is_running) {
            self.want(Pending::INPUT);
        }
    }

    /// The VM that has it for itself has stopped: nobody is at its ports any more.
    pub fn end_ports(&self) {
        if let Some(vm) = self.owner() {
            self.ports.lock().end(vm);
        }
    }

    /// Returns how many bytes may be typed for it if none are under way.
    pub fn room(&self) -> u16 {
        self.typed.lock().room()
    }

    /// Its VM has stopped: what was typed and not read is gone.
    pub fn drop_typed(&self) {
        let mut typed = self.typed.lock();
        self.tell_room(typed.clear());
    }

    /// Tells how much more may be typed. Under the lock of what is typed, so that it is told in order.
    fn tell_room(&self, room: Option<u16>) {
        if let Some(vm) = self.owner() {
            line::room(vm, room);
        }
    }

    /// Says whether this interrupt of the machine is that of the function that it drives.
    pub fn is_interrupted_by(&self, number: u32) -> bool {
        self.driven.as_ref().is_some_and(|function| function.interrupt() == number)
    }

    /// Its function has interrupted this CPU. It does not again until that is handled.
    pub fn interrupted(&self) {
        if let Some(function) = &self.driven {
            function.mask(true);
        }
        self.want(Pending::INTERRUPT);
    }

    /// Its alarm goes off.
    pub fn ring(&self) {
        self.want(Pending::ALARM);
    }

    /// Has it handle something, by its own CPU, or the first vCPU that looks.
    fn want(&self, pending: Pending) {
        if let Some(service) = self.service.get() {
            service.want(pending);
            self.wake();
        }
    }

    /// Has all vCPUs look that may enter it: any may be off. One that stops or pauses leaves what it has not looked at to others. None may
    /// enter one that has a CPU of its own, which looks by itself.
    pub fn wake(&self) {
        self.call(u64::MAX);
    }

    /// Has it start anew, whatever it does. False if none of its VMs runs.
    pub fn kill(&self) -> bool {
        let Some(service) = self.service.get().filter(|_| self.members.iter().any(Member::is_running)) else {
            return false;
        };
        service.kill();
        // Whoever is inside is interrupted.
        self.wake();
        true
    }

    /// Begins a new life of a VM that it serves. Only while no vCPU of that VM runs.
    pub fn reset(&self, vm: &Vm) {
        if !self.serves(vm) {
            return;
        }
        if !self.is_shared() {
            alarm::clear(self.alarm);
            self.drop_typed();
            self.line.lock().clear();
            self.typed.lock().begin();
            self.ports.lock().begin(vm.lifecycle.boots() + 1);
            self.wanted_pages.store(0, Ordering::Relaxed);
            self.released.lock().clear();
        }
        if let Some(service) = self.service.get() {
            service.reset();
        }
        // What the life before decoded, this one does not.
        for (number, _) in self.members_of(vm) {
            (0..abi::BAR_COUNT).for_each(|bar| _ = self.decode(number, bar, 0, 0));
        }
    }

    /// Lets it reach the memory of a VM, which is these pieces, and its disk's, if it is to. Only while no vCPU of that VM runs; before
    /// that memory is given back it is taken away.
    ///
    /// # Errors
    /// When there is no memory for its tables, or an IOMMU does not say what its controller reaches.
    pub fn attach(&self, vm: &Vm, pieces: &[Window]) -> Result<(), memory::Error> {
        let mut pieces = pieces.to_vec();
        match self.lends().map_or(Ok(()), |function| function.lend(&mut pieces)) {
            Ok(()) => {}
            Err(Unlent::NoTables) => line::report(format_args!(
                "service {}: its controller does not reach the memory of the VM: there are no tables for it. Bytes are copied",
                self.name
            )),
            // The controller may not even reach what the program shares with it.
            Err(Unlent::NoAnswer) => return Err(memory::Error::Silent),
        }
        let attached = self
            .reaching(vm)
            .try_for_each(|(service, number)| service.attach(number, pieces.clone(), self.storage));
        self.look_elsewhere();
        attached
    }

    /// The VM that has it for itself runs from now on, or goes on. A CPU of its own handles what there is to do.
    pub fn release(&self) {
        self.service.get().into_iter().for_each(|service| service.release());
    }

    /// That VM has stopped or is paused: a CPU of its own does nothing for it when this returns.
    pub fn hold(&self) {
        self.service.get().into_iter().for_each(|service| service.hold());
    }

    /// The machine's function that it drives, if that may reach the memory of the VM: there is no other VM that has it, too. Drivers of a
    /// device behind MMIO do not wait for the end of its reset (section 4.2.2), so they would take memory back that is still reached.
    fn lends(&self) -> Option<&Driven> {
        let is_function = matches!(self.members.as_slice(), [Member { site: Site::Function(_), .. }]);
        self.driven.as_ref().filter(|_| !self.is_shared() && is_function)
    }

    /// A VM that it serves has stopped: its memory is taken away. If it has no other, nothing rings any more. Only while no vCPU of that
    /// VM runs. False if a function of the machine may still reach the memory, because its IOMMU does not answer.
    #[must_use = "nobody else may be given memory that is still reached"]
    pub fn detach(&self, vm: &Vm) -> bool {
        self.hold();
        if !self.is_shared() {
            alarm::clear(self.alarm);
        }
        // The function is silent behind this.
        self.reaching(vm).for_each(|(service, number)| service.detach(number));
        self.look_elsewhere();
        self.lends().is_none_or(Driven::take_back)
    }

    /// Takes as much as goes at once of the memory that the guest does not need.
    pub fn take_released(&self) -> Parts {
        self.released.lock().take(AT_ONCE)
    }

    /// Does something while these parts of a VM's memory are not reached by this service.
    pub fn without(&self, vm: &Vm, parts: &Parts, act: impl FnOnce()) {
        let members = self.reaching(vm).fold(0, |all, (_, number)| all | 1 << number);
        match self.service.get().filter(|_| members != 0) {
            Some(service) => service.without(members, parts, act),
            None => act(),
        }
    }

    /// Returns the service, if it reaches the memory of a VM, with each member that this is.
    fn reaching(&self, vm: &Vm) -> impl Iterator<Item = (&'static Service, usize)> {
        let service = self.service.get().copied().filter(|_| self.memory);
        self.members_of(vm).filter_map(move |(number, _)| Some((service?, number)))
    }

    /// What waited while a VM came or went, or for a vCPU of one that went, is the others'.
    fn look_elsewhere(&self) {
        if self.is_shared() {
            self.wake();
        }
    }
}
