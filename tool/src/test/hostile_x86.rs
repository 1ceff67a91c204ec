// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest on a PC cannot do to others: whatever it tries ends as a fault of its own, or as a stop of its VM.

use turnstile_link::{Command, StopReason};

use super::guests_x86::{beacons_are_good, with_beacon};
use super::scenario::{Ending, Record, Scenario, Step, guest};

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
    scenarios.extend(FOR_EVER.map(for_ever));
    scenarios
}

/// A group of attacks that leave the guest able to go on, with a second VM that must not notice.
///
/// Not counted: garbage on a CPU never pauses, and where CPUs take turns each of the others then waits for a whole turn.
fn survived(group: &str, apic: &str) -> Scenario {
    // Some in memory that is mapped on demand: those that are about places, and with an xAPIC.
    let mapping = if apic == "xapic" || group == "places" { "on-demand" } else { "at-start" };
    let more = format!("vcpus = 2\napic = \"{apic}\"\nmapping = \"{mapping}\"\ncmdline = \"attack={group}\"");
    let config = with_beacon(guest("hostile", "hostile", "32MiB", &more), "count=50");
    let steps =
        vec![Step::Expect(0, "@done attacks="), Step::Expect(0, "survived"), Step::Expect(1, "@done")];
    Scenario::pc(format!("hostile/{group}-{apic}"), config, steps).limit(900).judge(found_nothing)
}

/// The guest found nothing wrong, and the VM beside it did not notice.
pub fn found_nothing(record: &Record) -> Result<(), String> {
    match record.console(0).contains("@error") || record.console(0).contains("attacks=0 ") {
        true => Err("the guest found something wrong".to_owned()),
        false => beacons_are_good(record),
    }
}

/// The hypervisor stops the VM, and says why.
fn ended(attack: &'static str, report: &'static str) -> Scenario {
    let more = format!("cmdline = \"attack={attack}\"");
    let config = with_beacon(guest("hostile", "hostile", "32MiB", &more), "count=20 limit=250000");
    let steps =
        vec![Step::Reported(report), Step::Stopped(0, StopReason::Crash), Step::Expect(1, "@done beacons=")];
    let scenario = Scenario::pc(format!("hostile/{attack}"), config, steps);
    scenario.counted().ending(Ending::Done { crashed: 1 }).judge(beacons_are_good)
}

/// The guest goes on for ever: it is stopped by command, as a user would.
///
/// Not counted: a guest that takes one exception after the other without executing an instruction lets counted time stand
/// still for everybody.
fn for_ever(attack: &'static str) -> Scenario {
    let more = format!("cmdline = \"attack={attack}\"");
    let config = with_beacon(guest("hostile", "hostile", "32MiB", &more), "count=50");
    let steps = vec![
        Step::Expect(1, "@done beacons="),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    Scenario::pc(format!("hostile/{attack}"), config, steps).judge(beacons_are_good)
}
