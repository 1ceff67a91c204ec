// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest may rely on (`selftest`, `pressure`), and what it cannot do to others (`hostile`, `crash`, `restart`).

use turnstile_link::{Command, StopReason};

use super::scenario::{Ending, Record, Scenario, Step, guest};

/// The second VM, which must not notice anything: so many beacons, none later than this many microseconds.
///
/// Time is counted in instructions of all CPUs, of which QEMU runs one at a time: a beacon may wait for another
/// CPU's turn to end, and a guest that spins uses its whole turn (100 ms).
const BEACON: &str = "cmdline = \"count=30 limit=5000\"";
const PATIENT_BEACON: &str = "cmdline = \"count=20 limit=250000\"";
/// A beacon whose time is the host's: it can only be damaged or silent, not late.
const UNTIMED_BEACON: &str = "cmdline = \"count=50\"";
/// Attacks after which the guest spins or faults for ever.
const FATAL: [&str; 4] = ["jump", "tables-gone", "stage1-off-the-map", "wild-cpus"];
/// Restarts of the restart test.
const RESTARTS: u32 = 1000;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = selftests();
    scenarios.extend(pressures());
    scenarios.extend([hostile("virt"), hostile("kvmtool")]);
    scenarios.extend(fatal_attacks());
    scenarios.extend([facilities_alone("off"), facilities_alone("owned"), facilities_of_two()]);
    scenarios.extend([facilities_shared("[0]"), facilities_shared("[0, 1]")]);
    scenarios.extend([crash_stop(), crash_restart(), spinning(), restart(), echo("virt"), echo("kvmtool")]);
    scenarios
}

fn selftests() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for vcpus in [1, 4] {
        for machine in ["virt", "kvmtool"] {
            for pmu in ["off", "trapped"] {
                scenarios.push(selftest(machine, vcpus, pmu));
            }
        }
    }
    scenarios.push(selftest("virt", 4, "owned"));
    scenarios.push(on_demand());
    scenarios.extend(["virt", "kvmtool"].map(many_vcpus));
    scenarios
}

/// All of the guest's own tests.
pub fn selftest(machine: &str, vcpus: u32, pmu: &str) -> Scenario {
    let more = format!("vcpus = {vcpus}\nmachine = \"{machine}\"\npmu = \"{pmu}\"");
    let steps = vec![Step::Expect(0, "@boot selftest"), Step::Expect(0, "@done passed=")];
    let name = format!("selftest/{machine}-{vcpus}-pmu-{pmu}");
    let scenario = Scenario::new(name, guest("selftest", "selftest", "32MiB", &more), steps);
    scenario.counted().judge(no_failures)
}

/// The same with memory that is mapped when it is first touched, by any of four vCPUs.
fn on_demand() -> Scenario {
    let steps = vec![Step::Expect(0, "@boot selftest"), Step::Expect(0, "@done passed=")];
    let config = guest("selftest", "selftest", "32MiB", "vcpus = 4\nmapping = \"on-demand\"");
    Scenario::new("selftest/on-demand", config, steps).counted().judge(no_failures)
}

/// Hundreds of interrupts at once, each accounted for, on both interrupt controllers.
fn pressures() -> impl Iterator<Item = Scenario> {
    [(2, "virt", 1), (2, "kvmtool", 4), (3, "virt", 4), (3, "kvmtool", 1)].into_iter().map(
        |(gic, machine, vcpus)| {
            let more = format!("vcpus = {vcpus}\nmachine = \"{machine}\"\ncmdline = \"rounds=4\"");
            let config = format!("[machine]\ngic = {gic}\n{}", guest("pressure", "pressure", "32MiB", &more));
            let steps = vec![Step::Expect(0, "@boot pressure"), Step::Expect(0, "@done passed=")];
            let name = format!("pressure/gicv{gic}-{machine}-{vcpus}");
            Scenario::new(name, config, steps).counted().limit(300).judge(no_failures)
        },
    )
}

/// The most vCPUs that a VM may have: all start, and SGIs reach each of them. Affinities need Aff1 here, and on
/// `kvmtool` the redistributors are elsewhere than with few vCPUs.
fn many_vcpus(machine: &str) -> Scenario {
    let tests = "test=psci-cpu-on,psci-affinity-info,gic-sgi-each,gic-sgi-list,gic-sgi-broadcast,gic-route";
    let more = format!("vcpus = 64\nmachine = \"{machine}\"\ncmdline = \"{tests}\"");
    let steps = vec![Step::Expect(0, "64 CPUs"), Step::Expect(0, "@done passed=")];
    let name = format!("selftest/{machine}-64");
    let scenario = Scenario::new(name, guest("selftest", "selftest", "32MiB", &more), steps);
    scenario.counted().limit(600).judge(no_failures)
}

/// The guest's own tests all passed.
pub fn no_failures(record: &Record) -> Result<(), String> {
    match record.console(0).contains(" failed=0") {
        true => Ok(()),
        false => Err("the guest did not report failed=0".to_owned()),
    }
}

/// Nothing of vectors, PMU, debug registers and keys gets lost over exits.
pub fn facilities_alone(pmu: &str) -> Scenario {
    let more = format!("pmu = \"{pmu}\"\nsve = {}", pmu == "owned");
    let steps = vec![Step::Expect(0, "@boot facilities"), Step::Expect(0, "@done facilities errors=0")];
    let config = guest("facilities", "facilities", "8MiB", &more);
    Scenario::new(format!("facilities/pmu-{pmu}"), config, steps).counted()
}

/// Two VMs with different state, one of which starts again and again, never see each other's, nor that of an earlier
/// life.
fn facilities_of_two() -> Scenario {
    let again = "pmu = \"owned\"\ncmdline = \"seed=1 rounds=2 again\"";
    let long = "pmu = \"owned\"\nsve = true\ncmdline = \"seed=2 rounds=60\"";
    let config = guest("again", "facilities", "8MiB", again) + &guest("long", "facilities", "8MiB", long);
    let steps = vec![
        Step::Started(0, 10),
        Step::Expect(1, "@boot facilities sve pmu debug"),
        Step::Expect(1, "@done facilities errors=0"),
    ];
    let scenario = Scenario::new("facilities/two-vms", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(nothing_strange)
}

/// The same of VMs that take turns on CPUs, and on two of them move from one to the other.
pub fn facilities_shared(cpus: &str) -> Scenario {
    let vm = |name: &str, more: &str| {
        let shared = format!("vcpus = 1\ncpus = {cpus}\nschedule = \"shared\"\n{more}");
        guest(name, "facilities", "8MiB", &shared)
    };
    let config = vm("long", "pmu = \"owned\"\nsve = true\ncmdline = \"seed=1 rounds=30\"")
        + &vm("again", "pmu = \"owned\"\ncmdline = \"seed=2 rounds=2 again\"")
        + &vm("short", "pmu = \"trapped\"\nsve = true\ncmdline = \"seed=3 rounds=20\"");
    let steps = vec![
        Step::Started(1, 5),
        Step::Expect(0, "@done facilities errors=0"),
        Step::Expect(2, "@done facilities errors=0"),
    ];
    let count = cpus.split(',').count();
    let scenario = Scenario::new(format!("facilities/sharing-{count}"), config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(nothing_strange)
}

/// No VM found what is not its own.
fn nothing_strange(record: &Record) -> Result<(), String> {
    match record.consoles.iter().any(|console| console.contains("@error")) {
        true => Err("a VM found what is not its own".to_owned()),
        false => Ok(()),
    }
}

fn with_beacon(first: String, options: &str) -> String {
    first + &guest("beacon", "beacon", "16MiB", options)
}

/// The beacons of VM 1 came all and in time.
fn beacons_are_good(record: &Record) -> Result<(), String> {
    match record.console(1).contains("@done beacons=") && record.console(1).contains(" errors=0") {
        true => Ok(()),
        false => Err("the VM beside it noticed".to_owned()),
    }
}

/// All attacks that leave the guest able to go on, with a second VM that must not notice.
pub fn hostile(machine: &str) -> Scenario {
    // On one of the machines memory is mapped on demand, too.
    let mapping = if machine == "kvmtool" { "on-demand" } else { "at-start" };
    let more = format!("vcpus = 2\nmachine = \"{machine}\"\nmapping = \"{mapping}\"");
    let first = guest("hostile", "hostile", "32MiB", &more);
    let steps =
        vec![Step::Expect(0, "@done attacks="), Step::Expect(0, "survived"), Step::Expect(1, "@done")];
    let config = with_beacon(first, PATIENT_BEACON);
    let scenario = Scenario::new(format!("hostile/all-{machine}"), config, steps);
    scenario.counted().limit(600).judge(beacons_are_good)
}

/// Attacks after which the guest cannot go on.
pub fn fatal_attacks() -> [Scenario; 4] {
    FATAL.map(fatal)
}

/// The guest has made itself unable to run: it is stopped by command, as a user would.
///
/// Not counted: a guest whose vectors cannot be fetched takes exceptions without executing an instruction, and
/// counted time stands still for everybody.
fn fatal(attack: &'static str) -> Scenario {
    let more = format!("vcpus = 2\ncmdline = \"attack={attack}\"");
    let steps = vec![
        Step::Expect(1, "@done beacons="),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    let config = with_beacon(guest("hostile", "hostile", "32MiB", &more), UNTIMED_BEACON);
    Scenario::new(format!("hostile/{attack}"), config, steps).judge(beacons_are_good)
}

/// A guest that crashes stays down.
pub fn crash_stop() -> Scenario {
    let more = "on-crash = \"stop\"\ncmdline = \"how=reset2 after=100\"";
    let config = with_beacon(guest("victim", "crash", "8MiB", more), BEACON);
    let steps = vec![
        Step::Expect(0, "@boot crash"),
        Step::Reported("warm reset"),
        Step::Stopped(0, StopReason::Crash),
        Step::Expect(1, "@done beacons="),
    ];
    let scenario = Scenario::new("crash/stop", config, steps);
    scenario.counted().ending(Ending::Done { crashed: 1 }).judge(|record| {
        beacons_are_good(record)?;
        match record.starts.iter().filter(|start| start.vm == 0).count() {
            1 => Ok(()),
            count => Err(format!("the crashed VM started {count} times")),
        }
    })
}

/// A guest that crashes is started again and again.
pub fn crash_restart() -> Scenario {
    let more = "on-crash = \"restart\"\ncmdline = \"how=reset2 after=100\"";
    let config = with_beacon(guest("victim", "crash", "8MiB", more), BEACON);
    let steps = vec![
        Step::Started(0, 3),
        Step::Expect(0, "@boot crash"),
        Step::Expect(0, "@boot crash"),
        Step::Expect(0, "@boot crash"),
        // Its last line is out when it has powered off; the end of the test would cut it.
        Step::Stopped(1, StopReason::PowerOff),
    ];
    let scenario = Scenario::new("crash/restart", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(beacons_are_good)
}

/// A guest that never gives its CPU back is stopped and restarted by command all the same.
pub fn spinning() -> Scenario {
    let config = with_beacon(guest("victim", "crash", "8MiB", "cmdline = \"how=spin\""), PATIENT_BEACON);
    let steps = vec![
        Step::Expect(0, "@boot crash"),
        Step::Tell(Command::Restart { vm: 0 }),
        Step::Started(0, 2),
        Step::Expect(0, "@boot crash"),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
        Step::Expect(1, "@done beacons="),
    ];
    Scenario::new("crash/spin", config, steps).counted().judge(beacons_are_good)
}

/// A guest that resets itself again and again finds its memory cleared, and the hypervisor loses none.
pub fn restart() -> Scenario {
    let config = guest("restart", "restart", "6MiB", "");
    let steps = vec![
        Step::Started(0, RESTARTS + 1),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    Scenario::new("restart/1000-times", config, steps).limit(600).judge(|record| {
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
pub fn echo(machine: &str) -> Scenario {
    let config = guest("echo", "echo", "8MiB", &format!("machine = \"{machine}\""));
    let steps = vec![
        Step::Expect(0, "echo> "),
        Step::Type(0, "hello, guest\r"),
        Step::Expect(0, "@echo hello, guest"),
        // More than any FIFO holds, at once.
        Step::Type(0, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789-abcdefgh\r"),
        Step::Expect(
            0,
            "@echo 0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-0123456789-abcdefgh",
        ),
        Step::Type(0, "reset\r"),
        Step::Started(0, 2),
        Step::Expect(0, "@boot echo"),
        Step::Expect(0, "echo> "),
        Step::Type(0, "quit\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::new(format!("console/echo-{machine}"), config, steps)
}
