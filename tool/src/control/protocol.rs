// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is said on the control socket: JSON, a line for each thing (docs/src/control.md).
//!
//! Who runs the machine greets. Each request has one answer, in the order of the requests. After a request to follow the
//! consoles, events come between the answers.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::event::{Bytes, Event};

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
    /// What the machine is and does: [`super::state::Machine`].
    List {
        /// Whether the hypervisor is to be asked how much memory its VMs have.
        #[serde(default, skip_serializing_if = "is_false")]
        memory: bool,
    },
    /// A reading of the statistics: `top::reading::Reading`.
    Statistics,
    /// What is kept of the consoles: [`super::event::Past`].
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
    /// The terminal at which a console is shown has another size.
    Size {
        /// Whose console.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<String>,
        /// How many characters a line has.
        columns: u16,
        /// How many lines there are.
        rows: u16,
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
    /// Pauses what runs.
    Pause {
        /// Which.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        vm: Option<String>,
    },
    /// Lets go on what is paused.
    Resume {
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
    /// Asks the guest of a VM to make do with so much of its memory.
    Balloon {
        /// Which.
        vm: String,
        /// How many bytes it is to keep.
        bytes: u64,
    },
    /// Starts a service anew, whatever it does.
    KillService {
        /// Which.
        service: String,
    },
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_false(value: &bool) -> bool {
    !value
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
    /// The machine has no service of this name.
    NoSuchService,
    /// The VM has no balloon.
    NoBalloon,
    /// The VM's state does not allow it.
    NotNow,
    /// Too many clients are there.
    Busy,
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
            (r#"{"request":"list"}"#, Request::List { memory: false }),
            (r#"{"request":"list","memory":true}"#, Request::List { memory: true }),
            (r#"{"request":"logs","follow":false}"#, Request::Logs { vm: None, follow: false }),
            (
                r#"{"request":"type","vm":"one","text":"ls\r"}"#,
                Request::Type { vm: "one".into(), bytes: Bytes::of(b"ls\r") },
            ),
            (
                r#"{"request":"type","vm":"one","base64":"//4="}"#,
                Request::Type { vm: "one".into(), bytes: Bytes::of(b"\xff\xfe") },
            ),
            (
                r#"{"request":"size","columns":80,"rows":25}"#,
                Request::Size { vm: None, columns: 80, rows: 25 },
            ),
            (r#"{"request":"stop","vm":"one"}"#, Request::Stop { vm: Some("one".into()) }),
            (r#"{"request":"pause","vm":"one"}"#, Request::Pause { vm: Some("one".into()) }),
            (r#"{"request":"resume"}"#, Request::Resume { vm: None }),
            (r#"{"request":"stop"}"#, Request::Stop { vm: None }),
            (
                r#"{"request":"balloon","vm":"one","bytes":134217728}"#,
                Request::Balloon { vm: "one".into(), bytes: 128 << 20 },
            ),
            (
                r#"{"request":"kill-service","service":"console"}"#,
                Request::KillService { service: "console".into() },
            ),
        ];
        for (text, request) in forms {
            assert_eq!(serde_json::to_string(&request).unwrap(), text);
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request);
        }
        let short: Request = serde_json::from_str(r#"{"request":"logs"}"#).unwrap();
        assert_eq!(short, Request::Logs { vm: None, follow: false });
        assert!(serde_json::from_str::<Request>(r#"{"request":"dance"}"#).is_err());
    }
}
