// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile exits`: how often a guest under a load of interrupts is left in one second, and what for, without and with
//! paravirtual EOI. The table of the proposal to add it to Linux (seed 003), for Turnstile and for Linux KVM, with a guest of
//! ours and with Linux.
//!
//! | file | what |
//! |---|---|
//! | `guest` | the guests |
//! | `counts` | what is counted, and under which names |
//! | `turnstile` | Turnstile's statistics of a VM |
//! | `kvm` | KVM's tracepoints, counted by the monitor |
//! | `table` | the table |

mod counts;
mod guest;
mod kvm;
mod table;
mod turnstile;

use serde::Serialize;

pub use counts::{Counts, Load};
pub use guest::{Case, Guest};

use crate::bench::subjects::Subject;
use crate::cli;
use crate::failure::{Context, Failure, Result};
use crate::isa::Isa;
use crate::layout::{Layout, can_write, write_named};
use crate::setup;
use crate::setup::qemu::Qemu;
use crate::ui;

/// The version of the JSON.
const SCHEMA: u32 = 2;

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
    /// Which guest it is.
    pub guest: Guest,
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
    let guests: Vec<Guest> = Guest::ALL
        .into_iter()
        .filter(|guest| options.guest.iter().any(|name| name == guest.name()))
        .collect();
    let runs = runs(&guests, &subjects, options.vcpus);
    let step = ui::Step::start_counted("counting", runs.len() as u64);
    let (mut pairs, mut failed) = (Vec::new(), None);
    for (guest, vcpus, subject) in runs {
        step.detail(format!("{} on {}", guest.name(), subject.title()));
        match count(layout, &qemu, subject, guest, vcpus) {
            Ok(pair) => pairs.push(pair),
            // What others have counted is not lost.
            Err(failure) => failed = failed.or(Some(failure)),
        }
        step.advance();
    }
    step.done();
    let shown = if pairs.is_empty() { Ok(()) } else { show(&pairs, options) };
    failed.map_or(shown, Err)
}

/// Which guests are counted, with how many vCPUs, and whose. If nobody says how many: Linux has two, because one sends no IPIs;
/// where KVM is counted besides, also one, on each, because QEMU ends KVM's Linux with two.
fn runs(guests: &[Guest], subjects: &[Subject], vcpus: Option<u16>) -> Vec<(Guest, u16, Subject)> {
    let mut runs = Vec::new();
    let beside_kvm = subjects.iter().any(|subject| *subject != Subject::Turnstile);
    for &guest in guests {
        let usual = vcpus.unwrap_or(if beside_kvm { 1 } else { guest.vcpus() });
        runs.extend(subjects.iter().map(|&subject| (guest, usual, subject)));
        if vcpus.is_none() && usual != guest.vcpus() && subjects.contains(&Subject::Turnstile) {
            runs.push((guest, guest.vcpus(), Subject::Turnstile));
        }
    }
    runs
}

/// Prints the counts, and keeps them.
fn show(pairs: &[Pair], options: &cli::Exits) -> Result<()> {
    let document = Document { exits: SCHEMA, pairs };
    let json = serde_json::to_string_pretty(&document).context(|| "cannot write the counts".into())?;
    match options.json {
        true => println!("{json}"),
        false => table::print(pairs),
    }
    match &options.save {
        Some(file) => write_named(file, format!("{json}\n").as_bytes()),
        None => Ok(()),
    }
}

/// Counts one subject's exits with a guest, without and with.
pub fn count(layout: &Layout, qemu: &Qemu, subject: Subject, guest: Guest, vcpus: u16) -> Result<Pair> {
    let one = |pv_eoi: bool| {
        let case = Case { guest, vcpus, pv_eoi };
        match subject {
            Subject::Turnstile => turnstile::count(layout, qemu, case),
            _ => kvm::count(layout, qemu, subject, case),
        }
    };
    let about = |failure: Failure| {
        failure.context_line(&format!("the guest `{}` on {}", guest.name(), subject.title()))
    };
    let (version, without) = one(false).map_err(about)?;
    let (_, with) = one(true).map_err(about)?;
    Ok(Pair { subject: subject.name(), title: subject.title(), version, guest, vcpus, without, with })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn linux_has_two_cpus_where_it_can() {
        const BOTH: [Subject; 2] = [Subject::Turnstile, Subject::KvmSvm];
        let runs = |subjects: &[Subject], vcpus| {
            let runs = runs(&Guest::ALL, subjects, vcpus);
            runs.into_iter().map(|(guest, vcpus, subject)| (guest.name(), vcpus, subject)).collect::<Vec<_>>()
        };
        assert_eq!(runs(&BOTH[..1], None), [("load", 1, BOTH[0]), ("linux", 2, BOTH[0])]);
        assert_eq!(runs(&BOTH[1..], None), [("load", 1, BOTH[1]), ("linux", 1, BOTH[1])]);
        let both = runs(&BOTH, None);
        assert_eq!(both[..2], [("load", 1, BOTH[0]), ("load", 1, BOTH[1])]);
        assert_eq!(both[2..], [("linux", 1, BOTH[0]), ("linux", 1, BOTH[1]), ("linux", 2, BOTH[0])]);
        assert_eq!(runs(&BOTH[..1], Some(1)), [("load", 1, BOTH[0]), ("linux", 1, BOTH[0])]);
    }
}
