// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program: events and their answers.
//!
//! Each member has a function, and as many of the controller's tags as the others, for ever: so nobody waits for another one's requests, nor
//! finds what they have left. What has happened to the controller has happened to all.

use core::fmt;

use turnstile_drive::drive::Drive;
use turnstile_pci::msix::Message;
use turnstile_service_rt::drive::Drives;
use turnstile_service_rt::{
    AGAIN, Answer, Attach, Event, Fruitless, LATER, MEMBER_QUEUES, UNDRIVEN, split_device,
};
use turnstile_service_virtio::{Virtio, World};
use turnstile_virtio::rings::Rings;

use crate::lent::{Done, LATE, Lent, Trouble};
use crate::machine::{MEMBERS, Machine};
use crate::model::{Disk, QUEUES, Reach, VECTORS};

/// How long one event waits for a controller that is reset, or begins, in nanoseconds. Then the next event does: no guest is to find a disk that is
/// half there.
const PATIENCE: u64 = 50_000_000;
/// How long until somebody looks again at one that is not ready.
const SOON: u64 = 1_000_000;
/// How often one looks after a controller that has something to do, in nanoseconds.
const WATCH: u64 = 1_000_000_000;
/// How often it begins anew without a command that is done.
const TRIES: u32 = 3;
/// How often an event asks the controller whether it has done something meanwhile.
const TURNS: u32 = 8;
/// All queues of a member.
const ALL: u32 = (1 << QUEUES) - 1;
/// All members.
const EACH: u32 = (1 << MEMBERS) - 1;

/// The program.
pub struct Program<H: Machine, D: Drive + 'static, R: Copy + 'static> {
    functions: [Virtio<QUEUES, VECTORS, Disk<R>>; MEMBERS],
    /// How many of them there are, if that is known.
    count: usize,
    /// The disk of the machine.
    lent: Lent<H, D>,
    drives: Drives,
    /// The member that is looked at first.
    next: u32,
    /// How often the controller may begin anew until a command is done.
    tries: u32,
    /// Somebody has waited for it.
    is_slow: bool,
    /// The alarm is set, to look after the controller.
    is_watched: bool,
    /// It goes off as soon as it may, for who has more to do: nobody else's event is to put that off.
    is_soon: bool,
    /// When somebody first found it with something to do, since a command was done.
    late_since: [Option<u64>; MEMBERS],
    /// A command was done since the last interrupt.
    has_done: bool,
    /// The interrupts that have brought nothing.
    fruitless: Fruitless,
}

/// What the function of a member reaches.
struct Sight<'a, H: Machine, D> {
    machine: &'static H,
    member: usize,
    reach: Reach<'a, H, D>,
}

impl<'a, H: Machine, D> World for Sight<'a, H, D> {
    type Memory = Reach<'a, H, D>;

    #[inline(always)] // An address.
    fn memory(&self) -> &Reach<'a, H, D> {
        &self.reach
    }

    #[inline(always)] // A few loads and stores.
    fn message(&self, message: Message) {
        self.machine.world(self.member).message(message);
    }

    fn flush(&self) {
        self.machine.world(self.member).flush();
    }

    fn decode(&self, bar: u8, address: u64, size: u64) -> bool {
        self.machine.world(self.member).decode(bar, address, size)
    }

    #[inline(always)] // A call.
    fn time(&self) -> u64 {
        self.machine.time()
    }

    #[inline(always)] // A load.
    fn get(&self, at: usize) -> u64 {
        self.machine.world(self.member).get(at)
    }

    #[inline(always)] // A store.
    fn set(&self, at: usize, word: u64) {
        self.machine.world(self.member).set(at, word);
    }
}

/// A member's function, and what it reaches.
type Own<'a, H, D, R> = (&'a mut Virtio<QUEUES, VECTORS, Disk<R>>, Sight<'a, H, D>);

impl<H: Machine, D: Drive + 'static, R: Rings<H::Memory> + Copy + 'static> Program<H, D, R> {
    /// Before its first event.
    pub const NEW: Self = Self {
        functions: [const { Virtio::new(Disk::NEW) }; MEMBERS],
        count: MEMBERS,
        lent: Lent::NEW,
        drives: Drives([None; MEMBERS]),
        next: 0,
        tries: TRIES,
        is_slow: false,
        is_watched: false,
        is_soon: false,
        late_since: [None; MEMBERS],
        has_done: false,
        fruitless: Fruitless::NONE,
    };

    /// Returns the function of a member, with what it reaches.
    #[inline(always)] // A few addresses.
    fn of(&mut self, machine: &'static H, member: usize) -> Option<Own<'_, H, D, R>> {
        let Self { functions, lent, .. } = self;
        let function = functions.get_mut(member)?;
        Some((function, Sight { machine, member, reach: Reach::new(machine.memory(member), lent) }))
    }

    /// Resets the controller, which reaches no memory yet.
    pub fn reset(&mut self, machine: &'static H) -> Answer {
        let since = machine.time();
        loop {
            match D::reset(machine.bus()) {
                Ok(true) => return Answer::default(),
                Ok(false) if machine.time().saturating_sub(since) < PATIENCE => {}
                Ok(false) => return self.later(machine),
                Err(failure) => {
                    give_up(machine, failure);
                    return Answer { value: UNDRIVEN, ..Answer::default() };
                }
            }
        }
    }

    /// The controller reaches memory: begins with it, and waits a while.
    pub fn device(&mut self, machine: &'static H, settings: [u64; 2]) -> Answer {
        self.drives = Drives::from_words(settings);
        self.count = self.drives.0.iter().take_while(|drive| drive.is_some()).count();
        if self.lent.is_gone() {
            self.begin(machine);
        }
        let room = self.lent.room();
        for (member, (function, drive)) in self.functions.iter_mut().zip(self.drives.0).enumerate() {
            drive.into_iter().for_each(|drive| function.model.set(member, drive, room));
        }
        self.wait(machine);
        if self.lent.is_starting() {
            return self.later(machine);
        }
        Answer { value: if self.lent.is_gone() { UNDRIVEN } else { 0 }, ..Answer::default() }
    }

    /// The event of the controller is to come again.
    fn later(&mut self, machine: &H) -> Answer {
        if !core::mem::replace(&mut self.is_slow, true) {
            machine.log(format_args!("its drive takes its time to begin\n"));
        }
        Answer { value: LATER, ..Answer::default() }
    }

    /// Handles the first event of a member.
    pub fn attach(&mut self, machine: &'static H, attach: Attach) -> Answer {
        let Attach { kept, bars, member, settings } = attach;
        if let Some((function, sight)) = self.of(machine, member as usize) {
            function.model.set_name(settings);
            function.attach(&sight, kept, bars);
        }
        if self.count <= 1 {
            // The hypervisor clears the alarm of a service that is one VM's alone. The others' is not put off by who starts again and again.
            (self.is_watched, self.is_soon) = (false, false);
        }
        let place = self.late_since.iter_mut().zip(&self.functions).nth(member as usize);
        if let Some((since, function)) = place.filter(|_| self.lent.is_ready())
            && !function.model.is_waiting()
        {
            *since = None;
        }
        self.settle(machine, Answer::default())
    }

    /// A member's VM has stopped.
    pub fn detach(&mut self, machine: &'static H, member: u64) -> Answer {
        if let Some((function, sight)) = self.of(machine, member as usize) {
            function.detach(&sight);
        }
        Answer::default()
    }

    /// The controller has interrupted.
    pub fn interrupt(&mut self, machine: &'static H, now: u64) -> Answer {
        let interrupted = self.lent.interrupted();
        match interrupted.and_then(|()| self.go_on(machine, now)) {
            Ok(members) => self.look(machine, members),
            Err(trouble) => self.trouble(machine, trouble),
        }
        self.count(machine);
        let answer = self.settle(machine, Answer::default());
        let value = match self.lent.is_gone() {
            // Nothing would ever make it silent.
            true => UNDRIVEN,
            false if self.is_polled() => LATER,
            false => answer.value,
        };
        Answer { value, ..answer }
    }

    /// Counts an interrupt. A pin that stays high would take the CPU: its controller is looked at instead, and interrupts once each time.
    fn count(&mut self, machine: &'static H) {
        let has_done = core::mem::take(&mut self.has_done);
        if self.lent.is_starting() {
            return;
        }
        if self.fruitless.count(has_done) {
            machine.log(format_args!("its drive interrupts for nothing, and is looked at instead\n"));
        }
        if self.is_polled() {
            // Sooner than before.
            self.is_watched = false;
        }
    }

    /// Says whether the alarm does what interrupts should: while the controller begins it is set anyway.
    fn is_polled(&self) -> bool {
        self.fruitless.is_too_many() || self.lent.is_starting()
    }

    /// Handles an event.
    #[inline(always)] // The way of each notification.
    pub fn event(&mut self, machine: &'static H, event: Event) -> Answer {
        match event {
            Event::Doorbell { queues, now } => {
                let mut rest = queues as u32;
                while rest != 0 {
                    let first = rest.trailing_zeros() / MEMBER_QUEUES as u32 * MEMBER_QUEUES as u32;
                    let queues = u64::from(rest >> first & ALL);
                    rest &= !(MEMBER << first);
                    if let Some((function, sight)) = self.of(machine, (first / MEMBER_QUEUES as u32) as usize)
                    {
                        function.event(&sight, Event::Doorbell { queues, now });
                    }
                }
            }
            Event::Alarm(now) => return self.alarm(machine, now),
            event => return self.access(machine, event),
        }
        self.settle(machine, Answer::default())
    }

    /// Reads or writes a register of a member's function.
    #[cold]
    #[inline(never)] // Notifications are more frequent.
    fn access(&mut self, machine: &'static H, event: Event) -> Answer {
        let (member, event) = match event {
            Event::Read { device, offset, size } => {
                let (member, device) = split_device(device);
                (member, Event::Read { device, offset, size })
            }
            Event::Write { device, offset, size, value } => {
                let (member, device) = split_device(device);
                (member, Event::Write { device, offset, size, value })
            }
            _ => return Answer::default(),
        };
        let is_settled = self.is_settled(member as usize);
        let value = match self.of(machine, member as usize) {
            Some((function, sight)) => {
                function.model.set_settled(is_settled);
                function.event(&sight, event).value
            }
            None => u64::MAX,
        };
        if matches!(event, Event::Write { .. }) {
            self.wait_until_settled(machine, member as usize);
        }
        self.settle(machine, Answer { value, ..Answer::default() })
    }

    /// Says whether the controller reaches a member's memory for no queue that is gone.
    fn is_settled(&self, member: usize) -> bool {
        let is_at_work =
            self.functions.get(member).is_some_and(|function| function.model.is_forgotten_at_work());
        self.lent.is_settled() && !(self.lent.reaches_guest() && is_at_work)
    }

    /// A guest may have reset its device: waits a while for what the controller does for it. Behind that the guest has to ask for the end of the reset.
    #[cold]
    fn wait_until_settled(&mut self, machine: &'static H, member: usize) {
        let mut since = None;
        while self.lent.is_ready() && !self.is_settled(member) {
            let now = machine.time();
            if now.saturating_sub(*since.get_or_insert(now)) > PATIENCE {
                return;
            }
            // It may not know of them yet.
            let rung = self.lent.ring();
            match rung.and_then(|()| self.go_on(machine, now)) {
                Ok(members) => self.look(machine, members),
                Err(trouble) => self.trouble(machine, trouble),
            }
        }
    }

    /// Handles the alarm: of the controller, or because there was more to do than one event had time for.
    fn alarm(&mut self, machine: &'static H, now: u64) -> Answer {
        (self.is_watched, self.is_soon) = (false, false);
        // What has come is taken first: who was paused finds nothing late.
        let judged = self.go_on(machine, now).and_then(|_| {
            self.look(machine, EACH);
            self.judge(now)
        });
        if let Err(trouble) = judged {
            self.trouble(machine, trouble);
        }
        let answer = self.settle(machine, Answer::default());
        match self.lent.is_to_be_cut_off() {
            true => Answer { value: UNDRIVEN, ..answer },
            false => answer,
        }
    }

    /// Says whether the controller goes on with what it has to do.
    fn judge(&mut self, now: u64) -> Result<(), Trouble> {
        let is_ready = self.lent.is_ready();
        for (since, function) in self.late_since.iter_mut().zip(&self.functions) {
            *since = (is_ready && function.model.is_waiting()).then(|| since.unwrap_or(now));
        }
        // What is done for one member says nothing of another one's.
        match self.late_since.iter().flatten().min() {
            None => Ok(()),
            Some(since) if now.saturating_sub(*since) > LATE => Err(Trouble::Late),
            Some(_) => self.lent.check(),
        }
    }

    /// Says whether a member has more to do.
    #[inline(always)] // A load for each member.
    fn is_due(&self) -> bool {
        self.functions.iter().take(self.count).any(Virtio::is_due)
    }

    /// Goes on with the beginning of the controller, or takes what it has done. Returns the members that have more to do then, perhaps.
    fn go_on(&mut self, machine: &'static H, now: u64) -> Result<u32, Trouble> {
        if self.lent.is_ending() {
            if self.lent.has_ended(now) {
                self.fail();
            }
            return Ok(EACH);
        }
        if self.lent.is_starting() {
            if self.lent.advance(now)? {
                self.ready(machine);
            }
            return Ok(EACH);
        }
        let mut members = 0;
        while let Some(Done { member, tag, result }) = self.lent.finished()? {
            if let (Some(function), Some(since)) =
                (self.functions.get_mut(member), self.late_since.get_mut(member))
            {
                function.model.done(tag, result);
                *since = None;
                members |= 1 << member;
            }
            if !self.lent.is_waiting() {
                break;
            }
        }
        if members != 0 {
            (self.tries, self.has_done) = (TRIES, true);
        }
        // Others wait for any command to be done.
        Ok(if members != 0 && self.lent.is_scarce() { EACH } else { members })
    }

    /// The disk is known: tells the members.
    fn ready(&mut self, machine: &'static H) {
        for (member, drive) in self.drives.0.into_iter().enumerate() {
            let Some(drive) = drive else { continue };
            if let (Some(partition), Some(wrong)) = (drive.partition, self.lent.wrong(member)) {
                machine.log(format_args!("partition {partition} cannot be used: {wrong}\n"));
            }
            let Self { functions, lent, .. } = self;
            functions.iter_mut().skip(member).take(1).for_each(|function| function.model.know(lent));
            if let Some((function, sight)) = self.of(machine, member) {
                function.changed(&sight);
            }
        }
    }

    /// These members may have something to do for which nobody notifies: each has its turn, another one first than before.
    #[inline(always)] // Twice on the way of an interrupt.
    fn look(&mut self, machine: &'static H, members: u32) {
        let mut rest = members & ((1 << self.count) - 1);
        while rest != 0 {
            let behind = rest >> self.next << self.next;
            let member = if behind == 0 { rest } else { behind }.trailing_zeros();
            rest &= !(1 << member);
            if let Some((function, sight)) = self.of(machine, member as usize) {
                function.look(&sight, ALL);
            }
        }
        self.next += 1;
        if self.next >= self.count as u32 {
            self.next = 0;
        }
    }

    /// Tells the controller what the event has brought, and sees to it that somebody hears of what it does.
    #[inline(always)] // The way of each notification.
    fn settle(&mut self, machine: &'static H, answer: Answer) -> Answer {
        for _ in 0..TURNS {
            match self.lent.settle() {
                Ok(false) => return self.watched(machine, answer),
                Ok(true) => match self.go_on(machine, machine.time()) {
                    Ok(members) => self.look(machine, members),
                    Err(trouble) => self.trouble(machine, trouble),
                },
                Err(trouble) => self.trouble(machine, trouble),
            }
        }
        self.is_soon = true;
        Answer { lines: AGAIN, ..answer }
    }

    /// Has another event come if there is more to do, or sets the alarm, if it is not set.
    #[inline(always)] // Seldom more than some comparisons.
    fn watched(&mut self, machine: &'static H, answer: Answer) -> Answer {
        if self.is_soon {
            return answer;
        }
        if self.is_due() {
            self.is_soon = true;
            return Answer { lines: AGAIN, ..answer };
        }
        if !self.is_watched && (self.lent.is_waiting() || self.lent.is_starting()) {
            machine.alarm(machine.time() + if self.is_polled() { SOON } else { WATCH });
            self.is_watched = true;
        }
        answer
    }

    /// Begins with the controller.
    fn begin(&mut self, machine: &'static H) {
        if let Err(trouble) = self.lent.begin(machine, self.drives) {
            self.trouble(machine, trouble);
        }
    }

    /// Waits until the controller is ready, for a while.
    fn wait(&mut self, machine: &'static H) {
        let since = machine.time();
        while self.lent.is_starting() {
            let now = machine.time();
            match self.lent.advance(now) {
                Ok(true) => self.ready(machine),
                Ok(false) if now.saturating_sub(since) < PATIENCE => {}
                Ok(false) => return,
                Err(trouble) => self.trouble(machine, trouble),
            }
        }
    }

    /// The controller does nothing any more.
    fn fail(&mut self) {
        self.functions.iter_mut().for_each(|function| function.model.fail());
    }

    /// The controller begins anew; or not, if that has not helped.
    #[cold]
    fn trouble(&mut self, machine: &'static H, trouble: Trouble) {
        give_up(machine, trouble);
        // It is looked at soon.
        (self.is_watched, self.late_since) = (false, [None; MEMBERS]);
        self.lent.end();
        if self.tries == 0 {
            // Nothing is reported to a guest while the controller may reach its memory.
            if self.lent.is_gone() {
                self.fail();
            }
        } else {
            self.tries -= 1;
            let room = self.lent.room();
            for member in 0..self.count {
                if let Some((function, sight)) = self.of(machine, member)
                    && function.model.again(machine.memory(member), room).is_err()
                {
                    function.fail(&sight);
                }
            }
            self.begin(machine);
        }
        self.look(machine, EACH);
    }
}

/// The bits of a member among those of doorbells.
const MEMBER: u32 = (1 << MEMBER_QUEUES) - 1;

const _: () = assert!(QUEUES as u64 <= MEMBER_QUEUES && MEMBERS as u64 * MEMBER_QUEUES <= u32::BITS as u64);

/// Says that the controller cannot go on.
#[cold]
fn give_up<H: Machine>(machine: &H, trouble: impl fmt::Display) {
    machine.log(format_args!("its drive cannot be used: {trouble}\n"));
}
