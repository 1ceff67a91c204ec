// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The hypervisors that are measured, each with the same guests on the same machine.

pub mod kvm;
pub mod peer;
pub mod xen;

use std::path::PathBuf;

use crate::bench::measure::Report;
use crate::bench::rows::Row;
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::meter::reading::Reading;
use crate::setup::qemu::Qemu;

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
    /// Whether the meter traces a visit.
    pub trace: bool,
    /// The plugin's library, built.
    pub meter: PathBuf,
}

/// Runs one row on one subject, to its end.
pub fn run(subject: Subject, run: &Run<'_>) -> Result<Outcome> {
    match subject {
        Subject::Turnstile => Err(Failure::failed(format!("{subject:?} cannot be measured yet"))),
        Subject::KvmVhe => kvm::run(kvm::Mode::Vhe, run),
        Subject::KvmNvhe => kvm::run(kvm::Mode::Nvhe, run),
        Subject::Xen => xen::run(run),
    }
}
