// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of members that is mapped on demand: what a service touches first, what happens if the pool has none, and what goes back.
//!
//! A service that finds the pool empty begins anew, and keeps nobody out of the gate meanwhile. One that is alone with its VM handles the event
//! again a little later. A shared one goes on without the member, for as long as [`Member::absent_until`] says.

use core::sync::atomic::Ordering;

use turnstile_service::abi::{self, Event, Kind};
use turnstile_service::backoff::FIRST;
use turnstile_service::gate::Pending;

use super::crash::Crash;
use super::members::{Member, senders};
use super::{Meanwhile, RUNS, Service, Space, Touch, Window};

/// How long what a service had no memory for waits, in nanoseconds.
const STARVED: u64 = 1_000_000;

impl<S: Space> Service<S> {
    /// The service was left with a fault. If it has touched memory of a member that is mapped on demand, does what a touch of the guest does:
    /// the service may repeat what it did. It does not wait inside for memory that somebody has to give back first, who may wait for it to leave.
    #[cold]
    pub(super) unsafe fn supply(&self, meanwhile: &mut impl Meanwhile) -> Result<(), Crash> {
        // SAFETY: the caller's promise.
        let address = unsafe { self.space.missed() }.ok_or(Crash::Fault)?;
        let (member, window) = self.on_demand(address).ok_or(Crash::Fault)?;
        let offset = address - window.address;
        // A service is not late because it was the first that touched something.
        // SAFETY: as above.
        let touched = unsafe {
            self.space.excuse(|| {
                let touched = self.outside.touch(member, window.guest + offset);
                if touched == Err(Touch::Again) {
                    meanwhile.wait();
                }
                touched
            })
        };
        match touched {
            Err(Touch::Foreign) => Err(Crash::Fault),
            Err(Touch::Dry) => {
                self.do_without(member);
                Err(Crash::Starved)
            }
            Err(_) => Ok(()),
            // SAFETY: as above; it is cleared, because it is mapped for the guest.
            Ok(host) if unsafe { self.space.supply(&window, offset, host) } => {
                self.change_quietly(member, Member::be_supplied);
                Ok(())
            }
            Ok(_) => Err(Crash::Fault),
        }
    }

    /// Returns the window that is mapped on demand and has this address, and whose it is. Of who is absent the program knows nothing.
    fn on_demand(&self, address: u64) -> Option<(usize, Window)> {
        let has = |window: &&Window| window.on_demand && address.wrapping_sub(window.address) < window.size;
        let members = self.members.lock();
        let present = members.iter().enumerate().filter(|(_, member)| !member.is_absent());
        let mut found = present.filter_map(|(number, member)| {
            member.reached.windows.iter().find(has).map(|window| (number, *window))
        });
        found.next()
    }

    /// Has an event that needs no answer come again, when a pool may have memory for what it is about.
    #[cold]
    pub(super) fn postpone(&self, event: &Event) {
        self.starved.add(match event.kind() {
            Some(Kind::Doorbell) => Pending::doorbells(event.0[1]),
            Some(Kind::Interrupt) => Pending::INTERRUPT,
            Some(Kind::Input) => Pending::INPUT,
            _ => Pending::ALARM,
        });
        self.outside.alarm(S::now().saturating_add(STARVED));
    }

    /// Has what waited for memory come again: something was handled, so perhaps that can be, too. Not before, because of two events that both
    /// find no memory each would have the other come again at once, without end.
    pub(super) fn take_up(&self) {
        if self.starved.is_empty() {
            return;
        }
        if let Some(pending) = self.starved.take() {
            // Whoever is inside finds it on the way out, and that is the caller: the alarm that was to remind of it may be the program's now.
            let _ = self.gate.post(pending);
        }
    }

    /// A shared service goes on without a member whose memory the pool has no room for.
    #[cold]
    fn do_without(&self, member: usize) {
        if self.is_shared {
            let now = S::now();
            self.change_quietly(member, |member| member.starve(now));
            self.remind();
        }
    }

    /// Changes a member in a way of which the program is not told.
    fn change_quietly(&self, member: usize, change: impl FnOnce(&mut Member)) {
        self.members.lock().get_mut(member).map(change);
    }

    /// The program has crashed on an event of these members, a bit for each. If it is shared it goes on without those that have made it crash too often.
    #[cold]
    pub(super) fn strike(&self, members: u64) {
        if !self.is_shared {
            return;
        }
        let now = S::now();
        let mut begins = 0;
        for (number, member) in self.members.lock().iter_mut().enumerate() {
            let is_struck = members >> number & 1 != 0 && self.is_present(number as u64);
            begins |= u64::from(is_struck && member.strike(now)) << number;
        }
        if begins != 0 {
            self.outside.shut_out(begins);
        }
        self.remind();
    }

    /// Has somebody look when a member comes back, if one is absent: its guest may do nothing but wait. The program's own alarm is
    /// [no later](Self::no_later).
    #[cold]
    pub(super) fn remind(&self) {
        let at = self.no_later(u64::MAX);
        if at != u64::MAX {
            self.outside.alarm(at);
        }
    }

    /// Returns when the program's alarm goes off, which it wants at this time. It is the only one, so if a member is absent it reminds of that, too.
    /// Events do not put it off, however many there are.
    #[cold]
    pub(super) fn no_later(&self, at: u64) -> u64 {
        self.members.lock().iter().filter_map(Member::absent_until).fold(at, u64::min)
    }

    /// Says whether one of these members is absent, a bit for each.
    pub(super) fn lacks(&self, members: u64) -> bool {
        let is_absent = |(number, member): (usize, &Member)| member.is_absent() && members >> number & 1 != 0;
        self.members.lock().iter().enumerate().any(is_absent)
    }

    /// Says whether it was these members, a bit for each, whose memory the pool had no room for just now. What they do is tried again, so they are
    /// there while it is; others stay absent, and nobody answers for them.
    pub(super) fn is_reason(&self, members: u64) -> bool {
        !self.is_shared || self.lacks(members)
    }

    /// Waits outside until the member is back whose guest waits for the answer to this event, and comes in again: so nobody has the service begin anew more
    /// often than that. False if that takes so long that the CPU is not to be kept from others meanwhile. The service's own CPU waits for nobody: who
    /// [asks](Service::ask) it has waited.
    #[cold]
    pub(super) fn await_return(&self, event: &Event, meanwhile: &mut impl Meanwhile) -> bool {
        let now = S::now();
        let Some(until) = self.returns_at(event).filter(|until| now < *until) else { return true };
        if until - now > FIRST {
            return false;
        }
        if self.has_own_cpu() {
            return true;
        }
        self.leave(meanwhile);
        while S::now() < until || !self.gate.enter() {
            meanwhile.wait();
        }
        true
    }

    /// Waits for the same before it asks the service's own CPU, and keeps nobody else from asking meanwhile.
    #[cold]
    #[inline(never)] // Others are not to pay for it.
    pub(super) fn await_outside(&self, event: &Event, meanwhile: &mut impl Meanwhile) {
        if self.begins.load(Ordering::Relaxed) != RUNS
            && let Some(until) =
                self.returns_at(event).filter(|until| until.saturating_sub(S::now()) <= FIRST)
        {
            while S::now() < until {
                meanwhile.wait();
            }
        }
    }

    /// Returns when the member is back whose guest waits for the answer to this event; `None` if it is there.
    pub(super) fn returns_at(&self, event: &Event) -> Option<u64> {
        let awaited = awaited(event);
        let until = |(number, member): (usize, &Member)| match awaited >> number & 1 {
            0 => None,
            _ => self.asked_back_at(number, member),
        };
        self.members.lock().iter().enumerate().find_map(until)
    }

    /// Returns the members that come back for what they ask of the service or have rung, a bit for each: those that have waited for memory that the
    /// pool has now. If others take that before them, the service begins anew for nothing: so not sooner than without a back-off.
    pub(super) fn supplied_for(&self, event: &Event, now: u64) -> u64 {
        if !is_access(event) && event.kind() != Some(Kind::Doorbell) {
            return 0;
        }
        let senders = senders(event);
        let comes = |(number, member): &(usize, &Member)| {
            senders >> number & 1 != 0 && self.asked_back_at(*number, member).is_some_and(|at| at <= now)
        };
        self.members.lock().iter().enumerate().filter(comes).fold(0, |all, (number, _)| all | 1 << number)
    }

    /// Returns when a member is back if its guest asks for something.
    fn asked_back_at(&self, number: usize, member: &Member) -> Option<u64> {
        member.asked_back_at(|| self.outside.has_memory(number))
    }

    /// Has members come back of which it is time, and others at once, a bit for each.
    #[cold]
    pub(super) fn admit(&self, now: u64, at_once: u64) {
        for (number, member) in self.members.lock().iter_mut().enumerate() {
            member.come_back(now, at_once >> number & 1 != 0);
        }
    }

    /// The guest does not need these blocks, if they are memory of its VM that is mapped on demand.
    pub(super) fn give_up(&self, address: u64, length: u64) -> Option<u64> {
        let has = |window: &Window| {
            let offset = address.wrapping_sub(window.guest);
            window.on_demand && offset < window.size && length <= window.size - offset
        };
        let are_blocks = address.is_multiple_of(abi::BLOCK) && length.is_multiple_of(abi::BLOCK);
        // No lock is held outside.
        let is_own = self.members.lock().iter().any(|member| member.reached.windows.iter().any(has));
        let may = length == 0 || are_blocks && is_own;
        may.then(|| self.outside.give_up(address..address.wrapping_add(length))).flatten()
    }
}

/// Says whether somebody waits for the answer. What a program reads for that of its VM's memory, a driver has written, so it is there.
pub(super) fn is_access(event: &Event) -> bool {
    matches!(event.kind(), Some(Kind::Read | Kind::Write | Kind::TerminalRead | Kind::TerminalWrite))
}

/// The members whose guests wait for the answer, a bit for each.
pub(super) fn awaited(event: &Event) -> u64 {
    if is_access(event) { senders(event) } else { 0 }
}
