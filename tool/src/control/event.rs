// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What clients are told of what happens on a machine.

use data_encoding::BASE64;
use serde::{Deserialize, Serialize};
use turnstile_link::StopReason;

use crate::session::{Heard, describe_stop};

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
    /// A VM is paused.
    Paused {
        /// Which.
        vm: String,
    },
    /// A paused VM goes on.
    Resumed {
        /// Which.
        vm: String,
        /// For how many microseconds it was paused.
        microseconds: u64,
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
    /// A guest does not read its input.
    InputWaits {
        /// Whose.
        vm: String,
        /// So many bytes wait.
        bytes: usize,
    },
    /// A VM has stopped for good, and left input behind.
    InputDropped {
        /// Whose.
        vm: String,
        /// So many bytes.
        bytes: usize,
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
            Heard::Paused { vm } => Event::Paused { vm: name(*vm)? },
            Heard::Resumed { vm, microseconds } => {
                Event::Resumed { vm: name(*vm)?, microseconds: *microseconds }
            }
            Heard::Crashed { vm, text } => Event::Crashed { vm: name(*vm)?, text: text.clone() },
            Heard::Fault { text } => Event::Fault { text: text.clone() },
            Heard::InputWaits { vm, bytes } => Event::InputWaits { vm: name(*vm)?, bytes: *bytes },
            Heard::InputDropped { vm, bytes } => Event::InputDropped { vm: name(*vm)?, bytes: *bytes },
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
            Event::Paused { vm } => Heard::Paused { vm: index(&vm)? },
            Event::Resumed { vm, microseconds } => Heard::Resumed { vm: index(&vm)?, microseconds },
            Event::Crashed { vm, text } => Heard::Crashed { vm: index(&vm)?, text },
            Event::Fault { text } => Heard::Fault { text },
            Event::InputWaits { vm, bytes } => Heard::InputWaits { vm: index(&vm)?, bytes },
            Event::InputDropped { vm, bytes } => Heard::InputDropped { vm: index(&vm)?, bytes },
            Event::Done { crashed } => Heard::Done { crashed },
            Event::Lost { bytes } => {
                Heard::Text { text: format!("({bytes} bytes are missing here)\n").into() }
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::super::protocol::{Answer, Line};
    use super::*;

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
            (r#"{"event":"paused","vm":"two"}"#, Heard::Paused { vm: 1 }),
            (
                r#"{"event":"resumed","vm":"two","microseconds":250}"#,
                Heard::Resumed { vm: 1, microseconds: 250 },
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
