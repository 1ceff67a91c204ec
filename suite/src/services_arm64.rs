// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services on arm64: that nothing of the guest is open to one, or changed by it, in both modes, with all interrupt controllers, on
//! CPUs that need mitigations, with several CPUs in it at once, and with two VMs on the same CPUs.

use turnstile::isa::Isa;

use super::scenario::{Record, Scenario, Step, guest};
use super::services::{on_own_cpu, works_briefly};

/// The scenarios of this topic.
pub fn scenarios() -> [Scenario; 7] {
    let facilities = "pmu = \"owned\"\nsve = true";
    let open = |name: &str| served(name, "", facilities).counted();
    let both = "vcpus = 2\ncpus = [0, 1]\nschedule = \"shared\"";
    [
        open("open-vhe"),
        without_vhe(open("open-nvhe")),
        two("gicv2", "cpu = \"max\"\ngic = 2", "vcpus = 2"),
        served("cortex-a57", "cpu = \"cortex-a57\"\ngic = 2", "vcpus = 2"),
        two("neoverse-n1", "cpu = \"neoverse-n1\"\ncpus = 2", both),
        without_vhe(works_briefly(Isa::Arm64, "services/doorbell-nvhe")),
        without_vhe(on_own_cpu(Isa::Arm64, "services/own-cpu-nvhe")),
    ]
}

/// The same where VHE is refused.
fn without_vhe(scenario: Scenario) -> Scenario {
    scenario.prepare(|boot, _| {
        boot.append.push_str(" mode=nvhe");
        Ok(())
    })
}

/// A VM whose service misbehaves, on this machine.
fn served(name: &str, machine: &str, more: &str) -> Scenario {
    of(name, machine, vm("served", more), vec![Step::Expect(0, "@done service"), Step::Expect(0, "@end")])
}

/// Two of them.
fn two(name: &str, machine: &str, more: &str) -> Scenario {
    let steps = (0..2).flat_map(|vm| [Step::Expect(vm, "@done service"), Step::Expect(vm, "@end")]);
    of(name, machine, vm("one", more) + &vm("two", more), steps.collect())
}

fn of(name: &str, machine: &str, vms: String, steps: Vec<Step>) -> Scenario {
    let config = format!("[machine]\nisa = \"arm64\"\n{machine}\n\n{vms}");
    Scenario::new(format!("services/{name}"), config, steps).limit(600).judge(harmless)
}

/// An emulator that others keep from running is not to be taken for a service that loops; but those that do take their time.
fn vm(name: &str, more: &str) -> String {
    guest(name, "service", "16MiB", more)
        + &format!(
            "[[service]]\nname = \"of-{name}\"\nprogram = \"misbehave\"\nvm = \"{name}\"\ndevice = \"extra\"\n\
             time-limit = \"20ms\"\n"
        )
}

fn no_errors(record: &Record) -> Result<(), String> {
    let mut lines = record.consoles.iter().flat_map(|console| console.lines());
    lines.find(|line| line.contains("@error")).map_or(Ok(()), |line| Err(line.to_owned()))
}

fn harmless(record: &Record) -> Result<(), String> {
    no_errors(record)?;
    // Those of `services/runtime/src/deeds.rs`.
    match record.consoles.iter().all(|console| console.contains("refused=49")) {
        true => Ok(()),
        false => Err("a service was not refused what it must be".to_owned()),
    }
}
