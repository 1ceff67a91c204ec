// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said on the control socket: JSON, a line for each thing (docs/src/control.md).
//!
//! Who runs the machine greets. Each request has one answer, in the order of the requests. After a request to follow the
//! consoles, events come between the answers.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use turnstile_link::StopReason;

use crate::session::{Heard, describe_stop};

/// The version of the protocol: it changes when a client of before would misunderstand.
pub const VERSION: u32 = 1;
/// The longest line of a client, in bytes.
pub const MAX_LINE: u64 = 64 * 1024;

/// The first line, from who runs the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`VERSION`].
    pub control: u32,
    /// The version of the tool, for people.
    pub tool: String,
    /// The machine's full name: `NAME-PROCESS`.
    pub machine: String,
}

/// What a client wants. A VM is named; without one, all are meant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "kebab-case")]
pub enum Request {
    /// What the machine is and does: [`Machine`].
    List,
    /// A reading of the statistics: `top::reading::Reading`.
    Statistics,
    /// What is kept of the consoles: [`Past`].
    Logs {
        /// Whose.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<String>,
        /// Whether events follow, from then on.
        #[serde(default)]
        follow: bool,
    },
    /// Types into a console.
    Type {
        /// Whose.
        vm: String,
        /// What.
        #[serde(flatten)]
        bytes: Bytes,
    },
    /// Starts what is stopped.
    Start {
        /// Which.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<String>,
    },
    /// Resets what runs, starts what is stopped.
    Restart {
        /// Which.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<String>,
    },
    /// Stops a VM; without one, ends the machine.
    Stop {
        /// Which.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<String>,
    },
}

/// Bytes of a console: text where they are UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bytes {
    /// As they are.
    Text(String),
    /// Encoded by RFC 4648, section 4.
    Base64(String),
}

impl Bytes {
    /// Takes bytes.
    pub fn of(bytes: &[u8]) -> Self {
        match std::str::from_utf8(bytes) {
            Ok(text) => Bytes::Text(text.to_owned()),
            Err(_) => Bytes::Base64(BASE64.encode(bytes)),
        }
    }

    /// The bytes; `None` if they are encoded wrongly.
    pub fn decode(self) -> Option<Vec<u8>> {
        match self {
            Bytes::Text(text) => Some(text.into_bytes()),
            Bytes::Base64(text) => BASE64.decode(text.as_bytes()).ok(),
        }
    }
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It is done, or begun.
    Ok(Value),
    /// It is not.
    Error(Refusal),
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Of what kind, for programs.
    pub kind: Kind,
    /// In words.
    pub what: String,
    /// The names of the VMs, where a wrong one was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vms: Vec<String>,
}

/// The kinds of refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The line is no request.
    NotUnderstood,
    /// The machine has no VM of this name.
    NoSuchVm,
    /// The VM's state does not allow it.
    NotNow,
    /// Too many clients are there.
    Busy,
}

/// A machine that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Its full name: `NAME-PROCESS`.
    pub name: String,
    /// The process that runs it.
    pub process: u32,
    /// Whether that is in the background.
    pub detached: bool,
    /// How long ago it was started, in seconds.
    pub seconds: u64,
    /// Its VMs, in the order of the bundle.
    pub vms: Vec<Vm>,
}

/// A VM of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// Its name.
    pub name: String,
    /// Its vCPUs; 0 until the hypervisor has said so.
    pub vcpus: u16,
    /// What it does.
    pub state: State,
    /// How many times it has started.
    pub starts: u32,
}

/// What a VM does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// The hypervisor has not introduced it yet.
    #[default]
    Booting,
    /// Its vCPUs run.
    Running,
    /// It has stopped, and starts again by itself.
    Restarting,
    /// Its guest powered off.
    PoweredOff,
    /// It crashed.
    Crashed,
    /// It was stopped, or has not started.
    Stopped,
}

impl State {
    /// The state behind a stop.
    pub fn behind(reason: StopReason, restarts: bool) -> Self {
        match reason {
            _ if restarts => State::Restarting,
            StopReason::PowerOff => State::PoweredOff,
            StopReason::Crash => State::Crashed,
            StopReason::Reset | StopReason::Killed => State::Stopped,
        }
    }

    /// In words, for people.
    pub fn name(self) -> &'static str {
        match self {
            State::Booting => "booting",
            State::Running => "running",
            State::Restarting => "restarting",
            State::PoweredOff => "powered off",
            State::Crashed => "crashed",
            State::Stopped => "stopped",
        }
    }

    /// Whether it stays so until it is told to start.
    pub fn is_down(self) -> bool {
        matches!(self, State::PoweredOff | State::Crashed | State::Stopped)
    }
}

/// What is kept of the consoles: the hypervisor's own text, then each VM's console.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// As events.
    pub events: Vec<Event>,
}

/// Something that happened on the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// A guest wrote to its console.
    Console {
        /// Whose.
        vm: String,
        /// What.
        #[serde(flatten)]
        bytes: Bytes,
    },
    /// The hypervisor's own text.
    Text {
        /// The text.
        #[serde(flatten)]
        bytes: Bytes,
    },
    /// A VM starts.
    Started {
        /// Which.
        vm: String,
        /// For the how manyeth time.
        starts: u32,
    },
    /// A VM has stopped.
    Stopped {
        /// Which.
        vm: String,
        /// Why: as `run --json` says it.
        reason: String,
        /// Whether it starts again by itself.
        restarts: bool,
    },
    /// A line about a crash.
    Crashed {
        /// Whose.
        vm: String,
        /// The line.
        text: String,
    },
    /// The hypervisor found a fault in itself.
    Fault {
        /// The fault.
        text: String,
    },
    /// Every VM has stopped for good.
    Done {
        /// How many of them crashed.
        crashed: u8,
    },
    /// Something is missing here: the client did not read, or it is too long ago.
    Lost {
        /// So many bytes of events, or of the console that follows.
        bytes: u64,
    },
}

impl Event {
    /// What clients are told of what was heard; `names` are those of the VMs.
    pub fn of(heard: &Heard, names: &[String]) -> Option<Self> {
        let name = |vm: u8| names.get(usize::from(vm)).cloned();
        Some(match heard {
            Heard::Console { vm, text } => Event::Console { vm: name(*vm)?, bytes: Bytes::of(text) },
            Heard::Text { text } => Event::Text { bytes: Bytes::of(text) },
            Heard::Started { vm, boots, .. } => Event::Started { vm: name(*vm)?, starts: *boots },
            Heard::Stopped { vm, reason, restarts } => Event::Stopped {
                vm: name(*vm)?,
                reason: describe_stop(*reason).to_owned(),
                restarts: *restarts,
            },
            Heard::Crashed { vm, text } => Event::Crashed { vm: name(*vm)?, text: text.clone() },
            Heard::Fault { text } => Event::Fault { text: text.clone() },
            Heard::Done { crashed } => Event::Done { crashed: *crashed },
            _ => return None,
        })
    }

    /// What was heard, as far as it is known from here.
    pub fn heard(self, names: &[String]) -> Option<Heard> {
        let index = |vm: &str| names.iter().position(|name| name == vm).and_then(|vm| u8::try_from(vm).ok());
        Some(match self {
            Event::Console { vm, bytes } => Heard::Console { vm: index(&vm)?, text: bytes.decode()? },
            Event::Text { bytes } => Heard::Text { text: bytes.decode()? },
            Event::Started { vm, starts } => {
                Heard::Started { vm: index(&vm)?, boots: starts, free_memory: 0, free_tables: 0 }
            }
            Event::Stopped { vm, reason, restarts } => {
                let all = [StopReason::PowerOff, StopReason::Reset, StopReason::Crash, StopReason::Killed];
                let reason = all.into_iter().find(|known| describe_stop(*known) == reason)?;
                Heard::Stopped { vm: index(&vm)?, reason, restarts }
            }
            Event::Crashed { vm, text } => Heard::Crashed { vm: index(&vm)?, text },
            Event::Fault { text } => Heard::Fault { text },
            Event::Done { crashed } => Heard::Done { crashed },
            Event::Lost { bytes } => {
                Heard::Text { text: format!("({bytes} bytes are missing here)\n").into() }
            }
        })
    }
}

/// A line of who runs the machine, after the greeting.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum Line {
    /// An answer.
    Answer(Answer),
    /// An event.
    Event(Event),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_stable_form() {
        let forms = [
            (r#"{"request":"list"}"#, Request::List),
            (r#"{"request":"logs","follow":false}"#, Request::Logs { vm: None, follow: false }),
            (
                r#"{"request":"type","vm":"one","text":"ls\r"}"#,
                Request::Type { vm: "one".into(), bytes: Bytes::of(b"ls\r") },
            ),
            (
                r#"{"request":"type","vm":"one","base64":"//4="}"#,
                Request::Type { vm: "one".into(), bytes: Bytes::of(b"\xff\xfe") },
            ),
            (r#"{"request":"stop","vm":"one"}"#, Request::Stop { vm: Some("one".into()) }),
            (r#"{"request":"stop"}"#, Request::Stop { vm: None }),
        ];
        for (text, request) in forms {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
        }
        let short: Request = serde_json::from_str(r#"{"request":"logs"}"#).unwrap();
        assert_eq!(short, Request::Logs { vm: None, follow: false });
        assert!(serde_json::from_str::<Request>(r#"{"request":"dance"}"#).is_err());
    }

    #[test]
    fn events_have_a_stable_form_and_come_back() {
        let names = ["one".to_owned(), "two".to_owned()];
        let forms = [
            (
                r#"{"event":"console","vm":"two","text":"hi\n"}"#,
                Heard::Console { vm: 1, text: b"hi\n".to_vec() },
            ),
            (
                r#"{"event":"console","vm":"one","base64":"/w=="}"#,
                Heard::Console { vm: 0, text: b"\xff".to_vec() },
            ),
            (
                r#"{"event":"stopped","vm":"one","reason":"powered-off","restarts":false}"#,
                Heard::Stopped { vm: 0, reason: StopReason::PowerOff, restarts: false },
            ),
            (
                r#"{"event":"started","vm":"one","starts":2}"#,
                Heard::Started { vm: 0, boots: 2, free_memory: 0, free_tables: 0 },
            ),
            (r#"{"event":"done","crashed":1}"#, Heard::Done { crashed: 1 }),
        ];
        for (text, heard) in forms {
            let event = Event::of(&heard, &names).unwrap();
            assert_eq!(serde_json::to_string(&event).unwrap(), text);
            let Line::Event(event) = serde_json::from_str(text).unwrap() else {
                panic!("{text} is an event")
            };
            assert_eq!(event.heard(&names), Some(heard));
        }
        let line: Line = serde_json::from_str(r#"{"ok":null}"#).unwrap();
        assert_eq!(line, Line::Answer(Answer::Ok(Value::Null)));
    }
}
