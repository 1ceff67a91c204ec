// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest on a PC cannot do to others: whatever it tries ends as a fault of its own, or as a stop of its VM.

use turnstile::isa::Isa;
use turnstile_link::StopReason;

use super::hostile::{self, found_nothing};
use super::scenario::{Ending, Scenario, Step};
use super::victims::beacons_are_good;

/// The architecture of this topic.
const ISA: Isa = Isa::X86_64;
/// The guest's memory.
const MEMORY: &str = "32MiB";

/// Attacks that end the VM, and what the report says of each.
const ENDED: [(&str, &str); 8] = [
    ("triple-fault", "triple fault"),
    ("gates-in-device", "tables for faults and interrupts are not in memory"),
    ("stack-in-device", "tables for faults and interrupts are not in memory"),
    ("tables-in-device", "page tables are not in memory"),
    ("tables-outside", "page tables are not in memory"),
    ("root-in-device", "page tables are not in memory"),
    ("root-outside", "page tables are not in memory"),
    ("state-refused", "refuses the guest's state"),
];
/// Attacks after which the guest spins, faults or waits for ever.
const FOR_EVER: [&str; 5] = ["fault-loop", "spin", "halt", "timer-storm", "task-switch"];
/// Attacks that leave the guest able to go on, in the guest's groups, and with which local APICs they are done: what is about
/// those is done with both.
const GROUPS: [(&str, &str); 5] = [
    ("registers", "x2apic"),
    ("places", "x2apic"),
    ("interrupts", "x2apic"),
    ("interrupts", "xapic"),
    ("opcodes", "x2apic"),
];

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios: Vec<_> = GROUPS.map(|(group, apic)| survived(group, apic)).into();
    scenarios.extend(ENDED.map(|(attack, report)| ended(attack, report)));
    scenarios.extend(FOR_EVER.map(|attack| {
        let scenario = hostile::for_ever(ISA, attack, MEMORY, "cpus = [1]\n");
        on_threads(scenario, 2)
    }));
    scenarios
}

/// Runs each CPU on a thread of its own (`Boot::arguments` says what that costs), with the beacon on this one: for guests that keep
/// a CPU from ever giving way. The first CPU is nobody's: on threads QEMU may lose what VMRUN and #VMEXIT change there
/// (`CAVEATS.md`).
fn on_threads(scenario: Scenario, beacon: usize) -> Scenario {
    // The beacon's table is the last one.
    let config = format!("{}cpus = [{beacon}]\n", scenario.config);
    Scenario { config, ..scenario }.prepare(|boot, _| {
        boot.extra.extend(["-accel", "tcg,thread=multi"].map(Into::into));
        Ok(())
    })
}

/// A group of attacks that leave the guest able to go on, with a second VM that must not notice.
///
/// On threads, since QEMU ends no turn of code that writes to its own page; but not where CPUs send each other interrupts, which
/// it may lose on threads (`CAVEATS.md`). Where CPUs take turns, garbage on one of them keeps the others waiting for a whole turn.
fn survived(group: &str, apic: &str) -> Scenario {
    // Some in memory that is mapped on demand: those that are about places, and with an xAPIC.
    let mapping = if apic == "xapic" || group == "places" { "on-demand" } else { "at-start" };
    let more =
        format!("cpus = [1, 2]\napic = \"{apic}\"\nmapping = \"{mapping}\"\ncmdline = \"attack={group}\"");
    let config = hostile::beside(MEMORY, &more, "count=50");
    let scenario = hostile::survived(ISA, format!("hostile/{group}-{apic}"), config).limit(900);
    let scenario = if group == "interrupts" { scenario } else { on_threads(scenario, 3) };
    scenario.judge(found_nothing)
}

/// The hypervisor stops the VM, and says why.
fn ended(attack: &'static str, report: &'static str) -> Scenario {
    let more = format!("triple-fault = \"crash\"\ncmdline = \"attack={attack}\"");
    let config = hostile::beside(MEMORY, &more, "count=20 limit=250000");
    let steps =
        vec![Step::Reported(report), Step::Stopped(0, StopReason::Crash), Step::Expect(1, "@done beacons=")];
    let scenario = Scenario::pc(format!("hostile/{attack}"), config, steps);
    scenario.counted().ending(Ending::Done { crashed: 1 }).judge(beacons_are_good)
}
