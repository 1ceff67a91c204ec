// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Who waits for what: a sender for buffers of its receivers or for its time, and the uplink for its card.

use turnstile_virtio::rings::Rings;

use super::{MOVE, NEVER, SEND_SOME, Switch, UPLINK, Wait, all_sends, bits, sends};
use crate::members::{MEMBERS, Members};
use crate::pairs::Pairs;

impl<R> Switch<R> {
    /// A receiver has more buffers, perhaps: who waits for it goes on.
    pub(super) fn refilled(&mut self, receiver: usize) {
        for (member, wait) in self.waits.iter_mut().enumerate() {
            if wait.asked >> receiver & 1 != 0 {
                self.due |= if wait.until == NEVER { 0 } else { resume(&mut self.pairs, member) };
                *wait = Wait::NONE;
            }
        }
        self.order();
    }

    /// Who has waited long enough goes on.
    #[cold]
    pub(super) fn wake(&mut self, now: u64) {
        // A card that is looked at interrupts again behind the alarm: nobody else's event is to put that off.
        let rests = self.alarm != NEVER && self.fruitless.is_too_many();
        let is_woken = |member, wait: &Wait| wait.until <= now && !(rests && member == UPLINK);
        for (member, wait) in
            self.waits.iter_mut().enumerate().filter(|(member, wait)| is_woken(*member, wait))
        {
            // The uplink's port waits for its card, and for nobody else.
            self.due |= resume(&mut self.pairs, member) | if member == UPLINK { MOVE } else { 0 };
            wait.until = NEVER;
        }
        self.order();
    }

    /// The member's turn comes at that time, or with a notification.
    pub(super) fn wait(&mut self, member: usize, until: u64) {
        self.due &= !all_sends(member);
        self.waits.iter_mut().skip(member).take(1).for_each(|wait| wait.until = until);
        self.order();
    }

    /// The uplink's turn comes at that time.
    #[cold]
    #[inline(never)] // What members wait for stays as it is.
    pub(super) fn wait_for_card(&mut self, until: u64) {
        let is_polled = self.fruitless.is_too_many();
        for wait in self.waits.iter_mut().skip(UPLINK) {
            wait.until = if is_polled { until.min(wait.until) } else { until };
        }
        self.order();
    }

    /// A receiver is asked to notify of buffers. The sender looks once more, for those that came before that, and then waits.
    #[cold]
    pub(super) fn full<M: Members>(&mut self, members: &M, (member, receiver): (usize, usize), until: u64)
    where
        R: Rings<M::Memory>,
    {
        if self.waits.get(member).is_none_or(|wait| wait.asked >> receiver & 1 != 0) {
            return self.wait(member, until);
        }
        self.ask(members, (member, receiver));
    }

    /// A receiver is asked to notify of buffers, for a member that sends.
    #[cold]
    pub(super) fn ask<M: Members>(&mut self, members: &M, (member, receiver): (usize, usize))
    where
        R: Rings<M::Memory>,
    {
        self.waits.iter_mut().skip(member).take(1).for_each(|wait| wait.asked |= 1 << receiver);
        let memory = members.memories().get(receiver);
        if memory.is_some_and(|memory| self.relay.arm(receiver, memory).is_err()) {
            self.fail(members, receiver);
        }
    }

    /// What a member had to send is of no use.
    pub(super) fn stop(&mut self, member: usize) {
        self.due &= !all_sends(member);
        self.waits.iter_mut().skip(member).take(1).for_each(|wait| *wait = Wait::NONE);
        self.order();
    }

    /// Finds who waits the shortest, after a wait has begun or ended.
    pub(super) fn order(&mut self) {
        self.first = self.waits.iter().fold(NEVER, |first, wait| first.min(wait.until));
    }
}

/// Those of a port that waited for a receiver have their turn. Returns the bit that says so.
#[inline(never)] // Few wait.
fn resume(pairs: &mut [Pairs; MEMBERS], port: usize) -> u32 {
    match pairs.get_mut(port) {
        Some(pairs) if pairs.count() > 1 => {
            pairs.resume();
            bits(port, SEND_SOME)
        }
        _ => sends(port),
    }
}
