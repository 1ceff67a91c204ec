// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Plays a scenario: boots its machine, follows its steps, judges its end, and keeps the log.

use std::fs;
use std::time::Duration;

use turnstile::bench::ablate;
use turnstile::failure::{Context, Failure, Result};
use turnstile::layout::Layout;
use turnstile::machine;
use turnstile::setup::images;
use turnstile::setup::qemu::Qemu;

use super::log::{Log, log_file};
use super::player::Player;
use super::power::Powered;
use super::scenario::{Scenario, Step};

/// Plays a scenario; the error is the sentence for the report. Returns the processor time of QEMU, too. The log is written as
/// it goes.
pub fn play(
    layout: &Layout,
    qemu: &Qemu,
    scenario: &Scenario,
) -> (std::result::Result<(), String>, Duration) {
    let mut used = Duration::ZERO;
    let mut log = match Log::create(&log_file(layout, &scenario.name)) {
        Ok(log) => log,
        Err(failure) => return (Err(failure.to_string()), used),
    };
    let result = try_play(layout, qemu, scenario, &mut log, &mut used);
    let verdict = match &result {
        Ok(()) => "passed".to_owned(),
        Err(failure) => format!("failed: {failure}"),
    };
    log.line(&format!("\n--- {verdict}"));
    (result.map_err(|failure| failure.to_string()), used)
}

fn try_play(
    layout: &Layout,
    qemu: &Qemu,
    scenario: &Scenario,
    log: &mut Log,
    used: &mut Duration,
) -> Result<()> {
    let name = format!("test-{}", scenario.name.replace('/', "-"));
    let folder = layout.bundles().join(&name);
    if !scenario.files.is_empty() {
        fs::create_dir_all(&folder).context(|| format!("cannot create {}", folder.display()))?;
    }
    for (file, content) in &scenario.files {
        fs::write(folder.join(file), content).context(|| format!("cannot write {file}"))?;
    }
    let (mut boot, config) = machine::prepare_text(layout, &name, &scenario.config)?;
    let isa = boot.board.isa();
    boot.counted = scenario.counted;
    if let Some(techniques) = &scenario.without {
        boot.image = images::hypervisor_with(layout, isa, ablate::FEATURES)?;
        boot.append = format!("{} {}{techniques}", boot.append, ablate::WITHOUT);
    }
    if let Some(prepare) = scenario.prepare {
        prepare(&mut boot, &folder)?;
    }
    log.line(&format!("{}\n{}\n", scenario.config, boot.shown(&qemu.path)));
    let names = config.vms.iter().map(|vm| vm.name.value.clone()).collect();
    let machine = Powered::on(&boot, &qemu.path)?;
    let player = Player::new(machine, names, Duration::from_secs(scenario.limit), log);
    let mut lives = scenario.steps.split(|step| *step == Step::PowerCut);
    let (mut player, mut outcome) = live(player, lives.next().unwrap_or_default())?;
    for steps in lives {
        if outcome.is_ok() {
            (player, outcome) = live(player.cut()?, steps)?;
        }
    }
    let outcome = outcome.and_then(|()| player.judge(scenario));
    if outcome.is_err() && !player.has_ended() {
        player.log_places();
    }
    let ending = player.finish()?;
    *used = ending.used;
    log.line(&format!("\n--- QEMU ended with {}\n{}", ending.status, ending.messages));
    outcome.map_err(Failure::failed)?;
    // Who failed keeps what was booted, for it to be tried again; of all scenarios that would be gigabytes.
    let _ = fs::remove_dir_all(folder);
    Ok(())
}

/// Lets a machine that has been switched on follow steps. Returns what has come of it, too.
fn live<'a>(mut player: Player<'a>, steps: &[Step]) -> Result<(Player<'a>, std::result::Result<(), String>)> {
    let outcome = player.follow(steps);
    if outcome.is_ok() || !player.has_ended_in_firmware() {
        return Ok((player, outcome));
    }
    // skiboot hangs now and then while it looks for PCI functions; its watchdog ends the machine (CAVEATS.md). Nothing of ours has run.
    let mut player = player.cut()?;
    let outcome = player.follow(steps);
    Ok((player, outcome))
}
