// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services that have a physical CPU of their own: that alone enters them.
//!
//! Others tell it what there is to do and go on ([`Service::tell`]), or wait for an answer ([`Service::ask`]). The CPU looks at its
//! services in turn ([`Server::step`]): each handles what waits for it, once, so who rings without end keeps no other service waiting for longer
//! than that takes. It sleeps when there has been nothing for a while.

use core::sync::atomic::Ordering;

use alloc::boxed::Box;

use turnstile_service::abi::{Answer, Event};
use turnstile_service::gate::{Gate, Pending};

use super::members::ringers;
use super::own::Own;
use super::{Idle, Meanwhile, Service, Space};
use crate::relax;

/// How long a CPU looks for more before it sleeps, in nanoseconds: what comes meanwhile costs nobody an interrupt. About as long as some
/// machines take to wake a CPU.
pub const PATIENCE: u64 = 50_000;

impl<S: Space> Service<S> {
    /// Has it run on a CPU of its own, before anybody knows of it. That handles nothing before the service's VM runs.
    #[must_use]
    pub fn on_own_cpu(self) -> Self {
        let own = Own::new(!self.is_shared);
        Self { gate: Gate::asleep(), own: Some(Box::new(own)), ..self }
    }

    /// Says whether it has a CPU of its own.
    pub const fn has_own_cpu(&self) -> bool {
        self.own.is_some()
    }

    /// Adds to what waits for it, and wakes its CPU if that sleeps.
    pub(super) fn tell(&self, pending: Pending) {
        if self.gate.tell(pending) {
            self.outside.wake();
        }
    }

    /// Has its CPU start it anew, whatever that does.
    pub(super) fn tell_kill(&self) {
        let _ = self.gate.tell(Pending::KILL);
        self.outside.wake();
    }

    /// Gives back what was taken by who has found its CPU asleep, and wakes that.
    #[cold]
    #[inline(never)] // Others are not to pay for it.
    pub(super) fn pass_on(&self, pending: Pending) {
        self.gate.pass_on(pending);
        self.outside.wake();
    }

    /// Has its CPU handle an event, and waits for the answer.
    #[cold]
    #[inline(never)] // As above.
    pub(super) fn ask(&self, own: &Own, event: &Event, meanwhile: &mut impl Meanwhile) -> Answer {
        self.await_outside(event, meanwhile);
        own.request.ask(event, || self.tell(Pending::REQUEST), || meanwhile.wait())
    }

    /// Keeps its CPU from handling anything, when this returns: its VM has stopped or is paused. One that others share goes on, and one
    /// without a CPU of its own has nobody who enters it then.
    pub fn hold(&self) {
        if let Some(own) = self.own.as_deref().filter(|_| !self.is_shared) {
            own.is_held.store(true, Ordering::Relaxed);
            // Who has not seen that is done.
            drop(own.turn.lock());
        }
    }

    /// Lets its CPU handle what waits, and what comes.
    pub fn release(&self) {
        if let Some(own) = self.own.as_deref() {
            own.is_held.store(false, Ordering::Release);
            self.outside.wake();
        }
    }

    /// Does something while its CPU handles nothing. What waits meanwhile belongs to a life that is over, unless others share it.
    pub(super) fn between<T>(&self, own: &Own, act: impl FnOnce() -> T) -> T {
        self.in_turn(own, || {
            let done = act();
            if !self.is_shared {
                self.gate.forget();
            }
            done
        })
    }

    /// Does something while its CPU handles nothing. What waits stays.
    pub(super) fn in_turn<T>(&self, own: &Own, act: impl FnOnce() -> T) -> T {
        let _turn = own.turn.lock();
        act()
    }

    /// Waits until its CPU has handled what a member has rung for, which rings no more: what that sent last is not to be lost because the
    /// CPU has to wake first. One that is alone is held, and its VM's last life is over.
    pub(super) fn finish_for(&self, own: &Own, member: u64) {
        let has_rung = || {
            // Who has taken it has handled it when it gives its turn away.
            let _turn = own.turn.lock();
            self.is_present(member) && ringers(self.gate.queues()) >> member & 1 != 0
        };
        while self.is_shared && has_rung() {
            relax();
        }
    }

    /// Says whether its CPU is to handle nothing.
    fn is_kept(&self, own: &Own) -> bool {
        own.is_held.load(Ordering::Acquire) || self.present.load(Ordering::Relaxed) == 0
    }

    /// Handles what waits, once; for its CPU. Says whether there was anything.
    unsafe fn turn(&self, own: &Own, meanwhile: &mut impl Meanwhile) -> bool {
        if !self.gate.is_awake() || !self.gate.has_any() {
            return false;
        }
        let _turn = own.turn.lock();
        if self.is_kept(own) {
            return false;
        }
        let pending = self.gate.take();
        // SAFETY: the caller's promise; inside.
        unsafe { self.handle_pending(pending, meanwhile) };
        if let Some(event) = own.request.event().filter(|_| pending.has(Pending::REQUEST)) {
            // SAFETY: as above.
            own.request.answer(&unsafe { self.handle(&event, meanwhile, |answer| answer) });
        }
        true
    }

    /// Says whether its CPU may sleep: then who has something for it interrupts that.
    fn rests(&self, own: &Own) -> bool {
        !self.gate.is_awake() || self.is_kept(own) || self.gate.sleep()
    }
}

/// The services of one CPU.
pub struct Server<'a, S: 'static> {
    services: &'a [&'static Service<S>],
    /// When one of them had something to do last, in nanoseconds.
    worked_at: u64,
}

impl<'a, S: Space> Server<'a, S> {
    /// Makes what runs these services, which nobody else runs.
    pub const fn new(services: &'a [&'static Service<S>]) -> Self {
        Self { services, worked_at: 0 }
    }

    fn all(&self) -> impl Iterator<Item = (&'static Service<S>, &'static Own)> {
        self.services.iter().filter_map(|&service| Some((service, service.own.as_deref()?)))
    }

    /// Takes what has interrupted the CPU, and lets each service handle what waits for it, once. If there is nothing, and was nothing for
    /// a while, the CPU stops until it is interrupted.
    ///
    /// # Safety
    /// As for [`Space::enter`], on the CPU of these services.
    pub unsafe fn step(&mut self, cpu: &mut impl Idle) {
        cpu.interrupt();
        let mut has_worked = false;
        for (service, own) in self.all() {
            // SAFETY: the caller's promise.
            has_worked |= unsafe { service.turn(own, cpu) };
        }
        if has_worked {
            self.worked_at = cpu.now();
        } else if cpu.now().wrapping_sub(self.worked_at) < PATIENCE {
            relax();
        } else if self.all().all(|(service, own)| service.rests(own)) {
            cpu.stop();
        }
    }
}
