// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Pauses: what a guest sees of them, what waits meanwhile, and that they cost nobody anything.

use turnstile::isa::Isa;
use turnstile_link::{Command, Outcome, StopReason};

use super::debian::quiet_kernel;
use super::scenario::{Ending, Record, Scenario, Step, guest, linux};
use super::shares::shared;

/// What the hypervisor is told.
const PAUSE: Command = Command::Pause { vm: 0 };
/// See [`PAUSE`].
const RESUME: Command = Command::Resume { vm: 0 };
/// How long the long pause is, in milliseconds.
const LONG: u64 = 700;
/// Pauses of a VM in the usual run, and in the long one.
const ROUNDS: [usize; 2] = [20, 1000];

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios: Vec<Scenario> = Isa::ALL.into_iter().flat_map(of).collect();
    for rounds in ROUNDS {
        let linux = |isa| linux_under_load(isa, rounds);
        scenarios.extend([linux(Isa::Arm64), linux(Isa::X86_64).on_pc(), linux(Isa::Power64).on_power()]);
    }
    scenarios
}

fn of(isa: Isa) -> Vec<Scenario> {
    vec![
        clock(isa, false),
        clock(isa, true),
        input_and_ends(isa),
        beside(isa),
        states(isa, false),
        states(isa, true),
    ]
}

const fn memory(isa: Isa) -> &'static str {
    match isa {
        Isa::Arm64 | Isa::X86_64 => "32MiB",
        Isa::Power64 => "64MiB",
    }
}

/// Lines of a VM that shares a CPU, or of one that does not.
const fn place(sharing: bool) -> &'static str {
    if sharing { "schedule = \"shared\"\ncpus = [0, 1]" } else { "" }
}

/// Pauses of so many milliseconds, with as many between them.
fn pauses(rounds: usize, milliseconds: u64) -> impl Iterator<Item = Step> {
    let round = move |_| {
        [
            Step::Tell(PAUSE),
            Step::Paused(0),
            Step::Wait(milliseconds),
            Step::Tell(RESUME),
            Step::Resumed(0),
            Step::Wait(milliseconds),
        ]
    };
    (0..rounds).flat_map(round)
}

/// A guest whose timer ticks, and which looks how late that is by its clock: the clock stands still, so no tick is late. On POWER
/// the time base goes on: one tick is late, and the others are made up for; enough are left to answer within them. Who pauses twice, or resumes twice, is told.
fn clock(isa: Isa, sharing: bool) -> Scenario {
    let limit = if isa == Isa::Power64 { 0 } else { LONG * 1000 * 2 / 3 };
    let more = format!("{}\ncmdline = \"period=10000 count=200 limit={limit}\"", place(sharing));
    let steps = vec![
        Step::Expect(0, "@beacon 20 "),
        Step::Tell(RESUME),
        Step::Answered(RESUME, Outcome::NotNow),
        Step::Tell(PAUSE),
        Step::Answered(PAUSE, Outcome::Accepted),
        Step::Paused(0),
        Step::Tell(PAUSE),
        Step::Answered(PAUSE, Outcome::NotNow),
        Step::Wait(LONG),
        Step::Tell(RESUME),
        Step::Resumed(0),
        Step::Answered(RESUME, Outcome::Accepted),
        Step::Tell(RESUME),
        Step::Answered(RESUME, Outcome::NotNow),
        Step::Expect(0, "@done beacons=200"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    let name = if sharing { "pause/clock-sharing" } else { "pause/clock" };
    let judge = if isa == Isa::Power64 { clock_went_on } else { clock_stood };
    Scenario::at(isa, name, guest("beacon", "beacon", memory(isa), &more), steps).judge(judge)
}

/// The pause was as long as it was to be.
fn was_paused(record: &Record) -> Result<(), String> {
    match record.pauses.iter().find_map(|(_, microseconds)| *microseconds) {
        Some(microseconds) if microseconds > LONG * 900 => Ok(()),
        other => Err(format!("the pause was of {other:?} microseconds")),
    }
}

fn clock_stood(record: &Record) -> Result<(), String> {
    was_paused(record)?;
    match record.console(0).contains(" errors=0") {
        true => Ok(()),
        false => Err("the guest noticed the pause".to_owned()),
    }
}

fn clock_went_on(record: &Record) -> Result<(), String> {
    was_paused(record)?;
    let worst: Option<u64> =
        record.console(0).split_once(" worst=").and_then(|(_, rest)| rest.split(' ').next()?.parse().ok());
    match worst {
        Some(worst) if worst > LONG * 900 && record.console(0).contains(" errors=0") => Ok(()),
        worst => Err(format!("the latest tick was {worst:?} microseconds late")),
    }
}

/// What is typed while a VM is paused comes back when it goes on. A paused VM can be stopped, started and restarted, and is not
/// paused then.
fn input_and_ends(isa: Isa) -> Scenario {
    let pause = [Step::Tell(PAUSE), Step::Paused(0)];
    let mut steps = vec![Step::Expect(0, "echo> ")];
    steps.extend_from_slice(&pause);
    steps.extend([
        Step::Type(0, "typed while it was paused\r"),
        Step::Wait(300),
        Step::Tell(RESUME),
        Step::Resumed(0),
        Step::Expect(0, "@echo typed while it was paused"),
    ]);
    steps.extend_from_slice(&pause);
    steps.extend([
        Step::Tell(Command::Restart { vm: 0 }),
        Step::Stopped(0, StopReason::Reset),
        Step::Started(0, 2),
        // Not the prompt of the life before.
        Step::Expect(0, "@boot echo"),
        Step::Expect(0, "echo> "),
        Step::Type(0, "not paused\r"),
        Step::Expect(0, "@echo not paused"),
    ]);
    steps.extend_from_slice(&pause);
    steps.extend([Step::Tell(Command::Stop { vm: 0 }), Step::Stopped(0, StopReason::Killed)]);
    Scenario::at(isa, "pause/input-and-ends", guest("echo", "echo", memory(isa), ""), steps)
}

/// Beside a paused VM another one on its CPU gets all of the time. It begins anew when the other one is paused, however long that
/// takes.
fn beside(isa: Isa) -> Scenario {
    // AMD64's clock begins with a life of a VM.
    let base = if isa == Isa::X86_64 { "" } else { "relative " };
    let vm =
        |name, time: &str| shared(name, "share", memory(isa), "[0]", &format!("cmdline = \"{base}{time}\""));
    let config = vm("paused", "from=0 until=4000000000") + &vm("beside", "from=100000 until=400000");
    let steps = vec![
        Step::Started(0, 1),
        Step::Started(1, 1),
        Step::Tell(PAUSE),
        Step::Paused(0),
        Step::Tell(Command::Restart { vm: 1 }),
        Step::Started(1, 2),
        Step::Stopped(1, StopReason::PowerOff),
    ];
    Scenario::at(isa, "pause/beside", config, steps).counted().ending(Ending::Poweroff).judge(|record| {
        let ran = record
            .console(1)
            .rsplit_once(" ran=")
            .and_then(|(_, ran)| ran.lines().next()?.trim().parse().ok());
        match ran {
            Some(270_000u64..) => Ok(()),
            ran => Err(format!("of 300000 microseconds it got {ran:?}")),
        }
    })
}

/// vCPUs that are paused wherever they are: running, waiting, off, in accesses to devices, in requests to each other. Without the tests
/// of what a vCPU has for itself.
fn states(isa: Isa, sharing: bool) -> Scenario {
    let tests = match isa {
        // What a PC's clocks do in real time depends on who else runs.
        Isa::X86_64 if sharing => "test=cpus,kvm,pveoi",
        Isa::X86_64 => "test=timer,ioapic,pit,rtc,com1,acpi,nmi,cpus",
        Isa::Arm64 => "test=psci,timer,gic,uart,rtc",
        Isa::Power64 => "test=vpa,timers,interrupts,xive,cpus",
    };
    let more = format!("vcpus = 4\n{}\ncmdline = \"{tests}\"", place(sharing));
    let config = guest("selftest", "selftest", memory(isa), &more);
    let mut steps = vec![Step::Expect(0, "@boot selftest")];
    // POWER's tests take as long as the computer does for them: so many pauses come before they end.
    let rounds = if isa == Isa::Power64 { 8 } else { ROUNDS[0] };
    steps.extend(pauses(rounds, 20));
    steps.push(Step::Expect(0, "@done passed="));
    let name = if sharing { "pause/states-sharing" } else { "pause/states" };
    let scenario = Scenario::at(isa, name, config, steps).limit(300).judge(super::programs::no_failures);
    // On POWER the time goes on over a pause, and counted time leaps where no CPU has anything to do.
    if isa == Isa::Power64 { scenario } else { scenario.counted() }
}

/// A kernel that does a lot on all its CPUs goes on after each pause, and complains of nothing.
fn linux_under_load(isa: Isa, rounds: usize) -> Scenario {
    let tests = "turnstile.run=hotplug,timer,ipi-stress,memory";
    let config = format!("[machine]\nisa = \"{isa}\"\n") + &linux("linux", 4, tests, "");
    let mut steps = vec![Step::Expect(0, "turnstile: shell ready")];
    steps.extend(pauses(rounds, 50));
    steps.extend([
        Step::Expect(0, "turnstile: memory ok"),
        Step::Type(0, "echo alive-$((1+1)); poweroff -f\r"),
        Step::Expect(0, "alive-2"),
        Step::Stopped(0, StopReason::PowerOff),
    ]);
    let name = if rounds == ROUNDS[0] { "pause/linux" } else { "pause/linux-long" };
    let scenario = Scenario::new(name, config, steps).limit(300 + rounds as u64).judge(quiet_kernel);
    if rounds == ROUNDS[0] { scenario } else { scenario.long() }
}
