// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An hour of virtual time, in which no interrupt is lost and none comes twice: the guest `checker`.

use turnstile_link::StopReason;

use super::scenario::{Record, Scenario, Step, guest};

const CMDLINE: &str = "cmdline = \"seconds=3600\"";
/// Four times a second a timer of a vCPU rings, and the vCPU sends to each.
const ROUNDS: u64 = 3600 * 4;

/// Microseconds that an interrupt may be under way, when a CPU that others use sleeps most of the time.
const SLOWEST: u64 = 1000;
/// The same on POWER, where QEMU's counted time sometimes leaps while a CPU is about to stop with an interrupt pending: to its
/// next timer, which is at most the end of a CPU's turn away, 100 ms; and where who is to run beside one that masks its
/// interrupts waits for a slice. An interrupt that woke nobody would take until the next round, 250 ms.
const SLOWEST_ON_POWER: u64 = 120_000;
/// How many interrupts of a VM may be later than a millisecond there: four have been seen, of 288,000.
const LATE_ON_POWER: u64 = 20;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        pinned(),
        shared(),
        on_gicv2("pinned", pinned()),
        on_gicv2("shared", shared()),
        pinned().on_pc(),
        shared().on_pc(),
        pinned().on_power().judge(nothing_lost_on_power),
        shared().on_power().judge(nothing_lost_on_power),
    ]
}

/// Four vCPUs, each with its CPU.
fn pinned() -> Scenario {
    let config = guest("checker", "checker", "16MiB", &format!("vcpus = 4\n{CMDLINE}"));
    let steps = vec![Step::Expect(0, "@done seconds=3600"), Step::Stopped(0, StopReason::PowerOff)];
    Scenario::new("hour/pinned", config, steps).counted().limit(400).judge(nothing_lost)
}

/// The same four on two CPUs, with another VM's beside them.
fn shared() -> Scenario {
    let vm = |name, vcpus| {
        let more = format!("vcpus = {vcpus}\nschedule = \"shared\"\ncpus = [0, 1]\n{CMDLINE}");
        guest(name, "checker", "16MiB", &more)
    };
    let config = vm("checker", 4) + &vm("beside", 2);
    Scenario::new("hour/shared", config, Vec::new()).counted().limit(600).judge(nothing_lost)
}

fn on_gicv2(name: &str, scenario: Scenario) -> Scenario {
    let config = format!("[machine]\ngic = 2\n\n{}", scenario.config);
    Scenario { name: format!("arm64/hour/gicv2-{name}"), config, ..scenario }
}

/// Every VM took what it sent, and nobody slept the hour away.
fn nothing_lost(record: &Record) -> Result<(), String> {
    nothing_lost_of(record, &Bounds { percent: 100, slowest: SLOWEST, late: None })
}

/// The same where a receiver has one interrupt under way, from whomever: who finds that sends none.
fn nothing_lost_on_power(record: &Record) -> Result<(), String> {
    nothing_lost_of(record, &Bounds { percent: 90, slowest: SLOWEST_ON_POWER, late: Some(LATE_ON_POWER) })
}

/// What a guest's report must be within.
struct Bounds {
    /// At least so many of a hundred interrupts that could have been sent were.
    percent: u64,
    /// None took longer than so many microseconds.
    slowest: u64,
    /// No more than so many were late, where the guest counts those.
    late: Option<u64>,
}

/// All interrupts were taken once, within the bounds.
fn nothing_lost_of(record: &Record, bounds: &Bounds) -> Result<(), String> {
    for console in &record.consoles {
        let Some(line) = console.lines().find(|line| line.starts_with("@done")) else {
            return Err("a guest did not report".to_owned());
        };
        let number = |name: &str| -> Option<u64> {
            line.split_ascii_whitespace()
                .find_map(|word| word.strip_prefix(name)?.strip_prefix('=')?.parse().ok())
        };
        let (cpus, rings) = (number("cpus"), number("rings"));
        let sgis = number("sgis").or(number("ipis"));
        // A CPU of arm64 has two timers, the APIC of a PC has one, and so has a CPU of POWER.
        let rounds = ROUNDS * if number("sgis").is_some() { 2 } else { 1 };
        let enough = |cpus: u64| {
            // The first and the last rounds may be cut off.
            sgis >= Some(cpus * cpus * (rounds - 8) * bounds.percent / 100)
                && rings >= Some(cpus * (rounds - 8))
        };
        if (number("lost"), number("doubled")) != (Some(0), Some(0)) || !cpus.is_some_and(enough) {
            return Err(format!("not everything was taken once: {line}"));
        }
        if number("slowest").is_none_or(|slowest| slowest > bounds.slowest) {
            return Err(format!("an interrupt took longer than {} microseconds: {line}", bounds.slowest));
        }
        if let Some(most) = bounds.late
            && number("late").is_none_or(|late| late > most)
        {
            return Err(format!("more than {most} interrupts were late: {line}"));
        }
    }
    Ok(())
}
