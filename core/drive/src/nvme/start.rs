// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a controller is begun (NVM Express 1.4, section 7.6.1).
//!
//! ```text
//! reset → enabled → controller → namespaces → namespace … → number of queues → completion queue → submission queue → ready
//! ```
//!
//! Between two of these the controller takes its time; a call goes on as far as it need not wait. One admin command at a time is under way.

use turnstile_virtio::driver::Bus;
use turnstile_virtio::memory::Memory;

use super::command::{Command, Structure};
use super::identify::{Controller, Namespace, next_namespace};
use super::queue::{Completion, Pair, Places};
use super::registers::{self, Capabilities, Status};
use crate::drive::{Failure, Geometry, PAGE};
use crate::tags::TAGS;

/// How many entries the admin queues have.
const ADMIN_ENTRIES: u16 = 8;
/// How many entries the I/O queues have at most: a page of commands.
const ENTRIES: u16 = 64;
/// The number of the I/O queues.
const IO: u16 = 1;
/// How many steps a call goes.
const STEPS: u32 = 16;
/// How many nanoseconds a command of the start may take.
const COMMAND_TIME: u64 = 10_000_000_000;
/// How many namespaces are looked at.
const MOST_NAMESPACES: u32 = 64;

/// Where the queues are, and a page that identify commands fill.
const ADMIN: [u64; 2] = [0, PAGE];
const QUEUES: [u64; 2] = [2 * PAGE, 3 * PAGE];
const IDENTIFIED: u64 = 4 * PAGE;
/// How many bytes of memory that is.
pub(super) const BYTES: u64 = 5 * PAGE;

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing: there is no controller.
    Off,
    /// The end of its reset.
    Reset,
    /// That it is ready.
    Enabled,
    /// The answer to a command.
    Asked(Question),
    /// Nothing: it has its queues.
    Ready,
}

/// A command of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Question {
    Controller,
    /// Which namespace is next.
    Next,
    Namespace,
    NumberOfQueues,
    CompletionQueue,
    SubmissionQueue,
}

/// A controller that begins, or has begun.
#[derive(Debug)]
pub(super) struct Start {
    state: State,
    /// Since when it is waited.
    since: Option<u64>,
    /// Where the memory is.
    at: u64,
    admin: Pair,
    /// The tag of the last admin command.
    tag: u16,
    capabilities: Capabilities,
    controller: Controller,
    /// The last namespace that was looked at, and how many were before it.
    last: u32,
    before: u32,
    namespace: Namespace,
}

impl Start {
    /// Without a controller.
    pub(super) const NEW: Self = Self {
        state: State::Off,
        since: None,
        at: 0,
        admin: Pair::NEW,
        tag: 0,
        capabilities: Capabilities::NONE,
        controller: Controller::NONE,
        last: 0,
        before: 0,
        namespace: Namespace::NONE,
    };

    /// Begins with a controller, whatever it does.
    pub(super) fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure> {
        *self = Self { at, ..Self::NEW };
        self.capabilities = Capabilities::read(bus.function())?;
        self.state = State::Reset;
        Ok(())
    }

    /// Whether there is a controller.
    pub(super) fn is_on(&self) -> bool {
        self.state != State::Off
    }

    /// Whether it has its queues.
    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// The namespace, once it is ready.
    pub(super) const fn namespace(&self) -> &Namespace {
        &self.namespace
    }

    /// Goes on without waiting. Returns what the disk is, once `io` are its queues.
    pub(super) fn proceed<B: Bus>(
        &mut self,
        bus: &B,
        io: &mut Pair,
        now: u64,
    ) -> Result<Option<Geometry>, Failure> {
        for _ in 0..STEPS {
            let has_come = match self.state {
                State::Off => return Err(Failure::Unknown),
                State::Ready => {
                    let depth = (io.places().entries - 1).min(TAGS);
                    return Ok(Some(self.controller.geometry(&self.namespace, depth)));
                }
                State::Reset => self.enable(bus)?,
                State::Enabled => self.ask_first(bus)?,
                State::Asked(question) => self.answered(bus, io, question)?,
            };
            if !has_come {
                return self.wait(bus, now);
            }
            self.since = None;
        }
        Ok(None)
    }

    /// Fails if it has waited for too long.
    fn wait<B: Bus>(&mut self, bus: &B, now: u64) -> Result<Option<Geometry>, Failure> {
        let since = *self.since.get_or_insert(now);
        let limit = match self.state {
            State::Asked(_) => COMMAND_TIME,
            _ => self.capabilities.timeout,
        };
        if now.saturating_sub(since) <= limit {
            return Ok(None);
        }
        // It is not to be disabled before it is ready, but it has had its time.
        registers::disable(bus.function());
        Err(Failure::Slow)
    }

    /// Enables it once its reset has ended: then no memory is its own.
    fn enable<B: Bus>(&mut self, bus: &B) -> Result<bool, Failure> {
        if !registers::reset(bus.function())? {
            return Ok(false);
        }
        let [submission, completion] = ADMIN.map(|offset| self.at + offset);
        let bells = self.capabilities.bells(0);
        let places = Places { number: 0, entries: ADMIN_ENTRIES, submission, completion, bells };
        self.admin.begin(bus.memory(), places)?;
        registers::enable(bus.function(), [submission, completion], ADMIN_ENTRIES);
        self.state = State::Enabled;
        Ok(true)
    }

    /// Asks the first question once it is ready.
    fn ask_first<B: Bus>(&mut self, bus: &B) -> Result<bool, Failure> {
        let status = registers::status(bus.function())?;
        if status.contains(Status::CFS) {
            return Err(Failure::Fatal);
        }
        if !status.contains(Status::RDY) {
            return Ok(false);
        }
        self.ask(bus, Question::Controller)?;
        Ok(true)
    }

    /// Gives it a command.
    fn ask<B: Bus>(&mut self, bus: &B, question: Question) -> Result<(), Failure> {
        let to = self.at + IDENTIFIED;
        let [submission, completion] = QUEUES.map(|offset| self.at + offset);
        let entries = self.entries();
        let command = match question {
            Question::Controller => Command::identify(Structure::Controller, 0, to),
            Question::Next => Command::identify(Structure::Namespaces, self.last, to),
            Question::Namespace => Command::identify(Structure::Namespace, self.last, to),
            Question::NumberOfQueues => Command::one_queue(),
            Question::CompletionQueue => Command::completion_queue(IO, entries, completion),
            Question::SubmissionQueue => Command::submission_queue(IO, entries, submission),
        };
        self.tag = self.tag.wrapping_add(1);
        self.admin.submit(bus.memory(), self.tag, command)?;
        self.admin.ring(bus.function());
        self.state = State::Asked(question);
        Ok(())
    }

    /// How many entries the I/O queues have.
    fn entries(&self) -> u16 {
        self.capabilities.entries.min(ENTRIES.into()) as u16
    }

    /// Takes the answer, if there is one, and asks what is next.
    fn answered<B: Bus>(&mut self, bus: &B, io: &mut Pair, question: Question) -> Result<bool, Failure> {
        let Some(Completion { tag, status }) = self.admin.take(bus.memory())? else {
            let is_fatal = registers::status(bus.function())?.contains(Status::CFS);
            return if is_fatal { Err(Failure::Fatal) } else { Ok(false) };
        };
        self.admin.free(bus.function());
        if tag != self.tag {
            return Err(Failure::Finished { queue: 0, tag });
        }
        if status != 0 {
            return Err(Failure::Start(status));
        }
        match self.learn(bus, io, question)? {
            Some(next) => self.ask(bus, next)?,
            None => self.state = State::Ready,
        }
        Ok(true)
    }

    /// Does what an answer leads to. Returns the next question.
    fn learn<B: Bus>(
        &mut self,
        bus: &B,
        io: &mut Pair,
        question: Question,
    ) -> Result<Option<Question>, Failure> {
        let (memory, page) = (bus.memory(), self.at + IDENTIFIED);
        Ok(Some(match question {
            Question::Controller => {
                self.controller = Controller::read(memory, page)?;
                Question::Next
            }
            Question::Next => {
                let next = next_namespace(memory, page, self.last)?;
                self.last = next.filter(|_| self.before < MOST_NAMESPACES).ok_or(Failure::Blocks)?;
                self.before += 1;
                Question::Namespace
            }
            Question::Namespace => match Namespace::read(memory, page, self.last)? {
                Some(namespace) => {
                    self.namespace = namespace;
                    Question::NumberOfQueues
                }
                None => Question::Next,
            },
            Question::NumberOfQueues => {
                let [submission, completion] = QUEUES.map(|offset| self.at + offset);
                let (entries, bells) = (self.entries(), self.capabilities.bells(IO));
                io.begin(memory, Places { number: IO, entries, submission, completion, bells })?;
                Question::CompletionQueue
            }
            Question::CompletionQueue => Question::SubmissionQueue,
            Question::SubmissionQueue => return Ok(None),
        }))
    }

    /// Says whether the controller goes on.
    pub(super) fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure> {
        let status = registers::status(bus.function())?;
        let is_up = !self.is_ready() || status.contains(Status::RDY);
        match is_up && !status.contains(Status::CFS) {
            true => Ok(()),
            false => Err(Failure::Fatal),
        }
    }
}

/// Whether the memory of a driver, so long, can begin here.
pub(super) fn fits<M: Memory>(memory: &M, at: u64, bytes: u64) -> bool {
    at.is_multiple_of(PAGE) && at.checked_add(bytes).is_some() && memory.contains(at, bytes)
}
