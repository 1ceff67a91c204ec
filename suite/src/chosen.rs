// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which tests are run: those of the usual run, or all, and of these the ones whose names are asked for.

use turnstile::failure::{Failure, Result};
use turnstile::isa::Isa;
use turnstile::layout::Layout;

use super::checks::{self, Check};
use super::cli;
use super::host::{self, Stage};
use super::host_named;
use super::scenario::Scenario;
use super::scenarios::all;

/// The tests of a run, in its order.
pub struct Chosen {
    /// What cargo does.
    pub stages: Vec<Stage>,
    /// The architectures whose images are built.
    pub builds: Vec<Isa>,
    /// What is checked of the built system.
    pub checks: Vec<Check>,
    /// The boots.
    pub scenarios: Vec<Scenario>,
}

impl Chosen {
    /// Chooses by the command line. A filter that names nothing of the usual run, but something of the long one, means that; one
    /// that names nothing of the suite means the Rust tests with that name.
    pub fn by(layout: &Layout, options: &cli::Test) -> Result<Self> {
        let filter = options.filter.as_deref();
        let mut chosen = Self::of(layout, options.long, filter);
        if chosen.is_empty() {
            chosen = Self::of(layout, true, filter);
        }
        let Some(filter) = filter.filter(|_| chosen.is_empty()) else { return Ok(chosen) };
        chosen.stages = host_named::named(layout, filter);
        match chosen.is_empty() {
            false => Ok(chosen),
            true => Err(Failure::usage(format!("no test has `{filter}` in its name"))
                .help("--list shows the names of the usual run, --list --long all names")),
        }
    }

    fn of(layout: &Layout, long: bool, filter: Option<&str>) -> Self {
        let wanted = |name: &str| filter.is_none_or(|filter| name.contains(filter));
        let mut stages = host::stages(layout);
        stages.retain(|stage| (long || !stage.long) && wanted(&stage.name));
        stages.iter_mut().for_each(|stage| stage.few_preemptions = !long);
        let mut checks: Vec<Check> = checks::usual().collect();
        if long {
            checks.extend(checks::long());
        }
        checks.retain(|check| wanted(&check.name));
        let mut scenarios = all();
        scenarios.retain(|scenario| (long || !scenario.long) && wanted(&scenario.name));
        let builds = Isa::ALL.into_iter().filter(|isa| {
            let checked = checks.iter().any(|check| check.isa == *isa);
            checked || scenarios.iter().any(|scenario| scenario.isa == *isa) || wanted(images(*isa))
        });
        Chosen { builds: builds.collect(), stages, checks, scenarios }
    }

    fn is_empty(&self) -> bool {
        self.stages.is_empty() && self.builds.is_empty()
    }

    /// The names, in the order in which they are begun, but for stages that run beside others.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let stages = self.stages.iter().map(|stage| stage.name.as_str());
        let builds = self.builds.iter().map(|isa| images(*isa));
        let checks = self.checks.iter().map(|check| check.name.as_str());
        let scenarios = self.scenarios.iter().map(|scenario| scenario.name.as_str());
        stages.chain(builds).chain(checks).chain(scenarios)
    }
}

/// The name under which the images of an architecture are built.
pub fn images(isa: Isa) -> &'static str {
    match isa {
        Isa::Arm64 => "images/build",
        Isa::X86_64 => "x86_64/images/build",
        Isa::Power64 => "power64/images/build",
    }
}

#[cfg(test)]
mod tests {
    use turnstile::cli::QemuChoice;

    use super::*;

    fn names(long: bool, filter: Option<&str>) -> Vec<String> {
        let options = cli::Test {
            filter: filter.map(str::to_owned),
            list: true,
            long,
            qemu: QemuChoice { program: None },
        };
        let layout = Layout::find().unwrap();
        Chosen::by(&layout, &options).unwrap().names().map(str::to_owned).collect()
    }

    #[test]
    fn the_long_run_has_the_usual_one_and_more() {
        let (usual, long) = (names(false, None), names(true, None));
        assert!(usual.iter().all(|name| long.contains(name)));
        assert!(long.len() > usual.len());
        assert!(!usual.contains(&"arm64/hour/pinned".to_owned()));
    }

    #[test]
    fn a_filter_that_only_the_long_run_knows_means_that() {
        let hour = ["images/build", "arm64/hour/pinned"].map(str::to_owned);
        assert_eq!(names(false, Some("arm64/hour/pinned")), hour);
        assert_eq!(names(true, Some("arm64/hour/pinned")), hour);
        let options = cli::Test {
            filter: Some("nothing of this kind".to_owned()),
            list: false,
            long: false,
            qemu: QemuChoice { program: None },
        };
        assert!(Chosen::by(&Layout::find().unwrap(), &options).is_err());
    }
}
