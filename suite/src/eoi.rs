// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The promise of paravirtual EOI: under the seed's load the exits fall to six tenths or less, no interrupt is lost or doubled
//! (the guest counts), and whoever is interrupted is interrupted as often. A Linux halts, sets timers and talks to its devices
//! besides, and those exits stay; all but few of its ends are spared.

use turnstile::bench::subjects::Subject;
use turnstile::exits::{self, Counts, Guest, Pair};
use turnstile::failure::{Failure, Result};
use turnstile::layout::Layout;
use turnstile::setup::qemu::Qemu;

/// The part of the exits that may be left.
const LEFT: f64 = 0.6;
/// The same of Linux.
const LEFT_OF_LINUX: f64 = 0.72;
/// The part of Linux's ends of interrupts that still are writes.
const WRITTEN_BY_LINUX: f64 = 0.02;
/// The load's interrupts in a second, and by how many percent two runs may differ: time passes otherwise in exits.
const INTERRUPTS: std::ops::Range<u64> = 21_000..23_000;
const TOLERANCE: f64 = 1.0;
/// Linux's, the fewest of each kind, and how many come between its looking and its seconds' ends.
const LINUX_INTERRUPTS: std::ops::Range<u64> = 21_000..24_000;
const LINUX_LEAST: u64 = 3000;
const AROUND: u64 = 20;

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
    left(&pair, LEFT)
}

/// Counts Linux's exits on Turnstile, without and with.
pub fn check_linux(layout: &Layout, qemu: &Qemu) -> Result<()> {
    let pair = exits::count(layout, qemu, Subject::Turnstile, Guest::Linux, Guest::Linux.vcpus())?;
    for (when, counts) in [("without", &pair.without), ("with", &pair.with)] {
        linux_plausible(when, counts)?;
    }
    if pair.without.line("pv_eoi") > 0 {
        return Err(Failure::failed("Linux ended interrupts without an exit although that was not offered"));
    }
    let (ended, spared) = (pair.with.line("eoi"), pair.with.line("pv_eoi"));
    if ended.saturating_sub(spared) as f64 > WRITTEN_BY_LINUX * ended as f64 {
        return Err(Failure::failed(format!(
            "Linux ended {ended} interrupts, only {spared} without an exit"
        )));
    }
    left(&pair, LEFT_OF_LINUX)
}

/// The exits have fallen to this part of them.
fn left(pair: &Pair, most: f64) -> Result<()> {
    if pair.left() <= most {
        return Ok(());
    }
    let (before, after) = (pair.without.exits(), pair.with.exits());
    Err(Failure::failed(format!("{before} exits become {after}: {:.2} of them, at most {most}", pair.left())))
}

/// There were interrupts of each kind, and the hypervisor counts as many as Linux does, but for those around the second.
fn linux_plausible(when: &str, counts: &Counts) -> Result<()> {
    let (interrupts, injected) = (counts.load.interrupts, counts.line("inj_virq"));
    let (devices, ipis) = (counts.line("ioapic_set_irq"), counts.line("apic_ipi"));
    let kinds = [injected.saturating_sub(devices + ipis), ipis, devices];
    if !LINUX_INTERRUPTS.contains(&interrupts) || kinds.iter().any(|&count| count < LINUX_LEAST) {
        let [timers, ipis, devices] = kinds;
        let what = format!(
            "{when}: Linux took {interrupts} interrupts ({timers} of timers, {ipis} of CPUs, {devices} of devices)"
        );
        return Err(Failure::failed(what));
    }
    if injected.abs_diff(interrupts) > AROUND {
        let what = format!("{when}: {injected} interrupts were injected, and {interrupts} taken");
        return Err(Failure::failed(what));
    }
    Ok(())
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
