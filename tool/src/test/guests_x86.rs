// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest on a PC may rely on (`selftest`, `pressure`), and what no other VM notices or leaves behind.

use turnstile_link::{Command, StopReason};

use super::guests::no_failures;
use super::scenario::{Ending, Record, Scenario, Step, guest};

/// Restarts of the restart test.
const RESTARTS: u32 = 1000;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for apic in ["x2apic", "xapic"] {
        for vcpus in [1, 4] {
            scenarios.push(selftest(apic, vcpus));
        }
    }
    scenarios.push(on_demand());
    for paravirt in ["all", "none"] {
        scenarios.extend([pressure(paravirt, 1), pressure(paravirt, 4), load(paravirt)]);
    }
    scenarios.extend([ten_million("all"), ten_million("none")]);
    scenarios.extend([facilities_alone(), facilities_of_two(), facilities_shared()]);
    scenarios.extend([crash_stop(), crash_restart(), spinning(), restart(), echo()]);
    scenarios
}

/// All of the guest's own tests.
fn selftest(apic: &str, vcpus: u32) -> Scenario {
    let more = format!("vcpus = {vcpus}\napic = \"{apic}\"");
    let steps = vec![Step::Expect(0, "@boot selftest"), Step::Expect(0, "@done passed=")];
    let config = guest("selftest", "selftest", "32MiB", &more);
    Scenario::pc(format!("selftest/{apic}-{vcpus}"), config, steps).counted().limit(300).judge(no_failures)
}

/// The same with memory that is mapped when it is first touched, by any of four vCPUs.
fn on_demand() -> Scenario {
    let steps = vec![Step::Expect(0, "@boot selftest"), Step::Expect(0, "@done passed=")];
    let config = guest("selftest", "selftest", "32MiB", "vcpus = 4\nmapping = \"on-demand\"");
    Scenario::pc("selftest/on-demand", config, steps).counted().limit(300).judge(no_failures)
}

/// Interrupts of all vectors at once, between all vCPUs, each accounted for, with and without paravirtual EOI.
fn pressure(paravirt: &str, vcpus: u32) -> Scenario {
    let more = format!("vcpus = {vcpus}\nparavirt = \"{paravirt}\"");
    let steps = vec![Step::Expect(0, "@boot pressure"), Step::Expect(0, "@done passed=")];
    let config = guest("pressure", "pressure", "32MiB", &more);
    Scenario::pc(format!("pressure/{paravirt}-{vcpus}"), config, steps)
        .counted()
        .limit(300)
        .judge(no_failures)
}

/// Ten million interrupts, none of which is lost or doubled.
fn ten_million(paravirt: &str) -> Scenario {
    let more = format!("paravirt = \"{paravirt}\"\ncmdline = \"test=pressure-pending count=10000000\"");
    let steps = vec![Step::Expect(0, "@boot pressure"), Step::Expect(0, "@done passed=")];
    let config = guest("pressure", "pressure", "32MiB", &more);
    Scenario::pc(format!("pressure/ten-million-{paravirt}"), config, steps).limit(900).judge(no_failures)
}

/// The mixed load for a second of virtual time: so many interrupts come, and with paravirtual EOI most of their ends are spared.
fn load(paravirt: &str) -> Scenario {
    let steps = vec![Step::Expect(0, "@boot load"), Step::Expect(0, "@done load")];
    let config = guest("load", "load", "32MiB", &format!("paravirt = \"{paravirt}\""));
    let scenario = Scenario::pc(format!("load/{paravirt}"), config, steps).counted();
    match paravirt {
        "all" => scenario.judge(|record| rates(record, true)),
        _ => scenario.judge(|record| rates(record, false)),
    }
}

fn rates(record: &Record, spares: bool) -> Result<(), String> {
    let line = record.console(0).lines().find(|line| line.starts_with("@load")).unwrap_or_default();
    let number = |key: &str| {
        let value = line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        value.and_then(|value| value.trim().parse::<u32>().ok()).unwrap_or(0)
    };
    let (interrupts, spared) = (number("interrupts"), number("spared"));
    let right = if spares { spared * 10 > interrupts * 9 } else { spared == 0 };
    match (21_000..23_000).contains(&interrupts) && right {
        true => Ok(()),
        false => Err(format!("{interrupts} interrupts came, and {spared} EOIs were spared")),
    }
}

/// Nothing of vector registers, debug registers and MSRs gets lost over exits, and at first nothing is in them.
fn facilities_alone() -> Scenario {
    let steps = vec![Step::Expect(0, "@boot facilities"), Step::Expect(0, "@done facilities errors=0")];
    Scenario::pc("facilities/alone", guest("facilities", "facilities", "16MiB", ""), steps).counted()
}

/// Two VMs with different state, one of which starts again and again, never see each other's, nor that of an earlier
/// life.
fn facilities_of_two() -> Scenario {
    let config = guest("again", "facilities", "16MiB", "cmdline = \"seed=1 rounds=2 again\"")
        + &guest("long", "facilities", "16MiB", "cmdline = \"seed=2 rounds=60\"");
    let steps = vec![Step::Started(0, 10), Step::Expect(1, "@done facilities errors=0")];
    let scenario = Scenario::pc("facilities/two-vms", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(nothing_strange)
}

/// The same of VMs that take turns on a CPU.
fn facilities_shared() -> Scenario {
    let vm = |name: &str, options: &str| {
        let more = format!("cpus = [0]\nschedule = \"shared\"\ncmdline = \"{options}\"");
        guest(name, "facilities", "16MiB", &more)
    };
    let config = vm("long", "seed=1 rounds=30") + &vm("again", "seed=2 rounds=2 again");
    let steps = vec![Step::Started(1, 5), Step::Expect(0, "@done facilities errors=0")];
    let scenario = Scenario::pc("facilities/sharing", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(nothing_strange)
}

/// No VM found what is not its own.
fn nothing_strange(record: &Record) -> Result<(), String> {
    match record.consoles.iter().any(|console| console.contains("@error")) {
        true => Err("a VM found what is not its own".to_owned()),
        false => Ok(()),
    }
}

/// The VM with the beacons, which must not notice anything.
pub fn with_beacon(first: String, options: &str) -> String {
    first + &guest("beacon", "beacon", "16MiB", &format!("cmdline = \"{options}\""))
}

/// The beacons of VM 1 came all and in time.
pub fn beacons_are_good(record: &Record) -> Result<(), String> {
    match record.console(1).contains("@done beacons=") && record.console(1).contains(" errors=0") {
        true => Ok(()),
        false => Err("the VM beside it noticed".to_owned()),
    }
}

/// A guest that crashes stays down.
fn crash_stop() -> Scenario {
    let more = "on-crash = \"stop\"\ncmdline = \"how=triple-fault after=100\"";
    let config = with_beacon(guest("victim", "crash", "16MiB", more), "count=30 limit=5000");
    let steps = vec![
        Step::Expect(0, "@boot crash"),
        Step::Reported("triple fault"),
        Step::Stopped(0, StopReason::Crash),
        Step::Expect(1, "@done beacons="),
    ];
    let scenario = Scenario::pc("crash/stop", config, steps);
    scenario.counted().ending(Ending::Done { crashed: 1 }).judge(beacons_are_good)
}

/// A guest that crashes is started again and again.
fn crash_restart() -> Scenario {
    let more = "on-crash = \"restart\"\ncmdline = \"how=triple-fault after=100\"";
    let config = with_beacon(guest("victim", "crash", "16MiB", more), "count=40 limit=5000");
    let steps = vec![
        Step::Started(0, 3),
        Step::Expect(0, "@boot crash"),
        Step::Expect(0, "@boot crash"),
        Step::Expect(0, "@boot crash"),
        // Its last line is out when it has powered off; the end of the test would cut it.
        Step::Stopped(1, StopReason::PowerOff),
    ];
    let scenario = Scenario::pc("crash/restart", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(beacons_are_good)
}

/// A guest that never gives its CPU back is stopped and restarted by command all the same.
fn spinning() -> Scenario {
    let config =
        with_beacon(guest("victim", "crash", "16MiB", "cmdline = \"how=spin\""), "count=20 limit=250000");
    let steps = vec![
        Step::Expect(0, "@boot crash"),
        Step::Tell(Command::Restart { vm: 0 }),
        Step::Started(0, 2),
        Step::Expect(0, "@boot crash"),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
        Step::Expect(1, "@done beacons="),
    ];
    Scenario::pc("crash/spin", config, steps).counted().judge(beacons_are_good)
}

/// A guest that resets itself again and again finds its memory cleared, and the hypervisor loses none.
fn restart() -> Scenario {
    let config = guest("restart", "restart", "8MiB", "");
    let steps = vec![
        Step::Started(0, RESTARTS + 1),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    Scenario::pc("restart/1000-times", config, steps).limit(600).judge(|record| {
        let counters = |boots| {
            let start = record.starts.iter().find(|start| start.boots == boots)?;
            Some((start.free_memory, start.free_tables))
        };
        // The first start may still build what later ones find.
        let (before, after) = (counters(2), counters(RESTARTS + 1));
        if before.is_none() || before != after {
            return Err(format!("free memory and tables were {before:?}, and {after:?} at the end"));
        }
        let checks = record.console(0).matches("@boot restart zero=yes").count();
        match checks >= RESTARTS as usize {
            true => Ok(()),
            false => Err(format!("only {checks} starts found their memory zeroed")),
        }
    })
}

/// What is typed comes back, also after a restart.
fn echo() -> Scenario {
    let steps = vec![
        Step::Expect(0, "echo> "),
        Step::Type(0, "hello, guest\r"),
        Step::Expect(0, "@echo hello, guest"),
        Step::Type(0, "reset\r"),
        Step::Started(0, 2),
        Step::Expect(0, "@boot echo"),
        Step::Expect(0, "echo> "),
        Step::Type(0, "quit\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::pc("console/echo", guest("echo", "echo", "16MiB", ""), steps)
}
