// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is heard from a machine: the messages of the link, owned, and their form for programs.

use serde::{Serialize, Serializer};
use turnstile_link::{
    Command, Event, Events, Exits, Memory, Outcome, Pool, Statistics, StopReason, Up, VmState,
};

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
        /// Whether it runs, also if it is paused.
        running: bool,
        /// Whether it is paused.
        paused: bool,
        /// How many bytes may be typed into its console.
        #[serde(skip)]
        room: u16,
    },
    /// A service: after the VMs, when a crash of it is reported, and with statistics.
    Service {
        /// Its index.
        service: u8,
        /// The VM that it serves.
        vm: u8,
        /// Its name.
        name: String,
        /// How often it has crashed or was killed.
        crashes: u32,
        /// How many exits it has handled since the VM's start, if the VM keeps statistics.
        exits: u64,
        /// How long these took until it had answered, in ticks.
        ticks: u64,
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
        reason: StopReason,
        /// Whether it starts again by itself.
        restarts: bool,
    },
    /// A VM is paused.
    Paused {
        /// The VM.
        vm: u8,
    },
    /// A paused VM goes on.
    Resumed {
        /// The VM.
        vm: u8,
        /// For how many microseconds it was paused.
        microseconds: u64,
    },
    /// A line about a crash.
    Crashed {
        /// The VM.
        vm: u8,
        /// The line.
        text: String,
    },
    /// A VM's console has room for more input.
    Room {
        /// The VM.
        vm: u8,
        /// So many bytes more.
        bytes: u16,
    },
    /// What a guest wrote to a named port.
    #[serde(skip)]
    Port {
        /// The VM.
        vm: u8,
        /// The port.
        port: u8,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// A named port has room for more.
    #[serde(skip)]
    PortRoom {
        /// The VM.
        vm: u8,
        /// The port.
        port: u8,
        /// So many bytes more.
        bytes: u16,
    },
    /// A named port is closed, and can be opened again.
    #[serde(skip)]
    PortClosed {
        /// The VM.
        vm: u8,
        /// The port.
        port: u8,
    },
    /// Input waits for a guest that does not read it. The session says so, not the machine.
    InputWaits {
        /// The VM.
        vm: u8,
        /// How many bytes were typed and not read.
        bytes: usize,
    },
    /// Input was dropped, because its VM has stopped for good. The session says so.
    InputDropped {
        /// The VM.
        vm: u8,
        /// How many bytes those are.
        bytes: usize,
    },
    /// The hypervisor reports a fault of its own.
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
    /// How much memory a VM has.
    Memory {
        /// The VM.
        vm: u8,
        /// Its memory.
        #[serde(flatten)]
        memory: Memory,
    },
    /// How much memory of the machine's pool is free.
    Pool(Pool),
    /// The answer to a command.
    Reply {
        /// The command.
        #[serde(skip)]
        command: Command,
        /// What became of it.
        #[serde(serialize_with = "serialize_outcome")]
        outcome: Outcome,
    },
    /// Every VM has stopped for good.
    Done {
        /// How many of them crashed.
        crashed: u8,
    },
}

impl Heard {
    /// The VM that it is about, if it is about one.
    pub fn vm(&self) -> Option<u8> {
        match self {
            Heard::Vm { vm, .. }
            | Heard::Service { vm, .. }
            | Heard::Console { vm, .. }
            | Heard::Started { vm, .. }
            | Heard::Stopped { vm, .. }
            | Heard::Paused { vm }
            | Heard::Resumed { vm, .. }
            | Heard::Crashed { vm, .. }
            | Heard::Room { vm, .. }
            | Heard::Port { vm, .. }
            | Heard::PortRoom { vm, .. }
            | Heard::PortClosed { vm, .. }
            | Heard::InputWaits { vm, .. }
            | Heard::InputDropped { vm, .. }
            | Heard::Memory { vm, .. }
            | Heard::Statistics(Statistics { vm, .. })
            | Heard::Exits(Exits { vm, .. })
            | Heard::Events(Events { vm, .. }) => Some(*vm),
            Heard::Text { .. }
            | Heard::Hello { .. }
            | Heard::Fault { .. }
            | Heard::Pool(_)
            | Heard::Reply { .. }
            | Heard::Done { .. } => None,
        }
    }
}

fn lossy<S: Serializer>(bytes: &[u8], serializer: S) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(bytes))
}

fn serialize_reason<S: Serializer>(
    reason: &StopReason,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(describe_stop(*reason))
}

fn serialize_outcome<S: Serializer>(
    outcome: &Outcome,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    serializer.serialize_str(match outcome {
        Outcome::Accepted => "accepted",
        Outcome::NoSuchVm => "no-such-vm",
        Outcome::NotNow => "not-now",
        Outcome::NotKept => "not-kept",
        Outcome::NoSuchService => "no-such-service",
        Outcome::NoBalloon => "no-balloon",
    })
}

/// Why a VM of this name does not start, if that is what a line about a crash says.
pub fn start_failure<'t>(name: &str, text: &'t str) -> Option<&'t str> {
    text.strip_prefix(name)?.strip_prefix(" does not start: ")
}

/// Says in a word why a VM stopped.
pub fn describe_stop(reason: StopReason) -> &'static str {
    match reason {
        StopReason::PowerOff => "powered-off",
        StopReason::Reset => "reset",
        StopReason::Crash => "crashed",
        StopReason::Killed => "stopped",
    }
}

impl From<Up<'_>> for Heard {
    fn from(message: Up<'_>) -> Self {
        match message {
            Up::Hello { version, hypervisor, cpus, vms } => {
                Heard::Hello { version, hypervisor: hypervisor.to_owned(), cpus, vms }
            }
            Up::Vm { vm, name, vcpus, state, room } => {
                let (running, paused) = (state != VmState::Stopped, state == VmState::Paused);
                Heard::Vm { vm, name: name.to_owned(), vcpus, running, paused, room }
            }
            Up::Service { service, vm, name, crashes, exits, ticks } => {
                Heard::Service { service, vm, name: name.to_owned(), crashes, exits, ticks }
            }
            Up::Console { vm, bytes } => Heard::Console { vm, text: bytes.to_vec() },
            Up::Event { vm, event } => match event {
                Event::Started { boots, free_memory, free_tables } => {
                    Heard::Started { vm, boots, free_memory, free_tables }
                }
                Event::Stopped { reason, restarts } => Heard::Stopped { vm, reason, restarts },
                Event::Paused => Heard::Paused { vm },
                Event::Resumed { microseconds } => Heard::Resumed { vm, microseconds },
                Event::Crashed { text } => Heard::Crashed { vm, text: text.to_owned() },
            },
            Up::Fault { text } => Heard::Fault { text: text.to_owned() },
            Up::Statistics(statistics) => Heard::Statistics(statistics),
            Up::Exits(exits) => Heard::Exits(exits),
            Up::Events(events) => Heard::Events(events),
            Up::Memory { vm, memory } => Heard::Memory { vm, memory },
            Up::Pool(pool) => Heard::Pool(pool),
            Up::Reply { command, outcome } => Heard::Reply { command, outcome },
            Up::Room { vm, bytes } => Heard::Room { vm, bytes },
            Up::Port { vm, port, bytes } => Heard::Port { vm, port, bytes: bytes.to_vec() },
            Up::PortRoom { vm, port, bytes } => Heard::PortRoom { vm, port, bytes },
            Up::PortClosed { vm, port } => Heard::PortClosed { vm, port },
            Up::Done { crashed } => Heard::Done { crashed },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_a_stable_form_for_programs() {
        let heard = Heard::Stopped { vm: 0, reason: StopReason::PowerOff, restarts: false };
        let json = serde_json::to_string(&heard).unwrap();
        assert_eq!(json, r#"{"type":"stopped","vm":0,"reason":"powered-off","restarts":false}"#);
        let json = serde_json::to_string(&Heard::Paused { vm: 1 }).unwrap();
        assert_eq!(json, r#"{"type":"paused","vm":1}"#);
        let json = serde_json::to_string(&Heard::Resumed { vm: 1, microseconds: 7 }).unwrap();
        assert_eq!(json, r#"{"type":"resumed","vm":1,"microseconds":7}"#);
        let memory = Memory { bytes: 2, limit: 4, waits: false };
        let json = serde_json::to_string(&Heard::Memory { vm: 1, memory }).unwrap();
        assert_eq!(json, r#"{"type":"memory","vm":1,"bytes":2,"limit":4,"waits":false}"#);
        let json = serde_json::to_string(&Heard::Pool(Pool { bytes: 8, free: 6 })).unwrap();
        assert_eq!(json, r#"{"type":"pool","bytes":8,"free":6}"#);
        let json = serde_json::to_string(&Heard::Console { vm: 2, text: b"a\n".to_vec() }).unwrap();
        assert_eq!(json, r#"{"type":"console","vm":2,"text":"a\n"}"#);
    }
}
