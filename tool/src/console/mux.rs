// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Several consoles on one screen, as a pure state machine: keys and messages in, actions out.
//!
//! One VM is in front: its bytes go to the screen as they are, and keys go to it. The others' output is kept
//! and shown when they come to the front. In the view of all together, each line carries its VM's name.

use std::collections::VecDeque;

use turnstile_link::Command;

use super::paper::{Action, Paper, Screen};
use crate::session::{Heard, describe_stop};

/// The escape key: Ctrl-A.
pub const ESCAPE: u8 = 0x01;
/// How much of a VM's output is kept while it is not in front.
const BACKLOG: usize = 16 * 1024;
/// A partial line is shown when it gets longer than this.
const MAX_LINE: usize = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    Front,
    Together,
}

#[derive(Debug, Default)]
struct Console {
    name: String,
    running: bool,
    paused: bool,
    /// The key has told it to pause, and it is not known whether it is paused, or is to be.
    told_to_pause: bool,
    /// What was not shown yet.
    backlog: VecDeque<u8>,
    /// The line that is being written, for the view of all.
    line: Vec<u8>,
}

/// The consoles of all VMs.
#[derive(Debug)]
pub struct Mux {
    paper: Paper,
    view: View,
    front: usize,
    consoles: Vec<Console>,
    services: Vec<Service>,
    escaped: bool,
    /// What leaving means, for the help.
    leaving: &'static str,
}

/// A service.
#[derive(Debug)]
struct Service {
    number: u8,
    vm: usize,
    name: String,
    crashes: u32,
}

impl Mux {
    /// Starts with the names of the VMs, in the order of the bundle.
    pub fn new(screen: Screen, names: impl IntoIterator<Item = String>) -> Self {
        let console = |name| Console { name, ..Console::default() };
        let consoles: Vec<Console> = names.into_iter().map(console).collect();
        let together = screen == Screen::Pipe && consoles.len() > 1;
        Mux {
            paper: Paper::new(screen),
            view: if together { View::Together } else { View::Front },
            front: 0,
            consoles,
            services: Vec::new(),
            escaped: false,
            leaving: "leave: everything is stopped",
        }
    }

    /// For a machine that goes on when this user leaves: begins with a VM in front.
    pub fn attached(self, front: usize) -> Self {
        Mux { front, leaving: "leave: the machine goes on", ..self }
    }

    /// Folds remarks between words where the terminal is this wide.
    pub fn folding(self, width: fn() -> Option<u16>) -> Self {
        Mux { paper: self.paper.folding(width), ..self }
    }

    /// Takes keys from the terminal or bytes from the pipe.
    pub fn keys(&mut self, bytes: &[u8]) -> Vec<Action> {
        let mut actions = Vec::new();
        let mut typed = Vec::new();
        for &byte in bytes {
            if self.paper.screen() == Screen::Pipe {
                typed.push(byte);
            } else if std::mem::take(&mut self.escaped) {
                // What was typed before goes to the VM that was in front then.
                self.flush_typed(&mut typed, &mut actions);
                self.escape_key(byte, &mut actions);
            } else if byte == ESCAPE {
                self.escaped = true;
            } else {
                typed.push(byte);
            }
        }
        self.flush_typed(&mut typed, &mut actions);
        actions
    }

    /// The terminal has another size, which is that of all consoles.
    pub fn resized(&self, size: Option<(u16, u16)>) -> Vec<Action> {
        let Some((columns, rows)) = size.filter(|_| self.paper.screen() == Screen::Terminal) else {
            return Vec::new();
        };
        (0..self.consoles.len() as u8).map(|vm| Action::Size { vm, columns, rows }).collect()
    }

    fn flush_typed(&self, typed: &mut Vec<u8>, actions: &mut Vec<Action>) {
        if !typed.is_empty() {
            actions.push(Action::Type { vm: self.front as u8, bytes: std::mem::take(typed) });
        }
    }

    fn escape_key(&mut self, key: u8, actions: &mut Vec<Action>) {
        let front = self.front as u8;
        match key {
            ESCAPE => actions.push(Action::Type { vm: front, bytes: vec![ESCAPE] }),
            b'x' | b'q' => {
                actions.push(self.paper.remark("leaving"));
                actions.push(Action::Quit);
            }
            b'r' => actions.push(Action::Tell(Command::Restart { vm: front })),
            b's' => actions.push(Action::Tell(Command::Stop { vm: front })),
            b'z' => {
                // A pause may be under way, and it may take long: the key takes it back.
                let pauses = self.consoles.get_mut(self.front).is_none_or(|console| {
                    console.told_to_pause = !console.paused && !console.told_to_pause;
                    console.told_to_pause
                });
                let command =
                    if pauses { Command::Pause { vm: front } } else { Command::Resume { vm: front } };
                actions.push(Action::Tell(command));
            }
            b'k' => self.kill_services(actions),
            b'n' | b' ' => self.bring(self.front + 1, actions),
            b'p' => self.bring(self.front + self.consoles.len().max(1) - 1, actions),
            b'1'..=b'9' => {
                let wanted = usize::from(key - b'1');
                match wanted < self.consoles.len() {
                    true => self.bring(wanted, actions),
                    false => actions.push(self.paper.remark(&format!("there is no VM {}", wanted + 1))),
                }
            }
            b'a' => self.together(actions),
            b'h' | b'?' => actions.push(self.help()),
            _ => actions.push(self.paper.remark("unknown key; Ctrl-A h shows the keys")),
        }
    }

    /// Starts the services of the VM in front anew.
    fn kill_services(&mut self, actions: &mut Vec<Action>) {
        let before = actions.len();
        let own = self.services.iter().filter(|service| service.vm == self.front);
        actions.extend(own.map(|service| Action::Tell(Command::KillService { service: service.number })));
        if actions.len() == before {
            actions.push(self.paper.remark("no service serves this VM"));
        }
    }

    /// Brings a VM to the front and shows what it wrote meanwhile.
    fn bring(&mut self, wanted: usize, actions: &mut Vec<Action>) {
        let count = self.consoles.len();
        self.front = wanted % count.max(1);
        if self.view == View::Together {
            self.view = View::Front;
            self.finish_lines(actions);
        }
        let Some(console) = self.consoles.get_mut(self.front) else { return };
        let missed: Vec<u8> = console.backlog.drain(..).collect();
        let title = format!("{} ({} of {count})", console.name, self.front + 1);
        actions.push(self.paper.remark(&title));
        self.paper.show(missed, actions);
    }

    fn together(&mut self, actions: &mut Vec<Action>) {
        if self.view == View::Together {
            return;
        }
        self.view = View::Together;
        let front = self.consoles.get(self.front).map_or("", |console| &console.name);
        let title = format!("all together; keys go to {front}");
        actions.push(self.paper.remark(&title));
        for index in 0..self.consoles.len() {
            let missed: Vec<u8> = self
                .consoles
                .get_mut(index)
                .map(|console| console.backlog.drain(..).collect())
                .unwrap_or_default();
            self.show_lines(index, &missed, actions);
        }
    }

    fn help(&mut self) -> Action {
        let mut text = String::from("keys after Ctrl-A:\n");
        let (restart, stop) = match self.consoles.len() {
            ..=1 => ("restart the VM", "stop the VM, and with it the machine: that ends the tool"),
            _ => (
                "restart the VM in front, or start it if it is stopped",
                "stop the VM in front; the machine ends with the last one, and the tool with it",
            ),
        };
        for (keys, what) in [
            ("n p", "next, previous VM"),
            ("1 … 9", "that VM"),
            ("a", "all VMs together, each line with its name"),
            ("r", restart),
            ("s", stop),
            ("z", "pause the VM in front, or let it go on"),
            ("k", "kill the services of the VM in front: they start anew"),
            ("x", self.leaving),
            ("Ctrl-A", "send Ctrl-A itself"),
        ] {
            text.push_str(&format!("  {keys:<7} {what}\n"));
        }
        for (index, console) in self.consoles.iter().enumerate() {
            let state = match (console.running, console.paused) {
                (_, true) => "paused",
                (true, _) => "running",
                (false, _) => "stopped",
            };
            let mark = if index == self.front { '*' } else { ' ' };
            text.push_str(&format!(" {mark}{} {} ({state})\n", index + 1, console.name));
        }
        for service in &self.services {
            let vm = self.consoles.get(service.vm).map_or("a VM", |console| &console.name);
            let crashed = match service.crashes {
                0 => String::new(),
                1 => " (crashed once)".to_owned(),
                times => format!(" (crashed {times} times)"),
            };
            text.push_str(&format!("  service {}, of {vm}{crashed}\n", service.name));
        }
        self.paper.remark(text.trim_end())
    }

    /// Takes what was heard from the machine.
    pub fn heard(&mut self, heard: &Heard) -> Vec<Action> {
        let mut actions = Vec::new();
        match heard {
            Heard::Console { vm, text } => self.console(usize::from(*vm), text, &mut actions),
            Heard::Text { text } => self.paper.own_text(text, &mut actions),
            Heard::Vm { vm, running, paused, .. } => {
                self.set_running(*vm, *running);
                self.set_paused(*vm, *paused);
            }
            Heard::Paused { vm } => {
                self.set_paused(*vm, true);
                let text = format!("{} is paused; Ctrl-A z lets it go on", self.name(*vm));
                actions.push(self.paper.remark(&text));
            }
            Heard::Resumed { vm, .. } => {
                self.set_paused(*vm, false);
                let text = format!("{} goes on", self.name(*vm));
                actions.push(self.paper.remark(&text));
            }
            Heard::Service { service, vm, name, crashes, .. } => {
                let heard =
                    Service { number: *service, vm: usize::from(*vm), name: name.clone(), crashes: *crashes };
                match self.services.iter_mut().find(|known| known.number == *service) {
                    Some(known) => *known = heard,
                    None => self.services.push(heard),
                }
            }
            Heard::Started { vm, boots, .. } => {
                self.set_running(*vm, true);
                let times = if *boots > 1 { format!(" (start {boots})") } else { String::new() };
                let text = format!("{} starts{times}", self.name(*vm));
                actions.push(self.paper.remark(&text));
            }
            Heard::Stopped { vm, reason, restarts } => {
                self.set_running(*vm, false);
                let then = if *restarts { ", and starts again" } else { "" };
                let reason = describe_stop(*reason).replace('-', " ");
                let text = format!("{}: {reason}{then}", self.name(*vm));
                actions.push(self.paper.remark(&text));
            }
            Heard::Crashed { vm, text } => {
                let text = format!("{}: {text}", self.name(*vm));
                actions.push(self.paper.remark(&text));
            }
            Heard::InputWaits { vm, bytes } => {
                let text = format!("{} does not read its input: {bytes} bytes wait", self.name(*vm));
                actions.push(self.paper.remark(&text));
            }
            Heard::InputDropped { vm, bytes } => {
                let text =
                    format!("{} did not read {bytes} bytes of its input: they are dropped", self.name(*vm));
                actions.push(self.paper.remark(&text));
            }
            Heard::Fault { text } => {
                let text = format!("fault in the hypervisor: {text}");
                actions.push(self.paper.remark(&text));
            }
            Heard::Done { .. } => {
                self.finish_lines(&mut actions);
                actions.push(self.paper.remark("every VM has stopped"));
            }
            Heard::Reply { outcome: turnstile_link::Outcome::NotNow, .. } => {
                actions.push(self.paper.remark("that VM's present state does not allow this"));
            }
            Heard::Hello { .. }
            | Heard::Room { .. }
            | Heard::Port { .. }
            | Heard::PortRoom { .. }
            | Heard::PortClosed { .. }
            | Heard::Statistics(_)
            | Heard::Exits(_)
            | Heard::Events(_)
            | Heard::Memory { .. }
            | Heard::Pool(_)
            | Heard::Reply { .. } => {}
        }
        actions
    }

    /// Says something of the tool's own.
    pub fn remark(&mut self, text: &str) -> Action {
        self.paper.remark(text)
    }

    /// Takes the end of the machine: lines that were begun are shown.
    pub fn ended(&mut self) -> Vec<Action> {
        let mut actions = Vec::new();
        self.finish_lines(&mut actions);
        self.paper.finish(&mut actions);
        actions
    }

    /// Takes whether a VM runs; it is not paused then.
    pub fn set_running(&mut self, vm: u8, running: bool) {
        if let Some(console) = self.consoles.get_mut(usize::from(vm)) {
            (console.running, console.paused, console.told_to_pause) = (running, false, false);
        }
    }

    /// Takes whether a VM that runs is paused.
    pub fn set_paused(&mut self, vm: u8, paused: bool) {
        if let Some(console) = self.consoles.get_mut(usize::from(vm)) {
            (console.paused, console.told_to_pause) = (paused, false);
        }
    }

    fn name(&self, vm: u8) -> &str {
        self.consoles.get(usize::from(vm)).map_or("a VM", |console| &console.name)
    }

    /// A guest's bytes: to the screen, into lines, or kept.
    fn console(&mut self, index: usize, bytes: &[u8], actions: &mut Vec<Action>) {
        if self.view == View::Together {
            self.show_lines(index, bytes, actions);
        } else if index == self.front {
            self.paper.show(bytes.to_vec(), actions);
        } else if let Some(console) = self.consoles.get_mut(index) {
            console.backlog.extend(bytes);
            let excess = console.backlog.len().saturating_sub(BACKLOG);
            console.backlog.drain(..excess);
        }
    }

    /// Shows the complete lines of a VM with its name, and keeps the rest.
    fn show_lines(&mut self, index: usize, bytes: &[u8], actions: &mut Vec<Action>) {
        for &byte in bytes {
            let Some(console) = self.consoles.get_mut(index) else { return };
            match byte {
                b'\r' => {}
                b'\n' => self.finish_line(index, actions),
                _ => {
                    console.line.push(byte);
                    if console.line.len() >= MAX_LINE {
                        self.finish_line(index, actions);
                    }
                }
            }
        }
    }

    fn finish_line(&mut self, index: usize, actions: &mut Vec<Action>) {
        let Some(console) = self.consoles.get_mut(index) else { return };
        let line = std::mem::take(&mut console.line);
        let name = console.name.clone();
        let width = self.consoles.iter().map(|console| console.name.len()).max().unwrap_or(0);
        actions.push(self.paper.line(&name, width, &line));
    }

    /// Shows lines that were begun and not ended.
    fn finish_lines(&mut self, actions: &mut Vec<Action>) {
        for index in 0..self.consoles.len() {
            if self.consoles.get(index).is_some_and(|console| !console.line.is_empty()) {
                self.finish_line(index, actions);
            }
        }
    }
}
