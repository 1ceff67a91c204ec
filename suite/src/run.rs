// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `test`: the whole test suite, in an order that fails early.
//!
//! Two threads share the work. One runs what needs no emulator, and makes the checks of the built system. The other runs what of
//! the first takes one processor alone, and builds all images. What they have left both take: the scenarios, each a boot of the
//! hypervisor. Others play scenarios, too, while these two leave a processor idle. Each test's log is kept in
//! `target/test-logs/`. What takes long and shows little that is new is part of the long run alone. The last line is `N passed,
//! N failed, N skipped`.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use turnstile::bench::ablate;
use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;
use turnstile::setup;
use turnstile::setup::debian::Flavour;
use turnstile::setup::qemu::{Found, Qemu};

use super::chosen::{Chosen, images};
use super::report::{Report, Verdict};
use super::scenario::Scenario;
use super::{cli, engine, host_run, idle};

/// How many play scenarios beside the two, while a processor is idle.
const OTHERS: usize = 2;
/// For so long who may play beside looks on first, and so many processors must be idle: many machines sleep for a moment.
const LOOK: Duration = Duration::from_secs(2);
/// See [`LOOK`].
const IDLE: f64 = 0.7;

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
            let (counts, verdict, used) = host_run::run(layout, stage);
            report.stage(layout, &stage.name, (counts, &verdict), begin, used);
        }
    };
    let system = System::new(layout, &report, &chosen);
    // More than two that work would not end sooner on two cores. But machines sleep, and a compiler waits for one crate.
    std::thread::scope(|scope| {
        for _ in 0..others(chosen.scenarios.len()) {
            scope.spawn(|| system.play_beside());
        }
        scope.spawn(|| {
            let _built = WhateverHappens(&system.built);
            // Cargo works on these in folders of their own, so neither waits for the other.
            run_stages(true);
            system.build(options);
            system.play_all();
        });
        run_stages(false);
        system.check_all();
        system.play_all();
    });
    report.finish(layout)
}

/// How many play beside the two: whoever waits for one or two boots waits for nobody else.
fn others(scenarios: usize) -> usize {
    OTHERS.min(scenarios.saturating_sub(2))
}

/// What is checked of the built system, and the scenarios.
struct System<'a> {
    layout: &'a Layout,
    report: &'a Report,
    chosen: &'a Chosen,
    /// What is there once all is built; it is set exactly once.
    built: OnceLock<Built>,
    /// The scenario that is played next.
    next: AtomicUsize,
    /// Who may play beside the two looks on alone: the next one sees what this one has begun.
    look: Mutex<()>,
}

/// What checks and scenarios need.
#[derive(Default)]
struct Built {
    /// Those of the architectures whose images could be built.
    emulators: BTreeMap<Isa, Qemu>,
    /// What of Debian's cannot be had: a machine without network skips what needs it.
    debian: Vec<Missing>,
}

/// Who waits for what is built waits no longer than who builds it lives: then nothing is there, and its tests are skipped.
struct WhateverHappens<'a>(&'a OnceLock<Built>);

impl Drop for WhateverHappens<'_> {
    fn drop(&mut self) {
        self.0.get_or_init(Built::default);
    }
}

impl<'a> System<'a> {
    fn new(layout: &'a Layout, report: &'a Report, chosen: &'a Chosen) -> Self {
        System {
            layout,
            report,
            chosen,
            built: OnceLock::new(),
            next: AtomicUsize::new(0),
            look: Mutex::new(()),
        }
    }

    /// Builds what all architectures need. Debian's guests are fetched meanwhile, which mostly waits for the network.
    fn build(&self, options: &cli::Test) {
        let build = |isa: &Isa| Some((*isa, build(self.layout, options, self.report, *isa)?));
        let built = std::thread::scope(|scope| {
            let fetching = scope.spawn(|| missing_guests(self.layout, &self.chosen.scenarios));
            let emulators = self.chosen.builds.iter().filter_map(build).collect();
            // Whoever fetches ends with a list, or the suite ends with a panic, as it does where it builds.
            fetching.join().map(|debian| Built { emulators, debian })
        });
        match built {
            Ok(built) => self.built.get_or_init(|| built),
            Err(panic) => std::panic::resume_unwind(panic),
        };
    }

    /// Makes all checks, one after the other: they measure, with emulators of their own beside each other.
    fn check_all(&self) {
        let built = self.built.wait();
        for check in &self.chosen.checks {
            let begin = Instant::now();
            self.report.starts(&check.name);
            let verdict = match built.emulators.get(&check.isa) {
                Some(qemu) => check.make(self.layout, qemu),
                None => Verdict::Skipped(format!("{} failed", images(check.isa))),
            };
            self.report.single(self.layout, &check.name, &verdict, begin, None);
        }
    }

    /// Plays scenarios until none is left.
    fn play_all(&self) {
        while self.play_next() {}
    }

    /// Does the same while a processor is idle.
    fn play_beside(&self) {
        self.built.wait();
        while self.is_left() {
            let is_idle = {
                let _alone = self.look.lock();
                // The one before may have begun the last.
                self.is_left() && idle::processors(LOOK) >= IDLE
            };
            if is_idle {
                self.play_next();
            }
        }
    }

    /// Says whether there are scenarios that nobody has begun.
    fn is_left(&self) -> bool {
        self.next.load(Ordering::Relaxed) < self.chosen.scenarios.len()
    }

    /// Plays the next scenario, once all is built; says whether there was one.
    fn play_next(&self) -> bool {
        let built = self.built.wait();
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        let Some(scenario) = self.chosen.scenarios.get(next) else { return false };
        let begin = Instant::now();
        let (verdict, used) = self.play(scenario, built);
        self.report.single(self.layout, &scenario.name, &verdict, begin, used);
        true
    }

    /// Plays a scenario; returns the processor time of its emulator, too.
    fn play(&self, scenario: &Scenario, built: &Built) -> (Verdict, Option<Duration>) {
        if let Some(missing) = built.debian.iter().find(|missing| missing.is_for(scenario)) {
            return (Verdict::Skipped(missing.why.to_string()), None);
        }
        match built.emulators.get(&scenario.isa) {
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
        if options.filter.is_none() {
            build_more(layout, isa)?;
        }
        Ok(qemu)
    });
    let verdict = Verdict::from(ready.as_ref().map(|_| ()).map_err(|failure| failure.full()));
    report.single(layout, name, &verdict, begin, None);
    ready.ok()
}

/// Builds what else the tests of a whole run need: now the other thread has work, later both would wait.
fn build_more(layout: &Layout, isa: Isa) -> Result<()> {
    if isa == Isa::Arm64 {
        setup::images::meter(layout)?;
        setup::images::hypervisor_with(layout, isa, ablate::FEATURES)?;
        // What fails here, its check says.
        let _ = setup::images::vmm(layout, isa);
    }
    layout.service_names().iter().try_for_each(|name| setup::images::service(layout, isa, name).map(drop))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_plays_beside_two() {
        assert_eq!([0, 1, 2, 3, 4, 500].map(others), [0, 0, 0, 1, 2, 2]);
    }
}
