// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A running machine: the QEMU process, what is heard on its serial line, and what is said to it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ExitStatus};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
use serde::Serialize;
use turnstile_link::{Decoder, Down, Events, Exits, Item, MAX_BYTES, Message, Statistics, Up, UpLink};

use crate::failure::{Context, Result};
use crate::qemu::Boot;

/// How many times more wall time than processor time a machine may take.
const WALL_FACTOR: u32 = 10;

/// Something that was heard from the machine, owned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Heard {
    /// Plain text outside frames: the hypervisor's own.
    Text {
        /// The bytes, as they came.
        #[serde(serialize_with = "lossy")]
        text: Vec<u8>,
    },
    /// The hypervisor is there.
    Hello {
        /// The version of the link.
        version: u16,
        /// The hypervisor's own version.
        hypervisor: String,
        /// The physical CPUs in use.
        cpus: u16,
        /// The number of VMs.
        vms: u8,
    },
    /// A VM, after [`Heard::Hello`].
    Vm {
        /// Its index.
        vm: u8,
        /// Its name.
        name: String,
        /// Its vCPUs.
        vcpus: u16,
        /// Whether it runs.
        running: bool,
    },
    /// What a guest wrote to its console.
    Console {
        /// The VM.
        vm: u8,
        /// The bytes.
        #[serde(serialize_with = "lossy")]
        text: Vec<u8>,
    },
    /// A guest starts.
    Started {
        /// The VM.
        vm: u8,
        /// How many times it has started.
        boots: u32,
        /// The hypervisor's free memory in bytes.
        free_memory: u64,
        /// The hypervisor's free page-table pages.
        free_tables: u32,
    },
    /// A guest has stopped.
    Stopped {
        /// The VM.
        vm: u8,
        /// Why.
        #[serde(serialize_with = "serialize_reason")]
        reason: turnstile_link::StopReason,
        /// Whether it starts again by itself.
        restarts: bool,
    },
    /// A line about a crash.
    Crashed {
        /// The VM.
        vm: u8,
        /// The line.
        text: String,
    },
    /// The hypervisor found a fault in itself.
    Fault {
        /// The fault.
        text: String,
    },
    /// The statistics of a vCPU begin.
    Statistics(Statistics),
    /// A part of the statistics of one reason.
    Exits(Exits),
    /// A part of how often events happened to a vCPU.
    Events(Events),
    /// The answer to a command.
    Reply {
        /// The command.
        #[serde(skip)]
        command: turnstile_link::Command,
        /// What became of it.
        #[serde(serialize_with = "serialize_outcome")]
        outcome: turnstile_link::Outcome,
    },
    /// Every VM has stopped for good.
    Done {
        /// How many of them crashed.
        crashed: u8,
    },
}

fn lossy<S: serde::Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

fn serialize_reason<S: serde::Serializer>(
    reason: &turnstile_link::StopReason,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(describe_stop(*reason))
}

fn serialize_outcome<S: serde::Serializer>(
    outcome: &turnstile_link::Outcome,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(match outcome {
        turnstile_link::Outcome::Accepted => "accepted",
        turnstile_link::Outcome::NoSuchVm => "no-such-vm",
        turnstile_link::Outcome::NotNow => "not-now",
        turnstile_link::Outcome::NotKept => "not-kept",
    })
}

/// Says in a word why a VM stopped.
pub fn describe_stop(reason: turnstile_link::StopReason) -> &'static str {
    match reason {
        turnstile_link::StopReason::PowerOff => "powered-off",
        turnstile_link::StopReason::Reset => "reset",
        turnstile_link::StopReason::Crash => "crashed",
        turnstile_link::StopReason::Killed => "stopped",
    }
}

impl From<Up<'_>> for Heard {
    fn from(message: Up<'_>) -> Self {
        match message {
            Up::Hello { version, hypervisor, cpus, vms } => {
                Heard::Hello { version, hypervisor: hypervisor.to_owned(), cpus, vms }
            }
            Up::Vm { vm, name, vcpus, state } => {
                let running = state == turnstile_link::VmState::Running;
                Heard::Vm { vm, name: name.to_owned(), vcpus, running }
            }
            Up::Console { vm, bytes } => Heard::Console { vm, text: bytes.to_vec() },
            Up::Event { vm, event } => match event {
                turnstile_link::Event::Started { boots, free_memory, free_tables } => {
                    Heard::Started { vm, boots, free_memory, free_tables }
                }
                turnstile_link::Event::Stopped { reason, restarts } => {
                    Heard::Stopped { vm, reason, restarts }
                }
                turnstile_link::Event::Crashed { text } => Heard::Crashed { vm, text: text.to_owned() },
            },
            Up::Fault { text } => Heard::Fault { text: text.to_owned() },
            Up::Statistics(statistics) => Heard::Statistics(statistics),
            Up::Exits(exits) => Heard::Exits(exits),
            Up::Events(events) => Heard::Events(events),
            Up::Reply { command, outcome } => Heard::Reply { command, outcome },
            Up::Done { crashed } => Heard::Done { crashed },
        }
    }
}

/// Turns the bytes of the line into what they say.
pub struct Listener {
    /// `None`: the line carries no frames.
    decoder: Option<Decoder<UpLink>>,
    /// The begun character at the end of what each VM wrote.
    begun: BTreeMap<u8, Vec<u8>>,
}

impl Listener {
    /// Listens to a line with or without frames.
    pub fn new(framed: bool) -> Self {
        Listener { decoder: framed.then(Decoder::new), begun: BTreeMap::new() }
    }

    /// Takes bytes; runs of text, and what one VM writes without a break, come out as one. A character of UTF-8
    /// stays whole.
    pub fn hear(&mut self, bytes: &[u8]) -> Vec<Heard> {
        let Some(decoder) = &mut self.decoder else {
            return vec![Heard::Text { text: bytes.to_vec() }];
        };
        let mut heard = Vec::new();
        for &byte in bytes {
            match decoder.push(byte) {
                None => {}
                Some(Item::Text(byte)) => match heard.last_mut() {
                    Some(Heard::Text { text }) => text.push(byte),
                    _ => heard.push(Heard::Text { text: vec![byte] }),
                },
                Some(Item::Message(Up::Console { vm, bytes })) => match heard.last_mut() {
                    Some(Heard::Console { vm: last, text }) if *last == vm => text.extend_from_slice(bytes),
                    _ => heard.push(Heard::Console { vm, text: bytes.to_vec() }),
                },
                Some(Item::Message(message)) => heard.push(message.into()),
            }
        }
        let mut whole = Vec::new();
        for heard in heard {
            self.keep_whole(heard, &mut whole);
        }
        whole
    }

    /// Keeps a character back whose end is still to come.
    fn keep_whole(&mut self, heard: Heard, whole: &mut Vec<Heard>) {
        match heard {
            Heard::Console { vm, text: more } => {
                let mut text = self.begun.remove(&vm).unwrap_or_default();
                text.extend(more);
                let begun = text.split_off(text.len() - begun_at_end(&text));
                if !begun.is_empty() {
                    self.begun.insert(vm, begun);
                }
                if !text.is_empty() {
                    whole.push(Heard::Console { vm, text });
                }
                return;
            }
            // A VM that has stopped does not end it.
            Heard::Stopped { vm, .. } | Heard::Crashed { vm, .. } => {
                let begun = self.begun.remove(&vm);
                whole.extend(begun.map(|text| Heard::Console { vm, text }));
            }
            Heard::Done { .. } | Heard::Fault { .. } => whole.extend(self.finish()),
            _ => {}
        }
        whole.push(heard);
    }

    /// What was kept back, when nothing more comes.
    pub fn finish(&mut self) -> Vec<Heard> {
        let begun = std::mem::take(&mut self.begun);
        begun.into_iter().map(|(vm, text)| Heard::Console { vm, text }).collect()
    }

    /// How many frames were damaged or unknown.
    pub fn lost(&self) -> u32 {
        self.decoder.as_ref().map_or(0, |decoder| decoder.damaged() + decoder.unknown())
    }
}

/// How many bytes at the end of `text` begin a character of UTF-8 and do not end it.
fn begun_at_end(text: &[u8]) -> usize {
    for (index, &byte) in text.iter().rev().take(3).enumerate() {
        let length = match byte {
            0x80..=0xbf => continue,
            0xc2..=0xdf => 2,
            0xe0..=0xef => 3,
            0xf0..=0xf4 => 4,
            _ => 0,
        };
        return if length > index + 1 { index + 1 } else { 0 };
    }
    0
}

/// News from a session.
#[derive(Debug)]
pub enum Notice {
    /// Something was heard on the serial line.
    Heard(Heard),
    /// The serial line has closed: QEMU ends.
    Ended {
        /// How many frames could not be read.
        lost: u32,
    },
}

/// A machine that runs.
pub struct Session {
    child: Child,
    input: Option<ChildStdin>,
    messages: std::thread::JoinHandle<String>,
    begin: Instant,
}

/// How QEMU ended.
#[derive(Debug)]
pub struct Ending {
    /// Its status.
    pub status: ExitStatus,
    /// What it wrote on its standard error.
    pub messages: String,
    /// The processor time that it used.
    pub used: Duration,
}

impl Session {
    /// Starts QEMU; what is heard goes to `sender`.
    pub fn start<E>(boot: &Boot, program: &Path, sender: Sender<E>) -> Result<Self>
    where
        E: From<Notice> + Send + 'static,
    {
        let mut child = boot.start(program)?;
        let framed = boot.append.contains("link=framed");
        let input = child.stdin.take();
        let output = child.stdout.take();
        let errors = child.stderr.take();
        std::thread::spawn(move || {
            let mut listener = Listener::new(framed);
            let mut buffer = [0; 4096];
            let mut output = output;
            while let Some(count) = output.as_mut().and_then(|output| output.read(&mut buffer).ok()) {
                let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else { break };
                for heard in listener.hear(bytes) {
                    if sender.send(Notice::Heard(heard).into()).is_err() {
                        return;
                    }
                }
            }
            for heard in listener.finish() {
                let _ = sender.send(Notice::Heard(heard).into());
            }
            let _ = sender.send(Notice::Ended { lost: listener.lost() }.into());
        });
        let messages = std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(errors) = errors {
                for line in BufReader::new(errors).lines().map_while(std::result::Result::ok) {
                    text.push_str(&line);
                    text.push('\n');
                }
            }
            text
        });
        Ok(Session { child, input, messages, begin: Instant::now() })
    }

    /// Sends bytes as they are: for a line without frames.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        if let Some(input) = &mut self.input {
            // A QEMU that ended reads nothing; its ending is noticed on the other pipe.
            let _ = input.write_all(bytes).and_then(|()| input.flush());
        }
    }

    /// Types into a VM's console.
    pub fn type_into(&mut self, vm: u8, bytes: &[u8]) {
        for bytes in bytes.chunks(MAX_BYTES) {
            self.send(&Down::Input { vm, bytes });
        }
    }

    /// Tells the hypervisor what to do.
    pub fn command(&mut self, command: turnstile_link::Command) {
        self.send(&Down::Command(command));
    }

    fn send(&mut self, message: &impl Message) {
        let mut frame = Vec::new();
        // Chunks of MAX_BYTES and commands always fit.
        let _ = turnstile_link::send(message, |bytes| frame.extend_from_slice(bytes));
        self.send_raw(&frame);
    }

    /// Says whether the machine has run for too long: QEMU used more processor time than `limit`, which does not
    /// grow while this computer runs something else; or, for a machine that sleeps, ten times that has passed.
    pub fn exceeds(&self, limit: Duration) -> bool {
        self.exceeds_with(limit, self.cpu_time())
    }

    /// The same as [`Session::exceeds`], for whoever has just read the processor time.
    pub fn exceeds_with(&self, limit: Duration, used: Duration) -> bool {
        used > limit || self.begin.elapsed() > limit * WALL_FACTOR
    }

    /// The processor time that QEMU has used.
    pub fn cpu_time(&self) -> Duration {
        cpu_time(self.child.id()).unwrap_or_default()
    }

    /// Ends QEMU at once.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
    }

    /// Waits for QEMU's end.
    pub fn wait(mut self) -> Result<Ending> {
        let doing = || "cannot wait for QEMU".to_owned();
        // What a process used is forgotten when its status is taken.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        waitid(WaitId::Pid(Pid::from_child(&self.child)), ended).context(doing)?;
        let used = self.cpu_time();
        let status = self.child.wait().context(doing)?;
        let messages = self.messages.join().unwrap_or_default();
        Ok(Ending { status, messages, used })
    }
}

/// The user and system time of a process, from `/proc` (proc(5), fields 14 and 15 of `stat`).
pub(crate) fn cpu_time(id: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    // The second field, the name, may contain spaces and brackets.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let ticks: u64 = fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?;
    Some(Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second().max(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listener_separates_text_from_messages() {
        let mut line = b"boot\n".to_vec();
        turnstile_link::send(&Up::Console { vm: 1, bytes: b"hi" }, |frame| line.extend_from_slice(frame))
            .unwrap();
        line.extend_from_slice(b"panic");
        let heard = Listener::new(true).hear(&line);
        assert_eq!(
            heard,
            [
                Heard::Text { text: b"boot\n".to_vec() },
                Heard::Console { vm: 1, text: b"hi".to_vec() },
                Heard::Text { text: b"panic".to_vec() },
            ]
        );
        assert_eq!(Listener::new(false).hear(&line), [Heard::Text { text: line }]);
    }

    #[test]
    fn listener_joins_what_one_vm_writes_and_keeps_characters_whole() {
        let mut listener = Listener::new(true);
        let mut hear = |vm, bytes: &[u8]| {
            let mut line = Vec::new();
            for byte in bytes {
                turnstile_link::send(&Up::Console { vm, bytes: &[*byte] }, |frame| {
                    line.extend_from_slice(frame)
                })
                .unwrap();
            }
            listener.hear(&line)
        };
        let console = |vm, text: &[u8]| Heard::Console { vm, text: text.to_vec() };
        assert_eq!(hear(0, b"a\xe2\x82"), [console(0, b"a")]);
        assert_eq!(hear(1, b"b\xff\x80"), [console(1, b"b\xff\x80")], "no character");
        assert_eq!(hear(0, b"\xacc\xc3"), [console(0, "€c".as_bytes())]);
        assert_eq!(listener.finish(), [console(0, b"\xc3")]);
    }

    #[test]
    fn cpu_time_of_this_process_grows() {
        let id = std::process::id();
        let before = cpu_time(id).unwrap();
        let mut sum = 0_u64;
        while cpu_time(id).unwrap() < before + Duration::from_millis(20) {
            sum = (0..100_000).fold(sum, |sum, n| std::hint::black_box(sum ^ n));
        }
        assert!(cpu_time(id).unwrap() > before);
    }

    #[test]
    fn messages_have_a_stable_form_for_programs() {
        let heard = Heard::Stopped { vm: 0, reason: turnstile_link::StopReason::PowerOff, restarts: false };
        let json = serde_json::to_string(&heard).unwrap();
        assert_eq!(json, r#"{"type":"stopped","vm":0,"reason":"powered-off","restarts":false}"#);
        let json = serde_json::to_string(&Heard::Console { vm: 2, text: b"a\n".to_vec() }).unwrap();
        assert_eq!(json, r#"{"type":"console","vm":2,"text":"a\n"}"#);
    }
}
