// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The running system: all VMs on one machine.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

use spin::Once;
use turnstile_bundle::{Bundle, BundleError};
use turnstile_link::{Command, Outcome};
use turnstile_vm::lifecycle::Stop;

use crate::alarm;
use crate::arch::boot::Host;
use crate::arch::boot::fault::{self, Provoked};
use crate::arch::cpu::PerCpu;
use crate::arch::exit::{server, wait};
use crate::arch::phases::{Phase, TIMES};
use crate::arch::sched;
use crate::arch::time;
use crate::arch::vm::Vm;
use crate::arch::{CommonMonitor, println, set_monitor};
use crate::build::{build, build_services};
use crate::disk;
use crate::driven;
use crate::guest::Guest;
use crate::line::{self, PortMessage, Receiver};
use crate::machine::shared;
use crate::options;
use crate::service::{Hosted, calls};
use crate::times;

/// All VMs on one machine.
pub struct System {
    /// The machine.
    pub host: &'static Host,
    /// The VMs, in the order of the bundle.
    pub guests: Vec<Guest>,
    /// The services, in the order of the bundle.
    services: Vec<&'static Hosted>,
    running: AtomicU32,
    crashed: AtomicU32,
}

static SYSTEM: Once<System> = Once::new();

fn refuse(host: &Host, reason: core::fmt::Arguments<'_>) -> ! {
    println!("turnstile: {reason}");
    host.power_off()
}

/// Takes off the techniques that the command line names, and says so. Statistics have vectors of their own, and a CPU
/// has one table: they would put the techniques back.
#[cfg(feature = "ablation")]
fn take_off(host: &Host, bundle: &Bundle<'_>) {
    use crate::arch::exit::naive::{self, Set};
    let Some(list) = options::without(host.bootargs) else { return };
    if let Some(vm) = bundle.vms().iter().find(|vm| vm.statistics) {
        refuse(
            host,
            format_args!(
                "without={list} and the statistics of VM {} exclude each other: drop one of them",
                vm.name
            ),
        );
    }
    match Set::parse(list) {
        Ok(off) => {
            naive::take_off(off);
            println!("turnstile: without {off}");
        }
        Err(error) => refuse(host, format_args!("without={list}: {error}")),
    }
}

/// Reads the bundle, to the heap: its descriptions are a large part of a stack, of which the boot CPU's is in use for ever.
#[inline(never)]
fn read(blob: &'static [u8]) -> Result<Box<Bundle<'static>>, BundleError> {
    let mut bundle = place();
    bundle.read(blob).map(|()| bundle)
}

/// Makes room for the descriptions: they are on the stack until this returns.
#[inline(never)]
fn place() -> Box<Bundle<'static>> {
    Box::default()
}

/// Boot CPU: the machine is set up, guests come next.
#[allow(unsafe_code, reason = "the boot code of the arch crate calls this by name")]
#[unsafe(no_mangle)]
fn turnstile_main(host: &'static Host) -> ! {
    let options = options::parse(host.bootargs, |word| {
        println!("turnstile: \"{word}\" on the command line means nothing here");
    });
    TIMES.end(Phase::Interrupts, time::ticks());
    line::set_mode(options.line);
    if options.times {
        times::want();
    }
    if let Some(kind) = options.provoke {
        fault::provoke(kind);
    }
    if options.provoke == Some(Provoked::Dry) {
        calls::provoke_dry();
    }
    let (system, running) = set_up(host, options.provoke == Some(Provoked::Stray));
    TIMES.end(Phase::Vms, time::ticks());
    times::report();
    system.introduce();
    // Counted before any of them runs: the first to stop must not find itself to be the last.
    system.running.store(system.guests.len() as u32, Ordering::Relaxed);
    for guest in &system.guests {
        guest.want();
    }
    host.wake_cpus(running);
    if options.provoke == Some(Provoked::ReadGuest) {
        provoke_read(system);
    }
    turnstile_cpu_main(host.cpus[0])
}

/// Makes the VMs of the machine's bundle, starts the CPUs that they need, and returns the system and how many CPUs run. If devices are to
/// `stray`, they are told wrong addresses. Not in [`turnstile_main`]: the bundle's tables would lie on the stack on which this CPU runs its guests.
#[inline(never)]
fn set_up(host: &'static Host, stray: bool) -> (&'static System, usize) {
    let Some(blob) = host.bundle else {
        refuse(
            host,
            format_args!("there is no bundle: pass one as the initial RAM disk (made by ./x build)"),
        );
    };
    let bundle = match read(blob) {
        Ok(bundle) => bundle,
        Err(error) => refuse(host, format_args!("the bundle cannot be used: {error}")),
    };
    #[cfg(feature = "ablation")]
    take_off(host, &bundle);
    TIMES.end(Phase::Bundle, time::ticks());
    let of_vms = bundle.vms().iter().flat_map(|vm| vm.cpus.iter());
    let of_services = bundle.services().iter().filter_map(|service| service.cpu);
    let wanted = of_vms.chain(of_services).max().map_or(1, |cpu| usize::from(cpu) + 1);
    let running = host.start_cpus(wanted);
    TIMES.end(Phase::Cpus, time::ticks());
    if let Err(error) = shared::set_pool(bundle.pool()) {
        refuse(host, format_args!("the pool of memory cannot be made: {error}"));
    }
    let (mut guests, mut tenants) = (Vec::new(), Vec::new());
    for (id, spec) in bundle.vms().iter().enumerate() {
        match build(id as u8, spec, &bundle, (host, running), &mut tenants) {
            Ok(guest) => guests.push(guest),
            Err(error) => refuse(host, format_args!("VM {} cannot be built: {error}", spec.name)),
        }
    }
    let disks = match disk::build(bundle.disks()) {
        Ok(disks) => disks,
        Err((name, error)) => refuse(host, format_args!("disk {name} cannot be made: {error}")),
    };
    let services = match build_services(&bundle, &disks, stray, (host, running), &mut guests) {
        Ok(services) => services,
        Err((name, error)) => refuse(host, format_args!("service {name} cannot be built: {error}")),
    };
    if !tenants.is_empty() {
        sched::start(tenants, &host.cpus);
    }
    let crashed = AtomicU32::new(0);
    let system = SYSTEM.call_once(|| System { host, guests, services, running: AtomicU32::new(0), crashed });
    set_monitor(system);
    (system, running)
}

/// Reads the memory of the first VM while that runs on another CPU.
fn provoke_read(system: &System) {
    let Some(guest) = system.guests.first() else { return };
    if guest.vm.vcpu(0).is_none_or(|vcpu| vcpu.cpu.index == 0) {
        refuse(
            system.host,
            format_args!("provoke=read-guest needs the first VM on another CPU: give it cpus = [1]"),
        );
    }
    guest.provoke_read();
}

/// Every CPU: runs the vCPU pinned to it, or those that share it, or services, or waits.
#[allow(unsafe_code, reason = "the boot code of the arch crate calls this by name")]
#[unsafe(no_mangle)]
fn turnstile_cpu_main(cpu: &'static PerCpu) -> ! {
    let system = loop {
        if let Some(system) = SYSTEM.get() {
            break system;
        }
        // Asleep, not spinning: there may be hundreds of CPUs, and an emulator runs them in turn.
        wait::wait_for_interrupt();
    };
    let mut vcpus = system.guests.iter().flat_map(|guest| guest.vm.vcpus());
    if sched::is_shared(cpu) {
        sched::run();
    }
    match vcpus.find(|vcpu| vcpu.cpu.index == cpu.index) {
        Some(vcpu) => wait::run(vcpu),
        None => run_services(system, cpu),
    }
}

/// A CPU that no VM has: runs the services that have it for themselves, or waits.
fn run_services(system: &System, cpu: &PerCpu) -> ! {
    let own: Vec<_> = system.services.iter().filter_map(|service| service.runs_on(cpu)).collect();
    if own.is_empty() { wait::idle() } else { server::run(&own) }
}

impl Receiver for System {
    fn input(&self, vm: u8, bytes: &[u8]) {
        if let Some(guest) = self.guests.get(usize::from(vm)) {
            guest.receive(bytes);
        }
    }

    fn resize(&self, vm: u8, columns: u16, rows: u16) {
        if let Some(guest) = self.guests.get(usize::from(vm)) {
            guest.resize(columns, rows);
        }
    }

    fn hear_of_port(&self, vm: u8, port: u8, message: PortMessage<'_>) {
        if let Some(guest) = self.guests.get(usize::from(vm)) {
            guest.hear_of_port(port, message);
        }
    }

    fn execute(&self, command: Command) -> Outcome {
        match command {
            Command::Hello => {
                self.introduce();
                Outcome::Accepted
            }
            Command::Restart { vm } => self.with(vm, |guest| {
                if guest.is_running() {
                    guest.vm.stop(Stop::Reset);
                    return Outcome::Accepted;
                }
                // Counted first: it may stop again before this CPU gets any further.
                self.running.fetch_add(1, Ordering::AcqRel);
                if guest.want() {
                    return Outcome::Accepted;
                }
                self.ended();
                Outcome::NotNow
            }),
            Command::Stop { vm } => {
                self.with(vm, |guest| if guest.put_down() { Outcome::Accepted } else { Outcome::NotNow })
            }
            Command::Pause { vm } => {
                self.with(vm, |guest| if guest.pause() { Outcome::Accepted } else { Outcome::NotNow })
            }
            Command::Resume { vm } => {
                self.with(vm, |guest| if guest.resume() { Outcome::Accepted } else { Outcome::NotNow })
            }
            Command::Statistics { vm } => {
                self.with(
                    vm,
                    |guest| if guest.report_statistics() { Outcome::Accepted } else { Outcome::NotKept },
                )
            }
            Command::Memory => {
                self.report_memory();
                Outcome::Accepted
            }
            Command::Balloon { vm, bytes } => self.with(vm, |guest| guest.ask_for_memory(bytes)),
            Command::KillService { service } => match self.services.get(usize::from(service)) {
                None => Outcome::NoSuchService,
                Some(service) if service.kill() => Outcome::Accepted,
                Some(_) => Outcome::NotNow,
            },
            Command::Poweroff => {
                for guest in &self.guests {
                    guest.put_down();
                }
                Outcome::Accepted
            }
        }
    }
}

impl System {
    fn introduce(&self) {
        line::hello(
            self.host.cpus.len(),
            self.guests.iter().map(|guest| (guest.vm, guest.state(), guest.room())),
        );
        self.services.iter().for_each(|service| service.introduce());
    }

    /// Sends how much memory the VMs have. Nobody is asked: they take and give meanwhile.
    fn report_memory(&self) {
        for guest in &self.guests {
            line::memory(guest.vm, guest.machine.memory(guest.vm));
        }
        if let Some((bytes, free)) = shared::pool_bytes() {
            line::pool(bytes, free);
        }
    }

    fn with(&self, vm: u8, f: impl FnOnce(&Guest) -> Outcome) -> Outcome {
        self.guests.get(usize::from(vm)).map_or(Outcome::NoSuchVm, f)
    }

    /// Returns what a VM is made of.
    pub fn guest(&self, vm: &Vm) -> Option<&Guest> {
        self.guests.get(usize::from(vm.id))
    }

    /// Counts a VM that stays stopped; after the last one the machine is powered off.
    fn ended(&self) {
        if self.running.fetch_sub(1, Ordering::AcqRel) == 1 {
            line::done(self.crashed.load(Ordering::Relaxed) as u8);
            self.host.power_off();
        }
    }
}

impl CommonMonitor<Vm> for System {
    fn mmio_read(&self, vm: &'static Vm, address: u64, size: u8) -> Option<u64> {
        self.guest(vm)?.devices().read(vm, address, size)
    }

    fn mmio_write(&self, vm: &'static Vm, address: u64, size: u8, value: u64) -> bool {
        self.guest(vm).is_some_and(|guest| guest.devices().write(vm, address, size, value))
    }

    fn interrupt(&self, intid: u32) {
        if Some(intid) == self.host.console_intid {
            return line::receive(self);
        }
        let service = self.services.iter().find(|service| service.is_interrupted_by(intid));
        match service {
            Some(service) => service.interrupted(),
            // Others that are connected are IOMMUs.
            None => driven::report_all(),
        }
    }

    fn deadline(&self) {
        let (vms, services) = (0..self.guests.len(), self.services.iter().map(|service| service.alarm()));
        alarm::ring(vms.chain(services), |number| match self.guests.get(number) {
            Some(guest) => guest.tick(),
            None => self
                .services
                .iter()
                .filter(|service| service.alarm() == number)
                .for_each(|service| service.ring()),
        });
    }

    fn waiting(&self, vm: &'static Vm) {
        let Some(guest) = self.guest(vm) else { return };
        if !guest.start_if_wanted() {
            // Put down before it started, or it could not start.
            self.crashed.fetch_add(u32::from(!guest.is_down()), Ordering::Relaxed);
            self.ended();
        }
    }

    fn paused(&self, vm: &'static Vm) {
        if let Some(guest) = self.guest(vm) {
            guest.paused();
        }
    }

    fn resumed(&self, vm: &'static Vm) {
        if let Some(guest) = self.guest(vm) {
            guest.resumed();
        }
    }

    fn short_of_memory(&self, vm: &'static Vm, number: u32) {
        line::report(format_args!("VM {} waits for memory: the pool is empty (wait {number})", vm.name));
    }

    fn stopped(&self, vm: &'static Vm, stop: Stop) {
        let Some(guest) = self.guest(vm) else { return };
        if guest.stopped(stop) {
            return;
        }
        if matches!(stop, Stop::Crash(_)) {
            self.crashed.fetch_add(1, Ordering::Relaxed);
        }
        self.ended();
    }
}
