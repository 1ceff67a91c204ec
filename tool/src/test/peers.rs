// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The peers give the figures that were recorded of them: whoever measures them in another way measures something
//! else. That holds for the versions that the record names; of others only the order of magnitude is known.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::Verdict;
use crate::bench::native::{self, Native};
use crate::bench::rows::{ROWS, Row};
use crate::bench::subjects::{self, Outcome, Run, Subject, Variant, kvm, peer, xen};
use crate::failure::{Context, Failure, Result};
use crate::layout::Layout;
use crate::meter::reading::Reading;
use crate::setup::qemu::Qemu;
use crate::setup::{images, peers};

const ITERATIONS: u64 = 1 << 14;
/// By how many percent a figure may differ from the recorded one.
const TOLERANCE: f64 = 2.0;
/// What an operation on a version that nobody recorded may cost at all.
const PLAUSIBLE: std::ops::Range<f64> = 100.0..50_000.0;
/// The same for cycles in QEMU, among which are those of the host's timer.
const NATIVE_TOLERANCE: f64 = 5.0;
const PARALLEL: usize = 2;
const LIMIT: Duration = Duration::from_secs(180);

const SUBJECTS: [(Subject, &str); 3] =
    [(Subject::KvmVhe, "kvm-vhe"), (Subject::KvmNvhe, "kvm-nvhe"), (Subject::Xen, "xen")];

/// Measures all rows of all peers and compares; without a network there is nothing to compare.
pub fn check(layout: &Layout, qemu: &Qemu) -> Verdict {
    if let Err(failure) = peers::linux(layout).and_then(|_| peers::xen(layout)) {
        return Verdict::Skipped(failure.to_string());
    }
    Verdict::from(compare(layout, qemu).map_err(|failure| failure.full()))
}

fn compare(layout: &Layout, qemu: &Qemu) -> Result<()> {
    images::guests(layout)?;
    images::vmm(layout)?;
    let meter = images::meter(layout)?;
    let recorded = Recorded::load(layout)?;
    let is_there =
        |(subject, row): &((Subject, &str), &Row)| subject.0 != Subject::Xen || row.name != "io-user";
    let jobs: Vec<_> = SUBJECTS
        .iter()
        .flat_map(|subject| ROWS.iter().map(move |row| (*subject, row)))
        .filter(is_there)
        .collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..PARALLEL {
            scope.spawn(|| {
                while let Some(((subject, name), row)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    // One row of each is enough for the symbols.
                    let trace = row.name == ROWS[0].name;
                    let run = Run {
                        layout,
                        qemu,
                        row,
                        iterations: ITERATIONS,
                        limit: LIMIT,
                        trace,
                        meter: meter.clone(),
                        folder: layout.bundles().join(format!("test-{name}-{}", row.name)),
                        variant: &Variant::default(),
                    };
                    let verdict =
                        subjects::run(*subject, &run).map_err(|failure| failure.full()).and_then(|outcome| {
                            recorded.judge(name, row, &outcome)?;
                            if trace {
                                names(layout, *subject, &outcome.reading)?;
                            }
                            if trace && *subject == Subject::KvmVhe {
                                judge_native(&natively(layout, qemu, row)?, instructions(&outcome))?;
                            }
                            Ok(())
                        });
                    if let (Err(what), Ok(mut wrong)) = (verdict, wrong.lock()) {
                        wrong.push(format!("{name} {}: {what}", row.name));
                    }
                }
            });
        }
    });
    let wrong = wrong.into_inner().map_err(|_| Failure::failed("a measurement panicked"))?;
    match wrong.is_empty() {
        true => Ok(()),
        false => {
            Err(Failure::failed("the peers' figures are not the recorded ones").details(wrong.join("\n")))
        }
    }
}

/// In QEMU's KVM host the monitor measures as on a machine of its own. There a nanosecond and a cycle are an
/// instruction each, which the meter has counted, too.
fn natively(layout: &Layout, qemu: &Qemu, row: &Row) -> std::result::Result<Native, String> {
    let words = format!(
        "--settle={} --cycles \"--cmdline=iterations={ITERATIONS} {}\"",
        kvm::SETTLE,
        native::GUEST_OPTIONS
    );
    let run = || {
        let folder = layout.bundles().join("test-native");
        let mut boot = kvm::boot(kvm::Mode::Vhe, layout, &peers::linux(layout)?, row, &folder, &words)?;
        boot.counted = true;
        peer::play(&boot, &qemu.path, LIMIT)
    };
    native::read(row.name, &run().map_err(|failure| failure.full())?)
}

fn judge_native(native: &Native, instructions: f64) -> std::result::Result<(), String> {
    let near = |figure: f64| (figure - instructions).abs() * 100.0 <= NATIVE_TOLERANCE * instructions;
    match native.cycles {
        Some(cycles) if near(native.nanoseconds) && near(cycles) => Ok(()),
        _ => Err(format!("{native:?}, and the meter counts {instructions} instructions")),
    }
}

/// Every function that a visit ran has a name, and one of them is where the hypervisor enters its guest.
fn names(layout: &Layout, subject: Subject, reading: &Reading) -> std::result::Result<(), String> {
    let group = reading.groups.first().ok_or("the meter saw no visit")?;
    let symbols = match subject {
        Subject::KvmVhe => kvm::symbols(layout, kvm::Mode::Vhe, group.vectors),
        Subject::KvmNvhe => kvm::symbols(layout, kvm::Mode::Nvhe, group.vectors),
        _ => xen::symbols(layout),
    };
    let symbols = symbols.map_err(|failure| failure.full())?;
    let functions: Vec<&str> =
        group.trace.iter().map(|step| symbols.name(step.pc).map_or("", |(name, _)| name)).collect();
    if let Some((step, _)) = group.trace.iter().zip(&functions).find(|(_, name)| name.is_empty()) {
        return Err(format!("no symbol for {:#x}: {}", step.pc, step.text));
    }
    let entry = if subject == Subject::Xen { "return_from_trap" } else { "__guest_enter" };
    let mut last = functions.iter().rev();
    match last.any(|name| name.trim_start_matches("__kvm_nvhe_").starts_with(entry)) {
        true => Ok(()),
        false => Err(format!("no {entry} in a visit that ends in {:?}", functions.last())),
    }
}

/// The instructions of an operation, by the meter.
fn instructions(outcome: &Outcome) -> f64 {
    let iterations = outcome.report.iterations;
    let groups = outcome.reading.groups.iter().filter(|group| group.visits * 2 >= iterations);
    groups.map(|group| group.modal as f64 * (group.visits as f64 / iterations as f64).round()).sum()
}

/// The file `bench/recorded.toml`.
struct Recorded(toml::Table);

impl Recorded {
    fn load(layout: &Layout) -> Result<Self> {
        let path = layout.root().join("bench/recorded.toml");
        let text = std::fs::read_to_string(&path).context(|| format!("cannot read {}", path.display()))?;
        text.parse().map(Recorded).context(|| format!("cannot read {}", path.display()))
    }

    fn judge(&self, subject: &str, row: &Row, outcome: &Outcome) -> std::result::Result<(), String> {
        let measured = instructions(outcome);
        let entry = self.0.get(subject).ok_or("it is not recorded")?;
        if entry.get("version").and_then(toml::Value::as_str) != Some(&outcome.version) {
            return match PLAUSIBLE.contains(&measured) {
                true => Ok(()),
                false => Err(format!("{measured} instructions of {} cannot be", outcome.version)),
            };
        }
        let figure = entry.get("instructions").and_then(|figures| figures.get(row.name));
        let figure =
            figure.and_then(|figure| figure.as_float().or_else(|| Some(figure.as_integer()? as f64)));
        let figure = figure.ok_or("the row is not recorded")?;
        match (measured - figure).abs() * 100.0 <= TOLERANCE * figure {
            true => Ok(()),
            false => Err(format!("{measured} instructions, recorded are {figure}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::Report;
    use crate::meter::reading::Group;

    fn outcome(version: &str, modal: u64) -> Outcome {
        let report = Report { row: "r".into(), iterations: 100, ticks: 1, empty: 0, frequency: 1 };
        // Two visits in an operation, one now and then, and what happened before the measured loop.
        let visits = [(203, modal / 2), (30, 9999)];
        let groups = visits.map(|(visits, modal)| Group { visits, modal, ..Group::default() }).to_vec();
        Outcome { report, reading: Reading { groups, ..Reading::default() }, version: version.to_owned() }
    }

    #[test]
    fn only_the_recorded_version_must_give_the_recorded_figure() {
        let recorded = Recorded(
            "[kvm-vhe]\nversion = \"Linux 1\"\ninstructions = { null-hypercall = 1000 }".parse().unwrap(),
        );
        let judge = |version: &str, modal| recorded.judge("kvm-vhe", &ROWS[0], &outcome(version, modal));
        assert_eq!(judge("Linux 1", 1020), Ok(()));
        assert!(judge("Linux 1", 1022).is_err());
        assert!(judge("Linux 1", 978).is_err());
        assert_eq!(judge("Linux 2", 2000), Ok(()));
        assert!(judge("Linux 2", 98).is_err());
        assert!(recorded.judge("kvm-vhe", &ROWS[1], &outcome("Linux 1", 1000)).is_err(), "no such figure");
        assert!(recorded.judge("xen", &ROWS[0], &outcome("Xen 1", 1000)).is_err(), "no such subject");
    }
}
