// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Puts a reading together from the messages of the line.

use std::collections::{BTreeMap, BTreeSet};

use turnstile_exitstat::{BUCKETS, Event, Exits, Reason};
use turnstile_link::{Command, Memory, Outcome, Pool};

use super::reading::{Reading, ReasonReading, SCHEMA, ServiceReading, VcpuReading, VmReading};
use crate::session::Heard;

/// Puts a reading together from what is heard.
#[derive(Debug)]
pub struct Collector {
    names: Vec<String>,
    parts: BTreeMap<u8, Part>,
    /// The VMs whose answer is still to come; empty when nothing is being read.
    missing: Vec<u8>,
    /// The VMs that are paused.
    paused: BTreeSet<u8>,
    pool: Option<Pool>,
}

/// What was heard of a VM.
#[derive(Debug, Default)]
struct Part {
    statistics: bool,
    boots: u32,
    frequency: u64,
    ticks: BTreeMap<u16, u64>,
    exits: BTreeMap<(u16, Reason), Exits>,
    events: BTreeMap<(u16, Event), u64>,
    services: BTreeMap<u8, ServiceReading>,
    memory: Option<Memory>,
}

impl Collector {
    /// Makes a collector for VMs of these names, in the order of the bundle.
    pub fn new(names: Vec<String>) -> Self {
        Collector { names, parts: BTreeMap::new(), missing: Vec::new(), paused: BTreeSet::new(), pool: None }
    }

    /// Begins a reading and returns what the hypervisor has to be told; nothing if one has begun already.
    pub fn begin(&mut self) -> Vec<Command> {
        if !self.missing.is_empty() {
            return Vec::new();
        }
        self.parts.clear();
        self.pool = None;
        self.missing = (0..self.names.len()).map(|vm| vm as u8).collect();
        let statistics = self.missing.iter().map(|&vm| Command::Statistics { vm });
        // It is answered before the others are.
        std::iter::once(Command::Memory).chain(statistics).collect()
    }

    /// Takes what was heard; returns the reading that it completes.
    pub fn hear(&mut self, heard: &Heard) -> Option<Reading> {
        match *heard {
            Heard::Statistics(turnstile_link::Statistics { vm, vcpu, boots, ticks, frequency }) => {
                let part = self.parts.entry(vm).or_default();
                (part.boots, part.frequency) = (boots, frequency);
                part.ticks.insert(vcpu, ticks);
            }
            Heard::Exits(turnstile_link::Exits { vm, vcpu, reason, total, first, counts }) => {
                let reason = Reason::from_index(usize::from(reason)).unwrap_or(Reason::Other);
                let exits = self.parts.entry(vm).or_default().exits.entry((vcpu, reason)).or_default();
                exits.total = total;
                let first = usize::from(first).min(BUCKETS);
                let places = exits.buckets.iter_mut().skip(first);
                places.zip(counts).for_each(|(place, count)| *place = count);
            }
            Heard::Events(turnstile_link::Events { vm, vcpu, first, counts }) => {
                let events = &mut self.parts.entry(vm).or_default().events;
                for (index, count) in (usize::from(first)..).zip(counts).filter(|(_, count)| *count > 0) {
                    if let Some(event) = Event::from_index(index) {
                        events.insert((vcpu, event), count);
                    }
                }
            }
            Heard::Service { service, vm, ref name, crashes, exits, ticks } => {
                let reading = ServiceReading { name: name.clone(), crashes, exits, ticks };
                self.parts.entry(vm).or_default().services.insert(service, reading);
            }
            Heard::Memory { vm, memory } => self.parts.entry(vm).or_default().memory = Some(memory),
            Heard::Pool(pool) => self.pool = Some(pool),
            Heard::Reply { command: Command::Statistics { vm }, outcome } => {
                let before = self.missing.len();
                self.missing.retain(|&missing| missing != vm);
                self.parts.entry(vm).or_default().statistics = outcome == Outcome::Accepted;
                if before > 0 && self.missing.is_empty() {
                    return Some(self.finish());
                }
            }
            Heard::Paused { vm } | Heard::Vm { vm, paused: true, .. } => {
                self.paused.insert(vm);
            }
            Heard::Resumed { vm, .. }
            | Heard::Vm { vm, .. }
            | Heard::Started { vm, .. }
            | Heard::Stopped { vm, .. } => {
                self.paused.remove(&vm);
            }
            _ => {}
        }
        None
    }

    fn finish(&mut self) -> Reading {
        let mut parts = std::mem::take(&mut self.parts);
        let vms = self.names.iter().enumerate().map(|(vm, name)| {
            let part = parts.remove(&(vm as u8)).unwrap_or_default();
            VmReading {
                name: name.clone(),
                statistics: part.statistics,
                boots: part.boots,
                paused: self.paused.contains(&(vm as u8)),
                memory: part.memory,
                frequency: part.frequency,
                vcpus: part.ticks.iter().map(|(&vcpu, &ticks)| part.vcpu(vcpu, ticks)).collect(),
                services: part.services.into_values().collect(),
            }
        });
        Reading { schema: SCHEMA, vms: vms.collect(), pool: self.pool.take() }
    }
}

impl Part {
    fn vcpu(&self, vcpu: u16, ticks: u64) -> VcpuReading {
        let reasons = self.exits.iter().filter(|((of, _), _)| *of == vcpu);
        let reasons = reasons.map(|((_, reason), exits)| ReasonReading { reason: *reason, exits: *exits });
        let events = self.events.iter().filter(|((of, _), _)| *of == vcpu);
        let events = events.map(|((_, event), count)| (event.name().to_owned(), *count));
        VcpuReading { ticks, reasons: reasons.collect(), events: events.collect() }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use turnstile_link::MAX_BUCKETS;

    use super::*;

    /// What the hypervisor sends for exits of these costs.
    pub fn heard(vm: u8, vcpu: u16, reason: Reason, costs: &[u64]) -> Vec<Heard> {
        let mut exits = Exits::default();
        costs.iter().for_each(|&cost| exits.add(cost));
        let parts = exits.buckets.as_chunks::<MAX_BUCKETS>().0.iter().enumerate();
        let parts = parts.filter(|(_, counts)| counts.iter().any(|count| *count > 0));
        let first = |part: usize| (part * MAX_BUCKETS) as u8;
        let (reason, total) = (reason.index() as u8, exits.total);
        parts
            .map(|(part, &counts)| {
                Heard::Exits(turnstile_link::Exits { vm, vcpu, reason, total, first: first(part), counts })
            })
            .collect()
    }

    /// A reading of two VMs, the first with statistics of two vCPUs.
    pub fn example() -> Reading {
        let mut collector = Collector::new(vec!["linux".into(), "quiet".into()]);
        let told = collector.begin();
        assert_eq!(told, [Command::Memory, Command::Statistics { vm: 0 }, Command::Statistics { vm: 1 }]);
        assert!(collector.begin().is_empty(), "one at a time");
        let mut line = vec![
            Heard::Memory { vm: 0, memory: Memory { bytes: 64 << 20, limit: 64 << 20, waits: false } },
            Heard::Memory { vm: 1, memory: Memory { bytes: 6 << 20, limit: 512 << 20, waits: true } },
            Heard::Pool(Pool { bytes: 1 << 30, free: 1018 << 20 }),
            Heard::Reply { command: Command::Memory, outcome: Outcome::Accepted },
        ];
        for vcpu in 0..2 {
            line.push(Heard::Statistics(turnstile_link::Statistics {
                vm: 0,
                vcpu,
                boots: 2,
                ticks: 5_000,
                frequency: 1_000_000_000,
            }));
            line.extend(heard(0, vcpu, Reason::Hypercall, &[50, 51, 70_000]));
            line.extend(heard(0, vcpu, Reason::Kick, &vec![400; usize::from(vcpu)]));
            let mut counts = [0; MAX_BUCKETS];
            counts[Event::PvEoi.index()] = 10 + u64::from(vcpu);
            line.push(Heard::Events(turnstile_link::Events { vm: 0, vcpu, first: 0, counts }));
        }
        let name = "console".to_owned();
        line.push(Heard::Service { service: 4, vm: 0, name, crashes: 1, exits: 20, ticks: 6_000 });
        let reply = |vm, outcome| Heard::Reply { command: Command::Statistics { vm }, outcome };
        line.push(reply(0, Outcome::Accepted));
        assert!(line.iter().all(|heard| collector.hear(heard).is_none()));
        // Answers to others do not end it.
        let other = Heard::Reply { command: Command::Stop { vm: 1 }, outcome: Outcome::NotNow };
        assert_eq!(collector.hear(&other), None);
        let reading = collector.hear(&reply(1, Outcome::NotKept)).unwrap();
        assert_eq!(collector.hear(&reply(1, Outcome::NotKept)), None, "nothing was asked");
        reading
    }

    #[test]
    fn messages_make_a_reading() {
        let reading = example();
        let [linux, quiet] = reading.vms.as_slice() else { panic!("{reading:?}") };
        assert_eq!((quiet.statistics, quiet.vcpus.len()), (false, 0));
        assert_eq!(
            quiet.memory,
            Some(Memory { bytes: 6 << 20, limit: 512 << 20, waits: true }),
            "also without statistics"
        );
        assert_eq!(linux.memory, Some(Memory { bytes: 64 << 20, limit: 64 << 20, waits: false }));
        assert_eq!(reading.pool, Some(Pool { bytes: 1 << 30, free: 1018 << 20 }));
        assert_eq!((linux.statistics, linux.boots, linux.vcpus.len()), (true, 2, 2));
        let calls = linux.exits(Reason::Hypercall);
        assert_eq!((calls.count(), calls.total), (6, 2 * 70_101));
        assert_eq!((calls.buckets[6], calls.buckets[17]), (4, 2));
        assert_eq!(linux.exits(Reason::Kick).count(), 1);
        assert_eq!(linux.vcpus[0].reasons.len(), 1);
        let console = ServiceReading { name: "console".into(), crashes: 1, exits: 20, ticks: 6_000 };
        assert_eq!((&linux.services, quiet.services.len()), (&vec![console], 0));
        let ends = |vcpu: usize| &linux.vcpus[vcpu].events;
        assert_eq!((ends(0)[Event::PvEoi.name()], ends(1)[Event::PvEoi.name()], ends(1).len()), (10, 11, 1));
    }
}
