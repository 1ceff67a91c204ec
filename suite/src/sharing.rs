// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that share physical CPUs: who gets how much, that everybody wakes on time, and that nobody harms the others.

use turnstile::isa::Isa;
use turnstile_exitstat::Event;
use turnstile_link::{Command, StopReason};

use super::debian::quiet_kernel;
use super::hostile::{self, found_nothing};
use super::programs::no_failures;
use super::scenario::{Ending, Scenario, Step, linux};
use super::shares::{
    TIMELESS, all_to_the_first, each_for_itself, equal, half, one_to_three, shared, shares, three_on_two,
};
use super::victims::beacons_are_good;

/// Processor time for Linux, in seconds.
const LIMIT: u64 = 300;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = everywhere();
    scenarios.extend(everywhere().into_iter().map(Scenario::on_pc));
    let priority =
        |judge| shares("priority", &[("1", "[0]", "realtime = 2"), ("1", "[0]", "realtime = 1")], judge);
    scenarios.extend([priority(all_to_the_first), priority(each_for_itself).on_pc()]);
    scenarios.extend([two_selftests(""), two_selftests(TIMELESS).on_pc()]);
    scenarios.extend([beacon_beside_touches(Isa::Arm64), beacon_beside_touches(Isa::X86_64)]);
    scenarios.extend([beacon_beside_writes(), hostile(), hostile_pc(), restart_pc(), flushes_pc()]);
    scenarios.extend([crash_restart("reset2"), triple_fault_restart()]);
    scenarios.extend([silent(Isa::Arm64), silent(Isa::X86_64)]);
    // Linux on a PC does not say that it uses its record.
    scenarios.extend([stolen_time(Some("using stolen time PV")), stolen_time(None).on_pc()]);
    scenarios
}

/// Those that are the same on all architectures.
fn everywhere() -> Vec<Scenario> {
    vec![
        shares("equal", &[("1", "[0]", ""), ("1", "[0]", "")], equal),
        shares("weights", &[("1", "[0]", "weight = 100"), ("1", "[0]", "weight = 300")], one_to_three),
        three_on_two(),
        selftest(8),
        beacon("fair", "", "count=15 limit=8000"),
        beacon("realtime", "realtime = 1", "count=15 limit=200"),
        stop_what_waits(),
        linux_on_few(),
        two_linux(),
    ]
}

/// Interrupts between vCPUs, WFI, CPU_ON and CPU_OFF, with four vCPUs on each CPU.
pub(super) fn selftest(vcpus: u32) -> Scenario {
    let config = shared("selftest", "selftest", "32MiB", "[0, 1]", &format!("vcpus = {vcpus}"));
    let steps = vec![Step::Expect(0, "@done passed=")];
    let scenario = Scenario::new(format!("sharing/selftest-{vcpus}-on-2"), config, steps);
    scenario.counted().limit(600).judge(no_failures)
}

pub(super) fn two_selftests(options: &str) -> Scenario {
    let more = format!("vcpus = 4\ncmdline = \"{options}\"");
    let one = |name| shared(name, "selftest", "32MiB", "[0, 1]", &more);
    let config = one("one") + &one("two");
    Scenario::new("sharing/two-selftests", config, Vec::new()).counted().limit(600).judge(|record| {
        match (0..2).all(|vm| record.console(vm).contains(" failed=0")) {
            true => Ok(()),
            false => Err("a guest did not report failed=0".to_owned()),
        }
    })
}

/// A timer wakes its vCPU on time while another one spins with its interrupts masked.
pub(super) fn beacon(name: &str, class: &str, options: &str) -> Scenario {
    let spinning = "cmdline = \"from=0 until=4000000000\"";
    let config = shared("spin", "share", "16MiB", "[0]", spinning)
        + &shared("beacon", "beacon", "16MiB", "[0]", &format!("{class}\ncmdline = \"{options}\""));
    let steps = vec![Step::Expect(1, "@done beacons="), Step::Stopped(1, StopReason::PowerOff)];
    let scenario = Scenario::new(format!("sharing/beacon-{name}"), config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(|record| {
        match record.console(1).contains(" errors=0") {
            true => Ok(()),
            false => Err("a timer was late".to_owned()),
        }
    })
}

/// The timer of a real-time vCPU wakes it on time beside one that does nothing but write GICD_CTLR, which concerns all vCPUs of
/// its VM: as many as there can be, on the same CPU.
fn beacon_beside_writes() -> Scenario {
    let more = "vcpus = 512\ncmdline = \"attack=gic-control for=300\"";
    let options = "realtime = 1\ncmdline = \"after=100000 count=200 period=2500 limit=200\"";
    let config = shared("hostile", "hostile", "64MiB", "[0]", more)
        + &shared("beacon", "beacon", "16MiB", "[0]", options);
    let scenario = hostile::survived(Isa::Arm64, "sharing/beacon-gic-control", config);
    scenario.counted().limit(300).judge(|record| match record.stops.first() {
        Some((0, _)) => found_nothing(record),
        _ => Err("the writes went on behind the beacons".to_owned()),
    })
}

/// The timer of a real-time vCPU wakes it on time beside one that does nothing but touch memory, which is cleared at each touch: sooner than
/// a whole block is cleared, where that takes longer than its limit.
pub(super) fn beacon_beside_touches(isa: Isa) -> Scenario {
    let program = if isa == Isa::Arm64 { "first-touch" } else { "measure" };
    let more = "mapping = \"on-demand\"\n\
                cmdline = \"row=first-touch order=2097152 iterations=512 warm-up=2\"";
    let options = "realtime = 1\ncmdline = \"after=3000 count=8 period=700 limit=60\"";
    let config = shared("touch", program, "1088MiB", "[0]", more)
        + &shared("beacon", "beacon", "16MiB", "[0]", options);
    let steps = vec![Step::Expect(1, "@done beacons="), Step::Expect(0, "@bench row=first-touch")];
    let scenario = Scenario::at(isa, "sharing/beacon-touches", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(|record| match record.stops.first() {
        Some((1, _)) if record.console(1).contains(" errors=0") => Ok(()),
        Some((1, _)) => Err("a timer was late".to_owned()),
        _ => Err("the touches ended before the beacons".to_owned()),
    })
}

/// All attacks that leave the guest able to go on, on the CPU of a VM that must not notice.
fn hostile() -> Scenario {
    let config = shared("hostile", "hostile", "32MiB", "[0, 1]", "vcpus = 2")
        + &shared("beacon", "beacon", "16MiB", "[0]", "cmdline = \"count=20 limit=250000\"");
    let scenario = hostile::survived(Isa::Arm64, "sharing/hostile", config);
    scenario.counted().limit(600).judge(beacons_are_good)
}

/// All attacks of a PC's guest, one of five of the attempts (`hostile_x86` makes all), while others run on its CPUs. Not
/// counted: see there.
fn hostile_pc() -> Scenario {
    attacked(Isa::X86_64, "32MiB", "stride=5").limit(900)
}

/// Attacks with these options by two vCPUs, and a VM on the CPU of one of them that must not notice.
pub(super) fn attacked(isa: Isa, memory: &str, options: &str) -> Scenario {
    let more = format!("vcpus = 2\ncmdline = \"{options}\"");
    let config = shared("hostile", "hostile", memory, "[0, 1]", &more)
        + &shared("beacon", "beacon", "16MiB", "[0]", "cmdline = \"count=50\"");
    hostile::survived(isa, "sharing/hostile", config).judge(found_nothing)
}

/// A VM resets itself with a record of stolen time switched on, while another one wants its CPU: nothing is written to
/// memory that it does not have any more.
fn restart_pc() -> Scenario {
    let config = shared("restart", "restart", "8MiB", "[0, 1]", "vcpus = 2\ncmdline = \"steal\"")
        + &shared("other", "crash", "16MiB", "[1]", "cmdline = \"how=spin\"");
    restarts(Isa::X86_64, config)
}

/// The first VM resets itself again and again, and finds its memory zeroed.
pub(super) fn restarts(isa: Isa, config: String) -> Scenario {
    const RESTARTS: u32 = 20;
    let steps = vec![Step::Started(0, RESTARTS)];
    Scenario::at(isa, "sharing/restart", config, steps).counted().ending(Ending::Poweroff).judge(|record| {
        match record.console(0).contains("@error") {
            true => Err("memory of a VM that starts was not zero, or its CPUs did not start".to_owned()),
            false => Ok(()),
        }
    })
}

/// Linux leaves flushes of the TLBs of vCPUs that do not run to their next run.
fn flushes_pc() -> Scenario {
    let vm = |name| {
        let more = "schedule = \"shared\"\ncpus = [0, 1]\nstatistics = true";
        linux(name, 4, "console=ttyS0 turnstile.run=ipi-stress", more)
    };
    let mut steps = Vec::new();
    for vm in [0, 1] {
        steps.push(Step::Expect(vm, "KVM setup pv remote TLB flush"));
        steps.push(Step::Expect(vm, "turnstile: ipi-stress ok"));
    }
    steps.push(Step::Read);
    Scenario::pc("sharing/tlb-flush", vm("one") + &vm("two"), steps)
        .limit(2 * LIMIT)
        .ending(Ending::Poweroff)
        .judge(|record| {
            let vms = record.readings.iter().flat_map(|reading| &reading.vms);
            let vcpus = vms.flat_map(|vm| &vm.vcpus);
            let flushes: u64 = vcpus.filter_map(|vcpu| vcpu.events.get(Event::PvTlbFlush.name())).sum();
            if flushes > 0 { Ok(()) } else { Err("no flush was left to a vCPU's next run".to_owned()) }
        })
}

/// A VM crashes and is started again, again and again, on the CPUs of one that goes on.
pub(super) fn crash_restart(how: &str) -> Scenario {
    let crash = format!("vcpus = 2\non-crash = \"restart\"\ncmdline = \"how={how} after=20\"");
    let config = shared("victim", "crash", "16MiB", "[0, 1]", &crash)
        + &shared("beacon", "beacon", "16MiB", "[1]", "cmdline = \"count=50 limit=50000\"");
    let mut steps: Vec<Step> = (1..=5).map(|boots| Step::Started(0, boots)).collect();
    steps.extend([Step::Expect(1, "@done beacons="), Step::Stopped(1, StopReason::PowerOff)]);
    let scenario = Scenario::new("sharing/crash-restart", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(|record| {
        match record.console(1).contains(" errors=0") {
            true => Ok(()),
            false => Err("the VM beside it noticed".to_owned()),
        }
    })
}

/// VMs arm all their timers and then stop, crash, or switch their CPUs off, or on a PC halt where they take no interrupt: nothing of
/// that rings any more. They come first whenever they want the CPU, so the one that works beside them would get little if they did;
/// as it is, it shares with one that arms its timers and resets itself again and again.
pub(super) fn silent(isa: Isa) -> Scenario {
    let (ways, window) = match isa {
        Isa::Arm64 => (&["off", "reset2", "cpu-off"][..], "from=500000 until=800000"),
        Isa::X86_64 => (&["off", "triple-fault", "init", "masked"][..], "from=500000 until=800000"),
        Isa::Power64 => (&["off", "give-up", "cpu-off"][..], "relative from=500000 until=800000"),
    };
    let mut config = shared("worker", "share", "16MiB", "[0]", &format!("cmdline = \"{window}\""));
    let attacker = |name: &str, more: &str| {
        shared(name, "crash", "16MiB", "[0]", &format!("{more}\ncmdline = \"timers how={name}\""))
    };
    config += &attacker("reset", "");
    let stays = if isa == Isa::X86_64 { "\ntriple-fault = \"crash\"" } else { "" };
    config.extend(ways.iter().map(|how| attacker(how, &format!("vcpus = 2\nrealtime = 1{stays}"))));
    let steps = (2..).zip(ways).map(|(vm, _)| Step::Expect(vm, "@crash how="));
    let steps = steps.chain([Step::Expect(0, "@done")]).collect();
    Scenario::at(isa, "sharing/silent-timers", config, steps).counted().ending(Ending::Poweroff).judge(half)
}

/// The same of a PC, where a triple fault is a reset and no crash: it starts again though a crash would be its end.
fn triple_fault_restart() -> Scenario {
    let mut scenario = crash_restart("triple-fault").on_pc();
    scenario.config = scenario.config.replace("on-crash = \"restart\"", "on-crash = \"stop\"");
    scenario.steps.insert(1, Step::Reported("triple fault"));
    scenario.steps.insert(2, Step::Stopped(0, StopReason::Reset));
    scenario
}

/// A VM is stopped whose vCPUs sleep, wait for their turn, and are off; it starts again.
pub(super) fn stop_what_waits() -> Scenario {
    let config = shared("spin", "share", "16MiB", "[0]", "vcpus = 3\ncmdline = \"from=0 until=4000000000\"")
        + &shared("idle", "echo", "16MiB", "[0]", "vcpus = 2");
    let steps = vec![
        Step::Started(0, 1),
        Step::Started(1, 1),
        Step::Expect(1, "@boot echo"),
        Step::Tell(Command::Stop { vm: 1 }),
        Step::Stopped(1, StopReason::Killed),
        Step::Tell(Command::Restart { vm: 1 }),
        Step::Started(1, 2),
        Step::Expect(1, "@boot echo"),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
        Step::Type(1, "x"),
        Step::Expect(1, "x"),
    ];
    Scenario::new("sharing/stop-what-waits", config, steps).ending(Ending::Poweroff)
}

/// Four vCPUs of Linux on two CPUs: to a shell, with timers, IPIs and hotplug.
pub(super) fn linux_on_few() -> Scenario {
    let checks = "quiet turnstile.run=hotplug,timer,ipi-stress,poweroff";
    let config = linux("linux", 4, checks, "schedule = \"shared\"\ncpus = [0, 1]");
    let steps = vec![
        Step::Expect(0, "turnstile: shell ready cpus=4"),
        Step::Expect(0, "turnstile: hotplug ok"),
        Step::Expect(0, "turnstile: timer ok"),
        Step::Expect(0, "turnstile: ipi-stress ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::new("sharing/linux-4-on-2", config, steps).limit(LIMIT).judge(quiet_kernel)
}

/// Two Linux VMs that share their CPUs.
fn two_linux() -> Scenario {
    let checks = "quiet turnstile.run=timer,ipi-stress,poweroff";
    let more = "schedule = \"shared\"\ncpus = [0, 1]";
    let config = linux("one", 2, checks, more) + &linux("two", 2, checks, more);
    let mut steps = Vec::new();
    for vm in [0, 1] {
        steps.push(Step::Expect(vm, "turnstile: timer ok"));
        steps.push(Step::Expect(vm, "turnstile: ipi-stress ok"));
    }
    Scenario::new("sharing/two-linux", config, steps).limit(2 * LIMIT).judge(quiet_kernel)
}

/// Two busy Linux VMs on one CPU: each is told that half of its time is stolen.
pub(super) fn stolen_time(announced: Option<&'static str>) -> Scenario {
    let more = "schedule = \"shared\"\ncpus = [0]";
    let config = linux("one", 1, "", more) + &linux("two", 1, "quiet", more);
    // Both spin; the first looks at what is stolen from it in 200 hundredths of a second. What is echoed is not what is
    // expected.
    let busy = "while :; do :; done &\r";
    let look = "s() { awk '/^cpu /{print $9}' /proc/stat; }; a=$(s); sleep 2; echo st''eal=$(($(s)-a))\r";
    let mut steps: Vec<Step> = announced.map(|line| Step::Expect(0, line)).into_iter().collect();
    steps.extend([
        Step::Expect(0, "# "),
        Step::Expect(1, "# "),
        Step::Type(0, busy),
        Step::Type(1, busy),
        Step::Type(0, look),
        Step::Expect(0, "steal="),
        Step::Expect(0, "# "),
    ]);
    let scenario = Scenario::new("sharing/stolen-time", config, steps).limit(LIMIT);
    scenario.ending(Ending::Poweroff).judge(|record| {
        let said = record
            .console(0)
            .lines()
            .find_map(|line| line.trim().strip_prefix("steal=")?.parse::<u32>().ok());
        match said {
            Some(60..=140) => Ok(()),
            said => Err(format!("stolen are {said:?} of 200 hundredths of a second")),
        }
    })
}
