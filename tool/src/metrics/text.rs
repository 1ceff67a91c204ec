// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The text of OpenMetrics.

use std::collections::BTreeMap;
use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text as openmetrics;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use turnstile_exitstat::{Exits, Reason};
use turnstile_link::Memory;

use super::states::{States, reasons};
use crate::top::reading::{Reading, VmReading};

/// The buckets of a histogram: costs of so many significant bits have one each; smaller and larger ones share the first and the
/// last. In ticks: which seconds these are depends on the counter.
const BITS: std::ops::RangeInclusive<usize> = 4..=28;

/// Returns the metrics as text; `None` if they cannot be written, which does not happen.
pub fn encode(reading: Reading, states: States) -> Option<String> {
    let mut registry = Registry::with_prefix("turnstile");
    registry.register_collector(Box::new(Moment { reading, states }));
    let mut text = String::new();
    openmetrics::encode(&mut text, &registry).ok()?;
    Some(text)
}

/// A figure of a VM's memory.
type Figure = fn(Memory) -> u64;

/// All that is known at one moment.
#[derive(Debug)]
struct Moment {
    reading: Reading,
    states: States,
}

impl Collector for Moment {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.lives(&mut encoder)?;
        self.memory(&mut encoder)?;
        self.exits(&mut encoder)?;
        self.events(&mut encoder)?;
        self.services(&mut encoder)
    }
}

impl Moment {
    fn lives(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let vms = &self.states.vms;
        let mut running =
            encoder.encode_descriptor("vm_running", "Whether the VM runs", None, MetricType::Gauge)?;
        for vm in vms {
            let labels = [("vm", vm.name.as_str())];
            running.encode_family(&labels)?.encode_gauge(&u64::from(vm.running))?;
        }
        let mut paused =
            encoder.encode_descriptor("vm_paused", "Whether the VM is paused", None, MetricType::Gauge)?;
        for vm in vms {
            let labels = [("vm", vm.name.as_str())];
            paused.encode_family(&labels)?.encode_gauge(&u64::from(vm.paused))?;
        }
        let help = "For how long the VM was paused in all, without a pause that goes on";
        let unit = Some(&Unit::Seconds);
        let mut stood = encoder.encode_descriptor("vm_paused_time", help, unit, MetricType::Counter)?;
        for vm in vms {
            let seconds = vm.paused_microseconds as f64 / 1e6;
            stood
                .encode_family(&[("vm", vm.name.as_str())])?
                .encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
        }
        let mut starts = encoder.encode_descriptor(
            "vm_starts",
            "How often the VM has started",
            None,
            MetricType::Counter,
        )?;
        for vm in vms {
            count(&mut starts, &[("vm", &vm.name)], vm.starts)?;
        }
        let mut stops = encoder.encode_descriptor(
            "vm_stops",
            "How often the VM has stopped",
            None,
            MetricType::Counter,
        )?;
        for vm in vms {
            for reason in reasons() {
                let times = vm.stops.get(reason).copied().unwrap_or_default();
                count(&mut stops, &[("vm", &vm.name), ("reason", reason)], times)?;
            }
        }
        Ok(())
    }

    fn memory(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let tables = self.states.free_tables.map(|pages| u64::from(pages) * 4096);
        let gauges = [
            ("memory_free", "Memory that no VM has, when a VM started last", self.states.free_memory),
            ("table_memory_free", "Free memory for page tables, when a VM started last", tables),
        ];
        write_gauges(encoder, gauges)?;
        self.memory_of_vms(encoder)?;
        let pool = self.reading.pool;
        let gauges = [
            ("pool", "What the machine's pool of memory has", pool.map(|pool| pool.bytes)),
            ("pool_free", "What no VM has of the pool", pool.map(|pool| pool.free)),
        ];
        write_gauges(encoder, gauges)
    }

    fn memory_of_vms(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let gauges: [(&str, &str, Figure); 2] = [
            ("vm_memory", "How much memory the VM has", |memory| memory.bytes),
            ("vm_memory_limit", "How much memory the VM has at most", |memory| memory.limit),
        ];
        for (name, help, figure) in gauges {
            let mut gauge = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
            for vm in &self.reading.vms {
                if let Some(memory) = vm.memory {
                    gauge.encode_family(&[("vm", vm.name.as_str())])?.encode_gauge(&figure(memory))?;
                }
            }
        }
        let help = "Whether the VM waits for memory, because the pool is empty";
        let mut waits = encoder.encode_descriptor("vm_memory_waits", help, None, MetricType::Gauge)?;
        for vm in &self.reading.vms {
            if let Some(memory) = vm.memory {
                waits.encode_family(&[("vm", vm.name.as_str())])?.encode_gauge(&u64::from(memory.waits))?;
            }
        }
        Ok(())
    }

    fn exits(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "What an exit of the VM cost, by its reason, since the VM started";
        let mut histogram =
            encoder.encode_descriptor("exit", help, Some(&Unit::Seconds), MetricType::Histogram)?;
        for vm in self.kept() {
            let seconds = |ticks: f64| ticks / vm.frequency.max(1) as f64;
            for &reason in Reason::ALL {
                let exits = vm.exits(reason);
                if exits.count() == 0 {
                    continue;
                }
                let labels = [("vm", vm.name.as_str()), ("reason", reason.name())];
                let sum = seconds(exits.total as f64);
                let buckets = buckets(&exits, seconds);
                let mut family = histogram.encode_family(&labels)?;
                family.encode_histogram::<NoLabelSet>(sum, exits.count(), &buckets, None)?;
            }
        }
        Ok(())
    }

    fn events(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let help = "How often something else happened to the VM, since it started";
        let mut counter = encoder.encode_descriptor("events", help, None, MetricType::Counter)?;
        for vm in self.kept() {
            let mut sums = BTreeMap::<&str, u64>::new();
            for (event, times) in vm.vcpus.iter().flat_map(|vcpu| &vcpu.events) {
                *sums.entry(event).or_default() += times;
            }
            for (event, times) in sums {
                count(&mut counter, &[("vm", &vm.name), ("event", event)], times)?;
            }
        }
        Ok(())
    }

    fn services(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let services = || self.kept().flat_map(|vm| vm.services.iter().map(move |service| (vm, service)));
        let help = "How often the service has crashed or was killed, and was started anew";
        let mut crashes = encoder.encode_descriptor("service_crashes", help, None, MetricType::Counter)?;
        for (vm, service) in services() {
            let labels = [("vm", vm.name.as_str()), ("service", service.name.as_str())];
            count(&mut crashes, &labels, service.crashes.into())?;
        }
        let help = "How many exits of its VM the service has handled, since the VM started";
        let mut exits = encoder.encode_descriptor("service_exits", help, None, MetricType::Counter)?;
        for (vm, service) in services() {
            let labels = [("vm", vm.name.as_str()), ("service", service.name.as_str())];
            count(&mut exits, &labels, service.exits)?;
        }
        let help = "How long these exits took until the service had answered";
        let unit = Some(&Unit::Seconds);
        let mut time = encoder.encode_descriptor("service_time", help, unit, MetricType::Counter)?;
        for (vm, service) in services() {
            let labels = [("vm", vm.name.as_str()), ("service", service.name.as_str())];
            let seconds = service.ticks as f64 / vm.frequency.max(1) as f64;
            time.encode_family(&labels)?.encode_counter::<NoLabelSet, _, u64>(&seconds, None)?;
        }
        Ok(())
    }

    /// The VMs whose statistics are kept.
    fn kept(&self) -> impl Iterator<Item = &VmReading> {
        self.reading.vms.iter().filter(|vm| vm.statistics)
    }
}

/// Writes gauges of bytes: of each its name, its help and its value, if it has one.
fn write_gauges(encoder: &mut DescriptorEncoder<'_>, gauges: [(&str, &str, Option<u64>); 2]) -> fmt::Result {
    for (name, help, bytes) in gauges {
        let mut gauge = encoder.encode_descriptor(name, help, Some(&Unit::Bytes), MetricType::Gauge)?;
        if let Some(bytes) = bytes {
            gauge.encode_gauge(&bytes)?;
        }
    }
    Ok(())
}

fn count<const N: usize>(
    counter: &mut MetricEncoder<'_>,
    labels: &[(&str, &str); N],
    times: u64,
) -> fmt::Result {
    counter.encode_family(labels)?.encode_counter::<NoLabelSet, _, u64>(&times, None)
}

/// Returns upper bounds, in seconds, and how many exits cost no more than that, but more than the bound before.
fn buckets(exits: &Exits, seconds: impl Fn(f64) -> f64) -> Vec<(f64, u64)> {
    let (first, last) = (*BITS.start(), *BITS.end());
    let of = |range: std::ops::Range<usize>| exits.buckets.get(range).map_or(0, |counts| counts.iter().sum());
    // A cost of n significant bits is at most 2^n - 1.
    let most = |bits: usize| seconds((1_u64 << bits) as f64 - 1.0);
    let mut buckets = vec![(most(first), of(0..first + 1))];
    buckets.extend((first + 1..=last).map(|bits| (most(bits), of(bits..bits + 1))));
    buckets.push((f64::INFINITY, of(last + 1..exits.buckets.len())));
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::collector::tests::example;

    fn text() -> String {
        let mut states = States::new(vec!["linux".into(), "quiet".into()]);
        (states.vms[0].running, states.vms[0].starts, states.free_memory) = (true, 2, Some(1 << 30));
        (states.vms[1].paused, states.vms[1].paused_microseconds) = (true, 2_500_000);
        encode(example(), states).unwrap()
    }

    #[test]
    fn what_is_known_of_vms() {
        let text = text();
        for line in [
            "# TYPE turnstile_vm_running gauge",
            "turnstile_vm_running{vm=\"linux\"} 1",
            "turnstile_vm_running{vm=\"quiet\"} 0",
            "turnstile_vm_paused{vm=\"quiet\"} 1",
            "turnstile_vm_paused_time_seconds_total{vm=\"quiet\"} 2.5",
            "turnstile_vm_starts_total{vm=\"linux\"} 2",
            "turnstile_vm_stops_total{vm=\"linux\",reason=\"crashed\"} 0",
            "# UNIT turnstile_memory_free_bytes bytes",
            "turnstile_memory_free_bytes 1073741824",
            "turnstile_vm_memory_bytes{vm=\"linux\"} 67108864",
            "turnstile_vm_memory_bytes{vm=\"quiet\"} 6291456",
            "turnstile_vm_memory_limit_bytes{vm=\"quiet\"} 536870912",
            "turnstile_vm_memory_waits{vm=\"linux\"} 0",
            "turnstile_vm_memory_waits{vm=\"quiet\"} 1",
            "turnstile_pool_bytes 1073741824",
            "turnstile_pool_free_bytes 1067450368",
            "turnstile_events_total{vm=\"linux\",event=\"pv-eoi\"} 21",
            "turnstile_service_crashes_total{vm=\"linux\",service=\"console\"} 1",
            "turnstile_service_exits_total{vm=\"linux\",service=\"console\"} 20",
            "turnstile_service_time_seconds_total{vm=\"linux\",service=\"console\"} 0.000006",
        ] {
            assert!(text.lines().any(|has| has == line), "{line} is missing in\n{text}");
        }
        assert!(text.ends_with("# EOF\n"));
        assert!(!text.contains("exit_seconds_count{vm=\"quiet\""), "it keeps none");
    }

    #[test]
    fn exits_are_histograms_of_seconds() {
        let text = text();
        // A nanosecond is a tick: 50, 51 and 70,000 on each of two vCPUs.
        for line in [
            "turnstile_exit_seconds_count{vm=\"linux\",reason=\"hypercall\"} 6",
            "turnstile_exit_seconds_bucket{le=\"3.1e-8\",vm=\"linux\",reason=\"hypercall\"} 0",
            "turnstile_exit_seconds_bucket{le=\"6.3e-8\",vm=\"linux\",reason=\"hypercall\"} 4",
            "turnstile_exit_seconds_bucket{le=\"0.000131071\",vm=\"linux\",reason=\"hypercall\"} 6",
            "turnstile_exit_seconds_bucket{le=\"+Inf\",vm=\"linux\",reason=\"hypercall\"} 6",
        ] {
            assert!(text.lines().any(|has| has == line), "{line} is missing in\n{text}");
        }
    }

    #[test]
    fn no_exit_is_left_out() {
        let mut exits = Exits::default();
        (0..64).for_each(|bits| exits.add((1_u64 << bits) - 1));
        exits.add(u64::MAX >> 1);
        let buckets = buckets(&exits, |ticks| ticks);
        assert_eq!(buckets.iter().map(|(_, count)| count).sum::<u64>(), exits.count());
        assert!(buckets.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }
}
