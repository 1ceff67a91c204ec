// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From what one run gave to the figures of one operation.
//!
//! The meter sorts visits outside the guest into groups. The groups that the measured loop causes are the ones
//! with a visit in (nearly) every operation; booting, printing and the host's timer make others, far smaller ones.

use std::collections::BTreeMap;

use super::document::{Figure, Footprint, Part};
use super::platform::Platform;
use super::report::Report;
use super::rows::{Counted, Disk, Row};
use super::subjects::difference::Difference;
use super::subjects::{Outcome, Subject};
use crate::failure::{Failure, Result};
use crate::meter::reading::{Group, Reading, Total};

/// Visits per operation this near to a whole number are that number: warming up makes some more visits.
const TOLERANCE: f64 = 0.02;
/// QEMU books an instruction that faults differently: with a trapped register of Armv8-A or a facility of POWER, what stands
/// behind it in its translated block is booked, too, which is up to two in these guests; with a data abort the instruction
/// itself is not.
const BOOKED_MORE: f64 = 2.0;
const BOOKED_LESS: f64 = 1.0;
/// And a few instructions in all of a run, where the hypervisor has looked at something else meanwhile.
const BOOKED_ONCE: f64 = 0.01;

/// The visits of one CPU for one reason, as they are in one operation.
#[derive(Debug)]
pub struct Kind<'r> {
    /// The group that stands for them: its most frequent visit is theirs.
    pub typical: &'r Group,
    /// Visits in one operation.
    pub per_operation: f64,
    distribution: Vec<(u64, u64)>,
}

/// The figure of a row on a subject.
pub fn figure(subject: Subject, row: &Row, platform: &Platform, outcome: &Outcome) -> Result<Figure> {
    match row.counted {
        Counted::InAll => return in_all(subject, row, platform, outcome),
        Counted::Boot => return boot(subject, row, platform, outcome),
        _ => {}
    }
    let kinds = kinds(outcome, row)?;
    let parts = parts(&kinds);
    let counted = counted_kinds(row, outcome)?;
    let per_operation = |count: &dyn Fn(&Kind<'_>) -> f64| -> f64 {
        counted.iter().map(|kind| count(kind) * kind.per_operation).sum()
    };
    // Who hears the doorbell of another hypervisor does so on another CPU.
    let has_counter = row.has_counter() && (subject == Subject::Turnstile || !row.rings());
    let figure = Figure {
        instructions: Some(per_operation(&|kind| kind.typical.modal as f64)),
        counter: has_counter.then(|| outcome.report.instructions()),
        exits: Some(per_operation(&|_| 1.0)),
        iterations: Some(outcome.report.iterations),
        classes: sums(&counted, |group| &group.classes),
        registers: sums(&counted, |group| &group.registers),
        devices: sums(&counted, |group| &group.devices),
        footprint: footprint(&counted),
        parts,
        ..blank(subject, row, platform)
    };
    if subject == Subject::Turnstile {
        agree(&figure, beside(&outcome.reading, &counted, outcome.report.iterations))?;
    }
    Ok(figure)
}

/// The figure of an operation that is to take no visit: all its instructions, by the guest's counter.
fn in_all(subject: Subject, row: &Row, platform: &Platform, outcome: &Outcome) -> Result<Figure> {
    let visits: u64 = outcome.reading.groups.iter().map(|group| group.visits).sum();
    let Outcome { report, reading, .. } = outcome;
    if visits * 2 >= report.iterations {
        let what = format!("the guest was left {visits} times in {} operations", report.iterations);
        return Err(Failure::failed(what).details(list(reading)));
    }
    Ok(Figure {
        instructions: Some(report.instructions_in_all().round()),
        counter: Some(report.instructions()),
        exits: Some(0.0),
        iterations: Some(report.iterations),
        ..blank(subject, row, platform)
    })
}

/// The figure of a boot: all instructions of all CPUs before the first one of the guest.
fn boot(subject: Subject, row: &Row, platform: &Platform, outcome: &Outcome) -> Result<Figure> {
    match outcome.reading.total.boot {
        0 => Err(Failure::failed("the meter has not seen the hypervisor's first instruction")),
        count => Ok(Figure { instructions: Some(count as f64), ..blank(subject, row, platform) }),
    }
}

/// The figure of operations of which a boot did more than another. They have no visits of their own: what they cause outside the
/// guest is threads', on several CPUs.
pub fn of_difference(subject: Subject, row: &Row, platform: &Platform, difference: &Difference) -> Figure {
    let Difference { operations, less, more, .. } = difference;
    let each = |of: fn(&Total) -> u64| (of(more) as f64 - of(less) as f64) / *operations as f64;
    Figure {
        instructions: Some(each(|total| total.outside).round()),
        inside: Some(each(|total| total.guest).round()),
        exits: Some((each(|total| total.visits) * 100.0).round() / 100.0),
        iterations: Some(*operations),
        ..blank(subject, row, platform)
    }
}

/// The visits that make the figure of a row.
pub fn counted_kinds<'r>(row: &Row, outcome: &'r Outcome) -> Result<Vec<Kind<'r>>> {
    let mut kinds = kinds(outcome, row)?;
    kinds.retain(|kind| {
        row.counted.includes(&kind.typical.reason) && !is_apart(kind.typical, &outcome.report)
    });
    Ok(kinds)
}

/// A figure about which nothing is known yet.
pub fn blank(subject: Subject, row: &Row, platform: &Platform) -> Figure {
    Figure {
        row: row.name.to_owned(),
        what: row.what.to_owned(),
        subject: subject.name().to_owned(),
        mode: subject.mode(platform).to_owned(),
        isa: row.isa.name().to_owned(),
        platform: platform.name.to_owned(),
        ..Figure::default()
    }
}

/// Bytes of code, from where the guest says, in which it is left for what is no part of the operation.
const APART: u64 = 16;

/// Whether visits are no part of the operation.
fn is_apart(group: &Group, report: &Report) -> bool {
    report.apart.is_some_and(|from| (from..from + APART).contains(&group.pc))
}

/// Sorts out the visits that the measured loop causes. Of those that are not counted, what is no part of each
/// operation is left out: to start hundreds of CPUs makes as many visits as the loop.
fn kinds<'r>(outcome: &'r Outcome, row: &Row) -> Result<Vec<Kind<'r>>> {
    let Outcome { reading, report, .. } = outcome;
    let (iterations, counted) = (report.iterations, row.counted);
    let (frequent, others): (Vec<_>, Vec<_>) =
        gather(&reading.groups, row).into_iter().partition(|groups| visits(groups) * 2 >= iterations);
    let is_counted = |group: &&Group| counted.includes(&group.reason) && !is_apart(group, report);
    let includes = |groups: &Vec<&Group>| groups.iter().any(is_counted);
    let of = |groups: &Vec<&Group>| groups.first().map(|group| (group.cpu, group.reason.clone()));
    let part: Vec<_> = frequent.iter().filter(|groups| includes(groups)).map(of).collect();
    let strays = |groups: &&Vec<&Group>| counted == Counted::All || part.contains(&of(groups));
    let stray: u64 = others.iter().filter(strays).map(|groups| visits(groups)).sum();
    if part.is_empty() || stray * 2 >= iterations {
        let what = format!("the meter's visits are not those of {iterations} operations");
        return Err(Failure::failed(what).details(list(reading)));
    }
    let mut kinds = Vec::new();
    let together = if row.disk == Some(Disk::Nvme) { together(&frequent) } else { Vec::new() };
    for (at, groups) in frequent.into_iter().enumerate() {
        let more = together.get(at).copied().unwrap_or_default();
        let exact = (visits(&groups) + more) as f64 / iterations as f64;
        let whole = (exact - exact.round()).abs() <= TOLERANCE * exact;
        if !whole && includes(&groups) {
            let what = format!("the meter saw {exact:.2} visits in one operation, which is no whole number");
            return Err(Failure::failed(what).details(list(reading)));
        }
        kinds.extend(whole.then(|| Kind::new(&groups, exact.round())).flatten());
    }
    kinds.sort_by_key(|kind| (kind.typical.cpu, kind.typical.pc, kind.typical.reason.clone()));
    Ok(kinds)
}

/// The visits that each of these lacks because one of the others includes it. QEMU's disk controllers do commands in their own time: on a busy
/// computer some are done when the visit that has given them ends. Then the interrupt comes before an instruction of the guest, and the meter
/// sees one visit that takes as many instructions as all of an operation: within 1 %, because where a ring ends it is some more.
fn together(frequent: &[Vec<&Group>]) -> Vec<u64> {
    let modal = |groups: &Vec<&Group>| Kind::new(groups, 1.0).map_or(0, |kind| kind.typical.modal);
    let all: u64 = frequent.iter().map(modal).sum();
    let is_all = |groups: &Vec<&Group>| -> u64 {
        let counts = groups.iter().flat_map(|group| &group.distribution);
        counts
            .filter(|(instructions, _)| instructions.abs_diff(all) <= all / 100)
            .map(|(_, visits)| visits)
            .sum()
    };
    let of_all: u64 = frequent.iter().map(is_all).sum();
    frequent.iter().map(|groups| of_all - is_all(groups)).collect()
}

/// Whether visits for this reason are interrupts, which find the guest anywhere.
fn happens_anywhere(reason: &str) -> bool {
    matches!(reason, "irq" | "intr" | "external" | "hv-virtualization" | "hv-doorbell" | "hv-decrementer")
}

fn visits(groups: &[&Group]) -> u64 {
    groups.iter().map(|group| group.visits).sum()
}

/// Puts groups together that differ only in where an interrupt happened to find the guest; and the HLTs of vCPUs that
/// take turns, each in a loop of its own; and what two VMs do in turn, each on its CPU.
fn gather<'r>(groups: &'r [Group], row: &Row) -> Vec<Vec<&'r Group>> {
    let mut gathered: BTreeMap<_, Vec<&Group>> = BTreeMap::new();
    for group in groups {
        let anywhere = happens_anywhere(&group.reason) || group.reason == "hlt" && row.counted.is_of_turns();
        let place = if anywhere { None } else { Some(group.pc) };
        let cpu = (!row.wired).then_some(group.cpu);
        gathered.entry((cpu, &group.reason, place)).or_default().push(group);
    }
    gathered.into_values().collect()
}

impl<'r> Kind<'r> {
    /// Takes groups as one; `None` if there are none.
    pub fn new(groups: &[&'r Group], per_operation: f64) -> Option<Self> {
        let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
        for (instructions, visits) in groups.iter().flat_map(|group| &group.distribution) {
            *counts.entry(*instructions).or_default() += visits;
        }
        let count = |group: &Group| counts.get(&group.modal).copied().unwrap_or_default();
        // Of equally frequent visits the shortest, and of equal groups the first, as the meter has it.
        let order = |group: &&Group| {
            (count(group), std::cmp::Reverse(group.modal), group.visits, std::cmp::Reverse(group.pc))
        };
        let typical = groups.iter().copied().max_by_key(order)?;
        let mut distribution: Vec<(u64, u64)> = counts.into_iter().collect();
        distribution.sort_by_key(|&(instructions, visits)| (std::cmp::Reverse(visits), instructions));
        Some(Kind { typical, per_operation, distribution })
    }

    fn part(&self) -> Part {
        Part {
            cpu: self.typical.cpu,
            cpus: 1,
            reason: self.typical.reason.clone(),
            instructions: self.typical.modal,
            per_operation: self.per_operation,
            distribution: self.distribution.clone(),
        }
    }
}

/// The parts of an operation. Receivers of a broadcast do the same, and are one.
fn parts(kinds: &[Kind<'_>]) -> Vec<Part> {
    let mut parts: Vec<Part> = Vec::new();
    for part in kinds.iter().map(Kind::part) {
        let of = |part: &Part| (part.reason.clone(), part.instructions, part.per_operation);
        match parts.iter_mut().find(|other| of(other) == of(&part)) {
            Some(same) => {
                same.cpus += 1;
                merge(&mut same.distribution, part.distribution);
            }
            None => parts.push(part),
        }
    }
    parts
}

/// Adds the visits of a distribution to another one, most frequent first.
fn merge(to: &mut Vec<(u64, u64)>, from: Vec<(u64, u64)>) {
    for (instructions, visits) in from {
        match to.iter_mut().find(|(known, _)| *known == instructions) {
            Some((_, sum)) => *sum += visits,
            None => to.push((instructions, visits)),
        }
    }
    to.sort_by_key(|&(instructions, visits)| (std::cmp::Reverse(visits), instructions));
}

fn sums(kinds: &[Kind<'_>], of: impl Fn(&Group) -> &BTreeMap<String, u64>) -> BTreeMap<String, f64> {
    let mut sums = BTreeMap::new();
    for kind in kinds {
        for (name, count) in of(kind.typical) {
            *sums.entry(name.clone()).or_default() += *count as f64 * kind.per_operation;
        }
    }
    sums
}

/// The sum of what the visits touch; `None` if it was not counted.
fn footprint(kinds: &[Kind<'_>]) -> Option<Footprint> {
    kinds.iter().try_fold(Footprint::default(), |sum, kind| {
        let one = kind.typical.footprint?;
        let more = |count: u64| count as f64 * kind.per_operation;
        Some(Footprint {
            code_lines: sum.code_lines + more(one.code_lines),
            data_lines: sum.data_lines + more(one.data_lines),
            pages: sum.pages + more(one.pages),
        })
    })
}

/// Instructions of interrupts that are no part of the operation, and of operations that took longer than usual because something else
/// was looked at, for one operation: the guest's counter has them, too.
fn beside(reading: &Reading, counted: &[Kind<'_>], iterations: u64) -> f64 {
    let is_counted = |group: &Group| {
        counted.iter().any(|kind| (kind.typical.cpu, &kind.typical.reason) == (group.cpu, &group.reason))
    };
    let groups = reading.groups.iter().filter(|group| happens_anywhere(&group.reason) && !is_counted(group));
    let interrupts: u64 =
        groups.flat_map(|group| &group.distribution).map(|(one, visits)| one * visits).sum();
    let longer: u64 = counted
        .iter()
        .flat_map(|kind| kind.distribution.iter().map(|(one, n)| one.saturating_sub(kind.typical.modal) * n))
        .sum();
    (interrupts + longer) as f64 / iterations as f64
}

/// Fails if the meter and the guest's own counter tell different stories, with so many instructions of others in one operation.
fn agree(figure: &Figure, beside: f64) -> Result<()> {
    let (Some(instructions), Some(counter), Some(exits)) =
        (figure.instructions, figure.counter, figure.exits)
    else {
        return Ok(());
    };
    let more = counter - instructions;
    if (-BOOKED_LESS * exits..=BOOKED_MORE * exits + beside + BOOKED_ONCE).contains(&more) {
        return Ok(());
    }
    Err(Failure::failed(format!(
        "the meter counted {instructions} instructions and the guest's counter {counter}: one of them is wrong"
    )))
}

/// The groups, for the details of a failure.
fn list(reading: &Reading) -> String {
    let line = |group: &Group| {
        let Group { cpu, reason, pc, visits, modal, .. } = group;
        format!("CPU {cpu}, {reason} from {pc:#x}: {visits} visits, most of {modal} instructions")
    };
    reading.groups.iter().take(12).map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::super::rows::ROWS;
    use super::super::subjects::Modules;
    use super::*;
    use crate::meter::reading;

    fn group(cpu: u32, reason: &str, pc: u64, visits: u64, modal: u64) -> Group {
        let classes = BTreeMap::from([("instructions".to_owned(), modal), ("isb".to_owned(), 1)]);
        let distribution = vec![(modal, visits)];
        Group { cpu, reason: reason.into(), pc, visits, modal, classes, distribution, ..Group::default() }
    }

    fn outcome(groups: Vec<Group>, instructions: u64) -> Outcome {
        let row = ROWS[0].name.to_owned();
        let frequency = 1_000_000_000;
        let report = Report {
            row,
            iterations: 16384,
            ticks: 16384 * (instructions + 2),
            empty: 32768,
            frequency,
            apart: None,
        };
        let reading = Reading { groups, ..Reading::default() };
        let (version, mitigations) = (String::new(), String::new());
        Outcome { report, reading, version, mitigations, modules: Modules::default() }
    }

    fn measured(groups: Vec<Group>, counter: u64) -> std::result::Result<Figure, String> {
        figure(Subject::Turnstile, &ROWS[0], Platform::usual(), &outcome(groups, counter))
            .map_err(|failure| failure.full())
    }

    #[test]
    fn groups_become_operations() {
        let groups =
            vec![group(0, "hvc64", 8, 16640, 48), group(0, "sysreg", 16, 33280, 10), group(0, "x", 1, 99, 7)];
        let figure = measured(groups, 68).unwrap();
        assert_eq!((figure.instructions, figure.exits, figure.counter), (Some(68.0), Some(3.0), Some(68.0)));
        assert_eq!(figure.classes["instructions"], 68.0);
        assert_eq!(figure.classes["isb"], 3.0);
        let parts: Vec<_> = figure.parts.iter().map(|part| (&*part.reason, part.per_operation)).collect();
        assert_eq!(parts, [("hvc64", 1.0), ("sysreg", 2.0)]);
    }

    #[test]
    fn visits_from_where_the_guest_says_are_no_part_of_the_operation() {
        let row = ROWS.iter().find(|row| row.name == "give-back-batch").unwrap();
        let groups = vec![
            group(0, "data-abort", 0x80a0, 8 * 16384, 70_000),
            group(0, "data-abort", 0x90a0, 16384, 11_000),
            group(0, "irq", 0x20, 16384, 1000),
        ];
        let mut outcome = outcome(groups, 0);
        let measured =
            |outcome: &Outcome| figure(Subject::Turnstile, row, Platform::usual(), outcome).unwrap();
        assert_eq!(measured(&outcome).instructions, Some(572_000.0));
        outcome.report.apart = Some(0x809c);
        let figure = measured(&outcome);
        assert_eq!((figure.instructions, figure.exits, figure.parts.len()), (Some(12_000.0), Some(2.0), 3));
    }

    #[test]
    fn footprints_add_up_if_they_were_counted() {
        let touched =
            |code_lines, data_lines, pages| Some(reading::Footprint { code_lines, data_lines, pages });
        let mut groups = vec![group(0, "hvc64", 8, 16640, 48), group(0, "sysreg", 16, 33280, 10)];
        assert_eq!(measured(groups.clone(), 68).unwrap().footprint, None);
        groups[0].footprint = touched(6, 4, 3);
        groups[1].footprint = touched(2, 1, 1);
        let expected = Footprint { code_lines: 10.0, data_lines: 6.0, pages: 5.0 };
        assert_eq!(measured(groups, 68).unwrap().footprint, Some(expected));
    }

    #[test]
    fn interrupts_count_wherever_they_come() {
        let mut longer = group(1, "irq", 0x20, 8000, 70);
        longer.distribution = vec![(70, 4100), (60, 3900)];
        let groups = vec![group(0, "sysreg", 8, 16400, 50), group(1, "irq", 0x24, 8400, 60), longer];
        let figure = measured(groups, 110).unwrap();
        assert_eq!(figure.instructions, Some(110.0));
        assert_eq!(figure.parts[1].distribution, [(60, 12300), (70, 4100)]);
    }

    #[test]
    fn a_senders_row_is_the_senders_visits_and_receivers_are_one_part() {
        let row = ROWS.iter().find(|row| row.name == "broadcast-of-4").unwrap();
        let mut groups: Vec<Group> = (1..4).map(|cpu| group(cpu, "irq", 0x20, 16400, 211)).collect();
        groups[2].distribution = vec![(211, 16390), (316, 10)];
        groups.push(group(0, "sysreg", 8, 16400, 300));
        // What it took to start the CPUs.
        groups.push(group(0, "hvc64", 16, 20000, 90));
        groups.extend((0..4).map(|pc| group(1, "data-abort", pc * 4, 8000, 90)));
        let outcome = outcome(groups, 0);
        let figure = figure(Subject::Turnstile, row, Platform::usual(), &outcome).unwrap();
        assert_eq!((figure.instructions, figure.exits, figure.counter), (Some(300.0), Some(1.0), None));
        assert_eq!(figure.classes["isb"], 1.0);
        let parts: Vec<_> =
            figure.parts.iter().map(|part| (part.cpu, part.cpus, part.instructions)).collect();
        assert_eq!(parts, [(0, 1, 300), (1, 3, 211)]);
        assert_eq!(figure.parts[1].distribution, [(211, 49190), (316, 10)]);
    }

    #[test]
    fn a_boot_is_what_runs_before_the_guest() {
        let row = ROWS.iter().find(|row| row.name == "boot").unwrap();
        let mut outcome = outcome(vec![group(0, "hvc64", 8, 16640, 48)], 48);
        let of = |outcome: &Outcome| figure(Subject::Turnstile, row, Platform::usual(), outcome);
        assert!(of(&outcome).unwrap_err().full().contains("has not seen"));
        outcome.reading.total.boot = 3_700_000;
        assert_eq!(of(&outcome).unwrap().instructions, Some(3_700_000.0));
    }

    #[test]
    fn a_difference_is_of_the_operations_alone() {
        let row = ROWS.iter().find(|row| row.name == "disk-read").unwrap();
        let total = |outside, visits| Total { guest: 7, outside, visits, boot: 0 };
        let (less, mut more) = (total(180_000_000, 16_000), total(344_000_100, 24_050));
        more.guest += 87_600_000;
        let difference =
            Difference { operations: 4000, less, more, version: String::new(), mitigations: String::new() };
        let figure = of_difference(Subject::KvmVhe, row, Platform::usual(), &difference);
        assert_eq!((figure.instructions, figure.exits), (Some(41_000.0), Some(2.01)));
        assert_eq!(figure.inside, Some(21_900.0));
        assert!(figure.counter.is_none() && figure.parts.is_empty() && figure.classes.is_empty());
    }

    #[test]
    fn what_does_not_add_up_is_no_figure() {
        let half = vec![group(0, "hvc64", 8, 16384 * 3 / 2, 48)];
        assert!(measured(half, 72).unwrap_err().contains("1.50 visits"));
        let nothing = measured(vec![group(0, "data-abort", 8, 300, 90)], 90).unwrap_err();
        assert!(nothing.contains("not those of 16384 operations"), "{nothing}");
        assert!(nothing.contains("data-abort from 0x8: 300 visits"), "{nothing}");
        let mut spread = vec![group(0, "hvc64", 8, 16384, 48)];
        spread.extend((0..3).map(|pc| group(0, "sysreg", pc * 4, 4096, 48)));
        assert!(measured(spread, 48).unwrap_err().contains("not those of"));
    }

    #[test]
    fn an_interrupt_of_a_controller_may_come_before_the_guest_goes_on() {
        let of = |name: &str, apart: u64, both: u64| {
            let row = ROWS.iter().find(|row| row.name == name).unwrap();
            let mut request = group(0, "data-abort", 8, 16400, 1700);
            request.distribution = vec![(1700, apart), (both, 16400 - apart)];
            let outcome = outcome(vec![request, group(0, "irq", 0x20, apart, 2300)], 0);
            figure(Subject::Turnstile, row, Platform::usual(), &outcome).map(|figure| figure.instructions)
        };
        assert_eq!(of("drive-read", 9_000, 1700 + 2300).unwrap(), Some(4000.0));
        assert_eq!(of("drive-read", 9_000, 1700 + 2300 + 40).unwrap(), Some(4000.0));
        // Visits that are not as long as both do not have both.
        assert!(of("drive-read", 15_000, 1700 + 2300 + 41).unwrap_err().full().contains("0.92 visits"));
        assert!(of("disk-read", 15_000, 1700 + 2300).is_err());
    }

    #[test]
    fn meter_and_counter_must_agree() {
        let one = || vec![group(0, "hvc64", 8, 16640, 48)];
        for counter in [47, 48, 50] {
            assert!(measured(one(), counter).is_ok(), "{counter}");
        }
        for counter in [46, 51] {
            assert!(measured(one(), counter).unwrap_err().contains("one of them is wrong"), "{counter}");
        }
        // Interrupts that came meanwhile took as many instructions as two in each operation.
        let beside = || [one(), vec![group(0, "irq", 8, 128, 256)]].concat();
        assert!(measured(beside(), 52).is_ok());
        assert!(
            measured(
                vec![Group { distribution: vec![(48, 16384), (48 + 2 * 16384, 1)], ..one().remove(0) }],
                52
            )
            .is_ok()
        );
        assert!(measured(beside(), 53).unwrap_err().contains("one of them is wrong"));
        assert!(
            figure(Subject::Xen, &ROWS[0], Platform::usual(), &outcome(one(), 500)).is_ok(),
            "peers' ticks come in between"
        );
    }
}
