// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Services: consoles that they serve, doorbells and the memory of guests, kills, and one that does whatever it must not do.

use turnstile::isa::Isa;
use turnstile::top::reading::VmReading;
use turnstile_exitstat::Reason;
use turnstile_link::{Command, StopReason};

use super::scenario::{Record, Scenario, Step, guest, linux};
use super::shares::shared;
use super::{mitigations, programs};

/// The console of the VM of this name is a service. An emulator that others keep from running is not to be taken for a service
/// that loops.
fn console(vm: &str) -> String {
    format!("[[service]]\nname = \"console\"\nprogram = \"uart\"\nvm = \"{vm}\"\ntime-limit = \"1s\"\n")
}

/// Those of all architectures.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Isa::ALL.into_iter().flat_map(of).collect();
    let config = guest("echo", "echo", "16MiB", "machine = \"kvmtool\"") + &console("echo");
    scenarios.push(programs::echo_at_length(Isa::Arm64, "services/echo-kvmtool", config));
    scenarios.push(linux_with_console());
    scenarios.push(linux_with_console().on_pc());
    scenarios.push(linux_with_console().on_power());
    scenarios.extend(on_pcs());
    scenarios.extend([window("doorbell"), window("misbehave")]);
    scenarios.extend(own_cpus(Isa::Arm64));
    scenarios.extend([Isa::X86_64, Isa::Power64].into_iter().flat_map(own_cpus).map(Scenario::long));
    scenarios
}

fn of(isa: Isa) -> [Scenario; 7] {
    let echo = || guest("echo", "echo", memory(isa), "") + &console("echo");
    [
        programs::echo_at_length(isa, "services/echo", echo()),
        killed(isa, "services/killed", echo()),
        works(isa, "services/doorbell", WORKS, ""),
        works(isa, "services/doorbell-long", MANY_WORKS, "").long(),
        counted(isa, &echo()),
        misbehaves(isa, "services/misbehave", "", ""),
        misbehaves(isa, "services/misbehave-sharing", "cpus = [0]\nschedule = \"shared\"", "").long(),
    ]
}

const fn memory(isa: Isa) -> &'static str {
    match isa {
        Isa::Arm64 | Isa::X86_64 => "16MiB",
        Isa::Power64 => "64MiB",
    }
}

/// How often a console is killed.
const KILLS: usize = 200;

/// A console that is killed again and again, before something is typed and while it is: each line comes back, though a kill may cost
/// it a character (`CAVEATS.md`), and what is typed after the last kill comes back as it is.
fn killed(isa: Isa, name: &str, config: String) -> Scenario {
    let mut steps = vec![Step::Expect(0, "echo> ")];
    for _ in 0..KILLS / 2 {
        steps.extend([
            Step::Tell(Command::KillService { service: 0 }),
            Step::Type(0, "the quick brown fox jumps over the lazy dog\r"),
            Step::Tell(Command::KillService { service: 0 }),
            Step::Expect(0, "@echo "),
            Step::Expect(0, "echo> "),
        ]);
    }
    steps.extend([
        Step::Type(0, "none of this is lost\r"),
        Step::Expect(0, "@echo none of this is lost"),
        Step::Expect(0, "echo> "),
    ]);
    steps.extend([Step::Type(0, "quit\r"), Step::Stopped(0, StopReason::PowerOff)]);
    Scenario::at(isa, name, config, steps).limit(240).judge(|record| {
        match record.text.contains("service console was killed") {
            true => Ok(()),
            false => Err("no kill was reported".to_owned()),
        }
    })
}

/// What services handle is a reason of its own, and is counted for each: a console that is killed once, and doorbells.
fn counted(isa: Isa, echo: &str) -> Scenario {
    let config = echo.replace("[[service]]", "statistics = true\n[[service]]")
        + &guest("bell", "ringer", memory(isa), "statistics = true")
        + BELL;
    let steps = vec![
        Step::Expect(0, "echo> "),
        Step::Expect(1, "@work "),
        Step::Tell(Command::KillService { service: 0 }),
        // It finds out when it has something to do.
        Step::Type(0, "counted\r"),
        Step::Text("service console was killed"),
        Step::Expect(0, "echo> "),
        Step::Expect(1, "@work "),
        Step::Read,
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
        Step::Tell(Command::Stop { vm: 1 }),
        Step::Stopped(1, StopReason::Killed),
    ];
    Scenario::at(isa, "services/statistics", config, steps).limit(240).judge(|record| {
        let [echo, bell] = record.readings.first().map_or(&[][..], |reading| &reading.vms) else {
            return Err("the statistics were not read".to_owned());
        };
        let ([console], [copies]) = (&echo.services[..], &bell.services[..]) else {
            return Err(format!("the services are {:?} and {:?}", echo.services, bell.services));
        };
        let names = (console.name.as_str(), copies.name.as_str(), console.crashes, copies.crashes);
        if names != ("console", "copies", 1, 0) {
            return Err(format!("the services and their crashes are {names:?}"));
        }
        let events = |vm: &VmReading, reason| vm.exits(reason).count();
        let (accesses, rings) = (events(echo, Reason::Service), events(bell, Reason::Doorbell));
        // What comes from elsewhere may be handled in the exit of an access.
        if accesses == 0 || rings == 0 || console.exits < accesses || copies.exits < rings {
            return Err(format!("{accesses} accesses and {rings} doorbells of {console:?} and {copies:?}"));
        }
        // The time until the answer is within that of the exits.
        let spent = |vm: &VmReading| vm.exits(Reason::Service).total + vm.exits(Reason::Doorbell).total;
        match console.ticks > 0 && copies.ticks > 0 && events(echo, Reason::Doorbell) == 0 {
            true if copies.ticks <= 2 * spent(bell) => Ok(()),
            _ => Err(format!("{} and {} ticks of {console:?} and {copies:?}", spent(echo), spent(bell))),
        }
    })
}

/// A service that copies the memory of the VM `bell` whenever a doorbell rings.
const BELL: &str = "[[service]]\nname = \"copies\"\nprogram = \"doorbell\"\nvm = \"bell\"\ndevice = \"extra\"\nmemory = true\n\
                    time-limit = \"1s\"\n";

/// How often a service that works for its guest is killed, and in the long run.
const WORKS: usize = 200;
const MANY_WORKS: usize = 10_000;
/// How often its VM is started then.
const LIVES: u32 = 3;

/// [`works`] with few kills, under another name.
pub fn works_briefly(isa: Isa, name: &str) -> Scenario {
    works(isa, name, 20, "")
}

/// A service copies memory of its guest whenever a doorbell rings, and is killed meanwhile, again and again: each byte is where it
/// belongs, and none is beside. Then the VM starts anew some times: nothing of the windows is left behind.
fn works(isa: Isa, name: &str, kills: usize, more: &str) -> Scenario {
    let config = guest("bell", "ringer", memory(isa), "") + BELL + more;
    let mut steps = Vec::new();
    for _ in 0..kills {
        steps.extend([Step::Expect(0, "@work "), Step::Tell(Command::KillService { service: 0 })]);
    }
    for life in 2..=LIVES {
        steps.extend([
            Step::Expect(0, "@work "),
            Step::Tell(Command::Restart { vm: 0 }),
            Step::Started(0, life),
            Step::Expect(0, "@work "),
            Step::Tell(Command::KillService { service: 0 }),
            Step::Expect(0, "@work "),
        ]);
    }
    steps.extend([Step::Tell(Command::Stop { vm: 0 }), Step::Stopped(0, StopReason::Killed)]);
    let limit = if kills <= WORKS { 300 } else { 3600 };
    Scenario::at(isa, name, config, steps).limit(limit).judge(worked)
}

fn worked(record: &Record) -> Result<(), String> {
    if record.console(0).contains("@error") {
        return Err("the guest found what it must not".to_owned());
    }
    if !record.text.contains("service copies was killed") {
        return Err("no kill was reported".to_owned());
    }
    let free: Vec<_> = record.starts.iter().map(|start| (start.free_memory, start.free_tables)).collect();
    match free.get(1..).is_some_and(|later| later.windows(2).all(|pair| pair[0] == pair[1])) {
        true => Ok(()),
        false => Err(format!("free memory and tables at the starts were {free:?}")),
    }
}

/// The service has a CPU of its own, behind those of the VMs.
const OWN_CPU: &str = "cpus = [3]\n";

/// Services that have CPUs of their own: killed while they work, over restarts; killed as a console, which answers accesses; one that does
/// whatever it must not do, also for longer than it may; one whose VM is paused; one whose VM shares its CPU with a real-time one.
fn own_cpus(isa: Isa) -> [Scenario; 5] {
    let echo = guest("echo", "echo", memory(isa), "") + &console("echo") + OWN_CPU;
    [
        on_own_cpu(isa, "services/own-cpu"),
        killed(isa, "services/own-cpu-console", echo),
        misbehaves(isa, "services/own-cpu-misbehave", "", OWN_CPU),
        paused(isa),
        realtime(isa),
    ]
}

/// [`works`] with few kills, on a CPU of its own.
pub fn on_own_cpu(isa: Isa, name: &str) -> Scenario {
    works(isa, name, 20, OWN_CPU)
}

/// A real-time vCPU wakes on time beside one that rings for its service, which has a CPU of its own, again and again.
fn realtime(isa: Isa) -> Scenario {
    let config = shared("bell", "ringer", memory(isa), "[0]", "")
        + BELL
        + OWN_CPU
        + "beside-realtime = true\n"
        + &shared("beacon", "beacon", memory(isa), "[0]", "realtime = 1\ncmdline = \"count=15 limit=200\"");
    let steps = vec![
        Step::Expect(1, "@done beacons="),
        Step::Stopped(1, StopReason::PowerOff),
        Step::Expect(0, "@work "),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ];
    let scenario = Scenario::at(isa, "services/own-cpu-realtime", config, steps).counted().limit(300);
    scenario.judge(|record| match record.console(1).contains(" errors=0") {
        true if !record.console(0).contains("@error") => Ok(()),
        true => Err("the guest found what it must not".to_owned()),
        false => Err("a timer was late".to_owned()),
    })
}

/// The VM of a service with a CPU of its own is paused and goes on, again and again: it loses nothing.
fn paused(isa: Isa) -> Scenario {
    let config = guest("bell", "ringer", memory(isa), "") + BELL + OWN_CPU;
    let mut steps = Vec::new();
    for _ in 0..10 {
        steps.extend([
            Step::Expect(0, "@work "),
            Step::Tell(Command::Pause { vm: 0 }),
            Step::Paused(0),
            Step::Tell(Command::KillService { service: 0 }),
            Step::Tell(Command::Resume { vm: 0 }),
            Step::Resumed(0),
        ]);
    }
    steps.extend([
        Step::Expect(0, "@work "),
        Step::Tell(Command::Stop { vm: 0 }),
        Step::Stopped(0, StopReason::Killed),
    ]);
    Scenario::at(isa, "services/own-cpu-paused", config, steps).limit(300).judge(worked)
}

/// A service does whatever it must not do. The VM that it serves goes on, the other one notices nothing.
fn misbehaves(isa: Isa, name: &str, more: &str, own: &str) -> Scenario {
    let config = guest("served", "service", memory(isa), more)
        + "[[service]]\nname = \"bad\"\nprogram = \"misbehave\"\nvm = \"served\"\ndevice = \"extra\"\n"
        + own
        + &guest("other", "facilities", memory(isa), &format!("{more}\ncmdline = \"rounds=200\""));
    let steps = vec![
        Step::Expect(0, "@done service"),
        Step::Stopped(0, StopReason::PowerOff),
        Step::Expect(1, "@done facilities errors=0"),
    ];
    Scenario::at(isa, name, config, steps).counted().limit(600).judge(harmless)
}

/// A service that misbehaves for three vCPUs at once, on other machines: an older CPU whose local APICs are in memory, one without
/// ACPI's devices, one that needs its ways into services guarded.
fn on_pcs() -> [Scenario; 3] {
    let config = |board: &str, cpu: &str| {
        format!("[machine]\nboard = \"{board}\"\ncpu = \"{cpu}\"\ncpus = 3\n\n")
            + &guest("served", "service", "16MiB", "vcpus = 3")
            + "[[service]]\nname = \"bad\"\nprogram = \"misbehave\"\nvm = \"served\"\ndevice = \"extra\"\n"
    };
    let steps = || {
        vec![
            Step::Expect(0, "@done service"),
            Step::Expect(0, "ended=true"),
            Step::Stopped(0, StopReason::PowerOff),
        ]
    };
    let on = |name: &str, config, steps| {
        Scenario::at(Isa::X86_64, format!("services/{name}"), config, steps)
            .counted()
            .limit(300)
            .judge(harmless)
    };
    let guarded = [vec![Step::Text(mitigations::ZEN2)], steps()].concat();
    [
        on("pc-xapic", config("pc", "EPYC"), steps()).prepare(|boot, _| {
            boot.cpu.push_str(",-x2apic");
            Ok(())
        }),
        on("microvm", config("microvm", "EPYC"), steps()),
        on("guarded", config("q35", "max"), guarded)
            .prepare(|boot, _| mitigations::like(boot, mitigations::SWITCHING)),
    ]
}

/// A service that reaches the memory of the VM that it serves: that it does its work there, and reaches nothing else. The VM has a second
/// life, in which all is as in the first; another one keeps the machine on.
fn window(program: &str) -> Scenario {
    let config = guest("served", "window", "16MiB", &format!("cmdline = \"service={program}\""))
        + &format!(
            "[[service]]\nname = \"device\"\nprogram = \"{program}\"\nvm = \"served\"\ndevice = \"extra\"\nmemory = true\n"
        )
        + &guest("other", "echo", "16MiB", "");
    let done = "@done window failed=0";
    let steps = vec![
        Step::Expect(0, done),
        Step::Stopped(0, StopReason::PowerOff),
        Step::Tell(Command::Restart { vm: 0 }),
        Step::Expect(0, done),
        Step::Stopped(0, StopReason::PowerOff),
        Step::Type(1, "quit\r"),
        Step::Stopped(1, StopReason::PowerOff),
    ];
    let name = format!("services/window-{program}");
    Scenario::at(Isa::X86_64, name, config, steps).counted().limit(120).judge(programs::no_failures)
}

fn harmless(record: &Record) -> Result<(), String> {
    programs::no_failures(record)?;
    if record.consoles.iter().any(|console| console.contains("@error")) {
        return Err("a VM found what it must not".to_owned());
    }
    let said = [
        "bad did what it must not do",
        "bad took longer than it may",
        "bad gave up",
        "service bad: panicked at",
    ];
    match said.into_iter().find(|text| !record.text.contains(text)) {
        None => Ok(()),
        Some(text) => Err(format!("the log does not say \"{text}\"")),
    }
}

/// Linux with a console that a service serves, to a shell that does what is typed.
fn linux_with_console() -> Scenario {
    let config = linux("linux", 1, "quiet", "") + &console("linux");
    let steps = vec![
        Step::Expect(0, "turnstile: shell ready"),
        Step::Expect(0, "# "),
        Step::Type(0, "echo sum-$((6*7))\r"),
        Step::Expect(0, "sum-42"),
        Step::Type(0, "poweroff -f\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::new("services/linux", config, steps).limit(300)
}
