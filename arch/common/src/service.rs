// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One service, and who goes inside; what happens there, `inside` says. The architecture's [`Space`] enters it. The devices of a VM
//! that services serve are in [`served`](crate::served).
//!
//! Whoever has an event runs the service on its own CPU ([`Service::access`], [`Service::post`]). A service that faults, takes too
//! long, gives up or is killed is put back to its program and gets the event again. If that fails, too, the guest gets what an
//! absent device answers.
//!
//! A service may have a physical CPU of its own ([`server`]), which runs it instead.
//!
//! A service is alone with one VM, or is *shared*: several are its [members](members), which come and go while it runs.

mod beginning;
mod crash;
mod demand;
mod device;
mod inside;
mod members;
mod own;
mod places;
pub mod server;
mod space;

use core::ops::Range;
use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use spin::Mutex;
use turnstile_exitstat::{Reason, Timing};
use turnstile_service::abi::{Answer, Event, Kind};
use turnstile_service::gate::{Gate, Pending, Wanted};

use crate::memory::Error;
use crate::relax;

pub use self::device::Device;
pub use self::members::Port;
use self::members::{Member, Reached, owners};
use self::own::Own;
pub use self::places::{DEVICE, Mapping, Places, SLOT, SLOTS};
pub use self::space::{Idle, Left, Meanwhile, Outside, Over, Space, Storage, Typed, Window};
pub use crate::demand::Touch;

/// A service. `S` is the architecture's part.
pub struct Service<S> {
    /// Its name.
    pub name: String,
    gate: Gate,
    space: S,
    outside: &'static dyn Outside,
    /// The levels of its devices' interrupt lines.
    lines: AtomicU64,
    /// What has to be done before it is entered: [`RUNS`], [`CHANGED`], [`ANEW`] or [`EMPTY`].
    begins: AtomicU8,
    /// How often it has crashed.
    crashes: AtomicU32,
    /// What those have for it who cannot enter it.
    wanted: Wanted,
    /// What it had no memory for: it handles that when it has begun anew.
    starved: Wanted,
    /// What it was offered then.
    unheard: Mutex<Option<Typed>>,
    /// What it has for the physical CPU that alone runs it, if there is one.
    own: Option<Box<Own>>,
    /// Whether VMs come and go while it runs.
    is_shared: bool,
    /// The VMs that it serves.
    members: Mutex<Vec<Member>>,
    /// The numbers of those that have it as a PCI function.
    vms: Vec<Option<u8>>,
    /// A bit for each of them that is there.
    present: AtomicU64,
    /// The machine's device that it drives.
    device: Option<Device>,
    /// How many exits of vCPUs with statistics it has answered, and how long these took until then, in ticks.
    exits: AtomicU64,
    ticks: AtomicU64,
}

/// What is counted of a service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// How often it has crashed or was killed.
    pub crashes: u32,
    /// How many exits it has handled since the VM's start, if the VM keeps statistics.
    pub exits: u64,
    /// How long these took, from the exit to its answer, in ticks of the counter of statistics.
    pub ticks: u64,
}

/// Its memory is as it has left it.
const RUNS: u8 = 0;
/// That, but it is to know first which members have come and gone.
const CHANGED: u8 = 3;
/// It begins anew, with what is kept.
const ANEW: u8 = 1;
/// It begins anew, and what is kept begins as zeros, too.
const EMPTY: u8 = 2;

impl<S: Space> Service<S> {
    /// Makes a service that has never run and is alone with one VM.
    pub fn new(name: String, space: S, outside: &'static dyn Outside, port: Port) -> Self {
        let members = Vec::from([Member::new(port, true)]);
        Self { present: AtomicU64::new(1), ..Self::build(name, space, outside, members, false) }
    }

    /// Makes a service that has never run and is shared by as many VMs as there are `ports`: none is there yet.
    pub fn shared(name: String, space: S, outside: &'static dyn Outside, ports: &[Port]) -> Self {
        let members = ports.iter().map(|port| Member::new(*port, false)).collect();
        Self::build(name, space, outside, members, true)
    }

    fn build(
        name: String,
        space: S,
        outside: &'static dyn Outside,
        members: Vec<Member>,
        is_shared: bool,
    ) -> Self {
        let vms = members.iter().map(|member| member.port.vm).collect();
        Self {
            name,
            gate: Gate::new(),
            space,
            outside,
            lines: AtomicU64::new(0),
            begins: AtomicU8::new(EMPTY),
            crashes: AtomicU32::new(0),
            wanted: Wanted::new(),
            starved: Wanted::new(),
            unheard: Mutex::new(None),
            own: None,
            is_shared,
            members: Mutex::new(members),
            vms,
            present: AtomicU64::new(0),
            device: None,
            exits: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
        }
    }

    /// Has it drive a device of the machine, before anybody enters it.
    ///
    /// # Errors
    /// When the device's registers or its memory cannot be mapped.
    pub fn drive(&mut self, mut device: Device) -> Result<(), Error> {
        // SAFETY: nobody else knows of the service; registers and memory are the service's for ever.
        unsafe { device.map(&self.space)? };
        self.device = Some(device);
        Ok(())
    }

    /// Returns the architecture's part.
    pub const fn space(&self) -> &S {
        &self.space
    }

    /// Returns what is counted of it. Each figure is read by itself.
    pub fn figures(&self) -> Figures {
        Figures {
            crashes: self.crashes.load(Ordering::Relaxed),
            exits: self.exits.load(Ordering::Relaxed),
            ticks: self.ticks.load(Ordering::Relaxed),
        }
    }

    /// Makes it the reason of an exit that it has handled, and counts that. Nothing happens where no statistics are kept.
    #[cold]
    #[inline(never)] // Exits without statistics are not to pay for it.
    pub fn account(&self, timing: &mut Timing, reason: Reason, now: impl FnOnce() -> u64) {
        if timing.is_kept() {
            timing.note(reason);
            self.exits.fetch_add(1, Ordering::Relaxed);
            self.ticks.fetch_add(now().wrapping_sub(timing.begin), Ordering::Relaxed);
        }
    }

    /// Hands it an event and returns its answer.
    ///
    /// # Safety
    /// The caller is an exit handler, on a CPU where a vCPU is resident, and not on its way out of this service.
    #[inline(always)] // The way of each access: the event and the answer stay in registers.
    pub unsafe fn access(&self, event: &Event, meanwhile: &mut impl Meanwhile) -> Answer {
        // SAFETY: the caller's promise.
        unsafe { self.access_for(event, meanwhile, |answer| answer) }
    }

    /// Hands it an event and returns the answer's value: nothing else of the answer is kept.
    ///
    /// # Safety
    /// As for [`Service::access`].
    #[inline(always)] // The way of each access.
    pub unsafe fn value(&self, event: &Event, meanwhile: &mut impl Meanwhile) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { self.access_for(event, meanwhile, |answer| answer.value) }
    }

    #[inline(always)] // The way of each access.
    unsafe fn access_for<T>(
        &self,
        event: &Event,
        meanwhile: &mut impl Meanwhile,
        part: impl Fn(Answer) -> T,
    ) -> T {
        // By value, and taken apart: what is short stays in registers.
        if !self.gate.enter()
            && let Some(Answer { value, lines, count, words }) = self.wait(*event, meanwhile)
        {
            return part(Answer { value, lines, count, words });
        }
        // SAFETY: inside; the rest is the caller's promise.
        let answer = unsafe { self.handle(event, meanwhile, part) };
        if let Some(pending) = self.gate.leave() {
            // SAFETY: as above.
            unsafe { self.settle(pending, meanwhile) };
        }
        answer
    }

    /// Goes inside when who is there has left. If that is for ever, returns what the service's own CPU answers.
    #[cold]
    #[inline(never)] // Others are not to pay for it.
    fn wait(&self, event: Event, meanwhile: &mut impl Meanwhile) -> Option<Answer> {
        if let Some(own) = self.own.as_deref() {
            return Some(self.ask(own, &event, meanwhile));
        }
        while !self.gate.enter() {
            meanwhile.wait();
        }
        None
    }

    /// Rings one of its doorbells: it is entered for that, unless somebody is inside, who will see to it.
    ///
    /// # Safety
    /// As for [`Service::access`].
    #[inline(always)] // The way of each doorbell.
    pub unsafe fn ring(&self, queue: u64, meanwhile: &mut impl Meanwhile) {
        if self.rings(queue) {
            // SAFETY: inside; the rest is the caller's promise.
            unsafe { self.rung(meanwhile) };
        }
    }

    /// The first part of [`Service::ring`], for who needs a stack only for the rest. Returns whether nobody was inside: then the
    /// caller is now, and has to call [`Service::rung`].
    #[inline(always)] // One atomic operation if somebody is inside.
    #[must_use = "who is inside has to handle what waits"]
    pub fn rings(&self, queue: u64) -> bool {
        self.gate.add(Pending::doorbell(queue))
    }

    /// The second part of [`Service::ring`]: handles what waits.
    ///
    /// # Safety
    /// As for [`Service::access`], inside.
    #[inline(always)] // The way of each doorbell.
    pub unsafe fn rung(&self, meanwhile: &mut impl Meanwhile) {
        let rung = self.gate.take();
        let mut pending = Some(rung);
        if rung.is_queues_alone() {
            let event = Event::new(Kind::Doorbell, [rung.queues(), S::now(), 0, 0, 0]);
            // SAFETY: inside; the rest is the caller's promise.
            unsafe { self.handle(&event, meanwhile, |_| ()) };
            pending = self.gate.leave();
        }
        if let Some(pending) = pending {
            // SAFETY: as above.
            unsafe { self.settle(pending, meanwhile) };
        }
    }

    /// Adds to what waits for it, and handles that unless somebody is inside, who will.
    ///
    /// # Safety
    /// As for [`Service::access`].
    pub unsafe fn post(&self, pending: Pending, meanwhile: &mut impl Meanwhile) {
        if let Some(pending) = self.gate.post(pending) {
            // SAFETY: inside; the rest is the caller's promise.
            unsafe { self.settle(pending, meanwhile) };
        }
    }

    /// Adds to what waits for it, for who cannot enter it: the caller makes a vCPU of the VM that it serves look
    /// (`Reasons::SERVICE`), unless it has a CPU of its own.
    pub fn want(&self, pending: Pending) {
        match self.own {
            Some(_) => self.tell(pending),
            None => self.wanted.add(pending),
        }
    }

    /// Handles what others have [wanted](Service::want); false if there was nothing.
    ///
    /// # Safety
    /// As for [`Service::access`].
    pub unsafe fn look(&self, meanwhile: &mut impl Meanwhile) -> bool {
        let Some(pending) = self.wanted.take() else { return false };
        // SAFETY: the caller's promise.
        unsafe { self.post(pending, meanwhile) };
        true
    }

    /// Has it started anew by who is inside or comes next. Who is inside finds out by an interrupt on its CPU, for which the caller
    /// cares, unless it is the service's own CPU.
    pub fn kill(&self) {
        match self.own {
            Some(_) => self.tell_kill(),
            None => self.gate.kill(),
        }
    }

    /// Begins a new life of a member, while no vCPU of its VM runs. One that is alone begins as if it had never run; what waits for it
    /// is gone.
    pub fn reset(&self) {
        if self.is_shared {
            return;
        }
        self.alone(|| {
            self.wanted.take();
            self.starved.take();
            self.unheard.lock().take();
            self.silence();
            self.device.iter().for_each(Device::forgive);
            self.lines.store(0, Ordering::Relaxed);
            self.begins.store(EMPTY, Ordering::Relaxed);
            self.exits.store(0, Ordering::Relaxed);
            self.ticks.store(0, Ordering::Relaxed);
        });
    }

    /// Lets it reach these pieces of the memory of a member's VM, and the memory of its disk, from the first event of the VM's
    /// next life on. Only while no vCPU of that VM runs; the VM's memory is that VM's alone until [`Service::detach`] has returned. If it
    /// is shared, somebody has to [look](Service::look) afterwards.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn attach(
        &self,
        member: usize,
        mut windows: Vec<Window>,
        mut storage: Option<Storage>,
    ) -> Result<(), Error> {
        windows.extend(storage.iter().flat_map(Storage::windows));
        self.alone(|| {
            // SAFETY: inside the gate; the rest is said above.
            unsafe { self.space.attach(member, &mut windows)? };
            if let Some(storage) = &mut storage {
                storage.take_windows(&mut windows);
            }
            self.change(member, |member| member.join(Reached { windows, storage }));
            self.present.fetch_or(1 << member, Ordering::Relaxed);
            Ok(())
        })
    }

    /// Takes that away. Only while no vCPU of that VM runs, on the CPU of a vCPU. If it is shared, somebody has to
    /// [look](Service::look) afterwards.
    pub fn detach(&self, member: usize) {
        if let Some(own) = self.own.as_deref() {
            self.finish_for(own, member as u64);
        }
        self.alone(|| {
            if self.is_shared {
                self.present.fetch_and(!(1 << member), Ordering::Relaxed);
                self.change(member, Member::leave);
            } else {
                self.change(member, |member| member.reached = Reached::default());
                self.silence();
            }
            // SAFETY: inside the gate.
            unsafe { self.space.detach(member) };
        });
    }

    /// Changes a member, of which who enters next tells the program; for who is inside.
    fn change(&self, member: usize, change: impl FnOnce(&mut Member)) {
        self.members.lock().get_mut(member).map(change);
        if self.is_shared && self.begins.load(Ordering::Relaxed) == RUNS {
            self.begins.store(CHANGED, Ordering::Relaxed);
        }
    }

    /// Does something while nobody reaches these whole blocks of a VM's memory by this service, which are mapped on demand: nobody is inside, and
    /// who is next misses them. The VM, which is these `members`, a bit for each, runs, but none of its vCPUs is in its guest or in an exit.
    ///
    /// Whoever takes blocks from several services is inside all of them at once. Two that do so would wait for each other without end, so
    /// there is one at a time.
    pub fn without<T>(&self, members: u64, blocks: &[Range<u64>], act: impl FnOnce() -> T) -> T {
        let act = || {
            for (number, member) in self.members.lock().iter().enumerate() {
                if members >> number & 1 != 0 {
                    member.reached.windows.iter().for_each(|window| self.withdraw(window, blocks));
                }
            }
            act()
        };
        if let Some(own) = self.own.as_deref() {
            return self.in_turn(own, act);
        }
        self.keep_shut(act, |pending| {
            // The VM runs: what has come meanwhile is not lost.
            self.wanted.add(pending);
            self.outside.call(members | owners(pending));
        })
    }

    /// Takes away what of these blocks is in a window, for who is inside.
    fn withdraw(&self, window: &Window, blocks: &[Range<u64>]) {
        for blocks in blocks.iter().filter(|_| window.on_demand) {
            let from = blocks.start.saturating_sub(window.guest);
            let to = blocks.end.saturating_sub(window.guest).min(window.size);
            if from < to {
                // SAFETY: inside the gate.
                unsafe { self.space.withdraw(window, from..to) };
            }
        }
    }

    /// Does something while nobody is inside. What waits meanwhile belongs to a life that is over; if others share the service it is
    /// theirs, and wanted.
    fn alone<T>(&self, act: impl FnOnce() -> T) -> T {
        if let Some(own) = self.own.as_deref() {
            return self.between(own, act);
        }
        self.keep_shut(act, |pending| {
            if self.is_shared {
                self.wanted.add(pending);
            }
        })
    }

    /// Does something inside, once nobody else is, and hands what has come meanwhile to `others`.
    fn keep_shut<T>(&self, act: impl FnOnce() -> T, others: impl Fn(Pending)) -> T {
        while !self.gate.enter() {
            relax();
        }
        let done = act();
        while let Some(pending) = self.gate.leave() {
            others(pending);
        }
        done
    }
}

#[cfg(test)]
mod tests;
