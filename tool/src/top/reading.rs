// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading of all statistics, and its JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use turnstile_exitstat::{Exits, Reason};
use turnstile_link::{Memory, Pool};

use crate::memory::{memory_text, pool_text};

/// The version of the JSON.
pub const SCHEMA: u32 = 2;

/// What all exits cost, at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// The version of the form.
    pub schema: u32,
    /// The VMs, in the order of the bundle.
    pub vms: Vec<VmReading>,
    /// How much of the machine's pool is free, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<Pool>,
}

/// The statistics of a VM.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VmReading {
    /// Its name.
    pub name: String,
    /// Whether the hypervisor keeps them.
    pub statistics: bool,
    /// How many times it has started; the figures are of its present or last life.
    pub boots: u32,
    /// Whether it is paused.
    #[serde(default)]
    pub paused: bool,
    /// How much memory it has, also if it keeps no statistics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// The frequency of the counter in Hz.
    pub frequency: u64,
    /// Its vCPUs.
    pub vcpus: Vec<VcpuReading>,
    /// The services that serve it, if it keeps statistics.
    #[serde(default)]
    pub services: Vec<ServiceReading>,
}

/// What is counted of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceReading {
    /// Its name.
    pub name: String,
    /// How often it has crashed or was killed, since the machine's start.
    pub crashes: u32,
    /// How many exits it has handled since the VM's start.
    pub exits: u64,
    /// How long these took until it had answered, in ticks.
    pub ticks: u64,
}

/// The statistics of a vCPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct VcpuReading {
    /// The counter when they were read.
    pub ticks: u64,
    /// What the exits of each reason cost; reasons without an exit are left out.
    pub reasons: Vec<ReasonReading>,
    /// How often events happened, by their names; those that did not are left out.
    pub events: BTreeMap<String, u64>,
}

/// What the exits of one reason cost, in ticks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub struct ReasonReading {
    /// The reason.
    pub reason: Reason,
    /// The figures.
    pub exits: Exits,
}

/// The form of [`ReasonReading`] in JSON: what follows from the histogram is written, too.
#[derive(Clone, Serialize, Deserialize)]
struct Written {
    reason: String,
    count: u64,
    total: u64,
    mean: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    /// Pairs: the significant bits of a cost, and how many exits cost so much.
    buckets: Vec<(usize, u64)>,
}

impl From<ReasonReading> for Written {
    fn from(ReasonReading { reason, exits }: ReasonReading) -> Self {
        let buckets = exits.buckets.iter().copied().enumerate().filter(|(_, count)| *count > 0).collect();
        Written {
            reason: reason.name().to_owned(),
            count: exits.count(),
            total: exits.total,
            mean: exits.mean(),
            p50: exits.percentile(50.0),
            p99: exits.percentile(99.0),
            buckets,
        }
    }
}

impl From<Written> for ReasonReading {
    fn from(written: Written) -> Self {
        let mut exits = Exits { total: written.total, ..Exits::default() };
        for (bits, count) in written.buckets {
            if let Some(bucket) = exits.buckets.get_mut(bits) {
                *bucket = count;
            }
        }
        // What a newer version calls otherwise is counted all the same.
        ReasonReading { reason: Reason::from_name(&written.reason).unwrap_or(Reason::Other), exits }
    }
}

impl Reading {
    /// Returns of each VM, or of the `only` one, its name and how much memory it has, and then how much of the pool is free, as far as that
    /// is known.
    pub fn memory(&self, only: Option<usize>) -> impl Iterator<Item = (&str, String)> {
        let meant =
            self.vms.iter().enumerate().filter(move |(index, _)| only.is_none_or(|only| only == *index));
        let vms = meant.filter_map(|(_, vm)| Some((vm.name.as_str(), memory_text(vm.memory?))));
        vms.chain(self.pool.map(|pool| ("(pool)", pool_text(pool))))
    }

    /// Says whether no exit has ended between an earlier reading and this one.
    pub fn has_same_exits(&self, earlier: &Reading) -> bool {
        let mut vms = self.vms.iter().zip(&earlier.vms);
        self.vms.len() == earlier.vms.len() && vms.all(|(now, before)| now.has_same_exits(before))
    }
}

impl VmReading {
    fn has_same_exits(&self, earlier: &VmReading) -> bool {
        let reasons = self.vcpus.iter().map(|vcpu| &vcpu.reasons);
        self.boots == earlier.boots && reasons.eq(earlier.vcpus.iter().map(|vcpu| &vcpu.reasons))
    }

    /// What the exits of a reason cost on all vCPUs together.
    pub fn exits(&self, reason: Reason) -> Exits {
        let all = self.vcpus.iter().flat_map(|vcpu| &vcpu.reasons).filter(|entry| entry.reason == reason);
        all.fold(Exits::default(), |mut sum, entry| {
            sum.merge(&entry.exits);
            sum
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::collector::tests::example;
    use super::*;

    #[test]
    fn exits_alone_tell_readings_apart() {
        let earlier = example();
        let mut later = earlier.clone();
        later.vms[0].vcpus[1].ticks += 1_000;
        assert!(later.has_same_exits(&earlier), "time goes on");
        later.vms[0].vcpus[1].reasons[0].exits.add(60);
        assert!(!later.has_same_exits(&earlier), "an exit has ended");
        later = earlier.clone();
        later.vms[0].boots += 1;
        assert!(!later.has_same_exits(&earlier), "another life");
        later = earlier.clone();
        later.vms.pop();
        assert!(!later.has_same_exits(&earlier), "not all VMs");
    }

    #[test]
    fn json_reads_back() {
        let reading = example();
        let text = serde_json::to_string(&reading).unwrap();
        assert!(text.contains(r#"{"reason":"irq-kick","count":1,"total":400,"mean":400.0,"#), "{text}");
        assert_eq!(serde_json::from_str::<Reading>(&text).unwrap(), reading);
    }
}
