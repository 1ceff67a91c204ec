// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The VMs that a service serves: its members, by their numbers.
//!
//! A VM that starts *joins*, with its memory; one that stops *leaves*. Whoever enters the service next tells the program of both, before
//! anything else. A service that is *alone* with one VM has that member all the time, and begins anew with each of its lives.

use alloc::vec::Vec;

use turnstile_service::abi::{Event, Kind, MEMBER_QUEUES, MEMBERS, split_device};
use turnstile_service::backoff::{Backoff, FIRST};
use turnstile_service::gate::Pending;

use super::{Storage, Window};

/// How often a member may crash the program in a row before that does without it: on two events, each of which is tried twice.
const FORGIVEN: u32 = 4;

/// What the configuration says of a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Port {
    /// At which address firmware places the BARs of its PCI function; 0: nowhere.
    pub bars: u64,
    /// What the program gets to know.
    pub settings: [u64; 2],
    /// The number of its VM, if the member is a PCI function of it, which sends messages.
    pub vm: Option<u8>,
}

/// The memory that a service reaches for a member.
#[derive(Clone, Debug, Default)]
pub(super) struct Reached {
    /// Of its VM.
    pub windows: Vec<Window>,
    /// Of its disk.
    pub storage: Option<Storage>,
}

/// A member.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub port: Port,
    pub reached: Reached,
    /// Which life of its VM it is; 0 while there is none.
    life: u64,
    /// How many there were.
    lives: u64,
    /// Of which life the program knows; 0: of none.
    told: u64,
    /// What the program keeps is of this life.
    is_kept: bool,
    /// The program is not to know of it before this time, in nanoseconds, because the pool had no memory for it, or it has crashed the program too often.
    absent_until: Option<u64>,
    /// From when on it may be back if the pool has memory, for which it waits.
    supplied_from: Option<u64>,
    /// How long the program does without it when the pool has no memory for it.
    starved: Backoff,
    /// The same when it has crashed the program. Its next life does not begin without that.
    crashes: Backoff,
}

/// What the program does not know yet of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The life that it knows of is over.
    Left,
    /// There is a life. Says whether what is kept is of that one.
    Joined(bool),
}

impl Member {
    /// A member without a life, or, for ever, with one.
    pub const fn new(port: Port, always: bool) -> Self {
        let lives = always as u64;
        let reached = Reached { windows: Vec::new(), storage: None };
        let (starved, crashes) = (Backoff::new(0), Backoff::new(FORGIVEN));
        let (told, is_kept, absent_until, supplied_from) = (0, false, None, None);
        Self {
            port,
            reached,
            life: lives,
            lives,
            told,
            is_kept,
            absent_until,
            supplied_from,
            starved,
            crashes,
        }
    }

    /// A new life begins, with this memory.
    pub fn join(&mut self, reached: Reached) {
        self.lives += 1;
        (self.life, self.reached, self.is_kept) = (self.lives, reached, false);
    }

    /// The life is over.
    pub fn leave(&mut self) {
        (self.life, self.reached, self.is_kept) = (0, Reached::default(), false);
        self.absent_until = None;
    }

    /// The pool has no memory for it: the program does without it for a while.
    pub fn starve(&mut self, now: u64) {
        self.absent_until = Some(now.saturating_add(self.starved.next(now)));
        self.supplied_from = Some(now.saturating_add(FIRST));
    }

    /// The pool had memory for it.
    pub const fn be_supplied(&mut self) {
        self.starved.forget();
    }

    /// It has crashed the program, which does without it for a while if that was too often. Says whether that begins.
    pub fn strike(&mut self, now: u64) -> bool {
        let wait = self.crashes.next(now);
        if wait != 0 {
            self.absent_until = Some(now.saturating_add(wait));
            self.supplied_from = None;
        }
        wait == FIRST
    }

    /// It comes back if it is time, or at once.
    pub fn come_back(&mut self, now: u64, at_once: bool) {
        if self.absent_until.is_some_and(|until| at_once || now >= until) {
            self.absent_until = None;
        }
    }

    /// Returns until when the program does without it.
    pub const fn absent_until(&self) -> Option<u64> {
        self.absent_until
    }

    /// The same if its guest asks for something: who waits for memory that the pool has now is back earlier.
    pub fn asked_back_at(&self, has_memory: impl FnOnce() -> bool) -> Option<u64> {
        let until = self.absent_until?;
        let earlier = self.supplied_from.filter(|from| *from < until && has_memory());
        Some(earlier.unwrap_or(until))
    }

    /// Says whether the program does without it.
    pub const fn is_absent(&self) -> bool {
        self.absent_until.is_some()
    }

    /// The program begins anew, and knows of nobody.
    pub const fn forget_told(&mut self) {
        self.told = 0;
    }

    /// What is kept of it is of no use any more.
    pub const fn forget_kept(&mut self) {
        self.is_kept = false;
    }

    /// Returns what the program has to know next.
    pub const fn news(&self) -> Option<News> {
        if self.told == self.life {
            None
        } else if self.told != 0 {
            Some(News::Left)
        } else if self.is_absent() {
            None
        } else {
            Some(News::Joined(self.is_kept))
        }
    }

    /// The program knows that.
    pub const fn tell(&mut self, news: News) {
        match news {
            News::Left => self.told = 0,
            News::Joined(_) => (self.told, self.is_kept) = (self.life, true),
        }
    }
}

/// Returns the members that an event comes from, a bit for each: all if it says none.
pub(super) fn senders(event: &Event) -> u64 {
    let [_, first, ..] = event.0;
    match event.kind() {
        Some(Kind::Read | Kind::Write | Kind::Memory) => 1 << (split_device(first).0 % MEMBERS),
        Some(Kind::Doorbell) => ringers(first),
        Some(Kind::Attach) => 1 << (event.0[3] % MEMBERS),
        Some(Kind::Detach) => 1 << (first % MEMBERS),
        // The machine's device is no member.
        Some(Kind::Device | Kind::Interrupt) => 0,
        _ => u64::MAX,
    }
}

/// Returns the members whose queues these are, a bit for each.
pub(super) fn ringers(queues: u64) -> u64 {
    let own = (1 << MEMBER_QUEUES) - 1;
    let has_rung = |member: &u64| queues >> (member * MEMBER_QUEUES) & own != 0;
    (0..MEMBERS).filter(has_rung).fold(0, |all, member| all | 1 << member)
}

/// Returns the members that are to see to what waits, a bit for each: all, unless only doorbells wait.
pub(super) fn owners(pending: Pending) -> u64 {
    match pending.is_queues_alone() {
        true => ringers(pending.queues()),
        false => u64::MAX,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnstile_service::abi::member_device;

    #[test]
    fn a_program_is_told_of_each_life_and_of_its_end() {
        let mut member = Member::new(Port::default(), false);
        assert_eq!(member.news(), None);
        member.join(Reached::default());
        assert_eq!(member.news(), Some(News::Joined(false)));
        member.tell(News::Joined(false));
        assert_eq!(member.news(), None);
        member.forget_told();
        assert_eq!(member.news(), Some(News::Joined(true)), "a crash: what is kept is of this life");
        member.tell(News::Joined(true));
        member.leave();
        member.join(Reached::default());
        assert_eq!(member.news(), Some(News::Left), "first that the old one is over");
        member.tell(News::Left);
        assert_eq!(member.news(), Some(News::Joined(false)), "nothing is kept for the next one");
        member.leave();
        assert_eq!(member.news(), None, "a life of which it never knew");
        member.join(Reached::default());
        member.tell(News::Joined(false));
        member.join(Reached::default());
        member.forget_told();
        assert_eq!(member.news(), Some(News::Joined(false)), "what is kept is of the life before");
    }

    #[test]
    fn events_name_who_has_sent_them() {
        let of = |kind, first| senders(&Event::new(kind, [first, 0, 0, 0, 0]));
        assert_eq!(of(Kind::Write, member_device(3, 5)), 1 << 3);
        assert_eq!(of(Kind::Doorbell, 0x8000_0010), 1 << 7 | 1 << 1);
        assert_eq!(of(Kind::Alarm, 5), u64::MAX);
        assert_eq!(senders(&Event::new(Kind::Attach, [1, 0, 2, 0, 0])), 1 << 2);
        assert_eq!(of(Kind::Detach, 6), 1 << 6);
        assert_eq!([Kind::Device, Kind::Interrupt].map(|kind| of(kind, 0)), [0; 2], "no member");
        assert_eq!(owners(Pending::doorbell(5)), 1 << 1);
        assert_eq!([Pending::ALARM, Pending::KILL].map(owners), [u64::MAX; 2], "who can");
    }
}
