// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where readings come from: a machine of this process's own, or a session of another one.

use std::sync::mpsc::{Sender, channel};

use turnstile_link::Command;

use super::collector::Collector;
use super::reading::Reading;
use crate::control::client::Client;
use crate::failure::{Failure, Result};
use crate::session::{Heard, Notice, Session, describe_stop};

/// What a source has to say.
#[derive(Debug)]
pub enum Update {
    /// A reading.
    Reading(Reading),
    /// Something happened that the user may want to know.
    News(String),
    /// There will be no more readings.
    Ended(Option<Failure>),
}

/// A source of readings.
pub enum Source {
    /// The machine runs here.
    Machine(Box<Machine>),
    /// It runs in another session; this is how its thread is asked.
    Session(Sender<()>),
}

/// A machine that runs for its statistics.
pub struct Machine {
    /// `None` when it has ended.
    session: Option<Session>,
    collector: Collector,
    names: Vec<String>,
    greeted: bool,
    /// A reading is wanted as soon as the hypervisor is there.
    wanted: bool,
    fault: Option<String>,
}

impl Machine {
    /// Takes a machine that was started, with VMs of these names.
    pub fn new(session: Session, names: Vec<String>) -> Self {
        let collector = Collector::new(names.clone());
        Machine { session: Some(session), collector, names, greeted: false, wanted: false, fault: None }
    }

    fn ask(&mut self) {
        self.wanted = !self.greeted;
        if let (true, Some(session)) = (self.greeted, &mut self.session) {
            self.collector.begin().into_iter().for_each(|command| session.command(command));
        }
    }

    /// Takes news from the machine.
    pub fn notice(&mut self, notice: &Notice) -> Option<Update> {
        let heard = match notice {
            Notice::Heard(heard) => heard,
            Notice::Ended { .. } => return Some(Update::Ended(self.end())),
        };
        let name = |vm: u8| self.names.get(usize::from(vm)).map_or("a VM", String::as_str);
        match heard {
            Heard::Hello { .. } => {
                self.greeted = true;
                if self.wanted {
                    self.ask();
                }
                None
            }
            Heard::Paused { vm } => Some(Update::News(format!("{} is paused", name(*vm)))),
            Heard::Resumed { vm, .. } => Some(Update::News(format!("{} goes on", name(*vm)))),
            Heard::Started { vm, boots, .. } if *boots > 1 => {
                Some(Update::News(format!("{} starts (start {boots})", name(*vm))))
            }
            Heard::Stopped { vm, reason, .. } => {
                let reason = describe_stop(*reason).replace('-', " ");
                Some(Update::News(format!("{}: {reason}", name(*vm))))
            }
            Heard::Crashed { vm, text } => Some(Update::News(format!("{}: {text}", name(*vm)))),
            Heard::Fault { text } => {
                self.fault = Some(text.clone());
                None
            }
            heard => self.collector.hear(heard).map(Update::Reading),
        }
    }

    /// Says what was wrong with the machine's end, if anything was.
    fn end(&mut self) -> Option<Failure> {
        let ending = match self.session.take()?.wait() {
            Ok(ending) => ending,
            Err(failure) => return Some(failure),
        };
        if let Some(fault) = self.fault.take() {
            let what = format!("the hypervisor reported a fault of its own: {fault}");
            return Some(Failure::failed(what).help("`turnstile run` shows its report"));
        }
        (!ending.status.success()).then(|| {
            Failure::failed(format!("QEMU ended early: {}", ending.status))
                .details(ending.messages)
                .help("`turnstile doctor` checks this machine")
        })
    }

    /// Whether the machine has said that it is there.
    pub fn is_there(&self) -> bool {
        self.greeted
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(session) = &mut self.session {
            session.command(Command::Poweroff);
            session.kill();
        }
    }
}

impl Source {
    /// Reads from a session in a thread of its own; what comes goes to `sender`.
    pub fn session<E>(mut client: Client, sender: Sender<E>) -> Self
    where
        E: From<Update> + Send + 'static,
    {
        let (ask, asked) = channel();
        std::thread::spawn(move || {
            for () in asked {
                let update = match client.read() {
                    Ok(Some(reading)) => Update::Reading(reading),
                    Ok(None) => Update::Ended(None),
                    Err(failure) => Update::Ended(Some(failure)),
                };
                let ended = matches!(update, Update::Ended(_));
                if sender.send(update.into()).is_err() || ended {
                    return;
                }
            }
        });
        Source::Session(ask)
    }

    /// Asks for a reading, which comes later.
    pub fn ask(&mut self) {
        match self {
            Source::Machine(machine) => machine.ask(),
            // A thread that has ended has said so.
            Source::Session(ask) => drop(ask.send(())),
        }
    }

    /// Takes news from the machine that runs here.
    pub fn notice(&mut self, notice: &Notice) -> Option<Update> {
        match self {
            Source::Machine(machine) => machine.notice(notice),
            Source::Session(_) => None,
        }
    }

    /// Whether there is anybody to ask.
    pub fn is_there(&self) -> bool {
        match self {
            Source::Machine(machine) => machine.is_there(),
            Source::Session(_) => true,
        }
    }
}

/// Refuses a reading in which no VM keeps statistics.
pub fn refuse_empty(reading: &Reading) -> Result<()> {
    if reading.vms.iter().any(|vm| vm.statistics) {
        return Ok(());
    }
    Err(Failure::failed("no VM of this machine keeps statistics").help(
        "start it with `turnstile run --statistics FILE.toml`, or write `statistics = true` for its VMs",
    ))
}
