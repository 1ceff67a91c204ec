// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The command line.

mod control;
mod forward;
mod help;
mod kill;
mod log;
mod sort;

pub use kill::Kill;

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Args, Parser, Subcommand};

use crate::bench::platform::Platform;
use crate::bench::rows::{FEWEST, ITERATIONS};
use crate::bench::subjects::ALL as ALL_SUBJECTS;
use crate::config::Board;
use crate::qemu::Forward;
pub use control::{Balloon, Console, KillService, List, Logs, OfMachine, Port};
pub use help::EXIT_CODES;
use help::{
    BALLOON_HELP, BENCH_HELP, CONSOLE_HELP, DEVELOPERS, EXITS_HELP, METER_HELP, PORT_HELP, RUN_HELP,
    STOP_HELP, TOP_HELP,
};
pub use log::Log;
pub use sort::Sort;

/// The word for all architectures.
pub const ALL_ISAS: &str = "all";
/// The longest time that can be given: a day.
const MAX_SECONDS: Duration = Duration::from_secs(86_400);

/// Builds and runs virtual machines for the Turnstile hypervisor, and measures what every exit costs.
#[derive(Debug, Parser)]
#[command(name = "turnstile", version, about, after_help = format!("{DEVELOPERS}\n\n{EXIT_CODES}"))]
#[command(arg_required_else_help = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Commands,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Commands {
    /// Show everything from scratch: fetch, build, boot Linux, measure, print the table
    #[command(after_help = EXIT_CODES)]
    Demo(Demo),
    /// Run the machine that FILE describes and attach its consoles
    #[command(after_long_help = RUN_HELP)]
    Run(Run),
    /// List the machines that run, and what their VMs do
    #[command(name = "ls", after_help = EXIT_CODES)]
    List(List),
    /// Attach to the consoles of a machine that runs
    #[command(after_long_help = CONSOLE_HELP)]
    Console(Console),
    /// Connect standard input and output with a named port of a VM of a machine that runs
    #[command(after_long_help = PORT_HELP)]
    Port(Port),
    /// Show the last of the consoles of a machine that runs
    #[command(after_help = EXIT_CODES)]
    Logs(Logs),
    /// Start VMs that have stopped, on a machine that runs
    #[command(after_help = EXIT_CODES)]
    Start(OfMachine),
    /// Stop a VM, or a whole machine that runs
    #[command(after_long_help = STOP_HELP)]
    Stop(OfMachine),
    /// Restart VMs of a machine that runs
    #[command(after_help = EXIT_CODES)]
    Restart(OfMachine),
    /// Kill a service of a machine that runs: it starts anew
    #[command(after_help = EXIT_CODES)]
    KillService(KillService),
    /// Ask the guest of a VM to make do with less memory, or with more again
    #[command(after_long_help = BALLOON_HELP)]
    Balloon(Balloon),
    /// Pause VMs of a machine that runs: they get no CPU, and their clocks stand still
    #[command(after_help = EXIT_CODES)]
    Pause(OfMachine),
    /// Let VMs go on that are paused
    #[command(after_help = EXIT_CODES)]
    Resume(OfMachine),
    /// Measure what exits cost, in instructions
    #[command(after_long_help = BENCH_HELP)]
    Bench(Bench),
    /// Count exits under a load of interrupts, without and with paravirtual EOI
    #[command(after_long_help = EXITS_HELP)]
    Exits(Exits),
    /// Count what any hypervisor executes between exit and entry, on any QEMU command line
    #[command(after_long_help = METER_HELP)]
    Meter(Meter),
    /// Show live what the exits of a running system cost
    #[command(after_long_help = TOP_HELP)]
    Top(Top),
    /// List the problems in a configuration, before anything boots
    #[command(after_help = EXIT_CODES)]
    Check(Check),
    /// Write the hypervisor's image and the bundle of a machine
    #[command(after_help = EXIT_CODES)]
    Build(Build),
    /// List what is missing on this machine and how to get it
    #[command(after_help = EXIT_CODES)]
    Doctor(Doctor),
}

/// `demo`
#[derive(Debug, Args)]
pub struct Demo {
    /// Iterations of each measuring guest
    #[arg(long, value_name = "N", default_value_t = ITERATIONS, value_parser = clap::value_parser!(u64).range(FEWEST..=1 << 32))]
    pub iterations: u64,
    /// Which QEMU is used.
    #[command(flatten)]
    pub qemu: QemuChoice,
}

/// Which QEMU is used.
#[derive(Clone, Debug, Args)]
pub struct QemuChoice {
    /// The QEMU to use instead of the one in PATH
    #[arg(long = "qemu", value_name = "PROGRAM")]
    pub program: Option<PathBuf>,
}

/// `run`
#[derive(Debug, Args)]
pub struct Run {
    /// The description of the machine
    pub file: PathBuf,
    /// Plain text on the serial line: one console, no frames, no events
    #[arg(long, conflicts_with = "json")]
    pub plain: bool,
    /// Write every message as a line of JSON
    #[arg(long)]
    pub json: bool,
    /// Count and time the exits of all VMs, for `turnstile top` in another terminal
    #[arg(long, conflicts_with = "plain")]
    pub statistics: bool,
    /// Serve the statistics of all VMs as OpenMetrics over HTTP at this address, for example 127.0.0.1:9464
    #[arg(long, value_name = "ADDRESS:PORT", value_parser = address, conflicts_with = "plain")]
    pub metrics: Option<SocketAddr>,
    /// Let the hypervisor say what its start takes, by phases, and that of each VM
    #[arg(long)]
    pub boot_times: bool,
    /// Kill this service so many milliseconds after the hypervisor is there; can be repeated
    #[arg(long, value_name = "NAME@MILLISECONDS", value_parser = kill::parse, conflicts_with = "plain")]
    pub kill_service: Vec<kill::Kill>,
    /// Let this TCP port of this computer lead to that of the guest with the address 10.0.2.15 behind the uplink net0; can be repeated
    #[arg(long, value_name = "HOST:GUEST", value_parser = forward::parse)]
    pub forward: Vec<Forward>,
    /// Run in the background, and print the machine's name once it is up
    #[arg(long, conflicts_with_all = ["plain", "json", "gdb"])]
    pub detach: bool,
    /// This is the process in the background
    #[arg(long, hide = true)]
    pub detached: bool,
    /// Wait for a debugger on this port of localhost before the first instruction
    #[arg(long, value_name = "PORT", num_args = 0..=1, default_missing_value = "1234")]
    pub gdb: Option<u16>,
    /// Boot this hypervisor's image instead of building it
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Stop the machine when so many seconds have passed since its start
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    pub timeout: Option<Duration>,
    /// Where consoles are written.
    #[command(flatten)]
    pub log: Log,
    /// Which QEMU is used.
    #[command(flatten)]
    pub qemu: QemuChoice,
    /// One more argument for QEMU; can be repeated
    #[arg(long = "qemu-arg", value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub qemu_args: Vec<OsString>,
}

/// `bench`
#[derive(Debug, Args)]
pub struct Bench {
    /// The architecture
    #[arg(long, value_name = "ISA", default_value = "arm64", value_parser = ["arm64", "x86_64", "power64", ALL_ISAS])]
    pub isa: String,
    /// The hypervisors to measure; the table shows recorded figures for the others. turnstile-linux is Turnstile with the Linux guests
    /// that the others have in rows of disks and networks
    #[arg(long, value_name = "SUBJECT,…", value_delimiter = ',', default_value = "turnstile")]
    #[arg(value_parser = ["turnstile", "turnstile-linux", "kvm-vhe", "kvm-nvhe", "kvm-6.1-vhe", "xen", "kvm-svm", "kvm-6.1-svm", "kvm-hv", "kvm-hv-off", ALL_SUBJECTS])]
    pub subjects: Vec<String>,
    /// Only these rows. Whole work in Linux (pipe-1cpu, pipe-2cpus, fork-exec, sleep-1ms; linux-work is all of it) takes minutes
    /// and is measured only if it is named here
    #[arg(long, value_name = "ROW,…", value_delimiter = ',')]
    pub rows: Vec<String>,
    /// Iterations of each guest
    #[arg(long, value_name = "N", default_value_t = ITERATIONS, value_parser = clap::value_parser!(u64).range(FEWEST..=1 << 32))]
    pub iterations: u64,
    /// The machines on which to measure Turnstile, and so its modes; the other subjects use the default one
    /// [default: max-gicv3, q35-max]
    #[arg(long, value_name = "PLATFORM,…", value_delimiter = ',', conflicts_with = "native")]
    #[arg(value_parser = PossibleValuesParser::new(Platform::names()))]
    pub platform: Vec<String>,
    /// Measure Turnstile with exit statistics on; this has separate budgets
    #[arg(long)]
    pub statistics: bool,
    /// Measure Turnstile with mitigations of speculative execution: auto (what the CPU needs); on arm64 loop:K, firmware; on
    /// x86_64 some of barrier, fill, clear, switch, joined by +; on POWER assisted, software; off by default
    #[arg(long, value_name = "CHOICE", conflicts_with_all = ["native", "from", "ablate", "check", "update_budgets"])]
    pub mitigations: Option<String>,
    /// End each turn of an emulated CPU after so many microseconds at most in rows of networks; 0: QEMU alone ends them
    /// [default: 20 where Linux is the guest, 0 for turnstile]
    #[arg(long, value_name = "MICROSECONDS", conflicts_with_all = ["native", "from", "ablate", "check", "update_budgets"], value_parser = clap::value_parser!(u64).range(..=1000))]
    pub turn: Option<u64>,
    /// Also show how many operations of each class a row takes, what of whole work is outside the guest, and what Linux guests of rows
    /// of disks and networks execute themselves
    #[arg(long)]
    pub classes: bool,
    /// Also show which instructions run in one operation
    #[arg(long)]
    pub trace: bool,
    /// Also count the 64-byte lines of code and of data, and the pages, that one operation touches
    #[arg(long, conflicts_with = "native")]
    pub footprint: bool,
    /// Also measure without each technique, and without all, to show what they save; without --rows in the few rows that the
    /// book shows
    #[arg(long, value_name = "NAME,…", num_args = 0..=1, require_equals = true, default_missing_value = "all", conflicts_with_all = ["statistics", "platform"])]
    pub ablate: Option<String>,
    /// Show a file that --save wrote, and measure nothing; repeat it to combine architectures in one report
    #[arg(long, value_name = "FILE", conflicts_with_all = ["subjects", "rows", "iterations", "platform", "ablate", "statistics", "footprint", "check", "update_budgets", "program"])]
    pub from: Vec<PathBuf>,
    /// Write JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Also write the report, a page for the browser, to this file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Estimate cycles with the model in this file, such as those in bench/weights
    #[arg(long, value_name = "FILE")]
    pub weights: Option<PathBuf>,
    /// Measure time and cycles of Linux KVM on this machine itself, instead of instructions in QEMU
    #[arg(long, conflicts_with_all = ["subjects", "statistics", "classes", "trace", "ablate", "from", "html", "weights", "check", "update_budgets", "program"])]
    pub native: bool,
    /// Fail if a row is above its budget in bench/budgets.toml
    #[arg(long)]
    pub check: bool,
    /// Lower the budgets to what was measured, and record the instructions that ran; with --ablate also what techniques
    /// are worth (bench/ablation.toml)
    #[arg(long, conflicts_with = "check")]
    pub update_budgets: bool,
    /// With --update-budgets: also raise budgets
    #[arg(long, requires = "update_budgets")]
    pub allow_raise: bool,
    /// Which QEMU is used.
    #[command(flatten)]
    pub qemu: QemuChoice,
}

/// `exits`
#[derive(Debug, Args)]
pub struct Exits {
    /// The hypervisors to count
    #[arg(long, value_name = "SUBJECT,…", value_delimiter = ',', default_value = "turnstile,kvm-svm")]
    #[arg(value_parser = ["turnstile", "kvm-svm", "kvm-6.1-svm"])]
    pub subjects: Vec<String>,
    /// The guests: our own, which does almost nothing except take interrupts, and Debian's Linux
    #[arg(long, value_name = "GUEST,…", value_delimiter = ',', default_value = "load,linux")]
    #[arg(value_parser = ["load", "linux"])]
    pub guest: Vec<String>,
    /// The guest's vCPUs; by default 1 for `load` and 2 for `linux`, and also 1 if KVM is measured
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=2))]
    pub vcpus: Option<u16>,
    /// Write JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Also write the JSON to this file
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Which QEMU is used.
    #[command(flatten)]
    pub qemu: QemuChoice,
}

/// `meter`
#[derive(Debug, Args)]
pub struct Meter {
    /// Only code in this range belongs to the guest; can be repeated
    #[arg(long, value_name = "0xSTART-0xEND", value_parser = crate::meter::parse_range)]
    pub guest: Vec<std::ops::Range<u64>>,
    /// List the instructions of the most frequent visit
    #[arg(long)]
    pub trace: bool,
    /// Also count the lines of code and data, and the pages, that a visit touches
    #[arg(long)]
    pub footprint: bool,
    /// Write the reading as JSON instead of the table
    #[arg(long)]
    pub json: bool,
    /// Function names: an ELF file, or lines as in /proc/kallsyms and System.map; can be repeated
    #[arg(long, value_name = "FILE")]
    pub symbols: Vec<PathBuf>,
    /// List this many groups of visits
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// QEMU's command line
    #[arg(last = true, required = true, value_name = "QEMU …")]
    pub command: Vec<OsString>,
}

/// `top`
#[derive(Debug, Args)]
pub struct Top {
    /// The description of a machine to boot; without it, read from a running session
    pub file: Option<PathBuf>,
    /// Which machine to read when several are running: its name or process number
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub session: Option<String>,
    /// Print one reading and end
    #[arg(long)]
    pub once: bool,
    /// With --once: write JSON
    #[arg(long, requires = "once")]
    pub json: bool,
    /// With --once: read after this many seconds
    #[arg(long, value_name = "SECONDS", requires = "once", value_parser = seconds)]
    pub after: Option<Duration>,
    /// Seconds between readings
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds, conflicts_with = "once")]
    pub interval: Duration,
    /// How to sort the reasons
    #[arg(long, value_name = "KEY", default_value = "rate")]
    pub sort: Sort,
    /// Only this VM
    #[arg(long, value_name = "NAME")]
    pub vm: Option<String>,
    /// Boot this hypervisor's image instead of building it
    #[arg(long, value_name = "FILE", requires = "file")]
    pub image: Option<PathBuf>,
    /// Which QEMU is used.
    #[command(flatten)]
    pub qemu: QemuChoice,
}

/// Reads a time in seconds.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    seconds.filter(|time| *time <= MAX_SECONDS).ok_or("give seconds, such as 0.5 or 10".to_owned())
}

fn address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| "give an address and a port, such as 127.0.0.1:9464")
}

/// `check`
#[derive(Debug, Args)]
pub struct Check {
    /// The description of the machine
    pub file: PathBuf,
    /// Write JSON instead of messages
    #[arg(long)]
    pub json: bool,
}

/// `build`
#[derive(Debug, Args)]
pub struct Build {
    /// The description of the machine
    pub file: PathBuf,
    /// Write the files of a bootable card for this board; the same as `board` in FILE
    #[arg(long, value_enum)]
    pub board: Option<Board>,
    /// Where to write the image and the bundle [default: target/machines/NAME]
    #[arg(short, long, value_name = "DIR")]
    pub output: Option<PathBuf>,
    /// Use this hypervisor image instead of building one
    #[arg(long, value_name = "FILE")]
    pub image: Option<PathBuf>,
    /// Write JSON: the files, and the command that boots them
    #[arg(long)]
    pub json: bool,
    /// Let the hypervisor say what its start takes, by phases, and that of each VM
    #[arg(long)]
    pub boot_times: bool,
}

/// `doctor`
#[derive(Debug, Args)]
pub struct Doctor {
    /// Write JSON instead of the table
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
