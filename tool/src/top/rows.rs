// SPDX-License-Identifier: Apache-2.0 OR MIT
//! From readings to the rows that are shown: rates, means, percentiles, shares; sorted and grouped.

use std::collections::BTreeSet;

use turnstile_exitstat::{Event, Exits, Reason};

use super::reading::{Reading, VmReading};
use crate::cli::Sort;

/// How readings become rows.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// The order of the reasons of a vCPU.
    pub sort: Sort,
    /// The least comes first.
    pub reversed: bool,
    /// Only the VM of this index.
    pub only: Option<usize>,
    /// The vCPUs of a VM are added up.
    pub folded: bool,
    /// Costs are those since the VM started, not those since the reading before.
    pub whole_life: bool,
}

/// One line of the table: a vCPU, or a VM whose vCPUs are added up, with its reasons.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The VM's name.
    pub vm: String,
    /// The vCPU; `None`: all of them.
    pub vcpu: Option<usize>,
    /// How many times the VM has started.
    pub boots: u32,
    /// Whether the VM is paused.
    pub paused: bool,
    /// The figures of all reasons together.
    pub all: Figures,
    /// The figures of each reason that had exits.
    pub reasons: Vec<(Reason, Figures)>,
    /// The figures of each event that happened: their rates and counts.
    pub events: Vec<(Event, Figures)>,
    /// The VM's services, below its last vCPU: what each has handled, and its crashes, if there were any.
    pub services: Vec<(String, Figures)>,
}

impl Group {
    /// The lines below the first: the reasons, then the events and the services, which are no exits.
    pub fn lines(&self) -> impl Iterator<Item = (String, &Figures)> {
        let reasons = self.reasons.iter().map(|(reason, figures)| (reason.name().to_owned(), figures));
        let events = self.events.iter().map(|(event, figures)| (format!("+ {}", event.name()), figures));
        let services = self.services.iter().map(|(name, figures)| (format!("* {name}"), figures));
        reasons.chain(events).chain(services)
    }
}

/// The figures of a row. Costs are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Figures {
    /// Exits per second of the machine's counter since the reading before; `None` without one.
    pub rate: Option<f64>,
    /// Exits since the VM started.
    pub count: u64,
    /// Mean cost; `None` without an exit.
    pub mean: Option<f64>,
    /// Median cost, by the histogram.
    pub p50: Option<f64>,
    /// The cost that 99 % do not exceed, by the histogram.
    pub p99: Option<f64>,
    /// The part of the time that went into these exits, 0 to 1; `None` without a reading before.
    pub share: Option<f64>,
}

/// What two readings say of the same vCPUs.
struct Span<'a> {
    now: &'a VmReading,
    /// The reading before, if it is of the same life.
    before: Option<&'a VmReading>,
    vcpus: Vec<usize>,
}

impl Span<'_> {
    fn exits(vm: &VmReading, vcpus: &[usize], reason: Reason) -> Exits {
        let mut sum = Exits::default();
        for vcpu in vcpus.iter().filter_map(|&vcpu| vm.vcpus.get(vcpu)) {
            vcpu.reasons
                .iter()
                .filter(|entry| entry.reason == reason)
                .for_each(|entry| sum.merge(&entry.exits));
        }
        sum
    }

    /// The time of all vCPUs together since the reading before, in ticks.
    fn ticks(&self) -> Option<f64> {
        let before = self.before?;
        let each = self.vcpus.iter().map(|&vcpu| {
            let (now, before) = (self.now.vcpus.get(vcpu)?, before.vcpus.get(vcpu)?);
            now.ticks.checked_sub(before.ticks)
        });
        let ticks = each.sum::<Option<u64>>()?;
        (ticks > 0).then_some(ticks as f64)
    }

    fn figures(&self, reasons: &[Reason], whole_life: bool) -> Figures {
        let sum = |vm: &VmReading| {
            reasons.iter().fold(Exits::default(), |mut sum, &reason| {
                sum.merge(&Self::exits(vm, &self.vcpus, reason));
                sum
            })
        };
        let all = sum(self.now);
        let new = self.before.map(|before| all.since(&sum(before)));
        let shown = if whole_life { all } else { new.unwrap_or(all) };
        let nanoseconds = |ticks: f64| self.nanoseconds(ticks);
        Figures {
            rate: new.zip(self.seconds()).map(|(new, seconds)| new.count() as f64 / seconds),
            count: all.count(),
            mean: shown.mean().map(nanoseconds),
            p50: shown.percentile(50.0).map(nanoseconds),
            p99: shown.percentile(99.0).map(nanoseconds),
            share: new.zip(self.ticks()).map(|(new, ticks)| (new.total as f64 / ticks).min(1.0)),
        }
    }

    /// The events that happened, in the order of their numbers.
    fn events(&self) -> Vec<(Event, Figures)> {
        let sum = |vm: &VmReading, event: Event| -> u64 {
            let vcpus = self.vcpus.iter().filter_map(|&vcpu| vm.vcpus.get(vcpu));
            vcpus.filter_map(|vcpu| vcpu.events.get(event.name())).sum()
        };
        let figures = |&event: &Event| {
            let count = sum(self.now, event);
            let new = self.before.map(|before| count.saturating_sub(sum(before, event)));
            let rate = new.zip(self.seconds()).map(|(new, seconds)| new as f64 / seconds);
            (event, Figures { rate, count, ..Figures::default() })
        };
        Event::ALL.iter().map(figures).filter(|(_, figures)| figures.count > 0).collect()
    }

    /// What the VM's services have handled, and how often they have crashed.
    fn services(&self, whole_life: bool) -> Vec<(String, Figures)> {
        let mut services = Vec::new();
        for (place, now) in self.now.services.iter().enumerate() {
            let before = self.before.and_then(|before| before.services.get(place));
            let rate = |now: u64, before: Option<u64>| {
                before
                    .zip(self.seconds())
                    .map(|(before, seconds)| now.saturating_sub(before) as f64 / seconds)
            };
            let new =
                before.map(|old| (now.exits.saturating_sub(old.exits), now.ticks.saturating_sub(old.ticks)));
            let (exits, ticks) = if whole_life { None } else { new }.unwrap_or((now.exits, now.ticks));
            services.push((
                now.name.clone(),
                Figures {
                    rate: rate(now.exits, before.map(|old| old.exits)),
                    count: now.exits,
                    mean: (exits > 0).then(|| self.nanoseconds(ticks as f64 / exits as f64)),
                    share: new.zip(self.ticks()).map(|((_, new), ticks)| (new as f64 / ticks).min(1.0)),
                    ..Figures::default()
                },
            ));
            if now.crashes > 0 {
                let rate = rate(now.crashes.into(), before.map(|old| old.crashes.into()));
                let figures = Figures { rate, count: now.crashes.into(), ..Figures::default() };
                services.push((format!("{} crashes", now.name), figures));
            }
        }
        services
    }

    fn nanoseconds(&self, ticks: f64) -> f64 {
        ticks * 1e9 / self.now.frequency.max(1) as f64
    }

    /// The time since the reading before; a second of a VM is one of each of its vCPUs.
    fn seconds(&self) -> Option<f64> {
        let frequency = self.now.frequency.max(1) as f64;
        self.ticks().map(|ticks| ticks / frequency / self.vcpus.len().max(1) as f64)
    }

    fn group(&self, view: &View, vcpu: Option<usize>) -> Group {
        let there: BTreeSet<Reason> = self
            .vcpus
            .iter()
            .filter_map(|&vcpu| self.now.vcpus.get(vcpu))
            .flat_map(|vcpu| vcpu.reasons.iter().map(|entry| entry.reason))
            .collect();
        let there: Vec<Reason> = there.into_iter().collect();
        let figures = |reason: &Reason| (*reason, self.figures(&[*reason], view.whole_life));
        let mut reasons: Vec<(Reason, Figures)> = there.iter().map(figures).collect();
        sort(&mut reasons, view);
        let all = self.figures(&there, view.whole_life);
        let (vm, boots, paused) = (self.now.name.clone(), self.now.boots, self.now.paused);
        Group { vm, vcpu, boots, paused, all, reasons, events: self.events(), services: Vec::new() }
    }
}

fn sort(reasons: &mut [(Reason, Figures)], view: &View) {
    let key = |figures: &Figures| match view.sort {
        Sort::Rate => figures.rate.unwrap_or(figures.count as f64),
        Sort::Count => figures.count as f64,
        Sort::Mean => figures.mean.unwrap_or(-1.0),
        Sort::Share => figures.share.unwrap_or(-1.0),
        Sort::Reason => 0.0,
    };
    // The greatest first; what is alike, in the order of the names.
    reasons.sort_by(|(a, x), (b, y)| key(y).total_cmp(&key(x)).then_with(|| a.name().cmp(b.name())));
    if view.reversed {
        reasons.reverse();
    }
}

/// Makes the groups of a reading; rates and shares are against the reading before.
pub fn groups(now: &Reading, before: Option<&Reading>, view: &View) -> Vec<Group> {
    let mut groups = Vec::new();
    for (index, vm) in now.vms.iter().enumerate().filter(|(_, vm)| vm.statistics) {
        if view.only.is_some_and(|only| only != index) {
            continue;
        }
        let before =
            before.and_then(|before| before.vms.get(index)).filter(|before| before.boots == vm.boots);
        let mut span = Span { now: vm, before, vcpus: (0..vm.vcpus.len()).collect() };
        // Of all vCPUs together: any may enter them.
        let services = span.services(view.whole_life);
        if view.folded {
            groups.push(span.group(view, None));
        } else {
            for vcpu in 0..vm.vcpus.len() {
                span.vcpus = vec![vcpu];
                groups.push(span.group(view, Some(vcpu)));
            }
        }
        if let Some(last) = groups.last_mut().filter(|_| !services.is_empty()) {
            last.services = services;
        }
    }
    groups
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::collector::tests::example;
    use super::super::reading::ReasonReading;
    use super::*;

    /// The example a second of the counter later, with more exits on vCPU 1.
    pub fn later() -> Reading {
        let mut reading = example();
        for vcpu in &mut reading.vms[0].vcpus {
            vcpu.ticks += 1_000_000_000;
        }
        let entry: &mut ReasonReading = &mut reading.vms[0].vcpus[1].reasons[0];
        assert_eq!(entry.reason, Reason::Hypercall);
        (0..2_000).for_each(|_| entry.exits.add(100));
        *reading.vms[0].vcpus[1].events.get_mut(Event::PvEoi.name()).unwrap() += 5;
        let console = &mut reading.vms[0].services[0];
        (console.exits, console.ticks) = (120, 36_000);
        reading
    }

    #[test]
    fn rates_are_per_second_of_the_counter_and_costs_those_since_the_reading_before() {
        let groups = groups(&later(), Some(&example()), &View::default());
        assert_eq!(groups.len(), 2, "the VM without statistics is not shown");
        let [first, second] = groups.as_slice() else { panic!() };
        assert_eq!((second.vm.as_str(), second.vcpu, second.boots), ("linux", Some(1), 2));
        let (reason, calls) = second.reasons[0];
        assert_eq!((reason, calls.rate, calls.count), (Reason::Hypercall, Some(2_000.0), 2_003));
        assert_eq!((calls.mean, calls.share), (Some(100.0), Some(0.0002)));
        assert_eq!((second.reasons[1].1.rate, second.reasons[1].1.mean), (Some(0.0), None));
        assert_eq!((first.all.rate, first.all.count), (Some(0.0), 3));
        assert_eq!((second.all.rate, second.all.count), (Some(2_000.0), 2_004));
        let [(event, ends)] = second.events[..] else { panic!("{:?}", second.events) };
        assert_eq!((event, ends.rate, ends.count), (Event::PvEoi, Some(5.0), 16));
        let lines: Vec<String> = second.lines().map(|(name, _)| name).collect();
        assert_eq!(lines, ["hypercall", "irq-kick", "+ pv-eoi", "* console", "* console crashes"]);
        assert!(first.services.is_empty(), "they are the VM's, and shown once");
        let [(_, console), (_, crashes)] = second.services.as_slice() else { panic!() };
        assert_eq!((console.rate, console.count, console.mean), (Some(100.0), 120, Some(300.0)));
        // Of the time of two vCPUs.
        assert_eq!(console.share, Some(30_000.0 / 2e9));
        assert_eq!((crashes.rate, crashes.count, crashes.mean), (Some(0.0), 1, None));
    }

    #[test]
    fn folded_vcpus_are_added_up() {
        let view = View { folded: true, whole_life: true, ..View::default() };
        let groups = groups(&later(), Some(&example()), &view);
        assert_eq!((groups.len(), groups[0].vcpu), (1, None));
        let calls = groups[0].reasons[0].1;
        assert_eq!((calls.rate, calls.count, calls.share), (Some(2_000.0), 2_006, Some(0.0001)));
        assert_eq!(calls.mean, Some((2.0 * 70_101.0 + 200_000.0) / 2_006.0));
    }

    #[test]
    fn another_life_has_no_rate() {
        let mut now = later();
        now.vms[0].boots = 3;
        let groups = groups(&now, Some(&example()), &View::default());
        assert_eq!((groups[1].all.rate, groups[1].all.count), (None, 2_004));
    }

    #[test]
    fn order_and_filter() {
        let order = |sort, reversed| {
            let view = View { sort, reversed, whole_life: true, ..View::default() };
            let groups = groups(&later(), Some(&example()), &view);
            groups[1].reasons.iter().map(|(reason, _)| reason.name()).collect::<Vec<_>>()
        };
        assert_eq!(order(Sort::Rate, false), ["hypercall", "irq-kick"]);
        assert_eq!(order(Sort::Mean, false), ["irq-kick", "hypercall"]);
        assert_eq!(order(Sort::Count, true), ["irq-kick", "hypercall"]);
        assert_eq!(order(Sort::Reason, false), ["hypercall", "irq-kick"]);
        let view = View { only: Some(1), ..View::default() };
        assert!(groups(&later(), None, &view).is_empty());
    }
}
