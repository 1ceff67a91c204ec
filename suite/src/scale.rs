// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernel with few and many vCPUs, and in many VMs.

use turnstile_link::StopReason;

use super::debian::quiet_kernel;
use super::scenario::{Scenario, Step, linux};

/// What every VM does besides booting and powering off.
const CHECKS: [&str; 5] = ["hotplug", "timer", "ipi-stress", "memory", "fp"];

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let shared = "schedule = \"shared\"";
    vec![
        alone(1, "turnstile: shell ready cpus=1", &CHECKS[1..]),
        // What it shows, `linux/hotplug-timer-ipi-memory` and the larger ones show together.
        alone(4, "turnstile: shell ready cpus=4", &CHECKS).long(),
        alone(16, "turnstile: shell ready cpus=16", &CHECKS[1..]),
        alone(64, "turnstile: shell ready cpus=64", &["timer"]),
        several("4-on-4", 4, &format!("{shared}\ncpus = [0, 1, 2, 3]"), &CHECKS),
        on_gicv2(several("4-on-2", 2, &format!("{shared}\ncpus = [0, 1]"), &CHECKS[1..])),
        // Not counted: with counted instructions the start of each waits for long turns of all others.
        Scenario { counted: false, ..alone(16, "turnstile: shell ready cpus=16", &CHECKS[1..]).on_pc() },
        Scenario { counted: false, ..alone(64, "turnstile: shell ready cpus=64", &["timer"]).on_pc() },
        several("4-on-4", 4, &format!("{shared}\ncpus = [0, 1, 2, 3]"), &CHECKS).on_pc(),
        alone(8, "turnstile: shell ready cpus=8", &["timer", "ipi-stress"]).on_power(),
        several("4-on-2", 3, &format!("{shared}\ncpus = [0, 1]"), &["timer"]).on_power(),
    ]
}

/// One VM that has its CPUs for itself.
fn alone(vcpus: u32, ready: &'static str, checks: &[&'static str]) -> Scenario {
    let mut steps = vec![Step::Expect(0, ready)];
    steps.extend(passes(0, checks));
    steps.push(Step::Stopped(0, StopReason::PowerOff));
    let config = linux("linux", vcpus, &run(checks), "");
    let scenario =
        Scenario::new(format!("scale/linux-{vcpus}"), config, steps).limit(600).judge(quiet_kernel);
    // Linux's watchdogs run on the guest's time: with many CPUs that must not be the time of a busy computer.
    if vcpus >= 16 { scenario.counted() } else { scenario }
}

/// VMs with four vCPUs each. They end in any order.
fn several(name: &str, vms: u8, more: &str, checks: &[&'static str]) -> Scenario {
    let config: String = (0..vms).map(|vm| linux(&format!("linux-{vm}"), 4, &run(checks), more)).collect();
    let ready = |vm| Step::Expect(vm, "turnstile: shell ready cpus=4");
    let steps = (0..vms).flat_map(|vm| [ready(vm)].into_iter().chain(passes(vm, checks))).collect();
    Scenario::new(format!("scale/{vms}-linux-{name}"), config, steps).limit(1200).judge(quiet_kernel)
}

fn on_gicv2(scenario: Scenario) -> Scenario {
    let config = format!("[machine]\ngic = 2\n\n{}", scenario.config);
    Scenario { name: format!("{}-gicv2", scenario.name), config, ..scenario }
}

fn run(checks: &[&str]) -> String {
    format!("quiet turnstile.run={},poweroff", checks.join(","))
}

/// The steps of a VM that passes these checks.
fn passes(vm: u8, checks: &[&'static str]) -> impl Iterator<Item = Step> {
    checks.iter().map(move |check| {
        let line = match *check {
            "hotplug" => "turnstile: hotplug ok",
            "timer" => "turnstile: timer ok",
            "ipi-stress" => "turnstile: ipi-stress ok",
            "memory" => "turnstile: memory ok",
            _ => "turnstile: fp ok",
        };
        Step::Expect(vm, line)
    })
}
