// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a partition may rely on (`selftest`, `pressure`), what no other VM notices or leaves behind, and what a hostile one
//! cannot do to others.

use turnstile_link::{Command, StopReason};

use super::guests::no_failures;
use super::guests_x86::{beacons_are_good, with_beacon};
use super::hostile_x86::found_nothing;
use super::scenario::{Ending, Record, Scenario, Step, guest};

/// Restarts of the restart test.
const RESTARTS: u32 = 1000;
/// Attacks after which the guest spins, faults or waits for ever.
const FOR_EVER: [&str; 5] = ["translated-nowhere", "other-order", "timer-storm", "spin", "halt"];
/// Attacks that leave the guest able to go on, in groups that take about as long.
const GROUPS: [(&str, &str); 4] = [
    ("calls", "hypercalls,hypercalls-random,system-calls,rtas,rtas-blocks,areas,areas-moving,process-tables"),
    (
        "registers",
        "specials-read,specials-write,machine-state,modes,invalidations,doorbells,doorbells-core,stop",
    ),
    ("pages", "xive-pages,xive-presentation,xive-calls,xive-storm,memory-outside"),
    ("instructions", "instructions,instructions-device"),
];

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for interrupts in ["xive", "xics"] {
        for vcpus in [1, 4] {
            scenarios.push(selftest(interrupts, vcpus));
            scenarios.push(pressure(interrupts, vcpus));
        }
        scenarios.extend([ten_million(interrupts), load(interrupts)]);
    }
    scenarios.extend([on_demand(), facilities_alone(), facilities_of_two(), facilities_shared()]);
    scenarios.extend([crash_stop(), crash_restart(), spinning(), restart(), echo()]);
    scenarios.extend(GROUPS.map(|(group, attacks)| survived(group, attacks)));
    scenarios.extend(FOR_EVER.map(for_ever));
    scenarios
}

/// All of the guest's own tests.
fn selftest(interrupts: &str, vcpus: u32) -> Scenario {
    let more = format!("vcpus = {vcpus}\ninterrupts = \"{interrupts}\"");
    tested(&format!("selftest/{interrupts}-{vcpus}"), "selftest", &more)
}

/// The same with memory that is mapped when it is first touched, by any of four vCPUs.
fn on_demand() -> Scenario {
    tested("selftest/on-demand", "selftest", "vcpus = 4\nmapping = \"on-demand\"")
}

/// Interrupts between all vCPUs, each accounted for.
fn pressure(interrupts: &str, vcpus: u32) -> Scenario {
    let more = format!("vcpus = {vcpus}\ninterrupts = \"{interrupts}\"\ncmdline = \"count=20000\"");
    tested(&format!("pressure/{interrupts}-{vcpus}"), "pressure", &more)
}

/// A guest that tests itself.
fn tested(name: &str, program: &'static str, more: &str) -> Scenario {
    let boot = if program == "selftest" { "@boot selftest" } else { "@boot pressure" };
    let steps = vec![Step::Expect(0, boot), Step::Expect(0, "@done passed=")];
    let config = guest(program, program, "64MiB", more);
    Scenario::power(name, config, steps).counted().limit(300).judge(no_failures)
}

/// Ten million interrupts, none of which is lost or doubled.
fn ten_million(interrupts: &str) -> Scenario {
    let more = format!("interrupts = \"{interrupts}\"\ncmdline = \"test=pressure-alone count=10000000\"");
    let steps = vec![Step::Expect(0, "@boot pressure"), Step::Expect(0, "@done passed=")];
    let config = guest("pressure", "pressure", "64MiB", &more);
    Scenario::power(format!("pressure/ten-million-{interrupts}"), config, steps).limit(900).judge(no_failures)
}

/// The mixed load for a second of virtual time.
fn load(interrupts: &str) -> Scenario {
    let steps = vec![Step::Expect(0, "@boot load"), Step::Expect(0, "@done load")];
    let config = guest("load", "load", "64MiB", &format!("interrupts = \"{interrupts}\""));
    Scenario::power(format!("load/{interrupts}"), config, steps).counted().limit(200)
}

/// Nothing of the vector registers and the special-purpose ones gets lost over exits, and at first nothing is in them.
fn facilities_alone() -> Scenario {
    let steps = vec![Step::Expect(0, "@boot facilities"), Step::Expect(0, "@done facilities errors=0")];
    Scenario::power("facilities/alone", guest("facilities", "facilities", "64MiB", ""), steps).counted()
}

/// Two VMs with different state, one of which starts again and again, never see each other's, nor that of an earlier
/// life.
fn facilities_of_two() -> Scenario {
    let config = guest("again", "facilities", "64MiB", "cmdline = \"seed=1 rounds=2 again\"")
        + &guest("long", "facilities", "64MiB", "cmdline = \"seed=2 rounds=60\"");
    let steps = vec![Step::Started(0, 10), Step::Expect(1, "@done facilities errors=0")];
    let scenario = Scenario::power("facilities/two-vms", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(nothing_strange)
}

/// The same of VMs that take turns on a CPU.
fn facilities_shared() -> Scenario {
    let vm = |name: &str, options: &str| {
        let more = format!("cpus = [0]\nschedule = \"shared\"\ncmdline = \"{options}\"");
        guest(name, "facilities", "64MiB", &more)
    };
    let config = vm("long", "seed=1 rounds=30") + &vm("again", "seed=2 rounds=2 again");
    let steps = vec![Step::Started(1, 5), Step::Expect(0, "@done facilities errors=0")];
    let scenario = Scenario::power("facilities/sharing", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(nothing_strange)
}

/// No VM found what is not its own.
fn nothing_strange(record: &Record) -> Result<(), String> {
    match record.consoles.iter().any(|console| console.contains("@error")) {
        true => Err("a VM found what is not its own".to_owned()),
        false => Ok(()),
    }
}

/// The victim, beside beacons that must not notice anything.
fn beside(victim: &str, count: &str) -> String {
    with_beacon(guest("victim", "crash", "64MiB", victim), count).replace("16MiB", "64MiB")
}

/// A guest whose operating system gives up stays down.
fn crash_stop() -> Scenario {
    let config = beside("on-crash = \"stop\"\ncmdline = \"how=give-up after=100\"", "count=30 limit=5000");
    let steps = vec![
        Step::Expect(0, "@boot crash"),
        Step::Stopped(0, StopReason::Crash),
        Step::Expect(1, "@done beacons="),
    ];
    let scenario = Scenario::power("crash/stop", config, steps);
    scenario.counted().ending(Ending::Done { crashed: 1 }).judge(beacons_are_good)
}

/// A guest that crashes is started again and again.
fn crash_restart() -> Scenario {
    let config =
        beside("on-crash = \"restart\"\ncmdline = \"how=give-up after=100\"", "count=40 limit=50000");
    let steps = vec![
        Step::Started(0, 3),
        Step::Expect(0, "@boot crash"),
        Step::Expect(0, "@boot crash"),
        Step::Expect(0, "@boot crash"),
        Step::Stopped(1, StopReason::PowerOff),
    ];
    let scenario = Scenario::power("crash/restart", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(beacons_are_good)
}

/// A guest that never gives its CPU back is stopped and restarted by command all the same.
fn spinning() -> Scenario {
    let config = beside("cmdline = \"how=spin\"", "count=20 limit=250000");
    let steps = vec![
        Step::Expect(0, "@boot crash"),
        Step::Tell(Command::Restart { vm: 0 }),
        Step::Started(0, 2),
        Step::Expect(0, "@boot crash"),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
        Step::Expect(1, "@done beacons="),
    ];
    Scenario::power("crash/spin", config, steps).counted().judge(beacons_are_good)
}

/// A guest that resets itself again and again finds its memory cleared, and the hypervisor loses none.
fn restart() -> Scenario {
    let config = guest("restart", "restart", "16MiB", "");
    let steps = vec![
        Step::Started(0, RESTARTS + 1),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    Scenario::power("restart/1000-times", config, steps).limit(600).judge(|record| {
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
    Scenario::power("console/echo", guest("echo", "echo", "16MiB", ""), steps)
}

/// A group of attacks that leave the guest able to go on, with a second VM that must not notice.
///
/// Not counted: garbage on a CPU never pauses, and where CPUs take turns each of the others then waits for a whole turn.
fn survived(group: &str, attacks: &str) -> Scenario {
    let more = format!("vcpus = 2\ncmdline = \"attack={attacks}\"");
    let config = with_beacon(guest("hostile", "hostile", "128MiB", &more), "count=50");
    let steps =
        vec![Step::Expect(0, "@done attacks="), Step::Expect(0, "survived"), Step::Expect(1, "@done")];
    Scenario::power(format!("hostile/{group}"), config, steps).limit(900).judge(found_nothing)
}

/// The guest goes on for ever: it is stopped by command, as a user would.
fn for_ever(attack: &'static str) -> Scenario {
    let more = format!("cmdline = \"attack={attack}\"");
    let config = with_beacon(guest("hostile", "hostile", "128MiB", &more), "count=50");
    let steps = vec![
        Step::Expect(1, "@done beacons="),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    Scenario::power(format!("hostile/{attack}"), config, steps).judge(beacons_are_good)
}
