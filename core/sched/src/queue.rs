// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The run queue of one physical CPU: what runs, what waits for its turn, what sleeps until a deadline.

use crate::heap::Heap;
use crate::published::Progress;
use crate::thread::{FAIR, IDLE, Key, Thread, is_before};
use crate::{Cpu, Shared};

/// The run queue of one physical CPU, for that CPU alone.
#[derive(Debug)]
pub struct RunQueue<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) cpu: u32,
    /// What others see of `cpu`.
    pub(crate) seen: &'a Cpu,
    ready: Heap<Key>,
    sleepers: Heap<u64>,
    /// What runs.
    current: Option<&'a Thread>,
    /// Until when the time of the current one is accounted for.
    charged: u64,
    /// The least virtual run time of those that want to run here, so far.
    virtual_time: u64,
    /// The last turn that was given to a real-time vCPU.
    turn: u64,
}

impl<'a> RunQueue<'a> {
    /// Makes the empty queue of `cpu`.
    ///
    /// # Panics
    /// If `shared` has no such CPU.
    pub fn new(shared: &'a Shared, cpu: u32) -> Self {
        let threads = shared.threads.len();
        Self {
            shared,
            cpu,
            seen: &shared.cpus[cpu as usize],
            ready: Heap::new(threads),
            sleepers: Heap::new(threads),
            current: None,
            charged: 0,
            virtual_time: 0,
            turn: 0,
        }
    }

    fn thread(&self, thread: u32) -> &'a Thread {
        &self.shared.threads[thread as usize]
    }

    /// Returns what runs.
    pub fn current(&self) -> Option<u32> {
        self.current.map(|current| current.number)
    }

    /// Says whether somebody waits for its turn.
    pub fn has_ready(&self) -> bool {
        self.ready.len() != 0
    }

    pub(crate) fn waiting(&self) -> impl Iterator<Item = (Key, u32)> + '_ {
        self.ready.iter()
    }

    /// Those that run and wait here.
    pub(crate) fn here(&self) -> impl Iterator<Item = &'a Thread> + '_ {
        let waiting = self.ready.iter().map(|(_, thread)| self.thread(thread));
        self.current.into_iter().chain(waiting)
    }

    pub(crate) fn virtual_time(&self) -> u64 {
        self.virtual_time
    }

    /// Moves the clock of virtual run time forward, with all fair vCPUs that run or wait.
    pub(crate) fn shift(&mut self, ahead: u64) {
        let shared = self.shared;
        let shift = |thread: &Thread| {
            if thread.is_fair() {
                thread.set_order(thread.order().wrapping_add(ahead));
            }
        };
        if let Some(current) = self.current {
            shift(current);
        }
        self.ready.change_keys(|key, thread| {
            let thread = &shared.threads[thread as usize];
            shift(thread);
            key.order = thread.order();
        });
        self.virtual_time = self.virtual_time.wrapping_add(ahead);
    }

    fn enqueue(&mut self, thread: u32) {
        let Thread { rank, .. } = *self.thread(thread);
        self.ready.insert(thread, Key { rank, order: self.thread(thread).order() });
    }

    /// Takes a waiting vCPU out, to send it elsewhere.
    pub(crate) fn take_out(&mut self, thread: u32) {
        self.ready.remove(thread);
        self.thread(thread).travel();
    }

    /// Says whether no vCPU that may run here may run elsewhere: then there is nothing to give away, and nobody to tell.
    #[inline] // Of each switch.
    pub fn is_alone(&self) -> bool {
        self.seen.is_alone()
    }

    /// Takes in what others have woken, or sent: true if something came.
    #[inline] // Mostly nothing came.
    pub fn receive(&mut self, now: u64) -> bool {
        !self.seen.wakes.is_empty() && self.receive_some(now)
    }

    #[inline(never)] // Apart from the looks that find nothing.
    fn receive_some(&mut self, now: u64) -> bool {
        let shared = self.shared;
        let mut came = false;
        self.seen.wakes.take(
            |thread| &shared.threads[thread as usize].next,
            |thread| {
                came = true;
                self.ready(thread, now);
            },
        );
        came
    }

    /// Takes in a vCPU that was parked here, was sent here, or is new.
    pub fn ready(&mut self, thread: u32, now: u64) {
        let state = self.thread(thread);
        self.sleepers.remove(thread);
        state.renew();
        let credit = state.arrive(now, self.shared.slice);
        if state.is_fair() {
            self.charge(now);
            // Who slept long is not owed all that time.
            let earliest = self.virtual_time.wrapping_sub(credit);
            let order = state.order();
            state.set_order(if is_before(order, earliest) { earliest } else { order });
        } else {
            self.turn = self.turn.wrapping_add(1);
            state.set_order(self.turn);
        }
        self.enqueue(thread);
    }

    /// Accounts for the time until `now` to what runs.
    pub fn charge(&mut self, now: u64) {
        let ticks = now.saturating_sub(self.charged);
        self.charged = now;
        let Some(current) = self.current else { return };
        current.ran(ticks);
        self.advance(current.is_fair().then(|| current.order()));
    }

    /// The virtual run time of the first fair one that waits.
    fn first_fair(&self) -> Option<u64> {
        self.ready.first().filter(|(key, _)| key.rank == FAIR).map(|(key, _)| key.order)
    }

    /// Lets the virtual time follow the one that is furthest behind.
    fn advance(&mut self, running: Option<u64>) {
        let least = match (running, self.first_fair()) {
            (Some(a), Some(b)) => Some(if is_before(a, b) { a } else { b }),
            (a, b) => a.or(b),
        };
        if let Some(least) = least
            && is_before(self.virtual_time, least)
        {
            self.virtual_time = least;
        }
    }

    /// Says whether what runs is to make room for one that waits. Charges; gives what runs a new slice if it has used
    /// its own and may stay.
    pub fn should_switch(&mut self, now: u64) -> bool {
        self.charge(now);
        let Some((first, _)) = self.ready.first() else { return false };
        let Some(current) = self.current else { return true };
        let over = current.used() >= self.shared.slice;
        if first.rank != current.rank {
            if over {
                current.renew();
            }
            return first.rank < current.rank;
        }
        if !current.is_fair() {
            if over {
                // Behind its equals.
                self.turn = self.turn.wrapping_add(1);
                current.set_order(self.turn);
                current.renew();
            }
            return over;
        }
        if over {
            current.renew();
        }
        // Before its slice is over, only for one that is clearly behind: not each wake-up is worth a switch.
        let margin = if over { 0 } else { self.shared.slice / 4 };
        is_before(first.order.wrapping_add(margin), current.order())
    }

    /// What runs has hinted that it could wait: it has used its slice.
    pub fn give_way(&mut self) {
        if let Some(current) = self.current {
            current.exhaust(self.shared.slice);
        }
    }

    /// Puts what runs among those that wait.
    pub fn preempt(&mut self, now: u64) {
        self.charge(now);
        if let Some(current) = self.current.take() {
            current.begin_waiting(now);
            self.enqueue(current.number);
        }
    }

    /// Takes what runs off the CPU: it has nothing to do.
    pub fn block(&mut self, now: u64) {
        self.charge(now);
        self.current = None;
    }

    /// Lets a parked vCPU be woken at `deadline`, unless it is ready before.
    pub fn sleep(&mut self, thread: u32, deadline: u64) {
        self.sleepers.insert(thread, deadline);
    }

    /// Takes a vCPU whose deadline has come out of the timer queue. The caller has to make sure that nobody else has
    /// woken it, and then hands it to [`RunQueue::ready`].
    pub fn expired(&mut self, now: u64) -> Option<u32> {
        let (deadline, thread) = self.sleepers.first()?;
        if deadline > now {
            return None;
        }
        self.sleepers.remove(thread);
        Some(thread)
    }

    /// Lets the one run whose turn it is. Nothing may run already.
    #[inline] // Of each switch.
    pub fn pick(&mut self, now: u64) -> Option<u32> {
        // The time until now is nobody's.
        self.charged = now;
        let number = self.ready.take_first()?;
        let thread = self.thread(number);
        thread.end_waiting(now);
        self.current = Some(thread);
        Some(number)
    }

    /// Tells the other CPUs how far this one is. After each change of what runs or waits.
    pub fn publish(&self, now: u64) {
        if self.is_alone() {
            return;
        }
        let waiting = self.ready.len() as u32;
        let Some(current) = self.current else {
            return self.seen.published.publish(IDLE, waiting, Progress::default());
        };
        let order = current.order();
        // The one that waits holds the clock, or will when it is reached.
        let (virtual_time, limit) = match self.first_fair() {
            Some(first) if is_before(first, order) => (first, 0),
            Some(first) => (order, first.wrapping_sub(order)),
            None => (order, u64::MAX),
        };
        let progress = Progress { virtual_time, at: now, rate: current.rate, limit };
        self.seen.published.publish(current.rank, waiting, progress);
    }

    /// Returns when the CPU has to look again: when the slice of what runs is over, if somebody waits; when the next
    /// sleeper is to be woken. `None`: only when it is told to.
    pub fn deadline(&self) -> Option<u64> {
        let slice = match self.current {
            Some(current) if self.has_ready() => {
                let rest = self.shared.slice.saturating_sub(current.used()).max(1);
                Some(self.charged.saturating_add(rest))
            }
            _ => None,
        };
        let sleeper = self.sleepers.first().map(|(deadline, _)| deadline);
        match (slice, sleeper) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }
}
