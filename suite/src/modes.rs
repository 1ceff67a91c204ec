// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Without VHE: on CPUs that do not have it, and where the hypervisor's command line refuses it.

use super::scenario::{Scenario, Step};
use super::{guests, linux, refusals, statistics};

/// What the hypervisor says first.
const BANNER: &str = "(nVHE)";

/// The scenarios of this topic: a part of the others, on other machines.
pub fn scenarios() -> Vec<Scenario> {
    let old = [
        guests::selftest("virt", 4, "trapped"),
        guests::hostile("virt"),
        guests::crash_restart(),
        statistics::exact(),
        guests::facilities_alone("off"),
        linux::boot(1, "virt"),
    ];
    let newer = [guests::selftest("kvmtool", 1, "off"), guests::echo("kvmtool"), linux::boot(4, "kvmtool")];
    let refused =
        [guests::selftest("virt", 4, "trapped"), guests::facilities_shared("[0, 1]"), linux::boot(4, "virt")];
    let old = old.into_iter().chain(refusals::protections()).map(|scenario| on("cortex-a57", scenario));
    let newer = newer.map(|scenario| on("cortex-a72", scenario));
    let more = "mapping = \"on-demand\"";
    let disk = super::disks::bare(turnstile::isa::Isa::Arm64, "disks/on-demand", more);
    old.chain(newer).chain(refused.map(without_vhe)).chain([without_vhe(disk)]).collect()
}

/// On a CPU without VHE.
fn on(cpu: &str, scenario: Scenario) -> Scenario {
    let config = format!("[machine]\ncpu = \"{cpu}\"\n\n{}", scenario.config);
    Scenario { config, ..said(cpu, scenario) }
}

/// On a CPU that has VHE.
fn without_vhe(scenario: Scenario) -> Scenario {
    said("max", scenario).prepare(|boot, _| {
        boot.append.push_str(" mode=nvhe");
        Ok(())
    })
}

/// The same under another name, with the mode told first.
fn said(cpu: &str, scenario: Scenario) -> Scenario {
    let name = scenario.name.trim_start_matches("arm64/");
    let mut steps = vec![Step::Text(BANNER)];
    steps.extend(scenario.steps);
    Scenario { name: format!("arm64/nvhe/{cpu}/{name}"), steps, ..scenario }
}
