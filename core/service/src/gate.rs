// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The gate of a service: who is inside, and what waits. One word.
//!
//! - Who has an event that needs no answer **posts** it: it sets the event's bit ([`Gate::post`]). If nobody was inside, it is
//!   inside now, with all that waited, and handles that; if somebody was, it goes on at once.
//! - Who needs an answer **enters** ([`Gate::enter`]), and tries again while somebody is inside.
//! - Who is inside **leaves** ([`Gate::leave`]): if bits are there it takes them, handles them, and tries to leave again.
//! - Who wants the service started anew says so ([`Gate::kill`]) and goes on: whoever is inside, or enters next, finds that.
//!
//! # A CPU of its own
//! A service may have a physical CPU that alone runs it. That CPU is inside as long as it looks for work, so nobody else ever is, and all
//! others post and go on at once.
//! - When there is no work, it goes to **sleep** ([`Gate::sleep`]), which fails if anything waits.
//! - Who posts and finds it asleep is inside in its place, takes that away (`ASLEEP`), and interrupts it. Then the CPU is inside again.
//!   What such a post has taken goes back ([`Gate::pass_on`]) before the interrupt.
//! - So the CPU is [awake](Gate::is_awake) only when somebody has said so, whatever else interrupts it.
//!
//! # Nothing is lost
//! A bit is set by a read-modify-write of the word that also says whether somebody is inside. So either the poster found nobody,
//! and is inside itself; or the one inside has not left yet, and its leaving, a read-modify-write, too, finds the bit. Nobody is
//! inside twice: only an operation that found the bit `INSIDE` clear sets it.
//!
//! # Orderings
//! Entering acquires and leaving releases, so that each finds the service's memory as the one before has left it. A post releases
//! and taking acquires: what the poster wrote before is seen by who handles its event.

/// The atomics: the real ones, or the model checker's.
mod sync {
    #[cfg(not(loom))]
    pub(super) use core::sync::atomic::{AtomicU64, Ordering};
    #[cfg(loom)]
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};
}

use sync::{AtomicU64, Ordering};

/// Somebody is inside.
const INSIDE: u64 = 1 << 63;
/// The service is to be killed: whoever is inside, or enters next, starts it anew.
const KILL: u64 = 1 << 62;
/// The service has a CPU of its own, which sleeps. Who finds this without `INSIDE` takes it away.
const ASLEEP: u64 = 1 << 58;

/// What waits for a service: a bit for each event that needs no answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pending(u64);

impl Pending {
    /// Characters were typed into its console.
    pub const INPUT: Self = Self(1 << 61);
    /// Its alarm has gone off.
    pub const ALARM: Self = Self(1 << 60);
    /// The machine's device that it drives has interrupted.
    pub const INTERRUPT: Self = Self(1 << 59);
    /// It is to be started anew.
    pub const KILL: Self = Self(KILL);
    /// Somebody waits for an answer ([`crate::request`]).
    pub const REQUEST: Self = Self(1 << 57);

    /// How many queues have a bit of their own; that of a higher number is its remainder's.
    pub const QUEUES: u64 = 32;

    /// Returns the bit of a queue.
    #[inline(always)] // A mask and a shift.
    pub const fn doorbell(queue: u64) -> Self {
        Self(1 << (queue % Self::QUEUES))
    }

    /// Returns the bits of these queues.
    pub const fn doorbells(queues: u64) -> Self {
        Self(queues & ((1 << Self::QUEUES) - 1))
    }

    /// Returns the queues that have rung, as bits.
    #[inline(always)] // A mask.
    pub const fn queues(self) -> u64 {
        self.0 & ((1 << Self::QUEUES) - 1)
    }

    /// Says whether nothing but queues is here.
    #[inline(always)] // A mask.
    pub const fn is_queues_alone(self) -> bool {
        self.0 == self.queues()
    }

    /// Says whether this is no event, but that whoever posted has found the service's own CPU asleep.
    pub const fn has_found_asleep(self) -> bool {
        self.0 & ASLEEP != 0
    }

    /// Says whether all of `other` is here.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Says whether nothing waits.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }
}

/// The gate of one service.
#[derive(Debug)]
pub struct Gate(AtomicU64);

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

impl Gate {
    /// Makes a gate with nobody inside and nothing that waits.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes a gate with nobody inside and nothing that waits.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Makes the gate of a service that has a CPU of its own, which sleeps.
    pub fn asleep() -> Self {
        Self(AtomicU64::new(ASLEEP))
    }

    /// Goes inside if nobody is, whatever waits; says whether that succeeded. Who succeeds handles its own event and then leaves.
    #[inline(always)] // One atomic operation.
    pub fn enter(&self) -> bool {
        // While nobody is inside nothing waits but a kill: who posts anything else is inside.
        match self.0.compare_exchange(0, INSIDE, Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => true,
            Err(KILL) => {
                self.0.compare_exchange(KILL, KILL | INSIDE, Ordering::Acquire, Ordering::Relaxed).is_ok()
            }
            Err(_) => false,
        }
    }

    /// Adds `pending` to what waits. If nobody is inside, the caller is now, and gets all that waits, which it has to handle.
    #[inline(always)] // One atomic operation, or two.
    #[must_use = "who is inside has to handle what waits, and to leave"]
    pub fn post(&self, pending: Pending) -> Option<Pending> {
        if self.add(pending) { Some(self.take()) } else { None }
    }

    /// Adds `pending` to what waits. If nobody is inside, the caller is now, and has to [`take`](Gate::take) all that waits.
    #[inline(always)] // One atomic operation.
    #[must_use = "who is inside has to handle what waits, and to leave"]
    pub fn add(&self, pending: Pending) -> bool {
        // Release alone: whoever is inside now acquires by taking.
        self.0.fetch_or(pending.0 | INSIDE, Ordering::Release) & INSIDE == 0
    }

    /// Leaves, if nothing waits. Otherwise the caller stays inside and gets what waits.
    #[inline(always)] // One atomic operation.
    #[must_use = "who is still inside has to handle what waits, and to leave"]
    pub fn leave(&self) -> Option<Pending> {
        match self.0.compare_exchange(INSIDE, 0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => None,
            Err(_) => Some(self.take()),
        }
    }

    /// Has the service started anew by who is inside, or enters next.
    pub fn kill(&self) {
        self.0.fetch_or(KILL, Ordering::Release);
    }

    /// Says whether the service is to be killed, for who is inside and was interrupted. [`Gate::leave`] returns it as well.
    pub fn is_killed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & KILL != 0
    }

    /// Forgets the kill, for who is inside and has started the service anew.
    pub fn forget_kill(&self) {
        self.0.fetch_and(!KILL, Ordering::Relaxed);
    }

    /// Takes back what was posted, for who is inside.
    pub fn withdraw(&self, pending: Pending) {
        self.0.fetch_and(!pending.0, Ordering::Relaxed);
    }

    /// Takes what waits, for who is inside.
    pub fn take(&self) -> Pending {
        Pending(self.0.swap(INSIDE, Ordering::Acquire) & !INSIDE)
    }

    /// Adds `pending` to what waits for a service that has a CPU of its own. Says whether that has to be woken.
    #[must_use = "who finds it asleep has to wake it"]
    pub fn tell(&self, pending: Pending) -> bool {
        let has_found_asleep = self.add(pending);
        if has_found_asleep {
            // Release: with what was written before, as the post itself.
            self.0.fetch_and(!ASLEEP, Ordering::Release);
        }
        has_found_asleep
    }

    /// Gives back what was taken by who found the service's own CPU asleep, and has to wake it then.
    pub fn pass_on(&self, pending: Pending) {
        // It may have been awake meanwhile, and asleep again.
        let _ = self.tell(Pending(pending.0 & !ASLEEP));
    }

    /// Says whether anything waits, for the service's own CPU, which then [takes](Gate::take) it.
    pub fn has_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !INSIDE != 0
    }

    /// Returns the queues that have rung and wait, as bits.
    pub fn queues(&self) -> u64 {
        Pending(self.0.load(Ordering::Relaxed)).queues()
    }

    /// The service's own CPU goes to sleep if nothing waits. Says whether it does.
    #[must_use = "who finds something has to handle it"]
    pub fn sleep(&self) -> bool {
        self.0.compare_exchange(INSIDE, ASLEEP, Ordering::Release, Ordering::Relaxed).is_ok()
    }

    /// Says whether the service's own CPU is inside.
    pub fn is_awake(&self) -> bool {
        self.0.load(Ordering::Relaxed) & ASLEEP == 0
    }

    /// Forgets what waits for a service that has a CPU of its own, which is kept from taking it.
    pub fn forget(&self) {
        self.0.fetch_and(INSIDE | ASLEEP, Ordering::Acquire);
    }

    /// Says whether somebody is inside: for reports, because it may be different at once.
    pub fn is_inside(&self) -> bool {
        self.0.load(Ordering::Relaxed) & INSIDE != 0
    }
}

/// What waits for a service and was put there by those who cannot enter it: they make somebody look who can.
#[derive(Debug)]
pub struct Wanted(AtomicU64);

impl Default for Wanted {
    fn default() -> Self {
        Self::new()
    }
}

impl Wanted {
    /// Returns what wants nothing.
    #[cfg(not(loom))]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Returns what wants nothing.
    #[cfg(loom)]
    pub fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// Adds to it.
    pub fn add(&self, pending: Pending) {
        // Release: whoever handles it sees what the caller wrote before.
        self.0.fetch_or(pending.0, Ordering::Release);
    }

    /// Says whether there is nothing, for who alone adds and takes.
    pub fn is_empty(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    /// Says whether all of `pending` is there, for who alone takes it.
    pub fn has(&self, pending: Pending) -> bool {
        Pending(self.0.load(Ordering::Relaxed)).has(pending)
    }

    /// Takes all of it.
    pub fn take(&self) -> Option<Pending> {
        let taken = Pending(self.0.swap(0, Ordering::Acquire));
        (!taken.is_empty()).then_some(taken)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time() {
        let gate = Gate::new();
        assert!(gate.enter());
        assert!(!gate.enter());
        assert_eq!(gate.post(Pending::doorbell(3)), None, "whoever is inside handles it");
        assert_eq!(gate.leave(), Some(Pending::doorbell(3)));
        assert!(gate.is_inside());
        assert_eq!(gate.leave(), None);
        assert!(!gate.is_inside());
    }

    #[test]
    fn who_finds_nobody_is_inside() {
        let gate = Gate::new();
        assert_eq!(gate.post(Pending::ALARM), Some(Pending::ALARM));
        assert!(!gate.enter());
        gate.kill();
        assert!(gate.is_killed());
        assert!(gate.take().has(Pending::KILL));
        assert!(!gate.is_killed());
        assert_eq!(gate.leave(), None);
        assert!(gate.enter());
    }

    #[test]
    fn a_kill_waits_for_who_comes_next() {
        let gate = Gate::new();
        gate.kill();
        assert!(!gate.is_inside());
        assert!(gate.enter());
        assert_eq!(gate.leave(), Some(Pending::KILL));
        assert_eq!(gate.leave(), None);
        gate.kill();
        let found = gate.post(Pending::ALARM).unwrap();
        assert!(found.has(Pending::KILL) && found.has(Pending::ALARM));
    }

    #[test]
    fn who_finds_its_cpu_asleep_wakes_it() {
        let gate = Gate::asleep();
        assert!(!gate.enter(), "nobody else is ever inside");
        assert!(!gate.is_awake(), "an interrupt for somebody else");
        assert!(gate.add(Pending::doorbell(3)));
        assert!(!gate.tell(Pending::doorbell(4)), "once");
        let taken = gate.take();
        assert!(taken.has_found_asleep() && !taken.is_queues_alone());
        gate.pass_on(taken);
        assert!(gate.is_awake());
        assert!(!gate.sleep(), "there is work");
        assert!(gate.has_any());
        assert_eq!(gate.queues(), 1 << 3 | 1 << 4, "they stay");
        let taken = gate.take();
        assert_eq!(gate.queues(), 0);
        assert!(taken.is_queues_alone());
        assert_eq!(taken.queues(), 1 << 3 | 1 << 4);
        assert!(!gate.has_any());
        assert!(!gate.enter());
        assert!(!gate.tell(Pending::ALARM), "awake");
        gate.forget();
        assert!(gate.sleep());
        assert!(!gate.is_awake());
        assert!(gate.tell(Pending::KILL));
        assert!(gate.is_awake());
        assert_eq!(gate.take(), Pending::KILL);
    }

    #[test]
    fn what_is_passed_on_to_who_has_fallen_asleep_again_is_there() {
        let gate = Gate::asleep();
        assert!(gate.tell(Pending::INPUT));
        let taken = gate.take();
        assert!(gate.is_awake(), "woken by something else");
        assert!(gate.sleep());
        gate.pass_on(taken);
        assert!(gate.is_awake());
        assert_eq!(gate.take(), Pending::INPUT);
    }

    #[test]
    fn queues_beyond_the_last_bit_have_those_of_others() {
        assert_eq!(Pending::doorbell(31), Pending::doorbell(4063));
        assert_eq!(Pending::doorbell(31).queues(), 1 << (Pending::QUEUES - 1));
        assert_eq!(Pending::doorbell(0).queues(), 1);
        assert_eq!(Pending::INPUT.queues() | Pending::ALARM.queues() | Pending::KILL.queues(), 0);
    }
}
