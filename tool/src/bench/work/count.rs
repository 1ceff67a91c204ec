// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From the counts of several boots to figures: a boot in which one kind of work is done twice as often costs those operations
//! more, and nothing else.

use std::sync::Mutex;

use super::machines::{Machine, Under};
use super::rows::{WORK, Work};
use crate::bench::document::WorkFigure;
use crate::bench::subjects::Subject;
use crate::failure::{Failure, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::meter::reading::Total;
use crate::setup::images;
use crate::setup::qemu::{Qemu, can_load};
use crate::ui;

/// Boots at a time: each is one thread of QEMU's.
const PARALLEL: usize = 2;

/// Figures, and what went wrong.
#[derive(Debug, Default)]
pub struct Counted {
    /// The figures: by hypervisor, none first, and for each in the order of the table.
    pub figures: Vec<WorkFigure>,
    /// Why some are missing.
    pub failures: Vec<Failure>,
}

/// Measures work without a hypervisor and on these; if it is to be told `apart`, also what of it is outside the guest.
///
/// # Errors
/// What is needed cannot be built.
pub fn measure(
    layout: &Layout,
    qemu: &Qemu,
    isa: Isa,
    subjects: &[Subject],
    work: &[&'static Work],
    apart: bool,
) -> Result<Counted> {
    can_load(qemu, &images::meter(layout)?)?;
    let subjects = subjects.iter().copied().map(Under::Subject).filter(|under| under.has_linux());
    let all: Vec<Under> = std::iter::once(Under::Nothing).chain(subjects).collect();
    let machine = |(under, twice, apart)| Machine { layout, qemu, isa, under, twice, apart };
    let machines: Vec<Machine<'_>> = boots(&all, work, apart).into_iter().map(machine).collect();
    let counts = boot(&machines);
    let find = |under, twice: Option<&Work>, apart| {
        let is = |machine: &Machine<'_>| {
            machine.under == under && machine.twice == twice && machine.apart == apart
        };
        machines.iter().zip(&counts).find(|(machine, _)| is(machine)).map(|(_, count)| count)
    };
    let mut counted = Counted::default();
    for &under in &all {
        for work in work {
            let counts = [(None, false), (Some(*work), false), (None, true), (Some(*work), true)];
            let counts = counts.map(|(twice, apart)| find(under, twice, apart));
            counted.figures.push(figure(isa, under, work, counts));
        }
    }
    relate(&mut counted.figures);
    counted.failures = counts.into_iter().filter_map(std::result::Result::err).collect();
    Ok(counted)
}

/// The boots: of each hypervisor one as usual, and one for each kind of work with twice as much of it.
fn boots(all: &[Under], work: &[&'static Work], apart: bool) -> Vec<(Under, Option<&'static Work>, bool)> {
    let mut boots = Vec::new();
    for &under in all {
        // Without a hypervisor nothing is outside the guest.
        let aparts = if apart && under != Under::Nothing { &[false, true][..] } else { &[false] };
        for &apart in aparts {
            let twice = std::iter::once(None).chain(work.iter().copied().map(Some));
            boots.extend(twice.map(|twice| (under, twice, apart)));
        }
    }
    boots
}

/// Boots them all, two at a time; the results are in their order.
fn boot(machines: &[Machine<'_>]) -> Vec<Result<(String, Total)>> {
    let step = ui::Step::start_counted("measuring work in Linux", machines.len() as u64);
    let next = Mutex::new(0..machines.len());
    let one = || {
        let mut results = Vec::new();
        while let Some(index) = next.lock().ok().and_then(|mut next| next.next()) {
            let Some(machine) = machines.get(index) else { break };
            step.detail(machine.shown());
            results.push((index, machine.count().map_err(|failure| failure.context_line(&machine.shown()))));
            step.advance();
        }
        results
    };
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..PARALLEL.min(machines.len())).map(|_| scope.spawn(one)).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).flatten().collect()
    });
    step.done();
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The result of a boot, if there was one.
type Count<'a> = Option<&'a Result<(String, Total)>>;

/// The figure of a kind of work. The counts are those of all instructions, with the work as often as usual and twice as often, and
/// the same with the guest's told apart.
fn figure(
    isa: Isa,
    under: Under,
    work: &Work,
    [once, twice, apart_once, apart_twice]: [Count<'_>; 4],
) -> WorkFigure {
    let mut figure = WorkFigure {
        row: work.name.to_owned(),
        what: work.what.to_owned(),
        under: under.name().to_owned(),
        title: under.title().to_owned(),
        isa: isa.name().to_owned(),
        operations: Some(work.operations),
        ..WorkFigure::default()
    };
    let more = |once: u64, twice: u64| (twice as f64 - once as f64) / work.operations as f64;
    match (once, twice) {
        (Some(Ok((version, once))), Some(Ok((_, twice)))) => {
            figure.version.clone_from(version);
            figure.instructions = Some(more(once.outside, twice.outside));
        }
        (Some(Err(failure)), _) | (_, Some(Err(failure))) => figure.error = Some(failure.to_string()),
        _ => figure.error = Some("it was not measured".to_owned()),
    }
    if let (Some(Ok((_, once))), Some(Ok((_, twice)))) = (apart_once, apart_twice) {
        figure.inside = Some(more(once.guest, twice.guest));
        figure.outside = Some(more(once.outside, twice.outside));
        figure.exits = Some(more(once.visits, twice.visits));
    }
    figure
}

/// Sets the ratios to what is without a hypervisor.
fn relate(figures: &mut [WorkFigure]) {
    let bare: Vec<(String, f64)> = figures
        .iter()
        .filter(|figure| figure.under == Under::Nothing.name())
        .filter_map(|figure| Some((figure.row.clone(), figure.instructions?)))
        .collect();
    for figure in figures {
        let bare = bare.iter().find(|(row, bare)| *row == figure.row && *bare > 0.0);
        figure.ratio = bare.and_then(|(_, bare)| Some(figure.instructions? / bare));
    }
}

/// Holds Turnstile's ratios to their ceilings.
///
/// # Errors
/// Says which are above theirs.
pub fn hold(isa: Isa, figures: &[WorkFigure]) -> Result<()> {
    let above = |figure: &WorkFigure| {
        let work = WORK.iter().find(|work| work.name == figure.row)?;
        let ceiling = work.ceiling(isa);
        let ratio = figure.ratio.filter(|ratio| *ratio > ceiling)?;
        Some(format!(
            "{} takes {ratio:.4} of what it takes without a hypervisor, at most {ceiling}",
            work.name
        ))
    };
    let own = figures.iter().filter(|figure| figure.under == Subject::Turnstile.name());
    let above: Vec<String> = own.filter_map(above).collect();
    match above.is_empty() {
        true => Ok(()),
        false => Err(Failure::failed("work in Linux is not held to its ceilings").details(above.join("\n"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn total(outside: u64, visits: u64) -> Result<(String, Total)> {
        Ok(("Turnstile 0.0.0".to_owned(), Total { guest: 0, outside, visits, boot: 0 }))
    }

    fn figures(bare: [u64; 2], own: [u64; 2]) -> Vec<WorkFigure> {
        let of = |under, [once, twice]: [u64; 2]| {
            let (once, twice) = (total(once, 0), total(twice, 0));
            let (apart_once, apart_twice) = (total(100, 10), total(32_100, 32_010));
            let counts = [Some(&once), Some(&twice), Some(&apart_once), Some(&apart_twice)];
            figure(Isa::Arm64, under, &WORK[0], counts)
        };
        let mut figures = vec![of(Under::Nothing, bare), of(Under::Subject(Subject::Turnstile), own)];
        relate(&mut figures);
        figures
    }

    #[test]
    fn a_boot_costs_nothing_in_a_difference() {
        let found = figures([1_000_000, 161_000_000], [9_000_000, 173_000_000]);
        assert_eq!((found[0].instructions, found[0].ratio), (Some(10_000.0), Some(1.0)));
        assert_eq!((found[1].instructions, found[1].ratio), (Some(10_250.0), Some(1.025)));
        assert_eq!((found[1].outside, found[1].exits), (Some(2.0), Some(2.0)));
    }

    #[test]
    fn what_is_outside_takes_boots_of_its_own() {
        let all = [Under::Nothing, Under::Subject(Subject::Turnstile)];
        let boots = |apart| boots(&all, &[&WORK[1]], apart);
        let (own, twice) = (all[1], Some(&WORK[1]));
        let usual = [(all[0], None, false), (all[0], twice, false), (own, None, false), (own, twice, false)];
        assert_eq!(boots(false), usual);
        assert_eq!(boots(true)[4..], [(own, None, true), (own, twice, true)]);
    }

    #[test]
    fn what_failed_says_why() {
        let (good, bad) = (total(1, 0), Err(Failure::failed("it does not boot")));
        let figure = figure(Isa::Arm64, Under::Nothing, &WORK[0], [Some(&good), Some(&bad), None, None]);
        assert_eq!((figure.instructions, figure.error.as_deref()), (None, Some("it does not boot")));
    }

    #[test]
    fn ceilings_hold_turnstile() {
        let ceiling = WORK[0].ceiling(Isa::Arm64);
        let at = |ratio: f64| hold(Isa::Arm64, &figures([0, 40_000_000], [0, (40_000_000.0 * ratio) as u64]));
        assert!(at(ceiling - 0.001).is_ok());
        assert!(at(ceiling + 0.001).unwrap_err().full().contains("pipe-1cpu takes"));
        assert_ne!(ceiling, WORK[0].ceiling(Isa::Power64), "each architecture has its own");
    }
}
