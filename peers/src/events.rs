// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What KVM does meanwhile: how often it passes each of its tracepoints, and for which reasons it leaves guests
//! (Linux, Documentation/trace/events.rst and histogram.rst).

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use perf_event::events::Tracepoint;
use perf_event::{Builder, Counter};
use rustix::mount::{MountFlags, mount};

const TRACING: &str = "/sys/kernel/tracing";
const KVM: &str = "/sys/kernel/tracing/events/kvm";
/// What is counted by a field of its event: the event, the field, the line that tells it.
const HISTOGRAMS: [(&str, &str, &str); 2] =
    [("kvm_exit", "exit_reason", "@exit"), ("kvm_eoi", "vector", "@eoi")];

/// Counters of one tracepoint, one for each CPU.
struct Event {
    name: String,
    counters: Vec<Counter>,
}

/// Counters of all of KVM's tracepoints.
pub struct Events {
    all: Vec<Event>,
    running: bool,
}

impl Events {
    /// Prepares the counters of a host with so many CPUs.
    ///
    /// # Errors
    /// The kernel has no tracepoints, or does not allow counting them.
    pub fn new(cpus: usize) -> Result<Self> {
        if !Path::new(KVM).exists() {
            mount("tracefs", TRACING, "tracefs", MountFlags::empty(), None)
                .context("cannot mount tracefs")?;
        }
        let folder = fs::read_dir(KVM).context("KVM has no tracepoints")?;
        let mut all = Vec::new();
        for entry in folder.flatten().filter(|entry| entry.path().join("id").is_file()) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let id = fs::read_to_string(entry.path().join("id"))?;
            let id = id.trim().parse().with_context(|| format!("{name} has no number"))?;
            let count =
                |cpu| Builder::new(Tracepoint::with_id(id)).any_pid().one_cpu(cpu).include_kernel().build();
            let counters = (0..cpus).map(count).collect::<std::io::Result<_>>();
            all.push(Event { counters: counters.with_context(|| format!("cannot count {name}"))?, name });
        }
        all.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Events { all, running: false })
    }

    /// Counts from here.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn start(&mut self) -> Result<()> {
        for (event, field, _) in histograms() {
            fs::write(format!("{KVM}/{event}/trigger"), format!("hist:keys={field}"))
                .with_context(|| format!("cannot count {event} by {field}"))?;
        }
        for counter in self.all.iter_mut().flat_map(|event| &mut event.counters) {
            counter.reset()?;
            counter.enable()?;
        }
        self.running = true;
        Ok(())
    }

    /// Ends counting and prints, if it was counting.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn stop(&mut self) -> Result<()> {
        if !std::mem::take(&mut self.running) {
            return Ok(());
        }
        for counter in self.all.iter_mut().flat_map(|event| &mut event.counters) {
            counter.disable()?;
        }
        let mut counts = Vec::new();
        for (event, field, line) in histograms() {
            let histogram = fs::read_to_string(format!("{KVM}/{event}/hist"))?;
            fs::write(format!("{KVM}/{event}/trigger"), format!("!hist:keys={field}"))?;
            counts.extend(by_field(&histogram, field).into_iter().map(|(value, count)| (line, value, count)));
        }
        for event in &mut self.all {
            let mut sum = 0;
            for counter in &mut event.counters {
                sum += counter.read()?;
            }
            println!("@event {} {sum}", event.name);
        }
        for (line, value, count) in counts {
            println!("{line} {value:#x} {count}");
        }
        Ok(())
    }
}

/// The histograms that this architecture's KVM has.
fn histograms() -> impl Iterator<Item = (&'static str, &'static str, &'static str)> {
    HISTOGRAMS.into_iter().filter(|(event, ..)| Path::new(KVM).join(event).is_dir())
}

/// The lines `{ FIELD: NUMBER } hitcount: COUNT` of a histogram.
fn by_field(histogram: &str, field: &str) -> Vec<(u64, u64)> {
    let parse = |line: &str| {
        let mut words = line.strip_prefix("{ ")?.strip_prefix(field)?.strip_prefix(':')?.split_whitespace();
        let reason = words.next()?.parse().ok()?;
        let count = words.find_map(|word| word.parse().ok())?;
        Some((reason, count))
    };
    histogram.lines().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_read() {
        let text = "# event histogram\n#\n\n{ exit_reason:        124 } hitcount:       2048\n\
                    { exit_reason:         96 } hitcount:          3\n\nTotals:\n    Hits: 2051\n";
        assert_eq!(by_field(text, "exit_reason"), [(124, 2048), (96, 3)]);
        assert_eq!(by_field(text, "vector"), []);
        assert_eq!(by_field("{ vector: 18446744073709551615 } hitcount: 5\n", "vector"), [(u64::MAX, 5)]);
    }
}
