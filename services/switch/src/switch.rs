// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events and their answers: which sender has its turn, and who waits for what.
//!
//! A sender whose receiver has no buffers waits until that has more, or until its patience is at its end. A sender that may send no more
//! now waits for its time. Whatever breaks a rule, the device of that member alone needs a reset.

use turnstile_nic::any::Any;
use turnstile_service_rt::{
    AGAIN, Answer, Attach, Event, Fruitless, MEMBER_QUEUES, port as settings, split_device,
};
use turnstile_service_virtio::Virtio;
use turnstile_switch::port::Rules;
use turnstile_switch::rate::Rate;
use turnstile_switch::relay::{Relay, Rest};
use turnstile_virtio::ring::Layout;
use turnstile_virtio::rings::Rings;

use crate::members::{MEMBERS, Members, PORTS};
use crate::pairs::Pairs;
use crate::port::{PAIRS, Port, QUEUES, VECTORS};
use crate::uplink::{BUFFERS, Uplink};

mod card;
mod drivers;
mod waits;

/// A quarter of the addresses that are remembered.
const SETS: usize = 256;
/// What a member with a rate may send at once beyond it, in bytes: one large segment.
const BURST: u32 = 64 << 10;
/// How many packets a sender has in one turn. Large ones are fewer.
const TURN: u32 = 64;
/// How many turns one event has at most, whatever the time is.
const TURNS: u32 = 16;
/// How long one event goes on behind its first turn, in nanoseconds. Then the guest has its turn.
const SPAN: u64 = 150_000;
/// No time.
const NEVER: u64 = u64::MAX;

/// The bits of doorbells of the first member, by their queues; those of the others are [`MEMBER_QUEUES`] further each. With several pairs, queues whose
/// numbers have the same remainder share one: receive queues and commands the first and the third, those that send the second and the fourth.
const RECEIVE: u32 = 1;
const SEND: u32 = 2;
const COMMAND: u32 = 4;
/// What is due for a member with several pairs that have something to send.
const SEND_SOME: u32 = 8;
/// Each first bit of a member.
const EACH: u32 = 0x1111_1111;

/// The port of the uplink, behind those of members. What is due for it has bits that no doorbell has there: its buffers are to be moved on, and
/// its packets are to be sent.
const UPLINK: usize = MEMBERS;
const MOVE: u32 = 1 << MOVE_NUMBER;
const UPLINK_SEND: u32 = 1 << UPLINK_SEND_NUMBER;
const MOVE_NUMBER: u32 = 0;
const UPLINK_SEND_NUMBER: u32 = MEMBER_QUEUES as u32;

const _: () = assert!(UPLINK < PORTS && (MOVE | UPLINK_SEND) & ((SEND | COMMAND | SEND_SOME) * EACH) == 0);

const _: () = assert!(EACH.count_ones() as usize == MEMBERS && MEMBER_QUEUES == 4, "each queue has a bit");

/// Whom a member that sends waits for.
#[derive(Clone, Copy)]
struct Wait {
    /// Until when, at most.
    until: u64,
    /// The receivers that were asked to notify of more buffers, and have not done it yet: a bit each.
    asked: u32,
}

impl Wait {
    const NONE: Self = Self { until: NEVER, asked: 0 };
}

/// A switch with a port for each member.
pub struct Switch<R = Layout> {
    /// That of the uplink has no function.
    ports: [Virtio<QUEUES, VECTORS, Port>; PORTS],
    relay: Relay<PORTS, PAIRS, SETS, R>,
    uplink: Uplink<Any<BUFFERS>>,
    /// The hypervisor has given it a card, which works.
    is_plugged: bool,
    /// The card has sent or received something since its last interrupt.
    has_moved: bool,
    /// Its interrupts that have brought nothing.
    fruitless: Fruitless,
    /// A bit for each queue that has something to do, perhaps, as doorbells have them, and those of the uplink.
    due: u32,
    /// The queue that is next, if it is due.
    next: u32,
    /// The bits of doorbells that are due as they are: those of what members with one pair send, and of their commands.
    direct: u32,
    /// The pairs of each member, if it has several.
    pairs: [Pairs; MEMBERS],
    waits: [Wait; PORTS],
    /// When the first of those that wait has its time.
    first: u64,
    /// When the alarm goes off.
    alarm: u64,
}

impl<R> Switch<R> {
    /// A switch to which nothing is connected.
    pub const fn new() -> Self {
        Self {
            ports: [const { Virtio::new(Port::NEW) }; PORTS],
            relay: Relay::new(),
            uplink: Uplink::NEW,
            is_plugged: false,
            has_moved: false,
            fruitless: Fruitless::NONE,
            due: 0,
            next: 0,
            direct: (SEND | COMMAND) * EACH,
            pairs: [Pairs::ONE; MEMBERS],
            waits: [Wait::NONE; PORTS],
            first: NEVER,
            alarm: NEVER,
        }
    }

    /// Handles the first event of a member.
    pub fn attach<M: Members>(&mut self, members: &M, attach: Attach) -> Answer
    where
        R: Rings<M::Memory>,
    {
        let Attach { kept, bars, member, settings } = attach;
        let Some(member) = index(member) else { return Answer::default() };
        self.forget(member);
        let settings::Port { mac, guard, isolated, rate, pairs } = settings::Port::from_words(settings);
        let rules = Rules {
            mac: guard.then_some(mac),
            isolated,
            rate: rate.map(|rate| Rate::new(rate, BURST)),
            impatient: false,
        };
        self.relay.switch().attach(member, rules);
        if let Some(port) = self.ports.get_mut(member) {
            port.model = Port::new(mac, pairs);
            port.attach(&members.world(member), kept, bars);
        }
        // What is there waits for the next event: then all members are attached.
        self.settle(members, member);
        self.tell(members);
        self.answer(members)
    }

    /// A member's VM has stopped.
    pub fn detach<M: Members>(&mut self, members: &M, member: u64) -> Answer
    where
        R: Rings<M::Memory>,
    {
        if let Some(member) = index(member)
            && let Some(port) = self.ports.get_mut(member)
        {
            port.detach(&members.world(member));
            self.relay.switch().detach(member);
            self.forget(member);
        }
        self.answer(members)
    }

    /// Handles an event.
    #[inline(always)] // The way of each notification.
    pub fn event<M: Members>(&mut self, members: &M, event: Event) -> Answer
    where
        R: Rings<M::Memory>,
    {
        match event {
            Event::Doorbell { queues, now } => {
                self.ring(queues as u32);
                self.work(members, now);
            }
            Event::Alarm(now) => {
                self.alarm = NEVER;
                self.work(members, now);
            }
            event => return self.access(members, event),
        }
        self.answer(members)
    }

    /// Reads or writes a register of a member's device.
    #[cold]
    #[inline(never)] // Notifications are more frequent.
    fn access<M: Members>(&mut self, members: &M, event: Event) -> Answer
    where
        R: Rings<M::Memory>,
    {
        let (number, is_read) = match event {
            Event::Read { device, .. } => (device, true),
            Event::Write { device, .. } => (device, false),
            _ => return self.answer(members),
        };
        let (member, device) = split_device(number);
        let event = match event {
            Event::Read { offset, size, .. } => Event::Read { device, offset, size },
            Event::Write { offset, size, value, .. } => Event::Write { device, offset, size, value },
            event => event,
        };
        let Some(member) = index(member) else { return Answer { value: u64::MAX, ..self.answer(members) } };
        let Some(port) = self.ports.get_mut(member) else { return Answer::default() };
        let Answer { value, .. } = port.event(&members.world(member), event);
        if is_read {
            // What is due has its alarm, which who reads again and again is not to put off.
            return Answer { value, ..Answer::default() };
        }
        self.settle(members, member);
        self.work(members, members.time());
        self.answer(members)
    }

    /// Answers: with another event if there is more to do, and the alarm for whoever waits.
    #[inline(always)] // Once on each way.
    fn answer<M: Members>(&mut self, members: &M) -> Answer
    where
        R: Rings<M::Memory>,
    {
        if self.due != 0 {
            return Answer { lines: AGAIN, ..Answer::default() };
        }
        if self.first != self.alarm {
            members.alarm(self.first);
            self.alarm = self.first;
        }
        Answer::default()
    }

    /// Takes note of doorbells.
    #[inline(always)] // The way of each notification.
    fn ring(&mut self, queues: u32) {
        let direct = self.direct;
        self.due |= queues & direct;
        let mut others = queues & !direct;
        while others != 0 {
            self.rung(others.trailing_zeros());
            others &= others - 1;
        }
    }

    /// A receiver has rung, or a member with several pairs.
    #[inline(never)] // Few do.
    fn rung(&mut self, number: u32) {
        let (member, bit) = (number as usize / MEMBER_QUEUES as usize, 1 << (number % MEMBER_QUEUES as u32));
        let some = self.pairs.get_mut(member).filter(|pairs| pairs.count() > 1);
        match (some, bit) {
            (None, RECEIVE) => self.refilled(member),
            // It is no queue.
            (None, _) => {}
            (Some(_), RECEIVE | COMMAND) => {
                self.due |= bits(member, COMMAND);
                self.refilled(member);
            }
            (Some(pairs), _) => {
                pairs.ring(bit != SEND);
                self.due |= bits(member, SEND_SOME);
            }
        }
    }

    /// Does what is due, for a while that begins now.
    #[inline(always)] // The way of each notification.
    fn work<M: Members>(&mut self, members: &M, begin: u64)
    where
        R: Rings<M::Memory>,
    {
        if self.first <= begin {
            self.wake(begin);
        }
        let (mut now, mut turns) = (begin, 0);
        while self.due != 0 && turns < TURNS && now.saturating_sub(begin) < SPAN {
            let behind = self.due >> self.next << self.next;
            let number = if behind == 0 { self.due } else { behind }.trailing_zeros();
            let (member, queue) = (number as usize / MEMBER_QUEUES as usize, number % MEMBER_QUEUES as u32);
            match 1 << queue {
                SEND => {
                    self.pass(number);
                    self.send(members, member, now);
                }
                _ => self.seldom(members, number, now),
            }
            self.tell(members);
            turns += 1;
            if self.due != 0 {
                // Whoever has something is not to wait for the others' turns.
                members.flush();
                now = members.time();
            }
        }
    }

    /// Whoever is behind has its turn next.
    #[inline(always)] // A few instructions.
    const fn pass(&mut self, number: u32) {
        self.next = (number + 1) % u32::BITS;
    }

    /// A member sends packets.
    #[inline(always)] // Once above.
    fn send<M: Members>(&mut self, members: &M, member: usize, now: u64)
    where
        R: Rings<M::Memory>,
    {
        match self.relay.pump(members.memories(), member, now, TURN) {
            Ok(Rest::Idle) => self.due &= !sends(member),
            Ok(Rest::Spent) => {}
            Ok(Rest::Wait(span)) => self.wait(member, now.saturating_add(span)),
            Ok(Rest::Full(receiver, span)) => {
                self.full(members, (member, receiver), now.saturating_add(span))
            }
            Err(_) => self.fail(members, member),
        }
    }

    /// One of the pairs of a member sends packets.
    fn send_some<M: Members>(&mut self, members: &M, member: usize, now: u64)
    where
        R: Rings<M::Memory>,
    {
        let Some(pair) = self.pairs.get_mut(member).and_then(Pairs::turn) else {
            self.due &= !bits(member, SEND_SOME);
            return;
        };
        let rest = self.relay.pump_pair(members.memories(), (member, pair), now, TURN);
        let (Some(pairs), Some(wait)) = (self.pairs.get_mut(member), self.waits.get_mut(member)) else {
            return;
        };
        match rest {
            Ok(Rest::Idle) => pairs.done(pair),
            Ok(Rest::Spent) => {}
            // What it may send no pair of it may send.
            Ok(Rest::Wait(span)) => return self.wait(member, now.saturating_add(span)),
            Ok(Rest::Full(receiver, span)) if wait.asked >> receiver & 1 != 0 => {
                // Other pairs may have something for others.
                pairs.hold(pair);
                wait.until = wait.until.min(now.saturating_add(span));
                self.order();
            }
            Ok(Rest::Full(receiver, _)) => self.ask(members, (member, receiver)),
            Err(_) => return self.fail(members, member),
        }
        if self.pairs.get(member).is_none_or(Pairs::is_idle) {
            self.due &= !bits(member, SEND_SOME);
        }
    }

    /// What is not packets of a member.
    #[cold]
    #[inline(never)]
    fn seldom<M: Members>(&mut self, members: &M, number: u32, now: u64)
    where
        R: Rings<M::Memory>,
    {
        if number == MOVE_NUMBER {
            // It is nobody's turn: who was next has what becomes free.
            return self.move_on(members);
        }
        self.pass(number);
        let member = number as usize / MEMBER_QUEUES as usize;
        match number {
            UPLINK_SEND_NUMBER => self.send(members, UPLINK, now),
            _ if bits(member, SEND_SOME) == 1 << number => self.send_some(members, member, now),
            _ => self.command(members, member),
        }
    }
}

/// The bits of a member's doorbells.
const fn bits(member: usize, first: u32) -> u32 {
    first << (member as u32 * MEMBER_QUEUES as u32)
}

/// The bit that says that a port has packets to send.
#[inline(always)] // Of a known port, mostly.
const fn sends(port: usize) -> u32 {
    if port == UPLINK { UPLINK_SEND } else { bits(port, SEND) }
}

/// The bits that say that a port has packets to send, by how many pairs whatever.
#[inline(always)] // Of a known port, mostly.
const fn all_sends(port: usize) -> u32 {
    if port == UPLINK { UPLINK_SEND } else { bits(port, SEND | SEND_SOME) }
}

/// The member's place in arrays, if there can be such a member.
fn index(member: u64) -> Option<usize> {
    usize::try_from(member).ok().filter(|member| *member < MEMBERS)
}
