// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The program: events and their answers.

use core::fmt;

use turnstile_drive::drive::Drive;
use turnstile_service_rt::drive::Drive as Settings;
use turnstile_service_rt::{AGAIN, Answer, Attach, Event, Fruitless, LATER, UNDRIVEN};
use turnstile_service_virtio::{Model as _, Virtio, World};
use turnstile_virtio::rings::Rings;

use crate::lent::{LATE, Trouble};
use crate::machine::Machine;
use crate::model::{Disk, QUEUES, VECTORS};

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
/// All queues.
const ALL: u32 = (1 << QUEUES) - 1;

/// The program.
pub struct Program<H: Machine, D: Drive + 'static, R: Copy + 'static> {
    function: Virtio<QUEUES, VECTORS, Disk<H, D, R>>,
    partition: Option<u32>,
    /// How often the controller may begin anew until a command is done.
    tries: u32,
    /// Somebody has waited for it.
    is_slow: bool,
    /// The alarm is set, to look after the controller.
    is_watched: bool,
    /// When somebody first found it with something to do, since a command was done.
    late_since: Option<u64>,
    /// A command was done since the last interrupt.
    has_done: bool,
    /// The interrupts that have brought nothing.
    fruitless: Fruitless,
}

impl<H: Machine, D: Drive + 'static, R: Rings<H::Memory> + Copy + 'static> Program<H, D, R> {
    /// Before its first event.
    pub const NEW: Self = Self {
        function: Virtio::new(Disk::NEW),
        partition: None,
        tries: TRIES,
        is_slow: false,
        is_watched: false,
        late_since: None,
        has_done: false,
        fruitless: Fruitless::NONE,
    };

    /// Resets the controller, which reaches no memory yet.
    pub fn reset(&mut self, machine: &'static H) -> Answer {
        let since = machine.world().time();
        loop {
            match D::reset(machine.bus()) {
                Ok(true) => return Answer::default(),
                Ok(false) if machine.world().time().saturating_sub(since) < PATIENCE => {}
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
        let Settings { partition, read_only } = Settings::from_words(settings);
        self.partition = partition;
        self.function.model.set_read_only(read_only);
        if self.function.model.lent.is_gone() {
            self.begin(machine);
        }
        self.wait(machine);
        let lent = &self.function.model.lent;
        if lent.is_starting() {
            return self.later(machine);
        }
        Answer { value: if lent.is_gone() { UNDRIVEN } else { 0 }, ..Answer::default() }
    }

    /// The event of the controller is to come again.
    fn later(&mut self, machine: &H) -> Answer {
        if !core::mem::replace(&mut self.is_slow, true) {
            machine.log(format_args!("its drive takes its time to begin\n"));
        }
        Answer { value: LATER, ..Answer::default() }
    }

    /// Handles the first event of the VM.
    pub fn attach(&mut self, machine: &'static H, Attach { kept, bars, settings, .. }: Attach) -> Answer {
        self.function.model.set_name(settings);
        (self.is_watched, self.late_since) = (false, None);
        let answer = self.function.attach(&machine.world(), kept, bars);
        self.settle(machine, answer)
    }

    /// The VM has stopped.
    pub fn detach(&mut self, machine: &'static H) -> Answer {
        self.function.detach(&machine.world());
        Answer::default()
    }

    /// The controller has interrupted.
    pub fn interrupt(&mut self, machine: &'static H, now: u64) -> Answer {
        let interrupted = self.function.model.lent.interrupted();
        let answer = interrupted.and_then(|()| self.go_on(machine, now));
        let answer = answer.unwrap_or_else(|trouble| self.trouble(machine, trouble));
        self.count(machine);
        let answer = self.settle(machine, answer);
        let value = match self.function.model.lent.is_gone() {
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
        if self.function.model.lent.is_starting() {
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
        self.fruitless.is_too_many() || self.function.model.lent.is_starting()
    }

    /// Handles an event.
    #[inline(always)] // The way of each notification.
    pub fn event(&mut self, machine: &'static H, event: Event) -> Answer {
        if let Event::Alarm(now) = event {
            return self.alarm(machine, now);
        }
        let answer = self.function.event(&machine.world(), event);
        if matches!(event, Event::Write { .. }) {
            self.wait_until_settled(machine);
        }
        self.settle(machine, answer)
    }

    /// The guest may have reset its device: waits a while for what the controller does for it. Behind that the guest has to ask for the end of the reset.
    #[cold]
    fn wait_until_settled(&mut self, machine: &'static H) {
        let mut since = None;
        while self.function.model.lent.is_ready() && !self.function.model.is_settled() {
            let now = machine.world().time();
            if now.saturating_sub(*since.get_or_insert(now)) > PATIENCE {
                return;
            }
            // It may not know of them yet.
            let settled = self.function.model.lent.settle(false);
            if let Err(trouble) = settled.and_then(|_| self.go_on(machine, now)) {
                self.trouble(machine, trouble);
            }
        }
    }

    /// Handles the alarm: of the controller, or because there was more to do than one event had time for.
    fn alarm(&mut self, machine: &'static H, now: u64) -> Answer {
        self.is_watched = false;
        // What has come is taken first: who was paused finds nothing late.
        let answer = self.go_on(machine, now).and_then(|answer| self.judge(now).map(|()| answer));
        let answer = answer.unwrap_or_else(|trouble| self.trouble(machine, trouble));
        let answer = self.settle(machine, answer);
        match self.function.model.lent.is_to_be_cut_off() {
            true => Answer { value: UNDRIVEN, ..answer },
            false => answer,
        }
    }

    /// Says whether the controller goes on with what it has to do.
    fn judge(&mut self, now: u64) -> Result<(), Trouble> {
        let is_waiting = self.function.model.lent.is_ready() && self.function.model.is_waiting();
        self.late_since = is_waiting.then(|| self.late_since.unwrap_or(now));
        match self.late_since {
            None => Ok(()),
            Some(since) if now.saturating_sub(since) > LATE => Err(Trouble::Late),
            Some(_) => self.function.model.lent.check(),
        }
    }

    /// Goes on with the beginning of the controller, or with what it has done.
    fn go_on(&mut self, machine: &'static H, now: u64) -> Result<Answer, Trouble> {
        if self.function.model.lent.is_ending() {
            if self.function.model.lent.has_ended(now) {
                self.function.model.fail();
            }
        } else if self.function.model.lent.is_starting() {
            if self.function.model.lent.advance(now)? {
                self.function.changed(&machine.world());
            }
        } else if self.function.model.collect()? != 0 {
            (self.tries, self.late_since, self.has_done) = (TRIES, None, true);
        }
        Ok(self.function.look(&machine.world(), ALL))
    }

    /// Tells the controller what the event has brought, and sees to it that somebody hears of what it does.
    #[inline(always)] // The way of each notification.
    fn settle(&mut self, machine: &'static H, mut answer: Answer) -> Answer {
        for _ in 0..TURNS {
            let is_waiting = self.function.model.is_waiting();
            let more = match self.function.model.lent.settle(is_waiting) {
                Ok(false) => return self.watched(machine, answer),
                Ok(true) => {
                    let now = machine.world().time();
                    self.go_on(machine, now).unwrap_or_else(|trouble| self.trouble(machine, trouble))
                }
                Err(trouble) => self.trouble(machine, trouble),
            };
            // The value is that of a register, if one was read.
            answer.lines = more.lines;
        }
        Answer { lines: answer.lines | AGAIN, ..answer }
    }

    /// Sets the alarm, if it is not set.
    #[inline(always)] // Seldom more than a comparison.
    fn watched(&mut self, machine: &'static H, answer: Answer) -> Answer {
        // The hypervisor sets it for who wants another event.
        let is_set = self.is_watched || answer.lines & AGAIN != 0;
        let is_starting = self.function.model.lent.is_starting();
        if !is_set && (is_starting || self.function.model.is_waiting()) {
            machine.alarm(machine.world().time() + if self.is_polled() { SOON } else { WATCH });
            self.is_watched = true;
        }
        answer
    }

    /// Begins with the controller.
    fn begin(&mut self, machine: &'static H) {
        if let Err(trouble) = self.function.model.lent.begin(machine, self.partition) {
            self.trouble(machine, trouble);
        }
    }

    /// Waits until the controller is ready, for a while.
    fn wait(&mut self, machine: &'static H) {
        let since = machine.world().time();
        while self.function.model.lent.is_starting() {
            let now = machine.world().time();
            match self.function.model.lent.advance(now) {
                Ok(_) if now.saturating_sub(since) < PATIENCE => {}
                Ok(_) => return,
                Err(trouble) => _ = self.trouble(machine, trouble),
            }
        }
    }

    /// The controller begins anew; or not, if that has not helped.
    #[cold]
    fn trouble(&mut self, machine: &'static H, trouble: Trouble) -> Answer {
        give_up(machine, trouble);
        // It is looked at soon.
        (self.is_watched, self.late_since) = (false, None);
        self.function.model.lent.end();
        if self.tries == 0 {
            // Nothing is reported to the guest while the controller may reach its memory.
            if self.function.model.lent.is_gone() {
                self.function.model.fail();
            }
        } else {
            self.tries -= 1;
            if self.function.model.again(machine.world().memory()).is_err() {
                self.function.fail(&machine.world());
            }
            self.begin(machine);
        }
        self.function.look(&machine.world(), ALL)
    }
}

/// Says that the controller cannot go on.
#[cold]
fn give_up<H: Machine>(machine: &H, trouble: impl fmt::Display) {
    machine.log(format_args!("its drive cannot be used: {trouble}\n"));
}
