// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The main loop of a machine that runs here: between its serial line, the user, and those who control it from elsewhere.

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use turnstile_link::Command;

use super::json::Lines;
use super::mux::Mux;
use super::paper::Action;
use super::plain::Plain;
use super::{Event, terminal};
use crate::control::detach::Background;
use crate::control::hub::{Hub, Wish};
use crate::control::state::Port;
use crate::failure::Result;
use crate::log::Log;
use crate::metrics::Metrics;
use crate::ports::Desk;
use crate::session::{Ending, Heard, Notice, PortOf, Session};

/// How long the hypervisor may take to power off when the user leaves.
const PATIENCE: Duration = Duration::from_secs(2);
/// So much input of a pipe is kept for guests that do not read it yet: the rest stays in the pipe.
const MAX_QUEUED: usize = 64 * 1024;
/// How often time-outs are looked at.
const TICK: Duration = Duration::from_millis(200);

/// Why the main loop ended.
pub enum Leave {
    /// QEMU closed the serial line.
    MachineEnded,
    /// The user left, or nobody reads our output any more.
    User,
    /// Our output cannot be written.
    Output(std::io::Error),
    /// A signal asked us to end.
    Signal(i32),
    /// The hypervisor speaks this version of the serial line, which is not ours.
    Version(u16),
    /// The machine ran for longer than it may.
    Limit(Duration),
}

/// What became of the machine.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many VMs crashed, when the hypervisor said that all have stopped.
    pub done: Option<u8>,
    /// A fault that the hypervisor reported.
    pub fault: Option<String>,
    /// How many frames could not be read.
    pub lost: u32,
}

/// The machine and its consoles.
pub struct Attachment {
    pub session: Session,
    pub mux: Mux,
    /// Those who control the machine from elsewhere.
    pub hub: Hub,
    /// The programs at named ports.
    pub desk: Desk,
    /// Those ports: of each its VM's name, its own, and where its socket is.
    pub ports: Vec<(PortOf, String, String, PathBuf)>,
    /// Whoever started this process in the background waits for this name, until the hypervisor is there.
    pub starting: Option<(Background, String)>,
    /// What is told to who watches the machine.
    pub metrics: Option<Metrics>,
    /// The files of the consoles.
    pub log: Option<Log>,
    /// What is known of a line without frames.
    pub plain: Plain,
    /// What is shown instead of consoles, where that is JSON.
    pub json: Option<Lines>,
    pub framed: bool,
    /// Whether the hypervisor is there to be spoken to.
    pub greeted: Option<Instant>,
    /// When services are to be killed after that, and their numbers; the last one first.
    pub kills: Vec<(Duration, u8)>,
    /// What was commanded before that.
    pub waiting: Vec<Action>,
    /// Where more input is asked for.
    pub more: Sender<()>,
    /// Whether input has come, and no more is asked for until there is room.
    pub holds: bool,
    /// Whether input comes from a pipe. What comes from a terminal is always looked at: it may be the key to leave.
    pub is_pipe: bool,
    pub outcome: Outcome,
}

impl Attachment {
    /// The main loop.
    pub fn serve(&mut self, events: &Receiver<Event>, limit: Option<Duration>) -> Leave {
        loop {
            let leave = match events.recv_timeout(self.patience()) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.idle(),
                Err(RecvTimeoutError::Disconnected) => Some(Leave::MachineEnded),
            };
            self.kill_due();
            if let Some(leave) = leave.or_else(|| self.pump()) {
                return leave;
            }
            if let Some(limit) = limit.filter(|&limit| self.session.age() > limit) {
                return Leave::Limit(limit);
            }
        }
    }

    /// How long nothing may happen until something has to be looked at.
    fn patience(&self) -> Duration {
        let due = self.kills.last().zip(self.greeted);
        due.map_or(TICK, |((after, _), greeted)| after.saturating_sub(greeted.elapsed()).min(TICK))
    }

    /// Kills the services whose time has come.
    fn kill_due(&mut self) {
        let Some(greeted) = self.greeted else { return };
        while let Some((_, service)) = self.kills.pop_if(|(after, _)| *after <= greeted.elapsed()) {
            self.session.command(Command::KillService { service });
        }
    }

    fn handle(&mut self, event: Event) -> Option<Leave> {
        match event {
            Event::Machine(Notice::Heard(heard)) => self.heard(&heard),
            Event::Machine(Notice::Ended { lost }) => {
                self.outcome.lost = lost;
                Some(Leave::MachineEnded)
            }
            Event::Keys(keys) => {
                self.holds = true;
                let actions = self.mux.keys(&keys);
                self.perform(actions)
            }
            Event::InputEnded => None,
            Event::Resized => {
                let actions = self.mux.resized(crate::width::terminal_size());
                self.perform(actions)
            }
            Event::Port(says) => {
                self.desk.take(says, &mut self.session);
                None
            }
            Event::Asked(asked) => {
                self.show_ports();
                let wishes = self.hub.ask(asked);
                let end = wishes.contains(&Wish::End).then(|| self.mux.remark("ended by another command"));
                self.perform(end.into_iter().chain(wishes.into_iter().map(action_of)).collect())
            }
            Event::Signal(signal) => Some(Leave::Signal(signal)),
        }
    }

    /// Keeps input going, and says what does not.
    fn pump(&mut self) -> Option<Leave> {
        self.hub.end_waiting();
        let stalled = self.session.pump();
        let leave = stalled.iter().find_map(|stalled| self.remark(stalled));
        if self.session.queued() < MAX_QUEUED {
            self.hub.take_more();
        }
        if self.holds && (!self.is_pipe || self.session.queued() < MAX_QUEUED) {
            self.holds = self.more.send(()).is_err();
        }
        leave
    }

    fn heard(&mut self, heard: &Heard) -> Option<Leave> {
        let is_known = self.hub.hear(heard);
        if let Some(metrics) = &self.metrics {
            metrics.hear(heard);
        }
        let unwritten = self.log.as_mut().and_then(|log| log.hear(heard));
        let besides = self.session.hear(heard);
        let closed = self.session.hear_of_ports(heard);
        self.desk.hear(heard, &closed, &mut self.session);
        let leave = self.note(heard);
        // What answers a client is shown to programs alone.
        let leave = leave.or_else(|| if is_known && self.json.is_none() { None } else { self.show(heard) });
        let leave = leave.or_else(|| besides.and_then(|besides| self.remark(&besides)));
        leave.or_else(|| self.say(unwritten))
    }

    /// Tells those who ask which ports there are.
    fn show_ports(&mut self) {
        let ports = self.ports.iter().map(|(of, vm, name, path)| Port {
            name: name.clone(),
            vm: vm.clone(),
            path: path.display().to_string(),
            connected: self.desk.is_taken(*of),
        });
        self.hub.show_ports(ports.collect());
    }

    /// Says something of the tool's own, here and to those who follow.
    fn say(&mut self, text: Option<String>) -> Option<Leave> {
        self.remark(&Heard::Text { text: (text? + "\n").into() })
    }

    /// Says what the session says besides, here and to those who follow.
    fn remark(&mut self, besides: &Heard) -> Option<Leave> {
        self.hub.hear(besides);
        self.show(besides)
    }

    /// Takes note of what it means for the machine.
    fn note(&mut self, heard: &Heard) -> Option<Leave> {
        match heard {
            Heard::Done { crashed } => self.outcome.done = Some(*crashed),
            Heard::Fault { text } => self.outcome.fault = Some(text.clone()),
            Heard::Hello { version, .. } if *version != turnstile_link::VERSION => {
                return Some(Leave::Version(*version));
            }
            Heard::Hello { .. } => {
                self.greeted.get_or_insert_with(Instant::now);
                if let Some((background, name)) = self.starting.take()
                    && let Err(error) = background.is_up(&name)
                {
                    return Some(Leave::Output(error));
                }
                let waiting = std::mem::take(&mut self.waiting);
                self.perform(waiting);
            }
            _ => {}
        }
        None
    }

    fn show(&mut self, heard: &Heard) -> Option<Leave> {
        if let Some(json) = &mut self.json {
            let lines = json.heard(heard);
            return self.perform(vec![Action::Show(lines)]);
        }
        if let (Heard::Text { text }, false) = (heard, self.framed) {
            // Without frames everything on the line is for the screen.
            self.plain.hear(text);
            self.outcome.done = self.plain.done();
            return self.perform(vec![Action::Show(text.clone())]);
        }
        let actions = self.mux.heard(heard);
        self.perform(actions)
    }

    /// Nothing has happened for a while.
    fn idle(&mut self) -> Option<Leave> {
        let unwritten = self.log.as_mut().and_then(Log::idle);
        if let Some(leave) = self.say(unwritten) {
            return Some(leave);
        }
        let lines = self.json.as_mut().map(Lines::idle)?;
        self.perform(vec![Action::Show(lines)])
    }

    pub fn perform(&mut self, actions: Vec<Action>) -> Option<Leave> {
        for action in actions {
            match action {
                Action::Show(bytes) => match terminal::show(&bytes) {
                    Ok(()) => {}
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Some(Leave::User),
                    Err(error) => return Some(Leave::Output(error)),
                },
                Action::Remark(bytes) => terminal::remark(&bytes),
                Action::Quit => return Some(Leave::User),
                Action::Type { bytes, .. } if !self.framed => self.session.send_raw(&bytes),
                Action::Tell(_) | Action::Size { .. } if !self.framed => {}
                // Kept until its VM runs.
                Action::Type { vm, bytes } => self.session.type_into(vm, &bytes),
                action if self.greeted.is_none() => self.waiting.push(action),
                Action::Size { vm, columns, rows } => self.session.resize(vm, columns, rows),
                Action::Tell(command) => self.session.command(command),
            }
        }
        None
    }

    /// Ends the machine if it runs, and shows what is left to show.
    pub fn finish(mut self, events: &Receiver<Event>, mut leave: Leave) -> Result<(Leave, Outcome, Ending)> {
        if !matches!(leave, Leave::MachineEnded) {
            if self.framed && self.greeted.is_some() {
                self.session.command(Command::Poweroff);
                let deadline = Instant::now() + PATIENCE;
                while let Ok(event) = events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                {
                    match event {
                        Event::Machine(Notice::Ended { .. }) => break,
                        Event::Machine(Notice::Heard(heard)) => {
                            self.hub.hear(&heard);
                            self.log.as_mut().and_then(|log| log.hear(&heard));
                            // Behind the last that the guests have written to their ports.
                            let closed = self.session.hear_of_ports(&heard);
                            self.desk.hear(&heard, &closed, &mut self.session);
                        }
                        _ => {}
                    }
                }
            }
            self.session.kill();
        }
        self.log.as_mut().and_then(Log::finish);
        self.hub.finish(TICK);
        self.desk.finish(TICK);
        let mut actions = self.mux.ended();
        actions.extend(self.json.as_mut().map(|json| Action::Show(json.finish())));
        if let Some(Leave::Output(error)) = self.perform(actions)
            && matches!(leave, Leave::MachineEnded)
        {
            leave = Leave::Output(error);
        }
        Ok((leave, self.outcome, self.session.wait()?))
    }
}

/// What a client of the control socket wants, as if it had been typed here.
fn action_of(wish: Wish) -> Action {
    match wish {
        Wish::Type { vm, bytes } => Action::Type { vm, bytes },
        Wish::Size { vm, columns, rows } => Action::Size { vm, columns, rows },
        Wish::Tell(command) => Action::Tell(command),
        Wish::End => Action::Quit,
    }
}
