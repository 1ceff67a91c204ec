// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `turnstile test`: the whole test suite, in an order that fails early.
//!
//! First what needs no emulator, then the checks beside one boot of the hypervisor for each scenario. Each test's log is kept
//! in `target/test-logs/`. The last line is `N passed, N failed, N skipped`.

mod ablation;
mod bench_errors;
mod benching;
mod boards;
mod boards_power;
mod boards_x86;
mod bochs;
mod checks;
mod debian;
mod engine;
mod eoi;
mod firmware;
mod gicv2;
mod guarded;
mod guests;
mod guests_power;
mod guests_x86;
mod host;
mod hostile;
mod hostile_x86;
mod hour;
mod image;
mod image_power;
mod image_x86;
mod linux;
mod linux_power;
mod linux_x86;
mod measuring;
mod metering;
mod mitigations;
mod modes;
mod peers;
mod programs;
mod pulse;
mod reach;
mod refusals;
mod refusals_x86;
mod refused;
mod scale;
mod scenario;
mod sharing;
mod sharing_power;
mod statistics;
mod stuck;
mod victims;
mod weight;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use checks::{CHECKS, Check};
use scenario::Scenario;

use crate::bench::report::printable;
use crate::failure::{Failure, Kind, Result};
use crate::isa::Isa;
use crate::layout::Layout;
use crate::setup::debian::Flavour;
use crate::setup::last_lines;
use crate::setup::qemu::{Found, Qemu};
use crate::ui::{CYAN, DIM, GREEN, RED, YELLOW};
use crate::{cli, setup};

/// Checks and boots at a time. More would not end sooner on two cores, and time-outs would mean less.
const PARALLEL: usize = 2;

/// How many tests passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Counts {
    fn failed() -> Self {
        Counts { failed: 1, ..Counts::default() }
    }

    fn add(&mut self, other: Counts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

/// What became of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It passed.
    Passed,
    /// It failed, for this reason.
    Failed(String),
    /// It was not run, for this reason.
    Skipped(String),
}

impl From<Result<()>> for Verdict {
    fn from(result: Result<()>) -> Self {
        result.map_err(|failure| failure.full()).into()
    }
}

impl From<std::result::Result<(), String>> for Verdict {
    fn from(result: std::result::Result<(), String>) -> Self {
        match result {
            Ok(()) => Verdict::Passed,
            Err(reason) => Verdict::Failed(reason),
        }
    }
}

/// Runs the suite, or lists it.
pub fn test(layout: &Layout, options: &cli::Test) -> Result<()> {
    let wanted = |name: &str| options.filter.as_deref().is_none_or(|filter| name.contains(filter));
    let mut stages = host::stages(layout);
    stages.retain(|stage| wanted(&stage.name));
    let mut scenarios = all_scenarios();
    scenarios.retain(|scenario| wanted(&scenario.name));
    let checks: Vec<&Check> = CHECKS.iter().filter(|check| wanted(check.name)).collect();
    let builds: Vec<&str> = Isa::ALL.map(images).into_iter().filter(|name| wanted(name)).collect();
    let system = !checks.is_empty() || !scenarios.is_empty() || !builds.is_empty();
    if options.list {
        for stage in &stages {
            println!("{}", stage.name);
        }
        let images = if system { Isa::ALL.map(images).to_vec() } else { Vec::new() };
        let names = scenarios.iter().map(|scenario| scenario.name.as_str());
        let checks = checks.iter().map(|check| check.name);
        images.into_iter().chain(checks).chain(names).for_each(|name| println!("{name}"));
        return Ok(());
    }
    if stages.is_empty() && !system {
        let filter = options.filter.as_deref().unwrap_or_default();
        return Err(
            Failure::usage(format!("no test has `{filter}` in its name")).help("--list shows all names")
        );
    }
    if options.filter.is_none() {
        setup::space::ensure(layout, setup::space::SUITE)?;
    }
    let report = Report::default();
    for stage in &stages {
        let begin = Instant::now();
        report.starts(&stage.name);
        let (counts, verdict) = host::run(layout, stage);
        report.add(layout, &stage.name, counts, &verdict, begin);
    }
    if system {
        run_system(layout, options, &report, &checks, &scenarios);
    }
    report.finish()
}

fn all_scenarios() -> Vec<Scenario> {
    let topics = [
        measuring::scenarios(),
        guests::scenarios(),
        statistics::scenarios(),
        refusals::scenarios(),
        refusals_x86::scenarios(),
        boards_x86::scenarios(),
        boards_power::scenarios(),
        guests_x86::scenarios(),
        guests_power::scenarios(),
        hostile_x86::scenarios(),
        linux::scenarios(),
        linux_x86::scenarios(),
        linux_power::scenarios(),
        sharing::scenarios(),
        sharing_power::scenarios(),
        scale::scenarios(),
        hour::scenarios(),
        ablation::scenarios(),
        modes::scenarios(),
        mitigations::scenarios(),
        gicv2::scenarios(),
        boards::scenarios(),
    ];
    topics.into_iter().flatten().collect()
}

/// Builds the images, then makes the checks, one after the other, beside the scenarios.
fn run_system(
    layout: &Layout,
    options: &cli::Test,
    report: &Report,
    checks: &[&Check],
    scenarios: &[Scenario],
) {
    let mut emulators = BTreeMap::new();
    let wanted = |name: &str| options.filter.as_deref().is_none_or(|filter| name.contains(filter));
    for isa in Isa::ALL {
        let named = checks.iter().any(|check| check.isa() == isa)
            || scenarios.iter().any(|scenario| scenario.isa == isa)
            || wanted(images(isa));
        if named {
            emulators.extend(build(layout, options, report, isa).map(|qemu| (isa, qemu)));
        }
    }
    let debian = missing_guests(layout, scenarios);
    let system = System { layout, report, emulators, debian, scenarios, next: AtomicUsize::new(0) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            checks.iter().for_each(|check| system.make(check));
            system.play_all();
        });
        (1..PARALLEL).for_each(|_| _ = scope.spawn(|| system.play_all()));
    });
}

/// What checks and scenarios are about, once it is built.
struct System<'a> {
    layout: &'a Layout,
    report: &'a Report,
    /// Those of the architectures whose images could be built.
    emulators: BTreeMap<Isa, Qemu>,
    /// Why some architecture's Debian guests cannot be had: a machine without network skips what needs them.
    debian: BTreeMap<Isa, Failure>,
    scenarios: &'a [Scenario],
    /// The scenario that is played next.
    next: AtomicUsize,
}

impl System<'_> {
    /// Makes a check.
    fn make(&self, check: &Check) {
        let begin = Instant::now();
        self.report.starts(check.name);
        let verdict = match self.emulators.get(&check.isa()) {
            Some(qemu) => (check.run)(self.layout, qemu),
            None => Verdict::Skipped(format!("{} failed", images(check.isa()))),
        };
        self.report.single(self.layout, check.name, &verdict, begin);
    }

    /// Plays scenarios until none is left.
    fn play_all(&self) {
        while let Some(scenario) = self.scenarios.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let begin = Instant::now();
            let verdict = self.play(scenario);
            self.report.single(self.layout, &scenario.name, &verdict, begin);
        }
    }

    fn play(&self, scenario: &Scenario) -> Verdict {
        if let Some(failure) = self.debian.get(&scenario.isa)
            && scenario.config.contains("debian:")
        {
            return Verdict::Skipped(failure.to_string());
        }
        match self.emulators.get(&scenario.isa) {
            Some(qemu) => Verdict::from(engine::play(self.layout, qemu, scenario)),
            None => Verdict::Skipped(format!("{} failed", images(scenario.isa))),
        }
    }
}

/// Builds the images of an architecture; returns its emulator if that worked.
fn build(layout: &Layout, options: &cli::Test, report: &Report, isa: Isa) -> Option<Qemu> {
    let (begin, name) = (Instant::now(), images(isa));
    report.starts(name);
    // The one that the user chose emulates one architecture; the other one's is found.
    let choice = options.qemu.program.as_deref();
    let choice = choice.filter(|choice| matches!(setup::qemu::look(isa, Some(choice)), Found::Good(_)));
    let ready = setup::qemu::ensure(layout, isa, choice).and_then(|qemu| {
        setup::images::hypervisor(layout, isa)?;
        setup::images::guests(layout, isa)?;
        Ok(qemu)
    });
    let verdict = Verdict::from(ready.as_ref().map(|_| ()).map_err(|failure| failure.full()));
    report.single(layout, name, &verdict, begin);
    ready.ok()
}

/// The name under which the images of an architecture are built.
fn images(isa: Isa) -> &'static str {
    match isa {
        Isa::Arm64 => "images/build",
        Isa::X86_64 => "x86_64/images/build",
        Isa::Power64 => "power64/images/build",
    }
}

/// Fetches the Debian guests that scenarios want; returns why some cannot be had.
fn missing_guests(layout: &Layout, scenarios: &[Scenario]) -> BTreeMap<Isa, Failure> {
    let wanted = |isa: Isa, name: &str| {
        scenarios.iter().any(|scenario| scenario.isa == isa && scenario.config.contains(name))
    };
    let mut missing = BTreeMap::new();
    for isa in Isa::ALL {
        for (name, flavour) in [
            ("debian:", Flavour::Cloud),
            ("debian:linux-standard", Flavour::Standard),
            ("debian:linux-4k", Flavour::SmallPages),
        ] {
            if wanted(isa, name)
                && let Err(failure) = setup::debian::ensure(layout, isa, flavour)
            {
                missing.insert(isa, failure);
            }
        }
    }
    missing
}

/// Prints results as they come, and adds them up.
#[derive(Default)]
struct Report {
    counts: Mutex<Counts>,
}

impl Report {
    fn starts(&self, name: &str) {
        if crate::ui::interactive() {
            anstream::eprintln!("{DIM}     {name} …{DIM:#}");
        }
    }

    fn single(&self, layout: &Layout, name: &str, verdict: &Verdict, begin: Instant) {
        let counts = match verdict {
            Verdict::Passed => Counts { passed: 1, ..Counts::default() },
            Verdict::Failed(_) => Counts::failed(),
            Verdict::Skipped(_) => Counts { skipped: 1, ..Counts::default() },
        };
        self.add(layout, name, counts, verdict, begin);
    }

    fn add(&self, layout: &Layout, name: &str, counts: Counts, verdict: &Verdict, begin: Instant) {
        let Ok(mut sum) = self.counts.lock() else { return };
        sum.add(counts);
        let seconds = begin.elapsed().as_secs_f64();
        let several = match counts.passed {
            0 | 1 => String::new(),
            passed => format!("{passed} tests, "),
        };
        match verdict {
            Verdict::Passed => {
                anstream::println!("{GREEN}PASS{GREEN:#} {name} {DIM}({several}{seconds:.1} s){DIM:#}");
            }
            Verdict::Skipped(reason) => anstream::println!("{YELLOW}SKIP{YELLOW:#} {name}: {reason}"),
            Verdict::Failed(reason) => {
                anstream::println!("{RED}FAIL{RED:#} {name}: {reason}");
                let log = engine::log_file(layout, name);
                if log.is_file() {
                    anstream::println!("     {CYAN}log{CYAN:#} {}", Layout::shown(&log));
                    let text = std::fs::read(&log).unwrap_or_default();
                    for line in end_of_log(&String::from_utf8_lossy(&text)).lines() {
                        anstream::println!("     {DIM}|{DIM:#} {line}");
                    }
                }
            }
        }
    }

    /// Prints the last line.
    fn finish(self) -> Result<()> {
        let counts = self.counts.into_inner().unwrap_or_default();
        println!("{} passed, {} failed, {} skipped", counts.passed, counts.failed, counts.skipped);
        match counts.failed {
            0 => Ok(()),
            _ => Err(Failure::reported(Kind::Failed)),
        }
    }
}

/// Returns the last lines of a log that are not empty, printable and not too long: where the log itself is not at hand, they
/// are what there is.
fn end_of_log(log: &str) -> String {
    const LINES: usize = 24;
    const WIDTH: usize = 160;
    let log = printable(log);
    let cut = log.lines().map(|line| line.chars().take(WIDTH).collect::<String>());
    let shown: Vec<String> = cut.filter(|line| !line.trim().is_empty()).collect();
    last_lines(&shown.join("\n"), LINES)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;
    use crate::bench::platform::Platform;
    use crate::bench::{rows, subjects};
    use crate::config::{self, Surroundings};

    #[test]
    fn names_are_unique_and_configurations_good() {
        let guests = [
            "crash",
            "echo",
            "beacon",
            "facilities",
            "pressure",
            "share",
            "checker",
            "hostile",
            "restart",
            "selftest",
            "exits",
            "load",
        ]
        .map(str::to_owned);
        let rows = rows::ROWS.iter().map(|row| row.guest.to_owned());
        let guests: Vec<String> = guests.into_iter().chain(rows).collect();
        let mut names = BTreeSet::new();
        for scenario in all_scenarios() {
            assert!(names.insert(scenario.name.clone()), "{} is there twice", scenario.name);
            assert!(scenario.name.starts_with(&format!("{}/", scenario.isa)));
            let guests = |_| guests.clone();
            let surroundings = Surroundings { folder: Path::new(""), guests: &guests, board: None };
            let config = config::parse(&scenario.config, &surroundings);
            assert!(config.is_ok(), "{}: {config:?}", scenario.name);
        }
    }

    #[test]
    fn the_end_of_a_log_is_shown() {
        let log: String = (0..30).map(|n| format!("line {n}\n\n")).collect();
        let end = end_of_log(&log);
        let lines: Vec<&str> = end.lines().collect();
        assert_eq!((lines.len(), lines.first(), lines.last()), (24, Some(&"line 6"), Some(&"line 29")));
        assert_eq!(end_of_log("\x1b[2J\x07a\n\x00\n"), "[2Ja", "nothing of a guest's reaches the terminal");
        assert_eq!(end_of_log(&"x".repeat(500)), "x".repeat(160));
        assert!(end_of_log("").is_empty());
    }

    #[test]
    fn measuring_configurations_are_good() {
        let rows = || Isa::ALL.into_iter().flat_map(rows::of);
        let guests: Vec<String> = rows().map(|row| row.guest.to_owned()).collect();
        for row in rows() {
            let guests = |_| guests.clone();
            let surroundings = Surroundings { folder: Path::new(""), guests: &guests, board: None };
            let config =
                config::parse(&subjects::config(row, 16, Platform::usual_of(row.isa), ""), &surroundings);
            assert!(config.is_ok(), "{}: {config:?}", row.name);
        }
    }
}
