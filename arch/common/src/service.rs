// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One service, and who goes inside; what happens there, `inside` says. The architecture's [`Space`] enters it. The devices of a VM
//! that services serve are in [`served`](crate::served).
//!
//! Whoever has an event runs the service on its own CPU ([`Service::access`], [`Service::post`]). A service that faults, takes too
//! long, gives up or is killed is put back to its program and gets the event again. If that fails, too, the guest gets what an
//! absent device answers.

mod inside;
mod space;

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use alloc::string::String;
use alloc::vec::Vec;

use spin::Mutex;
use turnstile_exitstat::{Reason, Timing};
use turnstile_service::abi::{Answer, Event, Kind};
use turnstile_service::gate::{Gate, Pending, Wanted};

use crate::memory::Error;
use crate::relax;

pub use self::space::{Left, Meanwhile, Outside, Space, Storage, Window};

/// A service. `S` is the architecture's part.
pub struct Service<S> {
    /// Its name.
    pub name: String,
    gate: Gate,
    space: S,
    outside: &'static dyn Outside,
    /// The levels of its devices' interrupt lines.
    lines: AtomicU64,
    /// Whether its memory has to be put back before it is entered: [`RUNS`], [`ANEW`] or [`EMPTY`].
    begins: AtomicU8,
    /// How often it has crashed.
    crashes: AtomicU32,
    /// What those have for it who cannot enter it.
    wanted: Wanted,
    /// At which address firmware places its BARs, if it is a PCI function.
    bars: u64,
    /// The memory that it reaches.
    reached: Mutex<Reached>,
    /// How many exits of vCPUs with statistics it has answered, and how long these took until then, in ticks.
    exits: AtomicU64,
    ticks: AtomicU64,
}

/// The memory that a service reaches besides its own.
#[derive(Clone, Debug, Default)]
struct Reached {
    /// Of its VM.
    windows: Vec<Window>,
    /// Of its disk.
    storage: Option<Storage>,
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
/// It begins anew, with what is kept.
const ANEW: u8 = 1;
/// It begins anew, and what is kept begins as zeros, too.
const EMPTY: u8 = 2;

impl<S: Space> Service<S> {
    /// Makes a service that has never run. Firmware places the BARs of a PCI function at `bars`; 0: nowhere.
    pub const fn new(name: String, space: S, outside: &'static dyn Outside, bars: u64) -> Self {
        Self {
            name,
            gate: Gate::new(),
            space,
            outside,
            lines: AtomicU64::new(0),
            begins: AtomicU8::new(EMPTY),
            crashes: AtomicU32::new(0),
            wanted: Wanted::new(),
            bars,
            reached: Mutex::new(Reached { windows: Vec::new(), storage: None }),
            exits: AtomicU64::new(0),
            ticks: AtomicU64::new(0),
        }
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
        if !self.gate.enter() {
            self.wait(meanwhile);
        }
        // SAFETY: inside; the rest is the caller's promise.
        let answer = unsafe { self.handle(event, meanwhile, part) };
        if let Some(pending) = self.gate.leave() {
            // SAFETY: as above.
            unsafe { self.settle(pending, meanwhile) };
        }
        answer
    }

    /// Goes inside when who is there has left.
    #[cold]
    #[inline(never)] // Others are not to pay for it.
    fn wait(&self, meanwhile: &mut impl Meanwhile) {
        while !self.gate.enter() {
            meanwhile.wait();
        }
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
            let event = Event::new(Kind::Doorbell, [rung.queues(), 0, 0, 0, 0]);
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
    /// (`Reasons::SERVICE`).
    pub fn want(&self, pending: Pending) {
        self.wanted.add(pending);
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
    /// cares.
    pub fn kill(&self) {
        self.gate.kill();
    }

    /// Has it begin as if it had never run, for a new life of the VM that it serves. While no vCPU of that VM runs: so nobody is
    /// inside.
    pub fn reset(&self) {
        self.alone(|| {
            self.wanted.take();
            self.lines.store(0, Ordering::Relaxed);
            self.begins.store(EMPTY, Ordering::Relaxed);
            self.exits.store(0, Ordering::Relaxed);
            self.ticks.store(0, Ordering::Relaxed);
        });
    }

    /// Lets it reach these pieces of the memory of the VM that it serves, and the memory of its disk, from the first event of the VM's
    /// next life on. Only while no vCPU of that VM runs; the VM's memory is that VM's alone until [`Service::detach`] has returned.
    ///
    /// # Errors
    /// When they cannot be mapped.
    pub fn attach(&self, mut windows: Vec<Window>, mut storage: Option<Storage>) -> Result<(), Error> {
        windows.extend(storage.map(|storage| storage.window));
        self.alone(|| {
            // SAFETY: inside the gate; the rest is said above.
            unsafe { self.space.attach(&mut windows)? };
            if let Some(storage) = &mut storage
                && let Some(window) = windows.pop()
            {
                storage.window = window;
            }
            *self.reached.lock() = Reached { windows, storage };
            Ok(())
        })
    }

    /// Takes that away. Only while no vCPU of its VM runs.
    pub fn detach(&self) {
        self.alone(|| {
            *self.reached.lock() = Reached::default();
            // SAFETY: inside the gate.
            unsafe { self.space.detach() };
        });
    }

    /// Does something while nobody is inside. What waits belongs to a life that is over.
    fn alone<T>(&self, act: impl FnOnce() -> T) -> T {
        while !self.gate.enter() {
            relax();
        }
        let done = act();
        while self.gate.leave().is_some() {}
        done
    }
}

#[cfg(test)]
mod tests;
