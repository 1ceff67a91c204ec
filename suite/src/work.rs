// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Whole work in Linux takes at most so many times the instructions that it takes without a hypervisor.

use turnstile::bench::subjects::Subject;
use turnstile::bench::work::rows::{WORK, Work};
use turnstile::bench::work::{Counted, hold, measure};
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup::qemu::Qemu;

/// The kinds that the usual run measures: CPUs that wake each other. Each kind is two boots more.
const USUAL: [&str; 1] = ["pipe-2cpus"];

/// Measures the usual kinds of work, with and without the hypervisor.
///
/// # Errors
/// Says what is above its ceiling, or what went wrong.
pub fn usual(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    check(layout, qemu, isa, |work| USUAL.contains(&work.name))
}

/// Measures the other kinds.
///
/// # Errors
/// As [`usual`].
pub fn others(layout: &Layout, qemu: &Qemu, isa: Isa) -> Result<()> {
    check(layout, qemu, isa, |work| !USUAL.contains(&work.name))
}

fn check(layout: &Layout, qemu: &Qemu, isa: Isa, wanted: fn(&Work) -> bool) -> Result<()> {
    let work: Vec<_> = WORK.iter().filter(|work| wanted(work)).collect();
    let Counted { figures, failures } = measure(layout, qemu, isa, &[Subject::Turnstile], &work, false)?;
    if let Some(failure) = failures.into_iter().next() {
        return Err(failure);
    }
    let shown = figures.iter().map(|figure| {
        let (all, ratio) = (figure.instructions.unwrap_or_default(), figure.ratio.unwrap_or_default());
        format!("{} {}: {all:.1}, {ratio:.4}", figure.row, figure.under)
    });
    let shown: Vec<String> = shown.collect();
    let ratios: Vec<_> = figures.iter().map(|figure| figure.ratio).collect();
    hold(isa, &figures).and_then(|()| plausible(&ratios)).map_err(|failure| failure.details(shown.join("\n")))
}

/// Work that a hypervisor made cheaper than none by far would not be the same work.
fn plausible(ratios: &[Option<f64>]) -> Result<()> {
    const LEAST: f64 = 0.9;
    match ratios.iter().all(|ratio| ratio.is_some_and(|ratio| ratio > LEAST)) {
        true => Ok(()),
        false => Err(Failure::failed("the work with and without a hypervisor is not the same")),
    }
}
