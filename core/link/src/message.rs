// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The messages. Their form on the line is postcard's: a change of one needs a new [`crate::VERSION`].

use serde::{Deserialize, Serialize};

use crate::{MAX_BUCKETS, MAX_TEXT};

/// A message of either direction.
pub trait Message: Serialize + private::Sealed {}

mod private {
    pub trait Sealed {}
    impl Sealed for super::Up<'_> {}
    impl Sealed for super::Down<'_> {}
}

impl Message for Up<'_> {}
impl Message for Down<'_> {}

/// From the hypervisor to the tool. `vm` is the VM's index in the bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Up<'a> {
    /// The hypervisor is there: at boot, and in answer to [`Command::Hello`]. One [`Up::Vm`] for each VM
    /// follows.
    Hello {
        /// The version of the messages, [`crate::VERSION`].
        version: u16,
        /// The hypervisor's own version, for people.
        hypervisor: &'a str,
        /// The number of physical CPUs in use.
        cpus: u16,
        /// The number of VMs.
        vms: u8,
    },
    /// What a VM is, after [`Up::Hello`].
    Vm {
        /// The VM.
        vm: u8,
        /// Its name.
        name: &'a str,
        /// The number of its vCPUs.
        vcpus: u16,
        /// What it does now.
        state: VmState,
        /// How many bytes of [`Down::Input`] its console has room for, if none are under way.
        room: u16,
    },
    /// What a service is: after the last [`Up::Vm`], when a crash of it is reported, and in answer to [`Command::Statistics`].
    Service {
        /// Its number, as for [`Command::KillService`].
        service: u8,
        /// The VM that it serves.
        vm: u8,
        /// Its name.
        name: &'a str,
        /// How often it has crashed or was killed.
        crashes: u32,
        /// How many exits it has handled since the VM's start; 0 if the VM keeps no statistics.
        exits: u64,
        /// How long these took until it had answered, in ticks of the counter of statistics.
        ticks: u64,
    },
    /// What a guest wrote to its console.
    Console {
        /// The VM.
        vm: u8,
        /// The bytes, at most [`crate::MAX_BYTES`], not necessarily whole characters.
        bytes: &'a [u8],
    },
    /// Something happened to a VM.
    Event {
        /// The VM.
        vm: u8,
        /// What happened.
        event: Event<'a>,
    },
    /// The hypervisor found a fault in itself; the report follows as plain text.
    Fault {
        /// The fault in a line.
        text: &'a str,
    },
    /// The answer to a [`Down::Command`].
    Reply {
        /// The command.
        command: Command,
        /// What became of it.
        outcome: Outcome,
    },
    /// Every VM has stopped for good; the machine powers off after this.
    Done {
        /// How many of them stopped because their guest crashed.
        crashed: u8,
    },
    /// The statistics of a vCPU begin: in answer to [`Command::Statistics`], for each vCPU. Its [`Up::Exits`]
    /// and [`Up::Events`] follow; after those of the last vCPU comes [`Up::Reply`].
    Statistics(Statistics),
    /// A part of the histogram of one reason, and the reason's total. Parts without an exit are not sent.
    Exits(Exits),
    /// How often events happened to a vCPU, after its [`Up::Exits`]. Parts in which nothing happened are not sent.
    Events(Events),
    /// A VM's console has room for more: its guest has read as many bytes of [`Down::Input`], or they are gone because it does
    /// not run. Whoever sends more than there is room for loses it.
    Room {
        /// The VM.
        vm: u8,
        /// So many bytes more than before.
        bytes: u16,
    },
    /// What a guest wrote to a port that is [open](Down::PortOpen): no more than there is room for.
    Port {
        /// The VM.
        vm: u8,
        /// The port, from 1.
        port: u8,
        /// The bytes, at most [`crate::MAX_BYTES`].
        bytes: &'a [u8],
    },
    /// A port has room for so many bytes more of [`Down::Port`]: first when it is open, and then as its guest takes them.
    PortRoom {
        /// The VM.
        vm: u8,
        /// The port.
        port: u8,
        /// So many bytes more than before.
        bytes: u16,
    },
    /// The answer to each [`Down::PortClose`] of a port that is there: nothing more comes of before, and it can be opened again.
    PortClosed {
        /// The VM.
        vm: u8,
        /// The port.
        port: u8,
    },
    /// How much memory a VM has: in answer to [`Command::Memory`], for each VM. [`Up::Pool`] follows, if there is a pool, and then
    /// [`Up::Reply`].
    Memory {
        /// The VM.
        vm: u8,
        /// Its memory.
        memory: Memory,
    },
    /// How much memory of the machine's pool is free, after the last [`Up::Memory`]. Each figure is read by itself, while the VMs go on.
    Pool(Pool),
}

/// How much memory a VM has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// How many bytes it has now.
    pub bytes: u64,
    /// How many it has at most.
    pub limit: u64,
    /// Whether it runs, and the pool had nothing when it wanted more last.
    pub waits: bool,
}

/// How much memory of the machine's pool is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pool {
    /// How many bytes the pool has.
    pub bytes: u64,
    /// How many of them no VM has.
    pub free: u64,
}

/// The beginning of a vCPU's statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    /// The VM.
    pub vm: u8,
    /// The vCPU.
    pub vcpu: u16,
    /// How many times the VM has started: the figures are of its present life, or of its last.
    pub boots: u32,
    /// The counter by which costs are measured, now.
    pub ticks: u64,
    /// The counter's frequency in Hz.
    pub frequency: u64,
}

/// A part of the statistics of one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exits {
    /// The VM.
    pub vm: u8,
    /// The vCPU.
    pub vcpu: u16,
    /// The reason, by its number in `turnstile_exitstat`.
    pub reason: u8,
    /// The total of all costs of this reason in ticks; the same in all its parts.
    pub total: u64,
    /// The first bucket of this part: a bucket's number is that of the significant bits of its costs.
    pub first: u8,
    /// How many exits are in each bucket from there on.
    pub counts: [u64; MAX_BUCKETS],
}

/// A part of how often events happened to a vCPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Events {
    /// The VM.
    pub vm: u8,
    /// The vCPU.
    pub vcpu: u16,
    /// The first event of this part, by its number in `turnstile_exitstat`.
    pub first: u8,
    /// How often each event from there on happened.
    pub counts: [u64; MAX_BUCKETS],
}

/// What a VM does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum VmState {
    /// Its vCPUs run.
    Running,
    /// It has stopped.
    Stopped,
    /// It is paused, or its vCPUs are on their way there.
    Paused,
}

/// Something that happened to a VM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event<'a> {
    /// The guest starts. All memory that belongs to no VM is counted here, so that a restart that
    /// leaks shows in two such events.
    Started {
        /// How many times it has started, this one included.
        boots: u32,
        /// Free memory of the whole hypervisor in bytes.
        free_memory: u64,
        /// Free page-table pages of the whole hypervisor.
        free_tables: u32,
    },
    /// The guest has stopped.
    Stopped {
        /// Why.
        reason: StopReason,
        /// Whether it starts again by itself.
        restarts: bool,
    },
    /// The VM is paused: all its vCPUs have left their guests, and its clock stands still where it can.
    Paused,
    /// The VM goes on after a pause.
    Resumed {
        /// For how many microseconds it was paused; zero if it goes on before all its vCPUs had left.
        microseconds: u64,
    },
    /// The guest crashed. A report of several lines is several such events; [`Event::Stopped`] follows.
    Crashed {
        /// A line of the report.
        text: &'a str,
    },
}

/// Why a VM stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum StopReason {
    /// The guest powered off.
    PowerOff,
    /// The guest asked for a reset.
    Reset,
    /// The guest did what it cannot go on from.
    Crash,
    /// The tool asked for it.
    Killed,
}

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// It is done, or begun: the VM's events tell when it has ended.
    Accepted,
    /// There is no such VM.
    NoSuchVm,
    /// The VM is not in a state in which this means anything.
    NotNow,
    /// The VM keeps no statistics.
    NotKept,
    /// There is no such service.
    NoSuchService,
    /// The VM has no balloon.
    NoBalloon,
}

/// From the tool to the hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Down<'a> {
    /// What is typed into a guest's console.
    Input {
        /// The VM.
        vm: u8,
        /// The bytes, at most [`crate::MAX_BYTES`], and no more than [`Up::Vm`] and [`Up::Room`] gave room for.
        bytes: &'a [u8],
    },
    /// What the hypervisor is to do. It answers with [`Up::Reply`].
    Command(Command),
    /// The terminal of a VM's console has another size. A console that has none ignores it.
    Size {
        /// The VM.
        vm: u8,
        /// How many characters a line has; 0 if that is not known.
        columns: u16,
        /// How many lines there are; 0 if that is not known.
        rows: u16,
    },
    /// Somebody is at the other side of a port, for this life of the VM; [`Up::PortRoom`] follows. Nothing if the VM is in another life, or
    /// if the port is open. It closes with that life.
    PortOpen {
        /// The VM.
        vm: u8,
        /// The port, from 1.
        port: u8,
        /// The life, as [`Event::Started`] has it.
        boots: u32,
        /// For how many bytes of [`Up::Port`] there is room.
        room: u16,
    },
    /// Nobody is there any more. What the guest has not taken is gone. [`Up::PortClosed`] is the answer.
    PortClose {
        /// The VM.
        vm: u8,
        /// The port.
        port: u8,
    },
    /// Bytes for a port that is open.
    Port {
        /// The VM.
        vm: u8,
        /// The port.
        port: u8,
        /// The bytes, at most [`crate::MAX_BYTES`], and no more than [`Up::PortRoom`] gave room for.
        bytes: &'a [u8],
    },
    /// There is room for so many bytes more of [`Up::Port`].
    PortRoom {
        /// The VM.
        vm: u8,
        /// The port.
        port: u8,
        /// So many bytes more than before.
        bytes: u16,
    },
}

/// What the hypervisor is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// Introduce itself and its VMs.
    Hello,
    /// Stop the VM if it runs, and start it again.
    Restart {
        /// The VM.
        vm: u8,
    },
    /// Stop the VM.
    Stop {
        /// The VM.
        vm: u8,
    },
    /// Stop all VMs and power the machine off.
    Poweroff,
    /// Send the statistics of the VM's exits: [`Up::Statistics`], [`Up::Exits`] and [`Up::Events`] for each vCPU, [`Up::Service`]
    /// for each service, then [`Up::Reply`].
    Statistics {
        /// The VM.
        vm: u8,
    },
    /// Pause the VM: its vCPUs leave their guests until [`Command::Resume`]. [`Event::Paused`] tells when they have.
    Pause {
        /// The VM.
        vm: u8,
    },
    /// Let a paused VM go on.
    Resume {
        /// The VM.
        vm: u8,
    },
    /// Start a service anew, whatever it does.
    KillService {
        /// Its number: the order is that of the bundle, without those that join another one.
        service: u8,
    },
    /// Send how much memory the VMs have: [`Up::Memory`] for each, [`Up::Pool`], then [`Up::Reply`].
    Memory,
    /// Ask the VM's guest, through its balloon, to make do with so much of its memory, until it is asked for something else or its life ends.
    Balloon {
        /// The VM.
        vm: u8,
        /// How many bytes it is to keep. All that it may have, or more: the balloon is to be empty.
        bytes: u64,
    },
}

/// Shortens a text to [`MAX_TEXT`] bytes, at the end of a character.
#[must_use]
pub fn clip(text: &str) -> &str {
    let end = text.floor_char_boundary(MAX_TEXT);
    text.get(..end).unwrap_or_default()
}
