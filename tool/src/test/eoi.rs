// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promise of paravirtual EOI: under the seed's load the exits fall to six tenths or less, no interrupt is lost or doubled
//! (the guest counts), and whoever is interrupted is interrupted as often.

use crate::bench::subjects::Subject;
use crate::exits::{self, Counts, Guest};
use crate::failure::{Failure, Result};
use crate::layout::Layout;
use crate::setup::qemu::Qemu;

/// The part of the exits that may be left.
const LEFT: f64 = 0.6;
/// The load's interrupts in a second, and by how many percent two runs may differ: time passes otherwise in exits.
const INTERRUPTS: std::ops::Range<u64> = 21_000..23_000;
const TOLERANCE: f64 = 1.0;

/// Counts Turnstile's exits, without and with.
pub fn check(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let pair = exits::count(layout, qemu, Subject::Turnstile, Guest::Load, 1)?;
    plausible("without", &pair.without)?;
    plausible("with", &pair.with)?;
    let (before, after) = (pair.without.load.interrupts, pair.with.load.interrupts);
    if before.abs_diff(after) as f64 * 100.0 > TOLERANCE * before as f64 {
        return Err(Failure::failed(format!("the load had {before} interrupts without, and {after} with")));
    }
    if pair.without.load.spared != Some(0) || pair.without.line("pv_eoi") > 0 {
        return Err(Failure::failed("interrupts were ended without an exit although that was off"));
    }
    // The hypervisor counts what the guest has spared, each one.
    let (spared, ended) = (pair.with.load.spared.unwrap_or_default(), pair.with.line("pv_eoi"));
    if spared != ended {
        let what = format!("the guest spared {spared} writes, and the hypervisor saw {ended} such ends");
        return Err(Failure::failed(what));
    }
    match pair.left() <= LEFT {
        true => Ok(()),
        false => {
            let (before, after) = (pair.without.exits(), pair.with.exits());
            Err(Failure::failed(format!(
                "{before} exits become {after}: {:.2} of them, at most {LEFT}",
                pair.left()
            )))
        }
    }
}

fn plausible(when: &str, counts: &Counts) -> Result<()> {
    let (interrupts, injected) = (counts.load.interrupts, counts.line("inj_virq"));
    if !INTERRUPTS.contains(&interrupts) {
        return Err(Failure::failed(format!("{when}: the guest took {interrupts} interrupts")));
    }
    if injected != interrupts {
        let what = format!("{when}: {injected} interrupts were injected, and {interrupts} taken");
        return Err(Failure::failed(what));
    }
    Ok(())
}
