// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of a machine that runs here, and told to those who ask. It waits for nobody.

use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use turnstile_link::{Command, Outcome};

use super::event::{Bytes, Event, Past};
use super::names::full_name;
use super::outbox::Outbox;
use super::protocol::{Answer, Kind, Refusal, Request};
use super::ring::Ring;
use super::server::{Asked, Caller};
use super::state::{Machine, Port, Service, State, Vm};
use super::told::Told;
use super::waiting::{Turn, Waiting};
use crate::session::{Heard, start_failure};
use crate::top::desk::Desk;

/// How much of each console is kept, in bytes.
const KEPT: usize = 64 * 1024;

/// What a client wants of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Type into a console.
    Type {
        /// Of this VM.
        vm: u8,
        /// What.
        bytes: Vec<u8>,
    },
    /// The terminal of a console has another size.
    Size {
        /// Of this VM.
        vm: u8,
        /// Characters of a line.
        columns: u16,
        /// Lines.
        rows: u16,
    },
    /// Tell the hypervisor.
    Tell(Command),
    /// End the machine.
    End,
}

/// The machine.
pub struct Hub {
    machine: Machine,
    names: Vec<String>,
    begin: Instant,
    /// Of each VM.
    consoles: Vec<Ring>,
    /// The hypervisor's own text.
    own: Ring,
    followers: Vec<Follower>,
    told: Told,
    /// Those who have typed, and may type more when there is room for it.
    typists: Vec<Caller>,
    desk: Desk,
    /// Those who wait for figures of memory.
    waiting: Waiting,
}

/// A client that follows what happens.
struct Follower {
    outbox: Arc<Outbox>,
    /// Only this VM.
    only: Option<u8>,
}

impl Hub {
    /// Begins for the machine `name` with VMs of these names, in the order of the bundle.
    pub fn new(name: &str, detached: bool, names: Vec<String>) -> Self {
        let vm = |name: &String| Vm {
            name: name.clone(),
            vcpus: 0,
            state: State::Booting,
            starts: 0,
            failure: None,
            memory: None,
        };
        let process = std::process::id();
        let vms = names.iter().map(vm).collect();
        Hub {
            machine: Machine {
                name: full_name(name),
                process,
                detached,
                seconds: 0,
                vms,
                services: Vec::new(),
                ports: Vec::new(),
                pool: None,
            },
            begin: Instant::now(),
            consoles: names.iter().map(|_| Ring::new(KEPT)).collect(),
            own: Ring::new(KEPT),
            followers: Vec::new(),
            told: Told::default(),
            typists: Vec::new(),
            desk: Desk::new(names.clone()),
            waiting: Waiting::default(),
            names,
        }
    }

    /// Takes which ports its VMs have, as they are now.
    pub fn show_ports(&mut self, ports: Vec<Port>) {
        self.machine.ports = ports;
    }

    /// Takes what was heard from the machine; true if that answers a client, and nobody else.
    pub fn hear(&mut self, heard: &Heard) -> bool {
        self.desk.hear(heard);
        match heard {
            Heard::Console { vm, text } => {
                self.consoles.get_mut(usize::from(*vm)).into_iter().for_each(|ring| ring.push(text));
            }
            Heard::Text { text } => self.own.push(text),
            Heard::Vm { vm, vcpus, running, paused, .. } => self.change(*vm, |vm| {
                vm.vcpus = *vcpus;
                vm.state = match (*running, *paused) {
                    (_, true) => State::Paused,
                    (true, _) => State::Running,
                    (false, _) => State::Stopped,
                };
            }),
            Heard::Service { service, vm, name, crashes, .. } => {
                self.introduce(*service, *vm, name, *crashes);
            }
            // A stop at the same time may have been heard before.
            Heard::Paused { vm } => self.exchange(*vm, &[State::Running, State::Pausing], State::Paused),
            Heard::Resumed { vm, .. } => self.exchange(*vm, &[State::Pausing, State::Paused], State::Running),
            Heard::Started { vm, boots, .. } => {
                self.change(*vm, |vm| (vm.state, vm.starts, vm.failure) = (State::Running, *boots, None))
            }
            Heard::Crashed { vm, text } => self.change(*vm, |vm| {
                if let Some(why) = start_failure(&vm.name, text) {
                    (vm.state, vm.failure) = (State::Crashed, Some(why.to_owned()));
                }
            }),
            Heard::Stopped { vm, reason, restarts } => {
                self.change(*vm, |vm| vm.state = State::behind(*reason, *restarts))
            }
            Heard::Memory { vm, memory } => self.change(*vm, |vm| vm.memory = Some(*memory)),
            Heard::Pool(pool) => self.machine.pool = Some(*pool),
            Heard::Reply { command: Command::Memory, .. } => {
                let callers: Vec<_> = self.waiting.answered().collect();
                callers.into_iter().for_each(|caller| drop(self.list(caller, true)));
            }
            Heard::Reply { command, outcome } => {
                match (*command, *outcome) {
                    (Command::Pause { vm }, Outcome::Accepted) => {
                        self.exchange(vm, &[State::Running], State::Pausing);
                    }
                    // A stop was faster than the pause, or its answer.
                    (Command::Resume { vm }, Outcome::NotNow) => {
                        self.exchange(vm, &[State::Pausing], State::Running);
                    }
                    _ => {}
                }
                let machine = &self.machine;
                return self.told.hear(*command, *outcome, |command| name_of(machine, command));
            }
            _ => {}
        }
        self.tell_followers(heard);
        false
    }

    fn change(&mut self, vm: u8, change: impl FnMut(&mut Vm)) {
        self.machine.vms.get_mut(usize::from(vm)).into_iter().for_each(change);
    }

    /// Takes a service; they come in their order, and again when they have crashed.
    fn introduce(&mut self, service: u8, vm: u8, name: &str, crashes: u32) {
        let known = self.machine.services.len();
        match self.machine.services.get_mut(usize::from(service)) {
            Some(service) => service.crashes = crashes,
            None if usize::from(service) == known => {
                let vm = self.names.get(usize::from(vm)).cloned().unwrap_or_default();
                self.machine.services.push(Service { name: name.to_owned(), vm, crashes });
            }
            None => {}
        }
    }

    /// A VM that is in one of these states is in another one now.
    fn exchange(&mut self, vm: u8, from: &[State], to: State) {
        self.change(vm, |vm| vm.state = if from.contains(&vm.state) { to } else { vm.state });
    }

    fn tell_followers(&mut self, heard: &Heard) {
        if self.followers.is_empty() {
            return;
        }
        let Some(event) = Event::of(heard, &self.names) else { return };
        let line = serde_json::to_string(&event).unwrap_or_default();
        self.followers.retain(|follower| {
            let wanted = heard.vm().is_none_or(|vm| follower.only.is_none_or(|only| only == vm));
            if wanted { follower.outbox.offer(&line) } else { follower.outbox.is_open() }
        });
    }

    /// Takes what a client asks; returns what it wants of the machine.
    pub fn ask(&mut self, asked: Asked) -> Vec<Wish> {
        let (request, caller) = match asked {
            Asked::Reading(answer) => return self.desk.ask(answer).into_iter().map(Wish::Tell).collect(),
            Asked::Request(request, caller) => (request, caller),
        };
        let named = match &request {
            Request::Logs { vm, .. }
            | Request::Start { vm }
            | Request::Restart { vm }
            | Request::Pause { vm }
            | Request::Resume { vm }
            | Request::Size { vm, .. }
            | Request::Stop { vm } => vm.as_deref(),
            Request::Type { vm, .. } | Request::Balloon { vm, .. } => Some(vm.as_str()),
            Request::List { .. } | Request::Statistics | Request::KillService { .. } => None,
        };
        let vm = match named.map(|name| self.find(name)).transpose() {
            Ok(vm) => vm,
            Err(refusal) => {
                caller.answer(&Answer::Error(refusal));
                return Vec::new();
            }
        };
        self.serve(request, vm, caller)
    }

    fn find(&self, name: &str) -> Result<u8, Refusal> {
        let place = self.names.iter().position(|known| known == name);
        place.and_then(|place| u8::try_from(place).ok()).ok_or_else(|| Refusal {
            kind: Kind::NoSuchVm,
            what: format!("there is no VM `{name}`"),
            vms: self.names.clone(),
        })
    }

    fn serve(&mut self, request: Request, vm: Option<u8>, caller: Caller) -> Vec<Wish> {
        match request {
            Request::List { memory: true } if self.is_there() => {
                match self.waiting.add(caller, Instant::now()) {
                    Turn::Ask => vec![Wish::Tell(Command::Memory)],
                    Turn::Wait => Vec::new(),
                    Turn::Answer(caller) => self.list(caller, false),
                }
            }
            Request::List { .. } => self.list(caller, false),
            Request::Logs { follow, .. } => {
                let outbox = caller.outbox();
                caller.answer(&Answer::Ok(serde_json::to_value(self.past(vm)).unwrap_or_default()));
                if follow {
                    let others = |follower: &Follower| !Arc::ptr_eq(&follower.outbox, &outbox);
                    self.followers.retain(|follower| others(follower) && follower.outbox.is_open());
                    self.followers.push(Follower { outbox, only: vm });
                }
                Vec::new()
            }
            Request::Type { bytes, .. } => match (vm, bytes.decode()) {
                (Some(vm), Some(bytes)) => {
                    self.typists.push(caller);
                    vec![Wish::Type { vm, bytes }]
                }
                _ => refuse(caller, Kind::NotUnderstood, "`base64` is not Base64"),
            },
            Request::Size { columns, rows, .. } => {
                caller.answer(&Answer::Ok(Value::Null));
                self.meant(vm).map(|vm| Wish::Size { vm, columns, rows }).collect()
            }
            Request::Start { .. } => {
                self.tell_those(caller, vm, State::is_down, |vm| Command::Restart { vm }, "no VM is stopped")
            }
            Request::Pause { .. } => {
                let runs = |state| state == State::Running;
                self.tell_those(caller, vm, runs, |vm| Command::Pause { vm }, "no VM runs")
            }
            Request::Resume { .. } => {
                let none = "no VM is paused";
                self.tell_those(caller, vm, State::is_paused, |vm| Command::Resume { vm }, none)
            }
            Request::Restart { .. } => {
                let commands = self.meant(vm).map(|vm| Command::Restart { vm }).collect();
                self.tell(caller, commands)
            }
            Request::Stop { .. } => match vm {
                Some(vm) => self.tell(caller, vec![Command::Stop { vm }]),
                None => {
                    caller.answer(&Answer::Ok(Value::Null));
                    vec![Wish::End]
                }
            },
            Request::Balloon { bytes, .. } => {
                let commands = vm.into_iter().map(|vm| Command::Balloon { vm, bytes }).collect();
                self.tell(caller, commands)
            }
            Request::KillService { service } => {
                let services = &self.machine.services;
                match services.iter().position(|known| known.name == service) {
                    Some(place) => self.tell(caller, vec![Command::KillService { service: place as u8 }]),
                    None => refuse(caller, Kind::NoSuchService, no_such_service(services, &service)),
                }
            }
            // It is an `Asked` of its own.
            Request::Statistics => refuse(caller, Kind::NotUnderstood, "statistics"),
        }
    }

    /// Says what the machine is, and what its VMs have of memory if the hypervisor has just said so.
    fn list(&self, caller: Caller, with_memory: bool) -> Vec<Wish> {
        let mut machine = self.machine.clone();
        machine.seconds = self.begin.elapsed().as_secs();
        if !with_memory {
            machine.forget_memory();
        }
        caller.answer(&Answer::Ok(serde_json::to_value(machine).unwrap_or_default()));
        Vec::new()
    }

    /// Says whether the hypervisor has introduced its VMs.
    fn is_there(&self) -> bool {
        self.machine.vms.iter().any(|vm| vm.state != State::Booting)
    }

    /// Tells the hypervisor `command` of those VMs that are meant and `are` so; where there is none, the client is told that.
    fn tell_those(
        &mut self,
        caller: Caller,
        vm: Option<u8>,
        are: fn(State) -> bool,
        command: fn(u8) -> Command,
        none: &str,
    ) -> Vec<Wish> {
        let those = self.meant(vm).filter(|vm| self.state(*vm).is_some_and(are));
        let commands: Vec<_> = those.map(command).collect();
        match vm.and_then(|vm| self.machine.vms.get(usize::from(vm))) {
            Some(vm) if commands.is_empty() => {
                let what = format!("VM `{}` is {}", vm.name, vm.state.name());
                refuse(caller, Kind::NotNow, what)
            }
            None if commands.is_empty() => refuse(caller, Kind::NotNow, none),
            _ => self.tell(caller, commands),
        }
    }

    fn tell(&mut self, caller: Caller, commands: Vec<Command>) -> Vec<Wish> {
        for command in &commands {
            // What is tried anew has not failed yet.
            if let Command::Restart { vm } = command {
                self.change(*vm, |vm| vm.failure = None);
            }
        }
        self.told.add(caller, &commands);
        commands.into_iter().map(Wish::Tell).collect()
    }

    /// The VM that was named, or all.
    fn meant(&self, vm: Option<u8>) -> impl Iterator<Item = u8> + use<> {
        let all = 0..u8::try_from(self.names.len()).unwrap_or(u8::MAX);
        all.filter(move |index| vm.is_none_or(|vm| vm == *index))
    }

    fn state(&self, vm: u8) -> Option<State> {
        self.machine.vms.get(usize::from(vm)).map(|vm| vm.state)
    }

    /// What is kept of the consoles of the VMs that are meant.
    fn past(&self, vm: Option<u8>) -> Past {
        let mut events = Vec::new();
        let mut add = |ring: &Ring, event: &dyn Fn(Bytes) -> Event| {
            let (bytes, lost) = ring.kept();
            events.extend((lost > 0).then_some(Event::Lost { bytes: lost }));
            events.extend((!bytes.is_empty()).then(|| event(Bytes::of(&bytes))));
        };
        if vm.is_none() {
            add(&self.own, &|bytes| Event::Text { bytes });
        }
        for vm in self.meant(vm).map(usize::from) {
            if let (Some(ring), Some(name)) = (self.consoles.get(vm), self.names.get(vm)) {
                add(ring, &|bytes| Event::Console { vm: name.clone(), bytes });
            }
        }
        Past { events }
    }

    /// Answers those who have waited long enough for the hypervisor.
    pub fn end_waiting(&mut self) {
        let late: Vec<_> = self.waiting.late(Instant::now()).collect();
        late.into_iter().for_each(|caller| drop(self.list(caller, false)));
    }

    /// There is room for more input: lets those go on who have typed.
    pub fn take_more(&mut self) {
        self.typists.drain(..).for_each(|caller| caller.answer(&Answer::Ok(Value::Null)));
    }

    /// The machine has ended: waits for a moment until those who follow have been told the last of it.
    pub fn finish(&self, patience: Duration) {
        let deadline = Instant::now() + patience;
        self.followers.iter().for_each(|follower| follower.outbox.flush(deadline));
    }
}

/// The name of the VM or the service that a command is about.
fn name_of(machine: &Machine, command: Command) -> String {
    let name = match command {
        Command::Restart { vm }
        | Command::Stop { vm }
        | Command::Pause { vm }
        | Command::Resume { vm }
        | Command::Balloon { vm, .. }
        | Command::Statistics { vm } => machine.vms.get(usize::from(vm)).map(|vm| &vm.name),
        Command::KillService { service } => {
            machine.services.get(usize::from(service)).map(|service| &service.name)
        }
        Command::Hello | Command::Poweroff | Command::Memory => None,
    };
    name.cloned().unwrap_or_default()
}

fn no_such_service(services: &[Service], name: &str) -> String {
    let names: Vec<&str> = services.iter().map(|service| service.name.as_str()).collect();
    match names.is_empty() {
        true => format!("there is no service `{name}`: the machine has none"),
        false => format!("there is no service `{name}`: the services are {}", names.join(", ")),
    }
}

fn refuse(caller: Caller, kind: Kind, what: impl Into<String>) -> Vec<Wish> {
    caller.answer(&Answer::Error(Refusal { kind, what: what.into(), vms: Vec::new() }));
    Vec::new()
}
