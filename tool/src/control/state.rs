// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What is known of a machine and its VMs.

use serde::{Deserialize, Serialize};
use turnstile_link::{Memory, Pool, StopReason};

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
    /// Its services, in the order of the bundle.
    #[serde(default)]
    pub services: Vec<Service>,
    /// The named ports of its VMs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<Port>,
    /// How much of its pool is free, if it has one and that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
}

impl Machine {
    /// Forgets how much memory its VMs have.
    pub fn forget_memory(&mut self) {
        self.pool = None;
        self.vms.iter_mut().for_each(|vm| vm.memory = None);
    }
}

/// A named port of a VM.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The name of the VM.
    pub vm: String,
    /// Where its socket is.
    pub path: String,
    /// Whether a program is there.
    pub connected: bool,
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
    /// What kept it from starting when that was tried last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// How much memory it has, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
}

/// A service of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Service {
    /// Its name.
    pub name: String,
    /// The name of the VM that it serves.
    pub vm: String,
    /// How often it has crashed or was killed; exact up to eight, and then whenever that is a power of two or statistics are read.
    #[serde(default)]
    pub crashes: u32,
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
    /// It has been told to pause, and not all of its vCPUs have left their guests.
    Pausing,
    /// It is paused.
    Paused,
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
            State::Pausing => "pausing",
            State::Paused => "paused",
            State::Restarting => "restarting",
            State::PoweredOff => "powered off",
            State::Crashed => "crashed",
            State::Stopped => "stopped",
        }
    }

    /// Whether it is paused, or about to be.
    pub fn is_paused(self) -> bool {
        matches!(self, State::Pausing | State::Paused)
    }

    /// Whether it stays so until it is told to start.
    pub fn is_down(self) -> bool {
        matches!(self, State::PoweredOff | State::Crashed | State::Stopped)
    }
}
