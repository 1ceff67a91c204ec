// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile console` and `logs`: the consoles of a machine that another process runs.

use std::io::ErrorKind;
use std::sync::mpsc::{Receiver, Sender, channel};

use turnstile_link::{Command, Outcome};

use super::mux::Mux;
use super::paper::{Action, Screen};
use super::terminal::{self, RawTerminal, interactive};
use super::{HINT, watch_keys, watch_signals, watch_size};
use crate::cli;
use crate::control::client::Client;
use crate::control::event::{Bytes, Event as Happened, Past};
use crate::control::find::find;
use crate::control::protocol::{Answer, Line, Request};
use crate::control::state::{Machine, State};
use crate::failure::{Failure, Result};
use crate::layout::Layout;

/// How one of several machines is named.
const NAMED: &str = "by its whole name or its process number";

/// Anything that is waited for.
enum Event {
    /// From the machine; `None` when it has ended.
    Machine(Option<Line>),
    /// From here; `None` when there will be no more.
    Keys(Option<Vec<u8>>),
    Signal(i32),
    /// The terminal has another size.
    Resized,
}

/// `console`
pub fn console(layout: &Layout, options: &cli::Console) -> Result<()> {
    let raw = interactive();
    let screen = if raw { Screen::Terminal } else { Screen::Pipe };
    // On a terminal other VMs can come to the front.
    let mut remote = Remote::open(layout, &options.machine, options.vm.as_deref(), screen, true)?;
    let (sender, events) = channel();
    let wanted = remote.open_input();
    watch_signals(sender.clone(), Event::Signal)?;
    let guard = if raw { Some(RawTerminal::enter()?) } else { None };
    if raw {
        remote.perform(vec![Action::Show(HINT.into())])?;
        remote.resized()?;
        watch_size(sender.clone(), || Event::Resized)?;
    }
    let mut goes_on = remote.show_past(false)?;
    watch_machine(&mut remote.client, sender.clone())?;
    watch_keys(sender, Event::Keys, wanted);
    while goes_on {
        goes_on = match events.recv() {
            Ok(Event::Machine(Some(line))) => remote.take(line)?,
            Ok(Event::Machine(None)) | Err(_) => {
                remote.end()?;
                false
            }
            Ok(Event::Keys(keys)) => remote.keys(&keys.unwrap_or_default())?,
            Ok(Event::Resized) => remote.resized()?,
            Ok(Event::Signal(signal)) => return Err(Failure::signal(signal)),
        };
    }
    drop(guard);
    Ok(())
}

/// `logs`
pub fn logs(layout: &Layout, options: &cli::Logs) -> Result<()> {
    let vm = options.vm.as_deref();
    let mut remote = Remote::open(layout, &options.machine, vm, Screen::Pipe, options.follow)?;
    let mut goes_on = remote.show_past(true)?;
    if !options.follow {
        let rest = remote.mux.ended();
        return remote.perform(rest).map(drop);
    }
    let mut lines = remote.client.events()?;
    while goes_on {
        goes_on = match lines.next() {
            Some(line) => remote.take(line)?,
            None => {
                remote.end()?;
                false
            }
        };
    }
    Ok(())
}

/// Sends what comes from the machine to a main loop.
fn watch_machine(client: &mut Client, sender: Sender<Event>) -> Result<()> {
    let lines = client.events()?;
    std::thread::spawn(move || {
        for line in lines.map(Some).chain([None]) {
            if sender.send(Event::Machine(line)).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// The consoles, and the connection to them.
struct Remote {
    client: Client,
    /// The VMs that are shown.
    names: Vec<String>,
    mux: Mux,
    past: Past,
    /// The machine's services by their numbers.
    services: Vec<String>,
    /// Where more input is asked for.
    more: Option<Sender<()>>,
    /// Whether input comes from a pipe. What comes from a terminal is always looked at: it may be the key to leave.
    is_pipe: bool,
}

impl Remote {
    /// Connects to a machine; `vm` is in front, or the only one in a pipe.
    fn open(layout: &Layout, machine: &str, vm: Option<&str>, screen: Screen, follow: bool) -> Result<Self> {
        let mut client = find(layout, Some(machine), NAMED)?;
        let gone = || Failure::failed(format!("{machine} has just ended"));
        let machine: Machine = client.ask(&Request::List { memory: false })?.ok_or_else(gone)?;
        let only = vm.filter(|_| screen == Screen::Pipe);
        let is_there = vm.is_none_or(|vm| machine.vms.iter().any(|known| known.name == vm));
        // Of a VM that is not there the machine says so.
        let vm_asked = if is_there { only } else { vm };
        let request = Request::Logs { vm: vm_asked.map(str::to_owned), follow };
        let past = client.ask(&request)?.ok_or_else(gone)?;
        let shown = machine.vms.iter().filter(|known| only.is_none_or(|only| known.name == only));
        let names: Vec<String> = shown.clone().map(|vm| vm.name.clone()).collect();
        let front = names.iter().position(|name| vm == Some(name)).unwrap_or(0);
        let mut mux =
            Mux::new(screen, names.iter().cloned()).attached(front).folding(crate::ui::terminal_width);
        for (index, vm) in shown.enumerate() {
            mux.set_running(index as u8, vm.state == State::Running || vm.state.is_paused());
            mux.set_paused(index as u8, vm.state.is_paused());
        }
        for (number, service) in machine.services.iter().enumerate() {
            let vm = names.iter().position(|name| *name == service.vm);
            let Some(vm) = vm.and_then(|vm| u8::try_from(vm).ok()) else { continue };
            let (name, crashes) = (service.name.clone(), service.crashes);
            let service = number as u8;
            mux.heard(&crate::session::Heard::Service { service, vm, name, crashes, exits: 0, ticks: 0 });
        }
        let services = machine.services.iter().map(|service| service.name.clone()).collect();
        Ok(Remote { client, names, mux, past, services, more: None, is_pipe: screen == Screen::Pipe })
    }

    /// Shows what is kept of the consoles, and perhaps of the hypervisor's own text; false if nobody reads it.
    fn show_past(&mut self, with_text: bool) -> Result<bool> {
        for event in std::mem::take(&mut self.past.events) {
            let is_shown = with_text || matches!(event, Happened::Console { .. });
            if is_shown && !self.take(Line::Event(event))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Tells the machine the size of the terminal; false if the user leaves.
    fn resized(&mut self) -> Result<bool> {
        let actions = self.mux.resized(crate::width::terminal_size());
        self.perform(actions)
    }

    /// Lets input come; returns where it is asked for.
    fn open_input(&mut self) -> Receiver<()> {
        let (more, wanted) = channel();
        self.more = Some(more);
        wanted
    }

    /// Takes input; false if the user leaves.
    fn keys(&mut self, keys: &[u8]) -> Result<bool> {
        if !self.is_pipe {
            self.want_more();
        }
        let actions = self.mux.keys(keys);
        self.perform(actions)
    }

    fn want_more(&self) {
        // After the end of the input nobody is there to be asked.
        let _ = self.more.as_ref().map(|more| more.send(()));
    }

    /// Takes what comes from the machine; false if the user leaves.
    fn take(&mut self, line: Line) -> Result<bool> {
        if self.is_pipe && matches!(line, Line::Answer(_)) {
            // The machine takes more only when there is room for it.
            self.want_more();
        }
        let heard = match line {
            Line::Event(event) => event.heard(&self.names),
            // The mux says that a key had no effect.
            Line::Answer(Answer::Error(_)) => {
                Some(crate::session::Heard::Reply { command: Command::Hello, outcome: Outcome::NotNow })
            }
            Line::Answer(Answer::Ok(_)) => None,
        };
        let actions = heard.map(|heard| self.mux.heard(&heard)).unwrap_or_default();
        self.perform(actions)
    }

    /// The machine has ended.
    fn end(&mut self) -> Result<()> {
        let mut actions = self.mux.ended();
        actions.push(self.mux.remark("the machine has ended"));
        self.perform(actions).map(drop)
    }

    /// Does what the mux says; false if the user leaves.
    fn perform(&mut self, actions: Vec<Action>) -> Result<bool> {
        for action in actions {
            let request = match action {
                Action::Show(bytes) => match terminal::show(&bytes) {
                    Ok(()) => continue,
                    Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(false),
                    Err(error) => return Err(crate::ui::cannot_write(error)),
                },
                Action::Remark(bytes) => {
                    terminal::remark(&bytes);
                    continue;
                }
                Action::Quit => return Ok(false),
                Action::Type { vm, bytes } => match self.name(vm) {
                    Some(vm) => Request::Type { vm, bytes: Bytes::of(&bytes) },
                    None => continue,
                },
                Action::Size { vm, columns, rows } => match self.name(vm) {
                    Some(vm) => Request::Size { vm: Some(vm), columns, rows },
                    None => continue,
                },
                Action::Tell(Command::Restart { vm }) => Request::Restart { vm: self.name(vm) },
                Action::Tell(Command::Pause { vm }) => Request::Pause { vm: self.name(vm) },
                Action::Tell(Command::Resume { vm }) => Request::Resume { vm: self.name(vm) },
                // Without a name it would be the whole machine.
                Action::Tell(Command::Stop { vm }) => match self.name(vm) {
                    Some(vm) => Request::Stop { vm: Some(vm) },
                    None => continue,
                },
                Action::Tell(Command::KillService { service }) => {
                    match self.services.get(usize::from(service)) {
                        Some(service) => Request::KillService { service: service.clone() },
                        None => continue,
                    }
                }
                Action::Tell(_) => continue,
            };
            // A machine that has ended closes the other direction, too.
            let _ = self.client.send(&request);
        }
        Ok(true)
    }

    fn name(&self, vm: u8) -> Option<String> {
        self.names.get(usize::from(vm)).cloned()
    }
}
