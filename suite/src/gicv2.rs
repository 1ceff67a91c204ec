// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On machines with a GICv2: guests with a GICv2, and what is refused.

use turnstile::failure::Result;
use turnstile::qemu::Boot;
use turnstile_machine::GicVersion;
use turnstile_machine::gic::MAX_VCPUS_GICV2;

use super::scenario::{Ending, Scenario, Step, guest};
use super::{guests, linux, refusals, statistics};

/// The scenarios of this topic: a part of the others, on other machines.
pub fn scenarios() -> Vec<Scenario> {
    let newest = [
        guests::selftest("virt", 4, "trapped"),
        guests::hostile("virt"),
        guests::crash_stop(),
        guests::spinning(),
        statistics::exact(),
        linux::boot(4, "virt"),
        linux::checks(),
    ];
    let newest = newest.into_iter().chain(guests::restarts()).chain(guests::fatal_attacks());
    let old = [
        guests::selftest("kvmtool", 4, "off"),
        guests::hostile("kvmtool"),
        guests::crash_restart(),
        guests::echo("kvmtool"),
        linux::boot(4, "kvmtool"),
    ];
    let old = old.into_iter().chain(refusals::protections());
    let newer = [guests::selftest("virt", 1, "off"), linux::boot(1, "virt"), linux::reboot(), linux::two()];
    let scenarios = newest.map(|scenario| on("max", scenario));
    let scenarios = scenarios.chain(old.map(|scenario| on("cortex-a57", scenario)));
    scenarios.chain(newer.map(|scenario| on("cortex-a72", scenario))).chain(refused()).collect()
}

/// On a machine with a GICv2 and this CPU.
fn on(cpu: &str, scenario: Scenario) -> Scenario {
    let config = format!("[machine]\ncpu = \"{cpu}\"\ngic = 2\n\n{}", scenario.config);
    let name = scenario.name.trim_start_matches("arm64/");
    Scenario { name: format!("arm64/gicv2/{cpu}/{name}"), config, ..scenario }
}

/// What a GIC cannot do for a guest is said before anything starts. The tool would say most of it itself: the bundle is
/// one for another machine.
fn refused() -> [Scenario; 4] {
    let refuse = |name: &str, text: &'static str, more: &str| {
        let config = guest("echo", "echo", "8MiB", more);
        let scenario = Scenario::new(format!("refusal/{name}"), config, vec![Step::Text(text)]);
        scenario.ending(Ending::Refused).limit(60)
    };
    [
        refuse("gicv2-on-a-gicv3", "this machine's GICv3 has no GICv2 interface for guests", "gic = \"v2\""),
        refuse("gicv3-on-a-gicv2", "which cannot be a GICv3 to guests", "gic = \"v3\"")
            .prepare(|boot, _| with_gicv2(boot)),
        refuse("many-vcpus-on-a-gicv2", "9 vCPUs are too many for a GICv2", "vcpus = 9")
            .prepare(|boot, _| with_gicv2(boot)),
        refuse("ablation-on-a-gicv2", "an image for ablation needs a GICv3", "")
            .without("none")
            .prepare(|boot, _| with_gicv2(boot)),
    ]
}

/// Boots on a machine with a GICv2, and so with no more CPUs than that has.
fn with_gicv2(boot: &mut Boot) -> Result<()> {
    boot.gic = GicVersion::V2;
    boot.cpus = boot.cpus.min(MAX_VCPUS_GICV2 as u64);
    Ok(())
}
