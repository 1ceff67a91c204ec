// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Follows the steps of a scenario, and judges its end.

use std::collections::BTreeMap;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use turnstile::failure::Result;
use turnstile::session::{self, Heard, Notice, PortOf};
use turnstile::top::collector::Collector;

use super::log::Log;
use super::power::Powered;
use super::pulse::Pulse;
use super::scenario::{Ending, Record, Scenario, Start, Step, stream};

/// How often time-outs are looked at.
const TICK: Duration = Duration::from_millis(50);
/// The refusal of a bundle or a machine: this long after its last word nothing more is awaited.
const REFUSAL_PATIENCE: Duration = Duration::from_secs(1);

/// How much of everything the steps have used up.
#[derive(Debug, Default)]
struct Cursors {
    text: usize,
    consoles: Vec<usize>,
    stops: usize,
    answers: usize,
    pauses: usize,
}

/// What has come from a port.
#[derive(Debug, Default)]
struct Came {
    bytes: Vec<u8>,
    /// How many of them were read, so that there is room for others.
    read: usize,
}

/// A scenario in progress.
pub struct Player<'a> {
    machine: Powered<'a>,
    record: Record,
    collector: Collector,
    cursors: Cursors,
    limit: Duration,
    pulse: Pulse,
    ended: bool,
    /// How much the machine had said before it was switched on last.
    switched_on: usize,
    /// What has come from each port, since somebody came there.
    ports: BTreeMap<PortOf, Came>,
    log: &'a mut Log,
}

/// What is wrong, as the sentence for the report.
type Verdict = std::result::Result<(), String>;

impl<'a> Player<'a> {
    /// Makes a player of a machine, with the names of its VMs and a limit of processor time.
    pub fn new(machine: Powered<'a>, names: Vec<String>, limit: Duration, log: &'a mut Log) -> Self {
        Player {
            machine,
            record: Record::default(),
            collector: Collector::new(names),
            cursors: Cursors::default(),
            limit,
            pulse: Pulse::new(Instant::now()),
            ended: false,
            switched_on: 0,
            ports: BTreeMap::new(),
            log,
        }
    }

    /// Whether QEMU has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }

    /// Whether QEMU has ended before the firmware has started the hypervisor.
    pub fn has_ended_in_firmware(&self) -> bool {
        self.ended && self.record.text.get(self.switched_on..).is_some_and(is_of_firmware_alone)
    }

    /// Adds to the log where the CPUs are.
    pub fn log_places(&mut self) {
        self.machine.ask().iter().for_each(|line| self.log.line(line));
    }

    /// Takes the machine's power away and switches it on again. What it has said stays said.
    pub fn cut(self) -> Result<Self> {
        self.log.line("--- PowerCut");
        let machine = self.machine.cut()?;
        let switched_on = self.record.text.len();
        Ok(Self { machine, pulse: Pulse::new(Instant::now()), ended: false, switched_on, ..self })
    }

    /// Ends QEMU.
    pub fn finish(self) -> Result<session::Ending> {
        self.machine.off()
    }

    /// Follows steps.
    pub fn follow(&mut self, steps: &[Step]) -> Verdict {
        for step in steps {
            self.log.line(&format!("--- {step:?}"));
            self.step(step)?;
        }
        Ok(())
    }

    /// Judges the end.
    pub fn judge(&mut self, scenario: &Scenario) -> Verdict {
        self.end(scenario.ending)?;
        self.complaints()?;
        scenario.judge.map_or(Ok(()), |judge| judge(&self.record))
    }

    fn step(&mut self, step: &Step) -> Verdict {
        match step {
            Step::Type(vm, text) => self.machine.session.type_into(*vm, text.as_bytes()),
            Step::Resize(vm, columns, rows) => self.machine.session.resize(*vm, *columns, *rows),
            Step::PortComes(vm, port) => {
                self.ports.insert((*vm, *port), Came::default());
                self.machine.session.connect_port((*vm, *port));
            }
            Step::PortSends(vm, port, length) => {
                let bytes: Vec<u8> = stream(*length).collect();
                self.machine.session.send_to_port((*vm, *port), &bytes);
            }
            Step::PortSays(vm, port, length) => self.read_port((*vm, *port), *length)?,
            Step::PortGoes(vm, port) => self.machine.session.disconnect_port((*vm, *port)),
            Step::Tell(command) => self.machine.session.command(*command),
            Step::Wait(milliseconds) => {
                let until = Instant::now() + Duration::from_millis(*milliseconds);
                while Instant::now() < until {
                    self.listen("while time passes")?;
                }
            }
            Step::Read => self.read()?,
            Step::ReadAtRest => {
                self.read()?;
                while let Some(earlier) = self.record.readings.pop() {
                    self.read()?;
                    if self.record.readings.last().is_some_and(|reading| reading.has_same_exits(&earlier)) {
                        break;
                    }
                }
            }
            _ => {
                let what = format!("waiting for {step:?}");
                while !self.has_happened(step) {
                    self.listen(&what)?;
                }
            }
        }
        Ok(())
    }

    /// Reads from a port until so many bytes have come.
    fn read_port(&mut self, of: PortOf, length: usize) -> Verdict {
        loop {
            let came = self.ports.entry(of).or_default();
            // There is room for more.
            let count = came.bytes.len() - came.read;
            came.read += count;
            self.machine.session.read_port(of, count);
            let all = self.ports.get(&of).map_or(0, |came| came.read);
            if all >= length {
                break;
            }
            self.listen(&format!("reading byte {all} of {length} from a port"))?;
        }
        let bytes = self.ports.get(&of).map(|came| came.bytes.as_slice()).unwrap_or_default();
        match stream(length).eq(bytes.iter().copied()) {
            true => Ok(()),
            false => Err(format!("what came from port {} of VM {} is not what was sent", of.1, of.0)),
        }
    }

    /// Adds a reading of the statistics to the record.
    fn read(&mut self) -> Verdict {
        let before = self.record.readings.len();
        self.collector.begin().into_iter().for_each(|command| self.machine.session.command(command));
        while self.record.readings.len() == before {
            self.listen("reading the statistics")?;
        }
        Ok(())
    }

    /// Says whether a step has happened; if so, what it took is used up.
    fn has_happened(&mut self, step: &Step) -> bool {
        match step {
            Step::Expect(vm, text) => {
                let index = usize::from(*vm);
                if self.cursors.consoles.len() <= index {
                    self.cursors.consoles.resize(index + 1, 0);
                }
                let Some(cursor) = self.cursors.consoles.get_mut(index) else { return false };
                advance(self.record.console(*vm), cursor, text)
            }
            Step::Reported(text) => self.record.crashes.iter().any(|report| report.contains(text)),
            Step::Text(text) => advance(&self.record.text, &mut self.cursors.text, text),
            Step::Started(vm, boots) => {
                self.record.starts.iter().any(|start| start.vm == *vm && start.boots >= *boots)
            }
            Step::Stopped(vm, reason) => {
                next(&self.record.stops, &mut self.cursors.stops, |stop| *stop == (*vm, *reason))
            }
            Step::Answered(command, outcome) => {
                next(&self.record.answers, &mut self.cursors.answers, |answer| {
                    answer == &(*command, *outcome)
                })
            }
            Step::Paused(vm) => {
                next(&self.record.pauses, &mut self.cursors.pauses, |pause| *pause == (*vm, None))
            }
            Step::Resumed(vm) => {
                next(&self.record.pauses, &mut self.cursors.pauses, |(of, time)| of == vm && time.is_some())
            }
            Step::Type(..)
            | Step::PortComes(..)
            | Step::PortSends(..)
            | Step::PortSays(..)
            | Step::PortGoes(..)
            | Step::Tell(_)
            | Step::Wait(_)
            | Step::Read
            | Step::ReadAtRest
            | Step::Resize(..)
            | Step::PowerCut => true,
        }
    }

    /// Waits for news; fails if there can be none any more.
    fn listen(&mut self, what: &str) -> Verdict {
        if let Some(fault) = &self.record.fault {
            return Err(format!("the hypervisor reported a fault of its own: {fault}"));
        }
        if self.ended {
            return Err(format!("the machine ended while {what}"));
        }
        let notice = self.machine.notices.recv_timeout(TICK);
        let used = self.machine.session.cpu_time();
        match notice {
            Ok(Notice::Heard(heard)) => {
                self.machine.session.hear(&heard);
                self.machine.session.hear_of_ports(&heard);
                self.note(&heard);
                self.pulse.beat(Instant::now(), used);
            }
            Ok(Notice::Ended { lost: 0 }) | Err(RecvTimeoutError::Disconnected) => self.ended = true,
            Ok(Notice::Ended { lost }) => {
                return Err(format!("{lost} frames were damaged on the serial line"));
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if self.machine.session.exceeds_with(self.limit, used) {
            let used = used.as_secs();
            return Err(format!("nothing more after {used} s of processor time, {what}"));
        }
        if self.pulse.is_gone(Instant::now(), used) {
            return Err(format!("the machine neither says nor does anything, {what}"));
        }
        Ok(())
    }

    fn note(&mut self, heard: &Heard) {
        let record = &mut self.record;
        record.readings.extend(self.collector.hear(heard));
        match heard {
            Heard::Port { vm, port, bytes } => {
                let is_theirs = self.machine.session.is_for_port((*vm, *port));
                let came = self.ports.get_mut(&(*vm, *port)).filter(|_| is_theirs);
                came.into_iter().for_each(|came| came.bytes.extend(bytes));
                return;
            }
            Heard::PortRoom { .. } | Heard::PortClosed { .. } => return,
            Heard::Text { text } => {
                let text = String::from_utf8_lossy(text);
                self.log.text(&text);
                record.text.push_str(&text);
                return;
            }
            Heard::Console { vm, text } => {
                let index = usize::from(*vm);
                if record.is_paused(*vm) {
                    record.ran_while_paused = Some(*vm);
                }
                if record.consoles.len() <= index {
                    record.consoles.resize(index + 1, String::new());
                }
                let text = String::from_utf8_lossy(text);
                if let Some(console) = record.consoles.get_mut(index) {
                    // The log has whole lines, so that two VMs' do not mix.
                    let begun = console.rfind('\n').map_or(0, |newline| newline + 1);
                    console.push_str(&text);
                    if text.contains('\n') {
                        let lines = console.get(begun..).unwrap_or_default();
                        for line in lines.split_inclusive('\n').filter(|line| line.ends_with('\n')) {
                            self.log.line(&format!("{vm}| {}", line.trim_end()));
                        }
                    }
                }
                return;
            }
            Heard::Started { vm, boots, free_memory, free_tables } => record.starts.push(Start {
                vm: *vm,
                boots: *boots,
                free_memory: *free_memory,
                free_tables: *free_tables,
            }),
            Heard::Stopped { vm, reason, .. } => {
                record.stops.push((*vm, *reason));
                if record.is_paused(*vm) {
                    record.pauses.push((*vm, Some(0)));
                }
            }
            Heard::Paused { vm } => record.pauses.push((*vm, None)),
            Heard::Resumed { vm, microseconds } => record.pauses.push((*vm, Some(*microseconds))),
            Heard::Memory { vm, memory } => record.memory.push((*vm, *memory)),
            Heard::Pool(pool) => record.pools.push(*pool),
            Heard::Reply { command, outcome } => record.answers.push((*command, *outcome)),
            Heard::Crashed { text, .. } => record.crashes.push(text.clone()),
            Heard::Fault { text } => record.fault = Some(text.clone()),
            Heard::Done { crashed } => record.done = Some(*crashed),
            _ => {}
        }
        self.log.line(&format!("*| {}", serde_json::to_string(heard).unwrap_or_default()));
    }

    fn end(&mut self, ending: Ending) -> Verdict {
        let expected = match ending {
            Ending::Refused => return self.refusal(),
            Ending::Poweroff => {
                self.machine.session.command(turnstile_link::Command::Poweroff);
                None
            }
            Ending::Done { crashed } => Some(crashed),
            Ending::Silent => None,
        };
        while !self.ended {
            self.listen("waiting for the end")?;
        }
        match (self.record.done, expected) {
            (None, _) if ending == Ending::Silent => Ok(()),
            (Some(crashed), Some(expected)) if crashed != expected => {
                Err(format!("{crashed} VMs crashed, not {expected}"))
            }
            (Some(_), _) => Ok(()),
            (None, _) => Err("the machine ended before the hypervisor said so".to_owned()),
        }
    }

    /// After a refusal the machine stops or halts; either way no VM starts.
    fn refusal(&mut self) -> Verdict {
        let deadline = Instant::now() + REFUSAL_PATIENCE;
        while !self.ended && Instant::now() < deadline {
            self.listen("waiting for the end")?;
        }
        match self.record.starts.is_empty() {
            true => Ok(()),
            false => Err("a VM started all the same".to_owned()),
        }
    }

    /// What guests complain about fails every scenario.
    fn complaints(&self) -> Verdict {
        let lines = self.record.consoles.iter().flat_map(|console| console.lines());
        if let Some(vm) = self.record.ran_while_paused {
            return Err(format!("VM {vm} wrote to its console while it was paused"));
        }
        let is_complaint = |line: &&str| {
            let line = line.trim();
            line.starts_with("@error")
                || (line.starts_with("@test ") && line.contains(" failed"))
                || (line.starts_with("turnstile: ") && line.contains(" failed: "))
        };
        match lines.clone().find(is_complaint) {
            Some(line) => Err(format!("the guest says: {}", line.trim())),
            None => Ok(()),
        }
    }
}

/// Says whether skiboot has said what is said, and has not started its payload.
fn is_of_firmware_alone(said: &str) -> bool {
    said.contains("] OPAL v") && !said.contains("INIT: Starting kernel")
}

/// Finds `text` after the cursor and moves the cursor behind it.
fn advance(said: &str, cursor: &mut usize, text: &str) -> bool {
    let rest = said.get(*cursor..).unwrap_or_default();
    match rest.find(text) {
        Some(position) => {
            *cursor += position + text.len();
            true
        }
        None => false,
    }
}

/// Says whether something has happened that is `wanted`, and uses up what happened until then.
fn next<T>(happened: &[T], cursor: &mut usize, wanted: impl Fn(&T) -> bool) -> bool {
    let found = happened.get(*cursor..).unwrap_or_default().iter().position(wanted);
    *cursor += found.map_or(0, |position| position + 1);
    found.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn firmware_that_starts_nothing_is_told_from_the_hypervisor() {
        let hangs = "[    0.016939597,5] OPAL v7.1 starting...\n[    0.140,7] HWPROBE: Pro";
        assert!(is_of_firmware_alone(hangs));
        let starts = format!("{hangs}\n[    0.380,5] INIT: Starting kernel at 0x20010000\n");
        assert!(!is_of_firmware_alone(&starts), "what follows is the hypervisor's");
        assert!(!is_of_firmware_alone("turnstile 0.1.0"), "no firmware that is known to hang");
    }

    #[test]
    fn expectations_are_used_up_in_order() {
        let said = "a b a";
        let mut cursor = 0;
        assert!(advance(said, &mut cursor, "a"));
        assert!(advance(said, &mut cursor, "a"));
        assert!(!advance(said, &mut cursor, "a"));
        assert!(!advance(said, &mut cursor, "b"), "b was before the second a");
    }
}
