// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Events and their answers: which sender has its turn, and who waits for what.
//!
//! A sender whose receiver has no buffers waits until that has more, or until its patience is at its end. A sender that may send no more
//! now waits for its time. Whatever breaks a rule, the device of that member alone needs a reset.

use turnstile_net::control::{Control, Limits};
use turnstile_nic::any::Any;
use turnstile_service_rt::{
    AGAIN, Answer, Attach, Event, Fruitless, MEMBER_QUEUES, port as settings, split_device,
};
use turnstile_service_virtio::Virtio;
use turnstile_switch::port::Rules;
use turnstile_switch::rate::Rate;
use turnstile_switch::relay::{Device, Relay, Rest};
use turnstile_virtio::ring::Layout;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use crate::members::{MEMBERS, Members, PORTS};
use crate::port::{COMMANDS, Change, Notes, Port, QUEUES, VECTORS};
use crate::uplink::{BUFFERS, Uplink};

mod card;

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
/// What drivers' commands may change.
const LIMITS: Limits = Limits { may_change: false, pairs: 1 };

/// The bits of doorbells of the first member, by their queues; those of the others are [`MEMBER_QUEUES`] further each.
const RECEIVE: u32 = 1;
const SEND: u32 = 2;
const COMMAND: u32 = 4;
/// Each first bit of a member.
const EACH: u32 = 0x1111_1111;

/// The port of the uplink, behind those of members. What is due for it has bits that no doorbell has there: its buffers are to be moved on, and
/// its packets are to be sent.
const UPLINK: usize = MEMBERS;
const MOVE: u32 = 1 << MOVE_NUMBER;
const UPLINK_SEND: u32 = 1 << UPLINK_SEND_NUMBER;
const MOVE_NUMBER: u32 = 0;
const UPLINK_SEND_NUMBER: u32 = 3;

const _: () = assert!(UPLINK < PORTS && (MOVE | UPLINK_SEND) & ((SEND | COMMAND) * EACH) == 0);

const _: () = assert!(EACH.count_ones() as usize == MEMBERS && MEMBER_QUEUES == 4, "each queue has a bit");

/// Whom a member that sends waits for.
#[derive(Clone, Copy)]
struct Wait {
    /// Until when, at most.
    until: u64,
    /// The receiver that was asked to notify of more buffers, and has not done it yet.
    asked: Option<usize>,
}

impl Wait {
    const NONE: Self = Self { until: NEVER, asked: None };
}

/// A switch with a port for each member.
pub struct Switch<R = Layout> {
    /// That of the uplink has no function.
    ports: [Virtio<QUEUES, VECTORS, Port>; PORTS],
    relay: Relay<PORTS, 1, SETS, R>,
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
        let settings::Port { mac, guard, isolated, rate } = settings::Port::from_words(settings);
        let rules = Rules {
            mac: guard.then_some(mac),
            isolated,
            rate: rate.map(|rate| Rate::new(rate, BURST)),
            impatient: false,
        };
        self.relay.switch().attach(member, rules);
        if let Some(port) = self.ports.get_mut(member) {
            port.model = Port::new(mac);
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

    /// Finds who waits the shortest, after a wait has begun or ended.
    fn order(&mut self) {
        self.first = self.waits.iter().fold(NEVER, |first, wait| first.min(wait.until));
    }

    /// Takes note of doorbells.
    #[inline(always)] // The way of each notification.
    fn ring(&mut self, queues: u32) {
        self.due |= queues & ((SEND | COMMAND) * EACH);
        let mut receivers = queues & (RECEIVE * EACH);
        while receivers != 0 {
            self.refilled(receivers.trailing_zeros() as usize / MEMBER_QUEUES as usize);
            receivers &= receivers - 1;
        }
    }

    /// A receiver has more buffers, perhaps: who waits for it goes on.
    fn refilled(&mut self, receiver: usize) {
        for (member, wait) in self.waits.iter_mut().enumerate() {
            if wait.asked == Some(receiver) {
                self.due |= if wait.until == NEVER { 0 } else { sends(member) };
                *wait = Wait::NONE;
            }
        }
        self.order();
    }

    /// Who has waited long enough goes on.
    #[cold]
    fn wake(&mut self, now: u64) {
        // A card that is looked at interrupts again behind the alarm: nobody else's event is to put that off.
        let rests = self.alarm != NEVER && self.fruitless.is_too_many();
        let is_woken = |member, wait: &Wait| wait.until <= now && !(rests && member == UPLINK);
        for (member, wait) in
            self.waits.iter_mut().enumerate().filter(|(member, wait)| is_woken(*member, wait))
        {
            // The uplink's port waits for its card, and for nobody else.
            self.due |= sends(member) | if member == UPLINK { MOVE } else { 0 };
            wait.until = NEVER;
        }
        self.order();
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
        match self.relay.pump(members.memories(), (member, 0), now, TURN) {
            Ok(Rest::Idle) => self.due &= !sends(member),
            Ok(Rest::Spent) => {}
            Ok(Rest::Wait(span)) => self.wait(member, now.saturating_add(span)),
            Ok(Rest::Full(receiver, span)) => {
                self.full(members, (member, receiver), now.saturating_add(span))
            }
            Err(_) => self.fail(members, member),
        }
    }

    /// The member's turn comes at that time, or with a notification.
    fn wait(&mut self, member: usize, until: u64) {
        self.due &= !sends(member);
        self.waits.iter_mut().skip(member).take(1).for_each(|wait| wait.until = until);
        self.order();
    }

    /// The uplink's turn comes at that time.
    #[cold]
    #[inline(never)] // What members wait for stays as it is.
    fn wait_for_card(&mut self, until: u64) {
        let is_polled = self.fruitless.is_too_many();
        for wait in self.waits.iter_mut().skip(UPLINK) {
            wait.until = if is_polled { until.min(wait.until) } else { until };
        }
        self.order();
    }

    /// A receiver is asked to notify of buffers. The sender looks once more, for those that came before that, and then waits.
    #[cold]
    fn full<M: Members>(&mut self, members: &M, (member, receiver): (usize, usize), until: u64)
    where
        R: Rings<M::Memory>,
    {
        let Some(wait) = self.waits.get_mut(member) else { return };
        if wait.asked == Some(receiver) {
            return self.wait(member, until);
        }
        wait.asked = Some(receiver);
        let memory = members.memories().get(receiver);
        if memory.is_some_and(|memory| self.relay.arm(receiver, memory).is_err()) {
            self.fail(members, receiver);
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
        match number {
            UPLINK_SEND_NUMBER => self.send(members, UPLINK, now),
            _ => self.command(members, number as usize / MEMBER_QUEUES as usize),
        }
    }

    /// Does the commands of a member's driver.
    fn command<M: Members>(&mut self, members: &M, member: usize)
    where
        R: Rings<M::Memory>,
    {
        let (Some(port), Some(memory)) = (self.ports.get_mut(member), members.memories().get(member)) else {
            return;
        };
        let Port { commands, owed, .. } = &mut port.model;
        let done = match commands {
            Some(queue) => self.relay.control(member, queue, memory, &LIMITS),
            None => Ok((false, false)),
        };
        let owed = core::mem::take(owed);
        match done {
            Ok((interrupt, more)) => {
                if interrupt || owed {
                    port.raise(&members.world(member), COMMANDS);
                }
                self.due &= if more { u32::MAX } else { !bits(member, COMMAND) };
            }
            Err(_) => self.fail(members, member),
        }
    }

    /// Interrupts drivers that want it, and fails devices of receivers that have broken a rule.
    #[inline(always)] // Once in each turn.
    fn tell<M: Members>(&mut self, members: &M)
    where
        R: Rings<M::Memory>,
    {
        let Self { relay, ports, due, .. } = self;
        relay.interrupt(members.memories(), |member, queue| {
            if let Some(port) = ports.get_mut(member)
                && !port.raise(&members.world(member), queue as u16)
            {
                // Of all ports with queues, that of the uplink alone has no function.
                filled(due);
            }
        });
        while let Some(member) = self.relay.broken() {
            self.fail(members, member);
        }
    }

    /// Does what the device of a member has noted.
    #[cold]
    fn settle<M: Members>(&mut self, members: &M, member: usize)
    where
        R: Rings<M::Memory>,
    {
        let Some(port) = self.ports.get_mut(member) else { return };
        let notes = core::mem::replace(&mut port.model.notes, Notes::NONE);
        if let Some(features) = notes.agreed {
            let settings = &port.model.settings;
            let device = Device::new(Control::new(settings.mac), features.into(), settings.longest());
            self.relay.set_device(member, Some(device));
        }
        for (number, change) in notes.changes.into_iter().enumerate() {
            if change.is_some_and(|change| self.change(members, (member, number), change).is_err()) {
                return self.fail(members, member);
            }
        }
        self.ring(notes.rung << (member as u32 * MEMBER_QUEUES as u32));
    }

    /// Takes over or forgets a queue of packets.
    fn change<M: Members>(
        &mut self,
        members: &M,
        (member, number): (usize, usize),
        change: Change,
    ) -> Result<(), Violation>
    where
        R: Rings<M::Memory>,
    {
        let Some(memory) = members.memories().get(member) else { return Ok(()) };
        let (rings, left) = match change {
            Change::Begin { layout, options, left } => (Some((R::find(memory, &layout)?, options)), left),
            Change::Forget => (None, false),
        };
        self.relay.set_queue((member, number), memory, rings, left)?;
        // Who waits for the buffers of before waits no longer.
        match number {
            0 => self.refilled(member),
            _ => self.stop(member),
        }
        Ok(())
    }

    /// What a member's queue had to do is of no use.
    fn stop(&mut self, member: usize) {
        self.due &= !sends(member);
        self.waits.iter_mut().skip(member).take(1).for_each(|wait| *wait = Wait::NONE);
        self.order();
    }

    /// A member's device cannot go on until its driver resets it.
    #[cold]
    #[inline(never)]
    fn fail<M: Members>(&mut self, members: &M, member: usize)
    where
        R: Rings<M::Memory>,
    {
        if member == UPLINK {
            return self.lose(members, "its port's rings are broken");
        }
        if let Some(port) = self.ports.get_mut(member) {
            port.fail(&members.world(member));
        }
        self.forget(member);
    }

    /// Forgets all queues of a member.
    fn forget(&mut self, member: usize) {
        self.relay.set_device(member, None);
        if let Some(port) = self.ports.get_mut(member) {
            (port.model.notes, port.model.commands) = (Notes::NONE, None);
        }
        self.stop(member);
        self.due &= if member == UPLINK { !MOVE } else { !bits(member, COMMAND) };
        self.refilled(member);
    }
}

/// The bits of a member's doorbells.
const fn bits(member: usize, first: u32) -> u32 {
    first << (member as u32 * MEMBER_QUEUES as u32)
}

/// The switch has filled buffers of the uplink, or has taken packets of it.
#[cold]
#[inline(never)] // What members need is nearby.
fn filled(due: &mut u32) {
    *due |= MOVE;
}

/// The bit that says that a port has packets to send.
#[inline(always)] // Of a known port, mostly.
const fn sends(port: usize) -> u32 {
    if port == UPLINK { UPLINK_SEND } else { bits(port, SEND) }
}

/// The member's place in arrays, if there can be such a member.
fn index(member: u64) -> Option<usize> {
    usize::try_from(member).ok().filter(|member| *member < MEMBERS)
}
