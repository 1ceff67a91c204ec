// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a guest may rely on (`selftest`, `pressure`), and what it cannot do to others (`hostile`, `crash`, `restart`).

use turnstile::isa::Isa;

use super::flood;
use super::hostile;
use super::programs::{self, no_failures, nothing_strange};
use super::scenario::{Ending, Scenario, Step, guest};
use super::victims::{Victims, beacons_are_good};

/// The architecture of this topic.
const ISA: Isa = Isa::Arm64;
/// The memory of guests that test themselves.
const TESTED: &str = "32MiB";
/// The memory of those that look at their registers.
const FACILITIES: &str = "8MiB";
/// Attacks after which the guest spins or faults for ever.
const FATAL: [&str; 4] = ["jump", "tables-gone", "stage1-off-the-map", "wild-cpus"];
/// What the victims of this architecture have of their own.
const VICTIMS: Victims = Victims {
    isa: ISA,
    memory: "16MiB",
    beside: "16MiB",
    resetting: "6MiB",
    crash: "reset2",
    counts: "",
    report: Some("warm reset"),
    beacons: "count=30 limit=5000",
};

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = selftests();
    scenarios.extend(pressures());
    scenarios.extend([hostile("virt"), hostile("kvmtool")]);
    scenarios.extend(fatal_attacks());
    scenarios.extend([facilities_alone("off"), facilities_alone("owned"), facilities_of_two()]);
    scenarios.extend([facilities_shared("[0]"), facilities_shared("[0, 1]")]);
    scenarios.extend(flood::scenarios(ISA, "8MiB"));
    scenarios.extend([crash_stop(), crash_restart(), spinning(), echo("virt"), echo("kvmtool")]);
    scenarios.extend(restarts());
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
    scenarios.extend([programs::on_demand(ISA, TESTED), programs::restarts_on_demand(ISA, "16MiB")]);
    scenarios.push(programs::restarts_from_pool(ISA, "16MiB", "24MiB"));
    scenarios.extend(["virt", "kvmtool"].map(many_vcpus));
    scenarios
}

/// All of the guest's own tests.
pub fn selftest(machine: &str, vcpus: u32, pmu: &str) -> Scenario {
    let more = format!("vcpus = {vcpus}\nmachine = \"{machine}\"\npmu = \"{pmu}\"");
    programs::selftest(ISA, &format!("{machine}-{vcpus}-pmu-{pmu}"), TESTED, &more)
}

/// Hundreds of interrupts at once, each accounted for, on both interrupt controllers.
fn pressures() -> impl Iterator<Item = Scenario> {
    [(2, "virt", 1), (2, "kvmtool", 4), (3, "virt", 4), (3, "kvmtool", 1)].into_iter().map(
        |(gic, machine, vcpus)| {
            let more = format!("vcpus = {vcpus}\nmachine = \"{machine}\"\ncmdline = \"rounds=4\"");
            let name = format!("gicv{gic}-{machine}-{vcpus}");
            let scenario = programs::pressure(ISA, &name, TESTED, &more);
            let config = format!("[machine]\ngic = {gic}\n{}", scenario.config);
            scenario.with_config(config).counted()
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
    let scenario = Scenario::new(name, guest("selftest", "selftest", TESTED, &more), steps);
    scenario.counted().limit(600).judge(no_failures)
}

/// Nothing of vectors, PMU, debug registers and keys gets lost over exits.
pub fn facilities_alone(pmu: &str) -> Scenario {
    let more = format!("pmu = \"{pmu}\"\nsve = {}", pmu == "owned");
    programs::facilities_alone(ISA, &format!("pmu-{pmu}"), FACILITIES, &more)
}

/// Two VMs with different state, of which one has the PMU and the other one vectors, too.
fn facilities_of_two() -> Scenario {
    let (again, long) = ("pmu = \"owned\"\n", "pmu = \"owned\"\nsve = true\n");
    let mut scenario = programs::facilities_of_two(ISA, FACILITIES, again, long);
    scenario.steps.insert(1, Step::Expect(1, "@boot facilities sve pmu debug"));
    scenario
}

/// The same of VMs that take turns on CPUs, and on two of them move from one to the other.
pub fn facilities_shared(cpus: &str) -> Scenario {
    let vm = |name: &str, more: &str| {
        let shared = format!("vcpus = 1\ncpus = {cpus}\nschedule = \"shared\"\n{more}");
        guest(name, "facilities", FACILITIES, &shared)
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

/// All attacks that leave the guest able to go on, with a second VM that must not notice.
pub fn hostile(machine: &str) -> Scenario {
    // On one of the machines memory is mapped on demand, too.
    let mapping = if machine == "kvmtool" { "on-demand" } else { "at-start" };
    let more = format!("vcpus = 2\nmachine = \"{machine}\"\nmapping = \"{mapping}\"\nflash = \"2MiB\"");
    let config = hostile::beside(TESTED, &more, "count=20 limit=250000");
    let scenario = hostile::survived(ISA, format!("hostile/all-{machine}"), config);
    scenario.counted().limit(600).judge(beacons_are_good)
}

/// Attacks after which the guest cannot go on.
pub fn fatal_attacks() -> [Scenario; 4] {
    FATAL.map(|attack| hostile::for_ever(ISA, attack, TESTED, "vcpus = 2\n"))
}

/// A guest that crashes stays down.
pub fn crash_stop() -> Scenario {
    VICTIMS.stop().judge(|record| {
        beacons_are_good(record)?;
        match record.starts.iter().filter(|start| start.vm == 0).count() {
            1 => Ok(()),
            count => Err(format!("the crashed VM started {count} times")),
        }
    })
}

/// A guest that crashes is started again and again.
pub fn crash_restart() -> Scenario {
    VICTIMS.start_again()
}

/// A guest that never gives its CPU back is stopped and restarted by command all the same.
pub fn spinning() -> Scenario {
    VICTIMS.spin()
}

/// A guest that resets itself again and again.
pub fn restarts() -> [Scenario; 2] {
    VICTIMS.resets()
}

/// What is typed comes back, also more than any FIFO holds, at once.
pub fn echo(machine: &str) -> Scenario {
    let config = guest("echo", "echo", "8MiB", &format!("machine = \"{machine}\""));
    programs::echo_at_length(ISA, &format!("console/echo-{machine}"), config)
}
