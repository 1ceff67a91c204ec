// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The consoles of a running machine on the user's terminal or pipe.

mod json;
mod judge;
mod mux;
#[cfg(test)]
mod mux_tests;
mod paper;
mod plain;
mod remote;
mod terminal;

use std::io::{ErrorKind, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use json::Lines;
use judge::judge;
use mux::Mux;
use paper::{Action, Screen};
use plain::Plain;
pub use remote::{console, logs};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use terminal::RawTerminal;
pub use terminal::interactive;
use turnstile_link::Command;

use crate::control::detach::Background;
use crate::control::hub::{Hub, Wish};
use crate::control::names::full_name;
use crate::control::server::{Asked, Offer};
use crate::failure::{Context, Result};
use crate::metrics::Metrics;
use crate::qemu::Boot;
use crate::session::{Ending, Heard, Notice, Session};

/// How long the hypervisor may take to power off when the user leaves.
const PATIENCE: Duration = Duration::from_secs(2);
/// So much input of a pipe is kept for guests that do not read it yet: the rest stays in the pipe.
const MAX_QUEUED: usize = 64 * 1024;
/// How often time-outs are looked at.
const TICK: Duration = Duration::from_millis(200);
/// What is said first on a terminal.
const HINT: &str = "\x1b[2m[turnstile] Ctrl-A x leaves, Ctrl-A h shows the other keys\x1b[0m\r\n";

/// How consoles are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// As fits standard input and output.
    Normal,
    /// What is heard as lines of JSON.
    Json,
}

/// How others control the machine.
pub struct Control<'a> {
    /// The folder of the sockets.
    pub folder: &'a Path,
    /// The machine's name.
    pub name: &'a str,
    /// This process, if it is one in the background.
    pub background: Option<Background>,
}

/// Anything that the main loop waits for.
enum Event {
    Machine(Notice),
    Keys(Vec<u8>),
    InputEnded,
    Signal(i32),
    /// A client of the control socket asks for something.
    Asked(Asked),
}

impl From<Notice> for Event {
    fn from(notice: Notice) -> Self {
        Event::Machine(notice)
    }
}

/// Why the main loop ended.
enum Leave {
    /// QEMU closed the serial line.
    MachineEnded,
    /// The user left, or nobody reads our output any more.
    User,
    /// Our output cannot be written.
    Output(std::io::Error),
    /// A signal asked us to end.
    Signal(i32),
    /// The machine ran for longer than it may.
    Limit(Duration),
}

/// What became of the machine.
#[derive(Debug, Default)]
struct Outcome {
    /// How many VMs crashed, when the hypervisor said that all have stopped.
    done: Option<u8>,
    fault: Option<String>,
    lost: u32,
}

/// Starts the machine, attaches its consoles, and stays until it ends or the user leaves.
///
/// `limit` is how long the machine may run; `metrics` is where its statistics are served as OpenMetrics.
pub fn run(
    boot: &Boot,
    program: &Path,
    names: Vec<String>,
    style: Style,
    limit: Option<Duration>,
    control: Option<Control<'_>>,
    metrics: Option<SocketAddr>,
) -> Result<()> {
    let (sender, events) = channel();
    let reading = |answer| Event::Asked(Asked::Reading(answer));
    let metrics = metrics.map(|address| Metrics::open(address, names.clone(), sender.clone(), reading));
    let metrics = metrics.transpose()?;
    if let Some(metrics) = &metrics {
        crate::ui::note(&format!("metrics: http://{}/metrics", metrics.address()));
    }
    watch_signals(sender.clone(), Event::Signal)?;
    let offer = control.as_ref().map(|control| open_offer(control, sender.clone())).transpose()?.flatten();
    let name = control.as_ref().map_or("", |control| control.name);
    let background = control.as_ref().and_then(|control| control.background);
    let session = Session::start(boot, program, sender.clone())?;
    let raw = style == Style::Normal && interactive();
    let (more, wanted) = channel();
    let mut attachment = Attachment {
        session,
        json: (style == Style::Json).then(|| Lines::new(names.clone())),
        plain: Plain::new(names.clone()),
        hub: Hub::new(name, background.is_some(), names.clone()),
        starting: background.map(|background| (background, full_name(name))),
        metrics,
        mux: Mux::new(if raw { Screen::Terminal } else { Screen::Pipe }, names),
        framed: boot.append.contains("link=framed"),
        greeted: false,
        waiting: Vec::new(),
        more,
        holds: false,
        is_pipe: !raw,
        outcome: Outcome::default(),
    };
    // Every way out from here drops the guard, which restores the terminal.
    let guard = if raw { Some(RawTerminal::enter()?) } else { None };
    if raw {
        attachment.perform(vec![Action::Show(HINT.into())]);
    }
    watch_keys(sender, |keys| keys.map_or(Event::InputEnded, Event::Keys), wanted);
    let leave = attachment.serve(&events, limit);
    let result = attachment.finish(&events, leave);
    drop((guard, offer));
    let (leave, outcome, ending) = result?;
    judge(&leave, &outcome, &ending)
}

/// Offers control to other processes; without that everything else works, if somebody is here.
fn open_offer(control: &Control<'_>, sender: Sender<Event>) -> Result<Option<Offer>> {
    match Offer::open(control.folder, control.name, sender, Event::Asked) {
        Err(failure) if control.background.is_none() => {
            crate::ui::note(&failure.to_string());
            Ok(None)
        }
        offer => offer.map(Some),
    }
}

/// Sends signals to a main loop, so that it leaves in order.
pub fn watch_signals<E: Send + 'static>(sender: Sender<E>, event: fn(i32) -> E) -> Result<()> {
    let mut signals =
        Signals::new([SIGHUP, SIGINT, SIGQUIT, SIGTERM]).context(|| "cannot watch for signals".into())?;
    std::thread::spawn(move || {
        for signal in signals.forever() {
            if sender.send(event(signal)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// Sends what is typed to a main loop, each piece once it is wanted, and at last that it has ended. The thread ends with the process:
/// its read cannot be interrupted.
fn watch_keys<E: Send + 'static>(sender: Sender<E>, event: fn(Option<Vec<u8>>) -> E, wanted: Receiver<()>) {
    std::thread::spawn(move || {
        let mut buffer = [0; 1024];
        loop {
            let count = std::io::stdin().read(&mut buffer).unwrap_or(0);
            let keys = buffer.get(..count).filter(|keys| !keys.is_empty()).map(<[u8]>::to_vec);
            if sender.send(event(keys)).is_err() || count == 0 || wanted.recv().is_err() {
                return;
            }
        }
    });
}

/// The machine and its consoles.
struct Attachment {
    session: Session,
    mux: Mux,
    /// Those who control the machine from elsewhere.
    hub: Hub,
    /// Whoever started this process in the background waits for this name, until the hypervisor is there.
    starting: Option<(Background, String)>,
    /// What is told to who watches the machine.
    metrics: Option<Metrics>,
    /// What is known of a line without frames.
    plain: Plain,
    /// What is shown instead of consoles, where that is JSON.
    json: Option<Lines>,
    framed: bool,
    /// Whether the hypervisor is there to be spoken to.
    greeted: bool,
    /// What was commanded before that.
    waiting: Vec<Action>,
    /// Where more input is asked for.
    more: Sender<()>,
    /// Whether input has come, and no more is asked for until there is room.
    holds: bool,
    /// Whether input comes from a pipe. What comes from a terminal is always looked at: it may be the key to leave.
    is_pipe: bool,
    outcome: Outcome,
}

impl Attachment {
    /// The main loop.
    fn serve(&mut self, events: &Receiver<Event>, limit: Option<Duration>) -> Leave {
        loop {
            let leave = match events.recv_timeout(TICK) {
                Ok(event) => self.handle(event),
                Err(RecvTimeoutError::Timeout) => self.idle(),
                Err(RecvTimeoutError::Disconnected) => Some(Leave::MachineEnded),
            };
            if let Some(leave) = leave.or_else(|| self.pump()) {
                return leave;
            }
            if let Some(limit) = limit.filter(|&limit| self.session.age() > limit) {
                return Leave::Limit(limit);
            }
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
            Event::Asked(asked) => {
                let wishes = self.hub.ask(asked);
                let end = wishes.contains(&Wish::End).then(|| self.mux.remark("ended by another command"));
                self.perform(end.into_iter().chain(wishes.into_iter().map(action_of)).collect())
            }
            Event::Signal(signal) => Some(Leave::Signal(signal)),
        }
    }

    /// Keeps input going, and says what does not.
    fn pump(&mut self) -> Option<Leave> {
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
        let besides = self.session.hear(heard);
        let leave = self.note(heard);
        // What answers a client is shown to programs alone.
        let leave = leave.or_else(|| if is_known && self.json.is_none() { None } else { self.show(heard) });
        leave.or_else(|| besides.and_then(|besides| self.remark(&besides)))
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
            Heard::Hello { .. } => {
                self.greeted = true;
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
        let lines = self.json.as_mut().map(Lines::idle)?;
        self.perform(vec![Action::Show(lines)])
    }

    fn perform(&mut self, actions: Vec<Action>) -> Option<Leave> {
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
                Action::Tell(_) if !self.framed => {}
                // Kept until its VM runs.
                Action::Type { vm, bytes } => self.session.type_into(vm, &bytes),
                action if !self.greeted => self.waiting.push(action),
                Action::Tell(command) => self.session.command(command),
            }
        }
        None
    }

    /// Ends the machine if it runs, and shows what is left to show.
    fn finish(mut self, events: &Receiver<Event>, mut leave: Leave) -> Result<(Leave, Outcome, Ending)> {
        if !matches!(leave, Leave::MachineEnded) {
            if self.framed && self.greeted {
                self.session.command(Command::Poweroff);
                let deadline = Instant::now() + PATIENCE;
                while let Ok(event) = events.recv_timeout(deadline.saturating_duration_since(Instant::now()))
                {
                    match event {
                        Event::Machine(Notice::Ended { .. }) => break,
                        Event::Machine(Notice::Heard(heard)) => {
                            self.hub.hear(&heard);
                        }
                        _ => {}
                    }
                }
            }
            self.session.kill();
        }
        self.hub.finish(TICK);
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
        Wish::Tell(command) => Action::Tell(command),
        Wish::End => Action::Quit,
    }
}
