// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile bench --ablate`: what each technique is worth, by going without it.
//!
//! An image built for ablation is told which techniques to do without. What a technique is worth is the difference
//! to the same image with none taken off (`none`), so the cost of the switches themselves does not count.

pub mod recorded;
mod seeds;
mod table;

use turnstile_techniques::{Set, Technique};

pub use table::{SEEDS, markdown, notes, seeds as seed_sheet, seeds_markdown, sheet};

use super::document::{self, Ablation, AblationRow};
use super::operations::hardware_of_classes;
use super::rows::FEWEST;
use super::rows::Row;
use super::runner::{Job, Measured, Runner};
use super::subjects::Subject;
use crate::config::problem::did_you_mean;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::setup::qemu::Qemu;

/// The hypervisor's cargo feature with the switches.
pub const FEATURES: &[&str] = &["ablation"];

/// What the list of techniques to do without begins with, on the hypervisor's command line.
pub const WITHOUT: &str = "without=";

/// The rows that are measured if none are named, and that the book shows: those in which techniques act, each of another kind.
pub const fn rows(isa: Isa) -> &'static [&'static str] {
    match isa {
        Isa::Arm64 => &[
            "null-hypercall",
            "id-register",
            "sysreg-trap",
            "io-kernel",
            "io-user",
            "self-sgi",
            "virtual-ipi",
        ],
        Isa::X86_64 => &["null-hypercall", "msr-write", "io-apic"],
        // Registers are compared at switches alone.
        Isa::Power64 => &["null-hypercall", "vcpu-switch"],
    }
}

/// Reads the names that the command line gives.
pub fn select(list: &str) -> Result<Set> {
    Set::parse(list).map_err(|unknown| {
        let mut known: Vec<&str> = Technique::ALL.iter().map(|technique| technique.name()).collect();
        known.push("all");
        Failure::usage(format!("there is no technique `{}`", unknown.0)).help(did_you_mean(unknown.0, &known))
    })
}

/// One measurement of a set: all chosen rows with it off.
struct Off {
    set: Set,
    /// Whether its rows are in the document, or only what the seeds are compared with.
    shown: bool,
}

/// What is taken off in turn.
fn plan(chosen: Set, isa: Isa) -> Vec<Off> {
    let mut plan = vec![Off { set: Set::NONE, shown: true }];
    let each = chosen.on(isa.techniques()).iter();
    plan.extend(each.map(|technique| Off { set: Set::of(technique), shown: true }));
    if chosen == Set::ALL {
        plan.push(Off { set: Set::ALL, shown: true });
        if isa == Isa::Arm64 {
            plan.extend(seeds::sets().into_iter().map(|set| Off { set, shown: false }));
        }
    }
    plan
}

/// Measures rows without each of the chosen techniques, and without all if all are chosen. What could not be
/// measured is among the failures and not in the figures.
pub fn measure(
    layout: &Layout,
    qemu: &Qemu,
    isa: Isa,
    rows: &[&'static Row],
    chosen: Set,
) -> Result<(Ablation, Vec<Failure>)> {
    let plan = plan(chosen, isa);
    let jobs: Vec<Job> = plan.iter().flat_map(|off| rows.iter().map(|row| job(row, off.set))).collect();
    // The most frequent visit is the same however often it is made.
    let results = Runner::new(layout, qemu, isa, FEWEST)?.measure(&jobs);
    let mut failures = Vec::new();
    let mut found = Vec::new();
    let places = plan.iter().flat_map(|off| rows.iter().map(move |row| (off, row)));
    for ((off, row), result) in places.zip(results) {
        match result.and_then(|measured| figure(row, off.set, measured)) {
            Ok(figure) => found.push((off.shown, figure)),
            Err(failure) => failures.push(failure.context_line(&format!("{} without {}", row.name, off.set))),
        }
    }
    let all: Vec<AblationRow> = found.iter().map(|(_, figure)| figure.clone()).collect();
    let seed = if chosen == Set::ALL && isa == Isa::Arm64 { seeds::compare(&all) } else { Vec::new() };
    let rows = found.into_iter().filter_map(|(shown, figure)| shown.then_some(figure)).collect();
    let techniques = chosen.on(isa.techniques()).iter().map(described).collect();
    Ok((Ablation { techniques, rows, seed }, failures))
}

fn job(row: &'static Row, off: Set) -> Job {
    let mut job = Job::new(Subject::Turnstile, row);
    (job.variant.features, job.variant.append) = (FEATURES, format!("{WITHOUT}{off}"));
    job
}

fn figure(row: &Row, off: Set, measured: Measured) -> Result<AblationRow> {
    let instructions = measured.figure.instructions;
    let instructions = instructions.ok_or_else(|| Failure::failed("the meter counted nothing"))?;
    let classes = measured.figure.classes;
    Ok(AblationRow { row: row.name.to_owned(), off: off.to_string(), instructions, classes })
}

fn described(technique: Technique) -> document::Technique {
    document::Technique {
        name: technique.name().to_owned(),
        seed: technique.seed().to_owned(),
        acts: technique.acts().to_owned(),
        saves: technique.saves().to_owned(),
    }
}

/// The figure of a row with something off.
fn find<'a>(rows: &'a [AblationRow], row: &str, off: &str) -> Option<&'a AblationRow> {
    rows.iter().find(|figure| figure.row == row && figure.off == off)
}

/// What going without something adds to a row: instructions, and hardware operations.
fn added(rows: &[AblationRow], row: &str, off: &str) -> Option<(f64, f64)> {
    let (with, without) = (find(rows, row, &Set::NONE.to_string())?, find(rows, row, off)?);
    let operations = hardware_of_classes(&without.classes) - hardware_of_classes(&with.classes);
    Some((without.instructions - with.instructions, operations))
}

/// The techniques without which no row costs more. There should be none: what saves nothing is no technique.
pub fn idle(ablation: &Ablation) -> Vec<&str> {
    let saves = |name: &str| {
        let mut rows = ablation.rows.iter().filter(|figure| figure.off == name);
        rows.any(|figure| {
            added(&ablation.rows, &figure.row, name)
                .is_some_and(|(instructions, operations)| instructions > 0.0 || operations > 0.0)
        })
    };
    ablation.techniques.iter().map(|technique| &*technique.name).filter(|name| !saves(name)).collect()
}

#[cfg(test)]
mod tests;
