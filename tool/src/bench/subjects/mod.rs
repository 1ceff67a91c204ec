// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisors that are measured, each with the same guests on the same machine.

pub mod kvm;
pub mod peer;
mod turnstile;
mod xen;

use std::fs::create_dir_all;
use std::path::PathBuf;
use std::time::Duration;

pub use turnstile::config;

use crate::bench::platform::Platform;
use crate::bench::report::Report;
use crate::bench::rows::Row;
use crate::failure::{Context, Result};
use crate::layout::Layout;
use crate::meter::reading::Reading;
use crate::meter::symbols::Symbols;
use crate::setup::qemu::Qemu;
use crate::setup::{images, peers};

/// A hypervisor in one of its modes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub enum Subject {
    /// This one.
    Turnstile,
    /// Linux KVM with the host kernel in EL2.
    KvmVhe,
    /// Linux KVM with the host kernel in EL1.
    KvmNvhe,
    /// Xen, with the guest as its first domain.
    Xen,
}

impl Subject {
    /// All of them, in the order of the table.
    pub const ALL: [Subject; 4] = [Subject::Turnstile, Subject::KvmVhe, Subject::KvmNvhe, Subject::Xen];

    /// Its name on the command line and in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Subject::Turnstile => "turnstile",
            Subject::KvmVhe => "kvm-vhe",
            Subject::KvmNvhe => "kvm-nvhe",
            Subject::Xen => "xen",
        }
    }

    /// Whether it uses the Virtualization Host Extensions on the machine on which all are measured.
    pub fn mode(self) -> &'static str {
        match self {
            Subject::Turnstile | Subject::KvmVhe => "vhe",
            Subject::KvmNvhe | Subject::Xen => "nvhe",
        }
    }

    /// Whether it has what a row measures.
    pub fn has(self, row: &Row) -> bool {
        // Xen has no devices that a process emulates.
        !(self == Subject::Xen && row.name == "io-user")
    }

    /// Its heading.
    pub fn title(self) -> &'static str {
        match self {
            Subject::Turnstile => "Turnstile",
            Subject::KvmVhe => "KVM VHE",
            Subject::KvmNvhe => "KVM nVHE",
            Subject::Xen => "Xen",
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
    pub platform: Platform,
    /// Mitigations of speculative execution (`mitigations=`); off where nothing is said, so that CPUs can be compared.
    pub mitigations: Option<String>,
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
        Subject::Turnstile => Ok(()),
        Subject::KvmVhe | Subject::KvmNvhe => peers::linux(layout).map(drop),
        Subject::Xen => peers::xen(layout).map(drop),
    }
}

/// Runs one row on one subject, to its end.
pub fn run(subject: Subject, run: &Run<'_>) -> Result<Outcome> {
    create_dir_all(&run.folder).context(|| format!("cannot create {}", run.folder.display()))?;
    match subject {
        Subject::Turnstile => turnstile::run(run),
        Subject::KvmVhe => kvm::run(kvm::Mode::Vhe, run),
        Subject::KvmNvhe => kvm::run(kvm::Mode::Nvhe, run),
        Subject::Xen => xen::run(run),
    }
}

/// The functions of a subject, where its exception vectors are at this address.
pub fn symbols(
    subject: Subject,
    layout: &Layout,
    qemu: &Qemu,
    variant: &Variant,
    vectors: u64,
) -> Result<Symbols> {
    let linked = match subject {
        Subject::Turnstile => Symbols::from_elf(&images::program_with(layout, variant.features)),
        Subject::KvmVhe | Subject::KvmNvhe => kvm::symbols(layout, qemu),
        Subject::Xen => xen::symbols(layout),
    };
    Ok(linked?.fitted(vectors))
}
