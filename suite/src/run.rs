// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `test`: the whole test suite, in an order that fails early.
//!
//! First what needs no emulator, then the checks beside one boot of the hypervisor for each scenario. What of the first takes one
//! processor alone runs beside the rest and the builds. Each test's log is kept
//! in `target/test-logs/`. What takes long and shows little that is new is part of the long run alone. The last line is `N passed, N failed, N skipped`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup;
use turnstile::setup::debian::Flavour;
use turnstile::setup::qemu::{Found, Qemu};

use super::checks::Check;
use super::chosen::{Chosen, images};
use super::report::{Report, Verdict};
use super::scenario::Scenario;
use super::{cli, engine, host_run};

/// Checks and boots at a time. More would not end sooner on two cores, and time-outs would mean less.
const PARALLEL: usize = 2;

/// Runs the suite, or lists it.
pub fn test(layout: &Layout, options: &cli::Test) -> Result<()> {
    let chosen = Chosen::by(layout, options)?;
    if options.list {
        chosen.names().for_each(|name| println!("{name}"));
        return Ok(());
    }
    if options.filter.is_none() {
        setup::space::ensure(layout, setup::space::SUITE)?;
    }
    let report = Report::new();
    let run_stages = |beside| {
        for stage in chosen.stages.iter().filter(|stage| stage.beside == beside) {
            let begin = Instant::now();
            report.starts(&stage.name);
            let (counts, verdict) = host_run::run(layout, stage);
            report.stage(layout, &stage.name, counts, &verdict, begin);
        }
    };
    let emulators = std::thread::scope(|scope| {
        // They take one processor most of the time, and builds do not always take both.
        scope.spawn(|| run_stages(true));
        run_stages(false);
        let built =
            chosen.builds.iter().filter_map(|isa| Some((*isa, build(layout, options, &report, *isa)?)));
        built.collect()
    });
    run_system(layout, &report, &chosen, emulators);
    report.finish(layout)
}

/// Makes the checks of the built system, one after the other, beside the scenarios.
fn run_system(layout: &Layout, report: &Report, chosen: &Chosen, emulators: BTreeMap<Isa, Qemu>) {
    let scenarios = &chosen.scenarios;
    let debian = missing_guests(layout, scenarios);
    let system = System { layout, report, emulators, debian, scenarios, next: AtomicUsize::new(0) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            chosen.checks.iter().for_each(|check| system.make(check));
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
    /// What of Debian's cannot be had: a machine without network skips what needs it.
    debian: Vec<Missing>,
    scenarios: &'a [Scenario],
    /// The scenario that is played next.
    next: AtomicUsize,
}

impl System<'_> {
    /// Makes a check.
    fn make(&self, check: &Check) {
        let begin = Instant::now();
        self.report.starts(&check.name);
        let verdict = match self.emulators.get(&check.isa) {
            Some(qemu) => check.make(self.layout, qemu),
            None => Verdict::Skipped(format!("{} failed", images(check.isa))),
        };
        self.report.single(self.layout, &check.name, &verdict, begin, None);
    }

    /// Plays scenarios until none is left.
    fn play_all(&self) {
        while let Some(scenario) = self.scenarios.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let begin = Instant::now();
            let (verdict, used) = self.play(scenario);
            self.report.single(self.layout, &scenario.name, &verdict, begin, used);
        }
    }

    /// Plays a scenario; returns the processor time of its emulator, too.
    fn play(&self, scenario: &Scenario) -> (Verdict, Option<Duration>) {
        if let Some(missing) = self.debian.iter().find(|missing| missing.is_for(scenario)) {
            return (Verdict::Skipped(missing.why.to_string()), None);
        }
        match self.emulators.get(&scenario.isa) {
            Some(qemu) => {
                let (result, used) = engine::play(self.layout, qemu, scenario);
                (result.into(), Some(used))
            }
            None => (Verdict::Skipped(format!("{} failed", images(scenario.isa))), None),
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
    report.single(layout, name, &verdict, begin, None);
    ready.ok()
}

/// Something of Debian's for guests that cannot be had.
struct Missing {
    isa: Isa,
    /// Its names in configurations.
    names: &'static [&'static str],
    why: Failure,
}

impl Missing {
    fn is_for(&self, scenario: &Scenario) -> bool {
        wants(scenario, self.isa, self.names)
    }
}

fn wants(scenario: &Scenario, isa: Isa, names: &[&str]) -> bool {
    scenario.isa == isa && names.iter().any(|name| scenario.config.contains(&format!("\"debian:{name}\"")))
}

/// Fetches the Debian guests that scenarios want; returns what of them cannot be had.
fn missing_guests(layout: &Layout, scenarios: &[Scenario]) -> Vec<Missing> {
    let flavours: [(&[&str], Option<Flavour>); 4] = [
        (&["linux", "busybox"], Some(Flavour::Cloud)),
        (&["linux-standard"], Some(Flavour::Standard)),
        (&["linux-4k"], Some(Flavour::SmallPages)),
        (&["u-boot"], None),
    ];
    let mut missing = Vec::new();
    for (isa, (names, flavour)) in Isa::ALL.into_iter().flat_map(|isa| flavours.map(|what| (isa, what))) {
        let got = match flavour {
            _ if !scenarios.iter().any(|scenario| wants(scenario, isa, names)) => continue,
            Some(flavour) => setup::debian::ensure(layout, isa, flavour).map(drop),
            None => setup::u_boot::ensure(layout).map(drop),
        };
        missing.extend(got.err().map(|why| Missing { isa, names, why }));
    }
    missing
}
