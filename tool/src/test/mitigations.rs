// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Mitigations of speculative execution: each CPU gets what it needs, says so, and guests work as ever; what it costs
//! is what the guarded vectors say.

use std::path::Path;

use super::scenario::{Record, Scenario, Step};
use super::{guests, programs};
use crate::bench::assemble::{self, Assembled};
use crate::bench::document::Document;
use crate::bench::selection::Selection;
use crate::bench::subjects::Variant;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::qemu::Boot;
use crate::setup::qemu::Qemu;

/// What the hypervisor says where it does something on exits, or could not.
const SAID: &str = "on each exit";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let a57 = "a loop of 8 on each exit; open to guests: branch targets, store bypass";
    vec![needed("cortex-a57", a57), needed("neoverse-n1", "a loop of 24 on each exit"), needless(), forced()]
}

/// A CPU that needs something, and gets it without being asked.
fn needed(cpu: &'static str, sentence: &'static str) -> Scenario {
    let scenario = guests::selftest("virt", 2, "trapped");
    let config = format!("[machine]\ncpu = \"{cpu}\"\n\n{}", scenario.config);
    let mut steps = vec![Step::Text(sentence)];
    steps.extend(scenario.steps);
    Scenario { name: format!("arm64/mitigations/{cpu}"), config, steps, ..scenario }
}

/// A CPU that needs nothing gets nothing, and nothing is said.
fn needless() -> Scenario {
    let scenario = guests::selftest("kvmtool", 1, "off");
    let quiet = |record: &Record| match record.text.contains(SAID) {
        true => Err("something is done on exits of a CPU that needs nothing".to_owned()),
        false => programs::no_failures(record),
    };
    Scenario { name: "arm64/mitigations/max".to_owned(), ..scenario }.judge(quiet)
}

/// Guarded tables of both kinds: one VM keeps statistics, the other does not.
fn forced() -> Scenario {
    let scenario = super::statistics::exact();
    let mut steps = vec![Step::Text("a loop of 132 on each exit")];
    steps.extend(scenario.steps);
    let force = |boot: &mut Boot, _: &Path| -> Result<()> {
        boot.append.push_str(" mitigations=loop:132");
        Ok(())
    };
    Scenario { name: "arm64/mitigations/statistics".to_owned(), steps, ..scenario }.prepare(force)
}

/// Rows with one exit and with two: what a guard costs shows as often as there are exits.
const ROWS: [(&str, u64); 2] = [("null-hypercall", 1), ("self-sgi", 1)];
/// Turns of the loop that are measured: those of a Cortex-A57, a Neoverse N1 and a Neoverse V2.
const TURNS: [u64; 3] = [8, 24, 132];

/// Instructions that a guarded vector adds to an exit: three a turn, two to find their number, a barrier and an ISB,
/// and the branch to the unguarded vector.
const fn price(turns: u64) -> u64 {
    3 * turns + 5
}

/// A loop costs what it consists of, and nothing is paid where nothing is done.
pub fn prices(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let off = measure(layout, qemu, "off")?;
    let mut found = vec![(0, measure(layout, qemu, "auto")?)];
    for turns in TURNS {
        found.push((price(turns), measure(layout, qemu, &format!("loop:{turns}"))?));
    }
    for (price, figures) in found {
        for ((figure, base), (row, exits)) in figures.iter().zip(&off).zip(ROWS) {
            let expected = base + (price * exits) as f64;
            if *figure != expected {
                let what =
                    format!("{row} takes {figure} instructions, not {expected} ({base} and {price} more)");
                return Err(Failure::failed(what));
            }
        }
    }
    Ok(())
}

/// The rows' instructions with these mitigations.
fn measure(layout: &Layout, qemu: &Qemu, mitigations: &str) -> Result<Vec<f64>> {
    let rows: Vec<String> = ROWS.iter().map(|(row, _)| (*row).to_owned()).collect();
    let variant = Variant { mitigations: Some(mitigations.to_owned()), ..Variant::default() };
    let selection = Selection { variant, ..Selection::own(Isa::Arm64, &rows)? };
    let Assembled { document, failures } = assemble::measure(layout, qemu, &selection)?;
    match failures.into_iter().next() {
        Some(failure) => Err(failure),
        None => ROWS.iter().map(|(row, _)| figure(&document, row)).collect(),
    }
}

fn figure(document: &Document, row: &str) -> Result<f64> {
    let own = document.rows.iter().find(|figure| figure.row == row && !figure.recorded);
    let missing = || Failure::failed(format!("{row} was not measured"));
    own.and_then(|figure| figure.instructions).ok_or_else(missing)
}
