// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decision to give a vCPU to another CPU, from what that one publishes.
//!
//! # Who is given to whom
//! Only a vCPU that waits, by its home, to a CPU where it may run:
//! - one of a higher rank than what runs there: a CPU that is idle, or a lower priority;
//! - a fair one, to a CPU whose *virtual time* is more than a slice ahead of its own: there, others with its weight
//!   have got more. So three equal vCPUs on two CPUs get two thirds each, in turn.
//!
//! # Virtual time
//! The virtual time of a CPU is the least virtual run time of the fair vCPUs that want to run there.
//! CPUs with different loads drift apart; where nothing can be given away to make up for it, the one behind moves its
//! clock, with all its vCPUs, so that vCPUs that come or go are not as rich or poor as the drift.
//!
//! A CPU that runs one vCPU has no reason to look at the clock. So it publishes what others need to tell its virtual
//! time at any moment: where it was, when, how fast it goes, and how far it can get.

use crate::Shared;
use crate::queue::RunQueue;
use crate::sync::Ordering;
use crate::thread::{FAIR, TRAVELLER_CREDIT, is_before};

impl Shared {
    /// Returns the CPU, other than `cpu`, where most is to be gained by asking it to give something away to `cpu`, which
    /// has nothing to run.
    pub fn busy_neighbour(&self, cpu: u32) -> Option<u32> {
        let neighbours = self.cpus.get(cpu as usize)?.neighbours.iter();
        let waiting = |n: &u32| self.cpus[*n as usize].published.waiting.load(Ordering::Relaxed);
        neighbours.copied().max_by_key(waiting).filter(|n| waiting(n) != 0)
    }

    /// The virtual time at `now` of a CPU that runs a fair vCPU.
    fn virtual_time_of(&self, cpu: u32, now: u64) -> Option<u64> {
        let published = &self.cpus.get(cpu as usize)?.published;
        (published.rank() == FAIR).then(|| published.progress()).flatten().map(|progress| progress.now(now))
    }
}

impl RunQueue<'_> {
    /// Gives one waiting vCPU to another CPU, if one gains by it: `depart` is told which, before anybody else can have
    /// it. Returns `None` if there is nothing to give; else the CPU to interrupt, if that is needed.
    pub fn push(&mut self, now: u64, depart: impl FnOnce(u32)) -> Option<Option<u32>> {
        if self.is_alone() {
            return None;
        }
        let Some((thread, target)) = self.candidate(now) else {
            self.keep_up(now);
            return None;
        };
        let shared = self.shared;
        self.take_out(thread);
        depart(thread);
        shared.threads[thread as usize].set_home(target);
        Some(shared.send(thread, target))
    }

    /// Finds a waiting vCPU that is better off on another CPU.
    fn candidate(&self, now: u64) -> Option<(u32, u32)> {
        self.waiting().find_map(|(key, thread)| {
            let cpus = self.shared.threads[thread as usize].cpus.iter().filter(|cpu| **cpu != self.cpu);
            let mut furthest = None;
            for cpu in cpus.copied() {
                let published = &self.shared.cpus.get(cpu as usize)?.published;
                let rank = published.rank();
                if key.rank < rank && published.claim(rank, key.rank) {
                    return Some((thread, cpu));
                }
                if key.rank != FAIR {
                    continue;
                }
                let Some(there) = self.shared.virtual_time_of(cpu, now) else { continue };
                let mine = key.order.wrapping_add(self.shared.slice);
                if is_before(mine, there) && furthest.is_none_or(|(far, _)| is_before(far, there)) {
                    furthest = Some((there, cpu));
                }
            }
            furthest.map(|(_, cpu)| (thread, cpu))
        })
    }

    /// Moves this CPU's clock if it is far behind those it shares vCPUs with. Not behind one where a vCPU that is here
    /// now may run: that one will be given there, and is owed what it is behind.
    fn keep_up(&mut self, now: u64) {
        let shared = self.shared;
        let others = self.seen.neighbours.iter();
        let beyond = others.filter(|cpu| !self.here().any(|thread| thread.may_run_on(**cpu)));
        let ahead = beyond.filter_map(|cpu| shared.virtual_time_of(*cpu, now));
        let mine = self.virtual_time();
        let furthest = ahead.fold(mine, |far, there| if is_before(far, there) { there } else { far });
        let behind = furthest.wrapping_sub(mine);
        let tolerance = u64::from(TRAVELLER_CREDIT) * shared.slice;
        if behind > tolerance {
            self.shift(behind - tolerance);
        }
    }
}
