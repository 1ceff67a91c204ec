// SPDX-License-Identifier: Apache-2.0 OR MIT
//! On a Raspberry Pi 4, as QEMU emulates it: devices behind a bus, spin tables, a GIC-400, no PSCI, no VHE.

use turnstile::card;

use super::scenario::{Scenario, Step};
use super::{guests, linux, refusals, statistics};

/// The scenarios of this topic: a part of the others, on this board.
pub fn scenarios() -> Vec<Scenario> {
    // A fault ends in a reset, by the board's power manager.
    let [_, _, fault] = refusals::protections();
    let usual = [
        guests::selftest("virt", 4, "trapped"),
        guests::selftest("kvmtool", 1, "off"),
        guests::hostile("virt"),
        guests::crash_restart(),
        guests::echo("virt"),
        statistics::exact(),
        linux::boot(4, "virt"),
        fault,
    ];
    usual.map(on).into_iter().chain([card()]).collect()
}

fn on(scenario: Scenario) -> Scenario {
    let name = scenario.name.trim_start_matches("arm64/");
    let config = format!("[machine]\nboard = \"rpi4\"\n\n{}", scenario.config);
    Scenario { name: format!("arm64/rpi4/{name}"), config, ..scenario }
}

/// What `build` writes for a card boots.
fn card() -> Scenario {
    let mut scenario = on(guests::echo("kvmtool")).prepare(|boot, folder| {
        let bundle = boot.bundle.take().unwrap_or_default();
        let card = card::write(&folder.join("card"), &boot.image, &bundle)?;
        (boot.image, boot.bundle) = (card.image, Some(card.bundle));
        Ok(())
    });
    scenario.name = "arm64/rpi4/card".to_owned();
    scenario.steps.insert(0, Step::Text("(nVHE)"));
    scenario
}
