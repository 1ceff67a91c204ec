// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a system test is: a machine, what happens on it, and how it must end.

use std::path::Path;

use turnstile::failure::Result;
use turnstile::isa::Isa;
use turnstile::qemu::Boot;
use turnstile::top::reading::Reading;
use turnstile_link::{Command, Memory, Outcome, Pool, StopReason};

/// Judges a whole run; the error is the sentence for the report.
pub type Judge = fn(&Record) -> std::result::Result<(), String>;

/// One boot of the hypervisor.
#[derive(Clone)]
pub struct Scenario {
    /// Its name: `arm64/topic/what`.
    pub name: String,
    /// The architecture.
    pub isa: Isa,
    /// The machine, as a configuration file would say it.
    pub config: String,
    /// Files that the configuration names, with what is in them.
    pub files: Vec<(&'static str, Vec<u8>)>,
    /// What must happen, in this order.
    pub steps: Vec<Step>,
    /// How it must end after that.
    pub ending: Ending,
    /// Count instructions, so that the run is the same every time; one CPU runs at a time.
    pub counted: bool,
    /// Processor time that QEMU may use, in seconds: a guard against hangs, not a measure.
    pub limit: u64,
    /// Boots the image for ablation and takes these techniques off.
    pub without: Option<String>,
    /// Changes what is booted; gets the folder of the bundle.
    pub prepare: Option<fn(&mut Boot, &Path) -> Result<()>>,
    /// Judges the whole run.
    pub judge: Option<Judge>,
    /// Whether only the long run has it.
    pub long: bool,
}

/// Something that must happen next, or that is done.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// The VM's console says this, after what it said before.
    Expect(u8, &'static str),
    /// This is typed into the VM's console.
    Type(u8, &'static str),
    /// The VM starts for at least the n-th time.
    Started(u8, u32),
    /// The VM stops for this reason.
    Stopped(u8, StopReason),
    /// The report of a VM that crashed, or that cannot start, says this.
    Reported(&'static str),
    /// The hypervisor's own text says this.
    Text(&'static str),
    /// The terminal of the VM's console has so many columns and rows.
    Resize(u8, u16, u16),
    /// Somebody comes to this port of the VM. What the guest writes there is read only by `PortSays`, so far as the VM has room.
    PortComes(u8, u8),
    /// They send so many bytes: [`stream`] from its beginning.
    PortSends(u8, u8, usize),
    /// They have read so many bytes since they came, which are those of [`stream`].
    PortSays(u8, u8, usize),
    /// They go.
    PortGoes(u8, u8),
    /// The hypervisor is told this.
    Tell(Command),
    /// The hypervisor answers this, to what it was told, after what it answered before.
    Answered(Command, Outcome),
    /// The VM is paused, after what happened to it before.
    Paused(u8),
    /// The paused VM goes on.
    Resumed(u8),
    /// So many milliseconds pass.
    Wait(u64),
    /// The machine loses its power, and is switched on again: what reached the files of its disks is there.
    PowerCut,
    /// The statistics of all VMs are read.
    Read,
    /// The statistics of all VMs are read once they stand still: no exit has ended between two readings. What a guest says
    /// is heard before the exit that said it has ended, and what it does behind that is not heard at all.
    ReadAtRest,
}

/// How a scenario must end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All VMs stop by themselves, so many of them by a crash.
    Done {
        /// How many.
        crashed: u8,
    },
    /// The VMs would go on: the hypervisor is told to power off, and does.
    Poweroff,
    /// No VM ever starts; the steps have said why.
    Refused,
    /// The machine ends by itself, without a frame that says so.
    Silent,
}

/// A start of a VM, with the hypervisor's counters at that moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The VM.
    pub vm: u8,
    /// Which start it is, from 1.
    pub boots: u32,
    /// The hypervisor's free memory in bytes.
    pub free_memory: u64,
    /// The hypervisor's free page-table pages.
    pub free_tables: u32,
}

/// All that a scenario's machine said.
#[derive(Debug, Default)]
pub struct Record {
    /// The hypervisor's own text.
    pub text: String,
    /// The console of each VM.
    pub consoles: Vec<String>,
    /// The starts of all VMs.
    pub starts: Vec<Start>,
    /// The stops of all VMs.
    pub stops: Vec<(u8, StopReason)>,
    /// The answers to commands.
    pub answers: Vec<(Command, Outcome)>,
    /// How much memory VMs had, whenever that was asked for.
    pub memory: Vec<(u8, Memory)>,
    /// How much of the pool was free, then.
    pub pools: Vec<Pool>,
    /// The pauses of all VMs and their ends: for how many microseconds they were.
    pub pauses: Vec<(u8, Option<u64>)>,
    /// A VM that wrote to its console while it was paused.
    pub ran_while_paused: Option<u8>,
    /// The crash reports.
    pub crashes: Vec<String>,
    /// The statistics that were read.
    pub readings: Vec<Reading>,
    /// How many VMs crashed, when all have stopped.
    pub done: Option<u8>,
    /// A fault of the hypervisor.
    pub fault: Option<String>,
}

/// Returns so many bytes that are sent by a port, of all values: squares of the numbers from 0 on, each divided by 256.
pub fn stream(length: usize) -> impl Iterator<Item = u8> {
    (0..length as u64).map(|at| ((at * at) >> 8) as u8)
}

impl Record {
    /// Whether a VM is paused.
    pub fn is_paused(&self, vm: u8) -> bool {
        // A life that ends ends its pause.
        self.pauses.iter().rfind(|(of, _)| *of == vm).is_some_and(|(_, ended)| ended.is_none())
    }

    /// The console of a VM.
    pub fn console(&self, vm: u8) -> &str {
        self.consoles.get(usize::from(vm)).map_or("", String::as_str)
    }
}

impl Scenario {
    /// A scenario for arm64 that ends when all VMs have powered off.
    pub fn new(name: impl Into<String>, config: impl Into<String>, steps: Vec<Step>) -> Self {
        Self::on(Isa::Arm64, &name.into(), config.into(), steps)
    }

    /// The same on a PC, by default the usual one.
    pub fn pc(name: impl Into<String>, config: impl Into<String>, steps: Vec<Step>) -> Self {
        Self::of(Isa::X86_64, &name.into(), config.into(), steps)
    }

    /// The same on a machine with POWER, by default the usual one.
    pub fn power(name: impl Into<String>, config: impl Into<String>, steps: Vec<Step>) -> Self {
        Self::of(Isa::Power64, &name.into(), config.into(), steps)
    }

    /// The same on an architecture's machine, by default the usual one.
    pub fn at(isa: Isa, name: impl Into<String>, config: impl Into<String>, steps: Vec<Step>) -> Self {
        match isa {
            Isa::Arm64 => Self::new(name, config, steps),
            Isa::X86_64 => Self::pc(name, config, steps),
            Isa::Power64 => Self::power(name, config, steps),
        }
    }

    /// A scenario whose configuration may leave the machine out.
    fn of(isa: Isa, name: &str, config: String, steps: Vec<Step>) -> Self {
        let config = match config.contains("[machine]") {
            true => config,
            false => format!("[machine]\nisa = \"{isa}\"\n{config}"),
        };
        Self::on(isa, name, config, steps)
    }

    /// The same as a scenario for arm64, on a PC, whose Linux has to be told where its console is.
    pub fn on_pc(self) -> Self {
        let name = self.name.strip_prefix("arm64/").unwrap_or(&self.name);
        let vm = |vm: &str| match vm.contains("debian:linux") {
            true => vm.replacen("cmdline = \"", "cmdline = \"console=ttyS0 ", 1),
            false => vm.to_owned(),
        };
        let vms: Vec<String> = self.config.split("[[vm]]").map(vm).collect();
        let pc = Self::pc(name, vms.join("[[vm]]"), self.steps);
        Self { name: pc.name, isa: pc.isa, config: pc.config, steps: pc.steps, ..self }
    }

    /// The same on a machine with POWER: its Linux needs more memory, and is told that its terminal is the console.
    pub fn on_power(self) -> Self {
        let name = self.name.strip_prefix("arm64/").unwrap_or(&self.name);
        let vm = |vm: &str| match vm.contains("debian:linux") {
            true => vm.replacen("cmdline = \"", "cmdline = \"console=hvc0 ", 1).replace("256MiB", "512MiB"),
            false => vm.replace("32MiB", "64MiB"),
        };
        let vms: Vec<String> = self.config.split("[[vm]]").map(vm).collect();
        let power = Self::power(name, vms.join("[[vm]]"), self.steps);
        Self { name: power.name, isa: power.isa, config: power.config, steps: power.steps, ..self }
    }

    /// The same on the machines of all architectures.
    pub fn on_all(&self) -> [Self; 3] {
        [self.clone(), self.clone().on_pc(), self.clone().on_power()]
    }

    fn on(isa: Isa, name: &str, config: String, steps: Vec<Step>) -> Self {
        Scenario {
            name: format!("{isa}/{name}"),
            isa,
            config,
            files: Vec::new(),
            steps,
            ending: Ending::Done { crashed: 0 },
            counted: false,
            limit: 120,
            without: None,
            prepare: None,
            judge: None,
            long: false,
        }
    }

    /// Boots another machine.
    pub fn with_config(mut self, config: String) -> Self {
        self.config = config;
        self
    }

    /// Gives it a file that its configuration names.
    pub fn file(mut self, name: &'static str, content: Vec<u8>) -> Self {
        self.files.push((name, content));
        self
    }

    /// Leaves it to the long run: it takes long, or shows little that a shorter one does not.
    pub fn long(mut self) -> Self {
        self.long = true;
        self
    }

    /// Runs it with counted instructions.
    pub fn counted(mut self) -> Self {
        self.counted = true;
        self
    }

    /// Ends it otherwise.
    pub fn ending(mut self, ending: Ending) -> Self {
        self.ending = ending;
        self
    }

    /// Gives it more or less processor time.
    pub fn limit(mut self, seconds: u64) -> Self {
        self.limit = seconds;
        self
    }

    /// Does without techniques.
    pub fn without(mut self, techniques: &str) -> Self {
        self.without = Some(techniques.to_owned());
        self
    }

    /// Changes what is booted.
    pub fn prepare(mut self, prepare: fn(&mut Boot, &Path) -> Result<()>) -> Self {
        self.prepare = Some(prepare);
        self
    }

    /// Judges the whole run, too.
    pub fn judge(mut self, judge: Judge) -> Self {
        self.judge = Some(judge);
        self
    }
}

/// The configuration of a guest of the checkout; `more` are further lines of its table.
pub fn guest(name: &str, guest: &str, memory: &str, more: &str) -> String {
    format!("[[vm]]\nname = \"{name}\"\nkernel = \"guest:{guest}\"\nmemory = \"{memory}\"\n{more}\n")
}

/// The configuration of a Linux guest.
pub fn linux(name: &str, vcpus: u32, cmdline: &str, more: &str) -> String {
    format!(
        "[[vm]]\nname = \"{name}\"\nkernel = \"debian:linux\"\ninitrd = \"debian:busybox\"\n\
         vcpus = {vcpus}\nmemory = \"256MiB\"\ncmdline = \"{cmdline}\"\n{more}\n"
    )
}
