// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile exits`: how often a guest under a load of interrupts is left in one second, and what for, without and with
//! paravirtual EOI. The table of the proposal to add it to Linux (seed 003), for Turnstile and for Linux KVM.
//!
//! | file | what |
//! |---|---|
//! | `counts` | what is counted, and under which names |
//! | `turnstile` | Turnstile's statistics of a VM |
//! | `kvm` | KVM's tracepoints, counted by the monitor |
//! | `table` | the table |

mod counts;
mod kvm;
mod table;
mod turnstile;

use serde::Serialize;

pub use counts::{Counts, Load};

use crate::bench::subjects::Subject;
use crate::cli;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, can_write, write_named};
use crate::setup;
use crate::setup::qemu::Qemu;
use crate::ui;

/// The guest, and the words of its command line with which it ends an interrupt by a write always.
const GUEST: &str = "load";
const WITHOUT: &str = "pv-eoi=off";
/// The version of the JSON.
const SCHEMA: u32 = 1;

/// One second of the same load, twice.
#[derive(Clone, Debug, Serialize)]
pub struct Pair {
    /// Whose guest it is.
    pub subject: &'static str,
    /// Its heading.
    #[serde(skip)]
    pub title: &'static str,
    /// What it is, with its version.
    pub version: String,
    /// vCPUs of the guest.
    pub vcpus: u16,
    /// Without paravirtual EOI.
    pub without: Counts,
    /// With it.
    pub with: Counts,
}

impl Pair {
    /// The part of the exits that is left.
    pub fn left(&self) -> f64 {
        self.with.exits() as f64 / self.without.exits() as f64
    }
}

/// The JSON form.
#[derive(Serialize)]
struct Document<'a> {
    exits: u32,
    pairs: &'a [Pair],
}

/// Counts, and prints.
pub fn exits(layout: &Layout, options: &cli::Exits) -> Result<()> {
    if let Some(file) = &options.save {
        can_write(file)?;
    }
    let qemu = setup::qemu::ensure(layout, Isa::X86_64, options.qemu.program.as_deref())?;
    let subjects: Vec<Subject> = Subject::of(Isa::X86_64)
        .filter(|subject| options.subjects.iter().any(|name| name == subject.name()))
        .collect();
    let step = ui::Step::start_counted("counting", subjects.len() as u64);
    let mut pairs = Vec::new();
    for subject in subjects {
        step.detail(subject.title());
        pairs.push(count(layout, &qemu, subject, options.vcpus)?);
        step.advance();
    }
    step.done();
    let document = Document { exits: SCHEMA, pairs: &pairs };
    let json = serde_json::to_string_pretty(&document).context(|| "cannot write the counts".into())?;
    match options.json {
        true => println!("{json}"),
        false => table::print(&pairs),
    }
    match &options.save {
        Some(file) => write_named(file, format!("{json}\n").as_bytes()),
        None => Ok(()),
    }
}

/// Counts one subject's exits, without and with.
pub fn count(layout: &Layout, qemu: &Qemu, subject: Subject, vcpus: u16) -> Result<Pair> {
    let one = |options: &str| match subject {
        Subject::Turnstile => turnstile::count(layout, qemu, vcpus, options),
        _ => kvm::count(layout, qemu, subject, vcpus, options),
    };
    let about = |failure: Failure| failure.context_line(&format!("the load on {}", subject.title()));
    let (version, without) = one(WITHOUT).map_err(about)?;
    let (_, with) = one("").map_err(about)?;
    Ok(Pair { subject: subject.name(), title: subject.title(), version, vcpus, without, with })
}
