// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisors that are measured, each with the same guests on the same machine.

pub mod difference;
mod disks;
pub mod kvm;
pub mod linux;
mod mitigations;
mod modules;
pub mod networks;
pub mod peer;
mod plan;
pub mod turnstile;
mod xen;

use std::fs::create_dir_all;
use std::path::PathBuf;
use std::time::Duration;

pub use modules::Modules;
pub use turnstile::config;

use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::rows::{Counted, Row};
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::meter::reading::{Group, Reading, Step};
use crate::meter::symbols::Symbols;
use crate::setup::peers;
use crate::setup::qemu::Qemu;

/// The word for all subjects.
pub const ALL: &str = "all";
/// The most vCPUs of a row that other hypervisors are asked for.
const PEER_VCPUS: u16 = 32;

/// A hypervisor in one of its modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Subject {
    /// This one.
    Turnstile,
    /// The same with Debian's Linux as its guests, as the others have them in rows of disks and networks.
    TurnstileLinux,
    /// Linux KVM with the host kernel in EL2.
    KvmVhe,
    /// Linux KVM with the host kernel in EL1.
    KvmNvhe,
    /// Linux KVM of an older kernel, in EL2, whose cost of an SGI grows with the number of its target.
    Kvm61Vhe,
    /// Xen, with the guest as its first domain.
    Xen,
    /// Linux KVM on AMD64.
    KvmSvm,
    /// Linux KVM of an older kernel on AMD64.
    #[value(name = "kvm-6.1-svm")]
    Kvm61Svm,
    /// Linux KVM on POWER, in hypervisor mode.
    KvmHv,
    /// The same without mitigations of speculative execution.
    KvmHvOff,
}

impl Subject {
    /// All of them, in the order of the table.
    pub const ALL: [Subject; 10] = [
        Subject::Turnstile,
        Subject::TurnstileLinux,
        Subject::KvmVhe,
        Subject::KvmNvhe,
        Subject::Kvm61Vhe,
        Subject::Xen,
        Subject::KvmSvm,
        Subject::Kvm61Svm,
        Subject::KvmHv,
        Subject::KvmHvOff,
    ];

    /// Those that run on machines of an architecture.
    pub fn of(isa: Isa) -> impl Iterator<Item = Subject> {
        Subject::ALL.into_iter().filter(move |subject| subject.is_of(isa))
    }

    /// Whether it runs on machines of this architecture.
    fn is_of(self, isa: Isa) -> bool {
        match self {
            Subject::Turnstile | Subject::TurnstileLinux => true,
            Subject::KvmVhe | Subject::KvmNvhe | Subject::Kvm61Vhe | Subject::Xen => isa == Isa::Arm64,
            Subject::KvmSvm | Subject::Kvm61Svm => isa == Isa::X86_64,
            Subject::KvmHv | Subject::KvmHvOff => isa == Isa::Power64,
        }
    }

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Turnstile => "turnstile",
            Subject::TurnstileLinux => "turnstile-linux",
            Subject::KvmVhe => "kvm-vhe",
            Subject::KvmNvhe => "kvm-nvhe",
            Subject::Kvm61Vhe => "kvm-6.1-vhe",
            Subject::Xen => "xen",
            Subject::KvmSvm => "kvm-svm",
            Subject::Kvm61Svm => "kvm-6.1-svm",
            Subject::KvmHv => "kvm-hv",
            Subject::KvmHvOff => "kvm-hv-off",
        }
    }

    /// Whether it uses the Virtualization Host Extensions.
    pub fn mode(self, platform: &Platform) -> &'static str {
        match self {
            Subject::Turnstile | Subject::TurnstileLinux => platform.mode,
            Subject::KvmVhe | Subject::Kvm61Vhe => "vhe",
            Subject::KvmNvhe | Subject::Xen => "nvhe",
            Subject::KvmSvm | Subject::Kvm61Svm => "svm",
            Subject::KvmHv | Subject::KvmHvOff => "hv",
        }
    }

    /// Whether it has what a row measures.
    pub fn has(self, row: &Row) -> bool {
        let sgis = row.counted == Counted::Sender;
        if !self.is_of(row.isa) {
            return false;
        }
        if difference::has(self, row) {
            return true;
        }
        // The device of the others is always where io-user has it; nobody stays inside it or has a CPU for it; their monitor has no virtio
        // devices.
        let is_own = ["io-device", "doorbell-busy"].contains(&row.name) || row.own_cpu || row.drives();
        if row.counted == Counted::Boot || is_own {
            return self == Subject::Turnstile;
        }
        match self {
            Subject::Turnstile => true,
            // The others have our own guests in all other rows, too.
            Subject::TurnstileLinux => false,
            // Their vCPUs share two CPUs, so only one of them can receive at a time.
            Subject::KvmVhe => row.vcpus <= PEER_VCPUS && !row.options.contains("broadcast"),
            Subject::Kvm61Vhe => {
                row.vcpus <= PEER_VCPUS
                    && (row.target.is_some() || ["null-hypercall", "virtual-ipi"].contains(&row.name))
            }
            Subject::KvmNvhe => !sgis,
            // Xen has no devices that a process emulates, and maps all memory of a domain when it makes it.
            Subject::Xen => !sgis && row.name != "io-user" && !row.touches && !row.rings(),
            // QEMU's TCG delivers the interrupt that KVM gives a running guest again and again, millions of times.
            Subject::KvmSvm => row.name != "timer-interrupt",
            Subject::KvmHv | Subject::KvmHvOff => true,
            Subject::Kvm61Svm => {
                ["null-hypercall", "x2apic-self-ipi-eoi", "x2apic-self-ipi-pv-eoi"].contains(&row.name)
            }
        }
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Subject::Turnstile => "Turnstile",
            Subject::TurnstileLinux => "Turnstile, Linux",
            Subject::KvmVhe => "KVM VHE",
            Subject::KvmNvhe => "KVM nVHE",
            Subject::Kvm61Vhe => "KVM 6.1 VHE",
            Subject::Xen => "Xen",
            Subject::KvmSvm => "KVM SVM",
            Subject::Kvm61Svm => "KVM 6.1 SVM",
            Subject::KvmHv => "KVM HV",
            Subject::KvmHvOff => "KVM HV, mitigations off",
        }
    }
}

/// What one run of one row gave.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the guest counted itself.
    pub report: Report,
    /// What the meter counted.
    pub reading: Reading,
    /// What was measured, with its version, for people: `Linux 6.12.95 KVM`.
    pub version: String,
    /// What it does against speculation on this machine, as it says itself; empty if it does not say.
    pub mitigations: String,
    /// Where a Linux host has the modules that it loaded.
    pub modules: Modules,
}

/// How Turnstile differs from the usual in a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variant {
    /// The hypervisor's cargo features; with some it is built apart from the usual one.
    pub features: &'static [&'static str],
    /// More words on the hypervisor's command line.
    pub append: String,
    /// More lines of the VM's table.
    pub vm: String,
    /// The machine.
    pub platform: &'static Platform,
    /// More properties of its processor model, as QEMU takes them, each behind a comma.
    pub cpu: &'static str,
    /// Mitigations of speculative execution (`mitigations=`); off where nothing is said, so that CPUs can be compared.
    pub mitigations: Option<String>,
    /// How long a turn of the emulated machine's CPUs takes at most in rows of networks, in microseconds; zero if as long as the emulator
    /// lets them. It is the other subjects', too.
    pub turn: Option<u64>,
}

impl Variant {
    /// With statistics of the VM's exits.
    pub fn statistics() -> Self {
        Variant { vm: "statistics = true".to_owned(), ..Variant::default() }
    }
}

/// One run: who, what and how often.
#[derive(Clone, Debug)]
pub struct Run<'a> {
    /// The checkout.
    pub layout: &'a Layout,
    /// QEMU.
    pub qemu: &'a Qemu,
    /// The row.
    pub row: &'static Row,
    /// Iterations of its guest.
    pub iterations: u64,
    /// The processor time that QEMU may use: on a busy machine it grows as slowly as QEMU does.
    pub limit: Duration,
    /// Whether the meter traces a visit.
    pub trace: bool,
    /// Whether the meter counts lines and pages.
    pub footprint: bool,
    /// The plugin's library, built.
    pub meter: PathBuf,
    /// A folder of this run's own, for its files.
    pub folder: PathBuf,
    /// What is special about Turnstile in this run.
    pub variant: &'a Variant,
}

/// Gets what a subject is made of, if that is not built here.
pub fn fetch(subject: Subject, layout: &Layout) -> Result<()> {
    match subject {
        Subject::Turnstile | Subject::TurnstileLinux => Ok(()),
        Subject::KvmVhe | Subject::KvmNvhe => peers::linux(layout, Isa::Arm64).map(drop),
        Subject::Kvm61Vhe => peers::linux_6_1(layout, Isa::Arm64).map(drop),
        Subject::KvmSvm => peers::linux(layout, Isa::X86_64).map(drop),
        Subject::Kvm61Svm => peers::linux_6_1(layout, Isa::X86_64).map(drop),
        Subject::KvmHv | Subject::KvmHvOff => peers::linux(layout, Isa::Power64).map(drop),
        Subject::Xen => peers::xen(layout).map(drop),
    }
}

/// Runs one row on one subject, to its end.
pub fn run(subject: Subject, run: &Run<'_>) -> Result<Outcome> {
    create_dir_all(&run.folder).context(|| format!("cannot create {}", run.folder.display()))?;
    match subject {
        Subject::Turnstile => turnstile::run(run),
        Subject::TurnstileLinux => Err(Failure::failed("its rows are differences of boots")),
        Subject::KvmVhe => kvm::run(kvm::Host::Vhe, run),
        Subject::KvmNvhe => kvm::run(kvm::Host::Nvhe, run),
        Subject::Kvm61Vhe => kvm::run(kvm::Host::Older, run),
        Subject::Xen => xen::run(run),
        Subject::KvmSvm => kvm::run(kvm::Host::Svm, run),
        Subject::Kvm61Svm => kvm::run(kvm::Host::OlderSvm, run),
        Subject::KvmHv => kvm::run(kvm::Host::Hv, run),
        Subject::KvmHvOff => kvm::run(kvm::Host::HvOff, run),
    }
}

/// The functions of a subject, where its code and its modules are as in this run of a row, of which these are visits.
pub fn symbols(
    subject: Subject,
    row: &str,
    layout: &Layout,
    qemu: &Qemu,
    variant: &Variant,
    visits: &[&Group],
    modules: &Modules,
) -> Result<Symbols> {
    let kvm = |host| kvm::symbols(host, layout, qemu, modules);
    let linked = match subject {
        Subject::Turnstile | Subject::TurnstileLinux => {
            return turnstile::symbols(layout, variant, row, visits);
        }
        Subject::KvmVhe | Subject::KvmNvhe => kvm(kvm::Host::Vhe),
        Subject::Kvm61Vhe => kvm(kvm::Host::Older),
        Subject::Xen => xen::symbols(layout),
        Subject::KvmSvm => kvm(kvm::Host::Svm),
        Subject::Kvm61Svm => kvm(kvm::Host::OlderSvm),
        Subject::KvmHv | Subject::KvmHvOff => kvm(kvm::Host::Hv),
    };
    Ok(linked?.fitted(vectors(visits), &executed(visits)))
}

/// Where the vectors were.
fn vectors(visits: &[&Group]) -> u64 {
    visits.first().map_or(0, |group| group.vectors)
}

/// The instructions of these visits.
fn executed(visits: &[&Group]) -> Vec<Step> {
    visits.iter().flat_map(|group| group.trace.iter().cloned()).collect()
}
