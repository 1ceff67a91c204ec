// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One VM, which may start and stop many times.

use alloc::vec::Vec;
use core::cell::Cell;
use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use spin::{Mutex, MutexGuard};
use turnstile_bundle::ServiceDevice;
use turnstile_link::{Event, Outcome, StopReason, VmState};
use turnstile_pool::Parts;
use turnstile_vm::attention::Reasons;
use turnstile_vm::lifecycle::{Next, Phase, Stop};

use crate::alarm;
use crate::arch::Uptime;
use crate::arch::boot::fault;
use crate::arch::cpu;
use crate::arch::memory::{self, GuestMemory};
use crate::arch::time;
use crate::arch::vm::Vm;
use crate::line::{self, PortMessage};
use crate::machine::{self, Devices, Machine};
use crate::service::Hosted;
use crate::service::connect::connect;
use crate::times;

/// A VM and what it is made of.
pub struct Guest {
    /// What exits see of it.
    pub vm: &'static Vm,
    /// What its description has become on this machine.
    pub machine: Machine,
    memory: Mutex<Option<GuestMemory>>,
    devices: Mutex<Devices>,
    /// The services that serve it.
    services: Vec<&'static Hosted>,
    /// Held from the moment in which its statistics are forgotten until the life is counted that makes new ones.
    /// Apart from `memory`, which is held as long as it takes to clear and load it. Who pauses a life, or ends its pause, holds it,
    /// so that it is not the next life's.
    beginning: Mutex<()>,
    /// Held while its clock is stopped or goes on and that is told, so that the two are told in their order.
    pausing: Mutex<()>,
    /// Alarms that rang during a pause were not heard: the first of its vCPUs that goes on looks at the devices.
    unheard: AtomicBool,
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

/// Held by who takes memory from services: it is inside of several, which another one may be waiting for.
static GIVING: Mutex<()> = Mutex::new(());

/// Does something while none of these services reaches parts of a VM's memory.
fn without(services: &[&'static Hosted], vm: &Vm, parts: &Parts, act: &mut dyn FnMut()) {
    match services {
        [] => act(),
        [first, others @ ..] => first.without(vm, parts, || without(others, vm, parts, act)),
    }
}

/// Why a VM cannot be started.
#[derive(Debug)]
enum Error {
    /// This machine cannot give it what it needs.
    Machine(machine::Error),
    /// It runs already.
    Running,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Machine(error) => write!(f, "{error}"),
            Self::Running => write!(f, "it runs already"),
        }
    }
}

impl From<machine::Error> for Error {
    fn from(error: machine::Error) -> Self {
        Self::Machine(error)
    }
}

impl Guest {
    /// Puts a VM together that has never run.
    pub fn new(vm: &'static Vm, machine: Machine) -> Self {
        Self {
            vm,
            devices: Mutex::new(machine.devices(vm)),
            machine,
            services: Vec::new(),
            memory: Mutex::new(None),
            beginning: Mutex::new(()),
            pausing: Mutex::new(()),
            unheard: AtomicBool::new(false),
            plan: AtomicU8::new(REST),
            down: AtomicBool::new(false),
        }
    }

    /// Has it served by these services, before it starts.
    pub fn set_services(&mut self, services: Vec<&'static Hosted>) {
        connect(self.vm, &services);
        self.services = services;
    }

    /// Returns its devices, for an access of its own.
    pub fn devices(&self) -> MutexGuard<'_, Devices> {
        self.devices.lock()
    }

    /// Reads the memory of the VM, once it runs, as nothing else does: to see that it cannot be read
    /// (`provoke=read-guest`). Not on the CPU that starts it.
    pub fn provoke_read(&self) {
        while !self.is_running() {
            cpu::relax();
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
        if !starts {
            self.forget();
        }
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

    /// Returns what the VM does.
    pub fn state(&self) -> VmState {
        match self.is_running() {
            true if self.vm.pause.is_paused() => VmState::Paused,
            true => VmState::Running,
            false => VmState::Stopped,
        }
    }

    /// Begins to pause the VM. False if it does not run, or is paused already.
    pub fn pause(&self) -> bool {
        let _life = self.beginning.lock();
        self.vm.begin_pause()
    }

    /// All its vCPUs have left their guests: what waits for that is done. If a user has paused it, its clock stands still from now on.
    pub fn paused(&self) {
        if self.vm.pause.is_short() {
            self.give_back();
            if self.vm.pause.end_short() {
                return self.vm.raise_all(Reasons::START);
            }
        }
        // No program changes its memory when it is heard that it is paused. Before the lock: a service's own CPU may be about to take that
        // for a command.
        self.services.iter().for_each(|service| service.hold());
        let _order = self.pausing.lock();
        if self.vm.pause.close(time::ticks()) {
            line::event(self.vm, Event::Paused);
        } else if !self.vm.pause.stands() {
            self.release_services();
        }
        // What its vCPUs were about to handle of services that others share does not stand still with them.
        self.services.iter().for_each(|service| service.wake());
    }

    /// Gives some of the memory back that its guest does not need, while no vCPU of it is in its guest or in an exit.
    fn give_back(&self) {
        let released = self.services.iter().map(|service| service.take_released());
        for parts in released.filter(|parts| !parts.is_empty()) {
            let _alone = GIVING.lock();
            without(&self.services, self.vm, &parts, &mut || _ = self.vm.give_back(&parts));
        }
    }

    /// Lets the VM go on. False if it does not run, or is not paused.
    pub fn resume(&self) -> bool {
        let _life = self.beginning.lock();
        let _order = self.pausing.lock();
        if !self.is_running() || !self.vm.pause.is_paused() {
            return false;
        }
        // Before it is so: no VM is heard of that writes while it is paused. Telling takes its time, for which the clock stands, too.
        let ticks = self.vm.pause.stands_for(time::ticks()).unwrap_or(0);
        let nanoseconds = Uptime { ticks, frequency: time::frequency() }.nanoseconds();
        line::event(self.vm, Event::Resumed { microseconds: nanoseconds / 1000 });
        // Nobody looks at the devices while their clock is put right.
        let devices = self.devices.lock();
        let ended = self.vm.pause.end(time::ticks(), |ticks| {
            self.vm.stood_still(ticks);
            self.unheard.store(true, Ordering::Relaxed);
        });
        drop(devices);
        self.release_services();
        self.vm.raise_all(Reasons::START);
        ended.is_some()
    }

    /// It runs: services that have CPUs of their own handle what there is to do for it.
    fn release_services(&self) {
        self.services.iter().for_each(|service| service.release());
    }

    /// One of its vCPUs goes on after a pause. The alarms stay with the VM's CPUs: this is one of them, and who has ended the pause
    /// need not be.
    pub fn resumed(&self) {
        // Acquire and release are those of the pause's end, which this vCPU has seen.
        if self.unheard.swap(false, Ordering::Relaxed) {
            self.tick();
        }
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
        let begin = time::ticks();
        let cleared = Cell::new(begin);
        let (memory, start) = self.machine.furnish(self.vm, || cleared.set(time::ticks()))?;
        let loaded = time::ticks();
        let mut devices = self.devices.lock();
        *devices = self.machine.devices(self.vm);
        self.machine.prepare(self.vm, &memory, start);
        drop(devices);
        // Who is inside of one that others share may need those devices' lock before it leaves.
        self.services.iter().for_each(|service| service.reset(self.vm));
        *slot = Some(self.show(memory)?);
        drop(slot);
        let beginning = self.beginning.lock();
        self.vm.reset_statistics();
        let (free_memory, arena) = memory::free_bytes();
        let boots = self.vm.lifecycle.boots() + 1;
        line::event(self.vm, Event::Started { boots, free_memory, free_tables: (arena / 4096) as u32 });
        times::report_start(self.vm, [begin, cleared.get(), loaded]);
        self.vm.pause.reset();
        self.vm.lifecycle.start();
        self.release_services();
        line::open(self.vm);
        drop(beginning);
        self.vm.raise_all(Reasons::START);
        Ok(())
    }

    /// Shows its memory to the services that are to reach it; gives it back if that fails.
    fn show(&self, memory: GuestMemory) -> Result<GuestMemory, machine::Error> {
        let pieces = self.machine.ram(&memory);
        match self.services.iter().try_for_each(|service| service.attach(self.vm, &pieces)) {
            Ok(()) => Ok(memory),
            Err(error) => {
                self.hide(memory)?;
                Err(error.into())
            }
        }
    }

    /// Gives its memory back, when no service reaches it any more, and nothing of the machine that one drives. Where an IOMMU does not say so, the memory
    /// is nobody's from now on.
    fn hide(&self, memory: GuestMemory) -> Result<(), memory::Error> {
        let reached = self.services.iter().filter(|service| !service.detach(self.vm)).count();
        match reached {
            0 => memory.release(),
            _ => Err(memory::Error::Reached),
        }
    }

    /// Takes the VM down after all its vCPUs have stopped. Returns whether it is to run again.
    pub fn stopped(&self, stop: Stop) -> bool {
        let mut restarts = stop.next(self.vm.on_crash) == Next::Restart && !self.is_down();
        let reason = match stop {
            Stop::PowerOff => StopReason::PowerOff,
            Stop::Reset => StopReason::Reset,
            Stop::Killed => StopReason::Killed,
            Stop::Crash(code) => {
                line::crash(self.vm, format_args!("{}", machine::CrashText(code)));
                StopReason::Crash
            }
        };
        line::close(self.vm);
        self.drop_typed();
        self.services.iter().for_each(|service| service.end_ports());
        let memory = self.memory.lock().take();
        if let Some(memory) = memory
            && let Err(error) = self.hide(memory)
        {
            line::crash(self.vm, format_args!("its memory is lost: {error}"));
            restarts = false;
        }
        // Not before it is known whether it restarts.
        line::event(self.vm, Event::Stopped { reason, restarts });
        if !restarts {
            self.forget();
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

    /// Gives up what the machine keeps over restarts: the VM stays stopped. It has no memory any more.
    fn forget(&self) {
        if let Err(error) = self.machine.forget() {
            line::crash(self.vm, format_args!("memory of it is lost: {error}"));
        }
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
            self.services.iter().for_each(|service| service.introduce());
        }
        self.vm.statistics
    }

    /// Lets the VM's clock go on.
    pub fn tick(&self) {
        let mut devices = self.devices.lock();
        alarm::clear(self.vm.id.into());
        // When its clock stands, its devices are looked at when it goes on.
        if self.is_running() && !self.vm.pause.stands() {
            devices.tick(self.vm);
        }
    }

    /// Takes what was typed into the VM's console; it is lost if the VM does not run.
    pub fn receive(&self, bytes: &[u8]) {
        // Looked at under the lock: a VM that is starting replaces its devices under it.
        let mut devices = self.devices.lock();
        if !self.is_running() {
            return line::room(self.vm, u16::try_from(bytes.len()).ok());
        }
        match self.console() {
            Some(service) => service.receive(bytes),
            None => devices.receive(self.vm, bytes),
        }
    }

    /// Returns how many bytes may be typed into its console if none are under way.
    pub fn room(&self) -> u16 {
        self.console().map_or_else(|| self.devices().room(), |service| service.room())
    }

    /// What was typed and not read is gone with this life.
    fn drop_typed(&self) {
        match self.console() {
            Some(service) => {
                // Who types looks under this lock whether the VM runs.
                let _devices = self.devices();
                service.drop_typed();
            }
            None => self.devices().drop_typed(self.vm),
        }
    }

    /// Returns the service that is its console, if one is: whoever has a virtio console types there.
    fn console(&self) -> Option<&'static Hosted> {
        let is = |device| self.services.iter().copied().find(move |service| service.is(device));
        is(ServiceDevice::Console).or_else(|| is(ServiceDevice::Uart))
    }

    /// Takes what the tool says of one of its named ports. One that is not there is ignored.
    pub fn hear_of_port(&self, port: u8, message: PortMessage<'_>) {
        let ports = self.services.iter().find(|service| service.is(ServiceDevice::Ports));
        ports.into_iter().for_each(|service| service.hear_of_port(port, message));
    }

    /// Asks the guest, through its balloon, to keep so many bytes of its memory.
    pub fn ask_for_memory(&self, bytes: u64) -> Outcome {
        let Some(balloon) = self.services.iter().find(|service| service.is(ServiceDevice::Balloon)) else {
            return Outcome::NoBalloon;
        };
        // Nobody is asked between the end of a life and the beginning of the next, which forgets what the one before was asked for.
        let _life = self.beginning.lock();
        if !self.is_running() {
            return Outcome::NotNow;
        }
        let (_, limit) = self.machine.memory(self.vm);
        balloon.inflate(limit.saturating_sub(bytes));
        Outcome::Accepted
    }

    /// The terminal of its console has another size. A serial port has none.
    pub fn resize(&self, columns: u16, rows: u16) {
        let is_terminal = |service: &&Hosted| service.is(ServiceDevice::Console);
        self.console().filter(is_terminal).into_iter().for_each(|service| service.resize(columns, rows));
    }
}
