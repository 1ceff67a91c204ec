// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: built from the bundle once, at boot, and what their calls reach: the console and the interrupt lines of the VM that
//! each serves, the hypervisor's log, an alarm.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use heapless::Deque;
use spin::{Mutex, Once};
use turnstile_bundle::{ServiceDevice, ServiceSpec};
use turnstile_devices::{BACKLOG, Credit};
use turnstile_service::abi;
use turnstile_service::gate::Pending;
use turnstile_service::image::{self, Doorbells, Image};
use turnstile_vm::attention::Reasons;

use crate::alarm;
use crate::arch::memory;
use crate::arch::service::{Bar, ISA, Outside, Served, Service, Services, Space, Storage, Window};
use crate::arch::time;
use crate::arch::vm::Vm;
use crate::line;
use crate::machine::{self, Function, Place, Reach, Site};

/// How long after now an alarm goes off at the earliest, in nanoseconds: one that is set whenever it has gone off leaves nearly all
/// time to its guest, and to others on that CPU.
const SOONEST: u64 = 100_000;
/// The most characters of a line of a service in the log.
const LINE: usize = 160;
/// How many characters a service is offered at once.
const OFFERED: usize = 8;
const NANOSECONDS: u128 = 1_000_000_000;
/// Bytes of a PCI function's configuration space.
const CONFIGURATION: u64 = 0x1000;

/// What was typed for a service.
#[derive(Default)]
struct Typed {
    /// What waits, until the service takes it.
    waiting: Deque<u8, BACKLOG>,
    credit: Credit,
}

/// A service and what it is connected with.
pub struct Hosted {
    name: String,
    vm: &'static Vm,
    device: ServiceDevice,
    site: Site,
    doorbells: Doorbells,
    /// Whether it reaches its VM's memory.
    memory: bool,
    /// The memory of its disk.
    storage: Option<Storage>,
    /// The number of its alarm.
    alarm: usize,
    typed: Mutex<Typed>,
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
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(error) => write!(f, "{error}"),
            Self::Memory(error) => write!(f, "{error}"),
            Self::Vm => f.write_str("there is no VM for it"),
        }
    }
}

/// Tells a VM's exits which services are its devices.
pub fn connect(vm: &Vm, hosted: &[&'static Hosted]) {
    let mut services = Services::none();
    let mut functions = Vec::new();
    for hosted in hosted {
        let Some(service) = hosted.service.get().copied() else { continue };
        services.all.push(service);
        match &hosted.site {
            Site::Device(place) => {
                let Place { base, size, .. } = *place;
                let served = Served { base, size, device: 0, doorbells: hosted.doorbells, service };
                match place.reach {
                    Reach::Memory => services.memory.push(served),
                    Reach::Ports => services.ports.push(served),
                    Reach::Calls => services.terminal = Some(served),
                }
            }
            Site::Function(function) => functions.push((function, hosted.doorbells, service)),
        }
    }
    connect_functions(&mut services, &functions);
    vm.set_services(services);
}

/// The same for PCI functions: first what is accessed most often.
fn connect_functions(services: &mut Services, functions: &[(&Function, Doorbells, &'static Service)]) {
    let others = (0..abi::BAR_COUNT).filter(|bar| *bar != abi::DOORBELL_BAR);
    for bar in core::iter::once(abi::DOORBELL_BAR).chain(others) {
        for (_, doorbells, service) in functions {
            let doorbells = if bar == abi::DOORBELL_BAR { *doorbells } else { Doorbells::NONE };
            services.bars.push(Bar::new(abi::BARS + bar, doorbells, service));
        }
    }
    for (function, _, service) in functions {
        let space = || Served::nowhere(abi::CONFIGURATION, Doorbells::NONE, service);
        services.functions.push(space());
        let page = function.configuration.map(|base| Served { base, size: CONFIGURATION, ..space() });
        services.memory.extend(page);
    }
}

impl Hosted {
    /// Builds the service of this number, which serves `vm` at this site, with the memory of its disk.
    ///
    /// # Errors
    /// When its program cannot be used, or there is no memory for it.
    #[inline(never)] // What it needs of the stack is given back; the boot CPU's is in use for ever.
    pub fn build(
        number: usize,
        spec: &ServiceSpec<'static>,
        vm: &'static Vm,
        site: Site,
        storage: Option<Storage>,
    ) -> Result<&'static Self, Error> {
        let image = Image::parse(spec.program, ISA).map_err(Error::Program)?;
        let doorbells = image.header().doorbells;
        let space = Space::new(image, spec.limit).map_err(Error::Memory)?;
        let hosted: &'static Self = Box::leak(Box::new(Self {
            name: String::from(spec.name),
            vm,
            device: spec.device,
            site,
            doorbells,
            memory: spec.memory,
            storage,
            alarm: alarm::FIRST_SERVICE + number,
            typed: Mutex::new(Typed::default()),
            line: Mutex::new(heapless::String::new()),
            service: Once::new(),
        }));
        let bars = match &hosted.site {
            Site::Device(_) => 0,
            Site::Function(function) => function.bars,
        };
        hosted
            .service
            .call_once(|| Box::leak(Box::new(Service::new(String::from(spec.name), space, hosted, bars))));
        Ok(hosted)
    }

    /// Tells what it is, and what is counted of it.
    pub fn introduce(&self) {
        if let Some(service) = self.service.get() {
            let number = self.alarm - alarm::FIRST_SERVICE;
            line::service(number as u8, self.vm, &self.name, &service.figures());
        }
    }

    /// Returns the VM that it serves.
    pub const fn vm(&self) -> &'static Vm {
        self.vm
    }

    /// Returns the number of its alarm.
    pub const fn alarm(&self) -> usize {
        self.alarm
    }

    /// Says whether it is its VM's console.
    pub fn is_console(&self) -> bool {
        self.device == ServiceDevice::Uart
    }

    /// Takes what was typed into the VM's console. Who sends more than there is room for loses it.
    pub fn receive(&self, bytes: &[u8]) {
        let mut typed = self.typed.lock();
        for byte in bytes {
            let _ = typed.waiting.push_back(*byte);
        }
        typed.credit.arrived(bytes.len());
        drop(typed);
        self.want(Pending::INPUT);
    }

    /// Returns how many bytes may be typed for it if none are under way.
    pub fn room(&self) -> u16 {
        self.typed.lock().credit.room()
    }

    /// Its VM has stopped: what was typed and not read is gone.
    pub fn drop_typed(&self) {
        let mut typed = self.typed.lock();
        typed.waiting.clear();
        line::room(self.vm, typed.credit.freed(0));
    }

    /// Its alarm goes off.
    pub fn ring(&self) {
        self.want(Pending::ALARM);
    }

    /// Has it handle something, by the first vCPU of its VM that looks: any may be off.
    fn want(&self, pending: Pending) {
        if let Some(service) = self.service.get() {
            service.want(pending);
            self.vm.raise_all(Reasons::SERVICE);
        }
    }

    /// Has it start anew, whatever it does. False if its VM does not run.
    pub fn kill(&self) -> bool {
        use turnstile_vm::lifecycle::Phase;

        let (Some(service), Phase::Running) = (self.service.get(), self.vm.lifecycle.phase()) else {
            return false;
        };
        service.kill();
        // Whoever is inside is interrupted.
        self.vm.raise_all(Reasons::SERVICE);
        true
    }

    /// Begins a new life of its VM. Only while no vCPU runs.
    pub fn reset(&self) {
        alarm::clear(self.alarm);
        self.drop_typed();
        self.line.lock().clear();
        if let Some(service) = self.service.get() {
            service.reset();
        }
        // What the life before decoded, this one does not.
        (0..abi::BAR_COUNT).for_each(|bar| _ = self.decode(bar, 0, 0));
    }

    /// Lets it reach its VM's memory, which is these pieces, and its disk's, if it is to. Only while no vCPU runs; before that memory is given back it
    /// is taken away.
    ///
    /// # Errors
    /// When there is no memory for its tables.
    pub fn attach(&self, pieces: &[Window]) -> Result<(), memory::Error> {
        match self.service.get() {
            Some(service) if self.memory => service.attach(pieces.to_vec(), self.storage),
            _ => Ok(()),
        }
    }

    /// Its VM has stopped: its memory is taken away, and nothing rings any more. Only while no vCPU runs.
    pub fn detach(&self) {
        alarm::clear(self.alarm);
        if let Some(service) = self.service.get().filter(|_| self.memory) {
            service.detach();
        }
    }

    /// Takes a character for the log; a line is written at its end.
    fn log_character(&self, line: &mut heapless::String<LINE>, byte: u8) {
        let character = match byte {
            b' '..=b'~' => byte.into(),
            // Nothing that a terminal obeys.
            _ => '?',
        };
        if byte != b'\n' && line.push(character).is_ok() {
            return;
        }
        line::report(format_args!("service {}: {line}", self.name));
        line.clear();
        if byte != b'\n' {
            let _ = line.push(character);
        }
    }
}

impl Outside for Hosted {
    fn print(&self, count: u64, words: [u64; 2]) {
        abi::characters(count, words).for_each(|byte| line::console(self.vm, byte));
    }

    fn log(&self, count: u64, words: [u64; 2]) {
        let mut line = self.line.lock();
        abi::characters(count, words).for_each(|byte| self.log_character(&mut line, byte));
    }

    fn lines(&self, changed: u64, levels: u64) {
        if changed & 1 != 0
            && let Site::Device(place) = &self.site
        {
            machine::set_line(self.vm, place.line, levels & 1 != 0);
        }
    }

    fn message(&self, address: u64, data: u64) -> bool {
        matches!(self.site, Site::Function(_)) && machine::message(self.vm, address, data)
    }

    fn decode(&self, bar: u64, address: u64, size: u64) -> bool {
        let (Site::Function(function), Some(service), Some(services)) =
            (&self.site, self.service.get(), self.vm.services())
        else {
            return false;
        };
        let window = &function.window;
        let address = function.address(address);
        let fits = size.is_power_of_two()
            && address.is_multiple_of(size)
            && window.contains(&address)
            && size <= window.end - address;
        let moved = bar < abi::BAR_COUNT
            && services.move_bar(service, abi::BARS + bar, address, if fits { size } else { 0 });
        self.vm.device_has_moved();
        moved && (fits || size == 0)
    }

    fn alarm(&self, at: u64) -> u64 {
        let now = self.now();
        alarm::clear(self.alarm);
        if at != u64::MAX {
            let at = at.max(now.saturating_add(SOONEST));
            let ticks = u128::from(at) * u128::from(time::frequency()) / NANOSECONDS;
            alarm::set_number(self.alarm, u64::try_from(ticks).unwrap_or(u64::MAX - 1));
        }
        now
    }

    fn now(&self) -> u64 {
        (u128::from(time::ticks()) * NANOSECONDS / u128::from(time::frequency())) as u64
    }

    fn typed(&self) -> (u64, u64) {
        let typed = self.typed.lock();
        let mut word = [0; OFFERED];
        word.iter_mut().zip(typed.waiting.iter()).for_each(|(place, byte)| *place = *byte);
        (typed.waiting.len().min(OFFERED) as u64, u64::from_le_bytes(word))
    }

    fn took(&self, count: u64) {
        let mut typed = self.typed.lock();
        for _ in 0..count {
            typed.waiting.pop_front();
        }
        let waiting = typed.waiting.len();
        line::room(self.vm, typed.credit.freed(waiting));
    }

    fn crashed(&self, number: u32, report: fmt::Arguments<'_>) {
        line::report(format_args!("{report}\nservice {}: crash {number}", self.name));
        self.introduce();
    }
}
