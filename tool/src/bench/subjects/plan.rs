// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A host of Linux KVM with guests that have devices, for a row that is a difference of two boots, and what such a row gives.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::meter::reading::Total;
use crate::setup::debian::{self, Debian, Flavour};
use crate::setup::{images, initramfs};

/// A guest's memory in MiB.
pub const MEMORY: u64 = 256;
/// The processor time of a run in which kernels boot, some in another one.
pub const LIMIT: Duration = Duration::from_secs(400);
/// What a guest says when its program has done all.
pub const DONE: &str = "turnstile: work ok";

/// The host and its guests, for a row.
pub struct Plan {
    /// How many CPUs the host has: one for the vCPU of each guest, and one for QEMU's other threads of each.
    pub cpus: u16,
    /// Modules that the host loads, in their order.
    pub modules: Vec<PathBuf>,
    /// Programs of the host, with their names.
    pub programs: Vec<(&'static str, Vec<u8>)>,
    /// The guests.
    pub guests: Vec<Guest>,
    /// Arguments of the QEMU that emulates the host.
    pub emulator: Vec<OsString>,
    /// How many operations the second boot does more.
    pub operations: u64,
}

/// A guest of the host.
#[derive(Clone, Debug)]
pub struct Guest {
    /// More words of its kernel's command line.
    pub append: String,
    /// Where its console goes.
    pub serial: &'static str,
    /// QEMU's arguments for its device.
    pub device: Vec<String>,
    /// What its program is told in the first boot and in the second one, in as many bytes: so both are alike up to it.
    pub told: [String; 2],
}

/// What was counted in two boots, of which the second one did `operations` more.
#[derive(Clone, Debug)]
pub struct Difference {
    /// How many operations it did more.
    pub operations: u64,
    /// The count of the first one.
    pub less: Total,
    /// The count of the second one.
    pub more: Total,
    /// What was measured, with its version, for people.
    pub version: String,
    /// What the host does against speculation, as it says itself.
    pub mitigations: String,
}

impl Difference {
    /// Of two counts, the second one of more operations.
    pub fn new(
        operations: u64,
        [less, more]: [Total; 2],
        version: String,
        mitigations: String,
    ) -> Result<Self> {
        match more.outside > less.outside {
            true => Ok(Difference { operations, less, more, version, mitigations }),
            false => Err(Failure::failed("more operations took no more instructions")),
        }
    }
}

/// Debian's kernel and busybox, which have been fetched.
pub fn debian(layout: &Layout, isa: Isa) -> Result<Debian> {
    debian::cached(layout, isa, Flavour::Cloud)
        .ok_or_else(|| Failure::failed("Debian's kernel is not in the cache any more").help("run this again"))
}

/// An initramfs in `file` with the program that does the work of Linux guests, and what that is told.
pub fn with_work(layout: &Layout, isa: Isa, file: &Path, told: &str) -> Result<Vec<u8>> {
    let program = images::work(layout, isa)?;
    let program = std::fs::read(&program).context(|| format!("cannot read {}", program.display()))?;
    initramfs::with_program(file, "work", &program, told.as_bytes())
}
