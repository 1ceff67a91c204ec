// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The consoles of a running machine on the user's terminal or pipe.

mod attachment;
mod json;
mod judge;
mod mux;
#[cfg(test)]
mod mux_tests;
mod paper;
mod plain;
mod remote;
mod terminal;

use std::io::Read;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use attachment::{Attachment, Outcome};
use json::Lines;
use judge::judge;
use mux::Mux;
use paper::{Action, Screen};
use plain::Plain;
pub use remote::{console, logs};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGWINCH};
use signal_hook::iterator::Signals;
use terminal::RawTerminal;
pub use terminal::interactive;

use crate::cli;
use crate::control::detach::Background;
use crate::control::hub::Hub;
use crate::control::names::full_name;
use crate::control::server::{Asked, Offer};
use crate::failure::{Context, Result};
use crate::log::Log;
use crate::metrics::Metrics;
use crate::ports::{self, Desk, Named, Says};
use crate::qemu::Boot;
use crate::session::{Notice, Session};

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

/// What is done while the machine runs.
pub struct Stay {
    /// How its consoles are shown.
    pub style: Style,
    /// How long it may run.
    pub limit: Option<Duration>,
    /// Where its statistics are served as OpenMetrics.
    pub metrics: Option<SocketAddr>,
    /// Services by their numbers, and how long after the hypervisor is there each is to be killed.
    pub kills: Vec<(Duration, u8)>,
}

/// How others control the machine.
pub struct Control<'a> {
    /// The folder of the sockets.
    pub folder: &'a Path,
    /// The machine's name.
    pub name: &'a str,
    /// This process, if it is one in the background.
    pub background: Option<Background>,
    /// Where its consoles are written.
    pub log: &'a cli::Log,
    /// The names of its VMs and their ports.
    pub ports: &'a [Named],
}

/// Anything that the main loop waits for.
enum Event {
    Machine(Notice),
    Keys(Vec<u8>),
    InputEnded,
    /// The terminal has another size.
    Resized,
    Signal(i32),
    /// A client of the control socket asks for something.
    Asked(Asked),
    /// A program at a port does something.
    Port(Says),
}

impl From<Notice> for Event {
    fn from(notice: Notice) -> Self {
        Event::Machine(notice)
    }
}

/// Starts the machine, attaches its consoles, and stays until it ends or the user leaves.
pub fn run(
    boot: &Boot,
    program: &Path,
    names: Vec<String>,
    stay: Stay,
    control: Option<Control<'_>>,
) -> Result<()> {
    let Stay { style, limit, metrics, mut kills } = stay;
    kills.sort_unstable();
    kills.reverse();
    let (sender, events) = channel();
    let reading = |answer| Event::Asked(Asked::Reading(answer));
    let metrics = metrics.map(|address| Metrics::open(address, names.clone(), sender.clone(), reading));
    let metrics = metrics.transpose()?;
    if let Some(metrics) = &metrics {
        crate::ui::note(&format!("metrics: http://{}/metrics", metrics.address()));
    }
    watch_signals(sender.clone(), Event::Signal)?;
    let offer = control.as_ref().map(|control| open_offer(control, sender.clone())).transpose()?.flatten();
    let ports = match &control {
        Some(control) => open_ports(control, offer.is_some(), &sender)?,
        None => None,
    };
    let name = control.as_ref().map_or("", |control| control.name);
    let background = control.as_ref().and_then(|control| control.background);
    let log = control.as_ref().map(|control| Log::open(control.log, full_name(name), names.clone()));
    let log = log.transpose()?.flatten();
    let session = Session::start(boot, program, sender.clone())?;
    let raw = style == Style::Normal && interactive();
    let (more, wanted) = channel();
    let mut attachment = Attachment {
        session,
        json: (style == Style::Json).then(|| Lines::new(names.clone())),
        plain: Plain::new(names.clone()),
        hub: Hub::new(name, background.is_some(), names.clone()),
        desk: Desk::default(),
        ports: ports.as_ref().map(|offer| offer.places.clone()).unwrap_or_default(),
        starting: background.map(|background| (background, full_name(name))),
        metrics,
        log,
        mux: Mux::new(if raw { Screen::Terminal } else { Screen::Pipe }, names)
            .folding(crate::ui::terminal_width),
        framed: boot.append.contains("link=framed"),
        greeted: None,
        kills,
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
        let size = attachment.mux.resized(crate::width::terminal_size());
        attachment.perform(size);
        watch_size(sender.clone(), || Event::Resized)?;
    }
    watch_keys(sender, |keys| keys.map_or(Event::InputEnded, Event::Keys), wanted);
    let leave = attachment.serve(&events, limit);
    let result = attachment.finish(&events, leave);
    drop((guard, offer, ports));
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

/// Offers the named ports of the VMs, if they have some and control `is_offered`; without that everything else works, if somebody is here.
fn open_ports(
    control: &Control<'_>,
    is_offered: bool,
    sender: &Sender<Event>,
) -> Result<Option<ports::Offer>> {
    if control.ports.iter().all(|named| named.ports.is_empty()) {
        return Ok(None);
    }
    if !is_offered {
        // Their folder has the name of the control socket: where that is another machine's, so is the folder.
        crate::ui::note("so there are no sockets of its ports either");
        return Ok(None);
    }
    match ports::Offer::open(control.folder, control.name, control.ports, sender, Event::Port) {
        Err(failure) if control.background.is_none() => {
            crate::ui::note(&failure.to_string());
            Ok(None)
        }
        Err(failure) => Err(failure),
        Ok(offer) => {
            for (_, vm, port, path) in &offer.places {
                crate::ui::note(&format!("port {port} of {vm}: {}", path.display()));
            }
            Ok(Some(offer))
        }
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

/// Tells a main loop whenever the terminal has another size.
fn watch_size<E: Send + 'static>(sender: Sender<E>, event: fn() -> E) -> Result<()> {
    let mut signals = Signals::new([SIGWINCH]).context(|| "cannot watch the terminal's size".into())?;
    std::thread::spawn(move || {
        for _ in signals.forever() {
            if sender.send(event()).is_err() {
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
