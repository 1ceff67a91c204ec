// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An hour of virtual time, and in the usual run five minutes, in which no interrupt is lost and none comes twice: the guest
//! `checker`.

use turnstile_link::StopReason;

use super::scenario::{Record, Scenario, Step, guest};

/// For how long interrupts are sent: in virtual seconds, under this name.
#[derive(Clone, Copy)]
struct Length {
    name: &'static str,
    seconds: u64,
}

/// That of the usual run.
const MINUTES: Length = Length { name: "minutes", seconds: 300 };
/// That of the long one.
const HOUR: Length = Length { name: "hour", seconds: 3600 };
/// So many times a second a timer of a vCPU rings, and the vCPU sends to each.
const RATE: u64 = 4;

/// Microseconds that an interrupt may be under way, when a CPU that others use sleeps most of the time.
const SLOWEST: u64 = 1000;
/// The same on POWER, where QEMU's counted time sometimes leaps while a CPU is about to stop with an interrupt pending: to its
/// next timer, which is at most the end of a CPU's turn away, 100 ms; and where who is to run beside one that masks its
/// interrupts waits for a slice. An interrupt that woke nobody would take until the next round, 250 ms.
const SLOWEST_ON_POWER: u64 = 120_000;
/// How many interrupts of a VM may be later than a millisecond there in an hour: four have been seen, of 288,000.
const LATE_ON_POWER: u64 = 20;
/// The same in a shorter time, into which all leaps of an hour may fall.
const LATE_AT_LEAST: u64 = 4;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let hour = HOUR.scenarios().into_iter().map(Scenario::long);
    MINUTES.scenarios().into_iter().chain(hour).collect()
}

impl Length {
    fn scenarios(self) -> [Scenario; 8] {
        [
            self.pinned(),
            self.shared(),
            on_gicv2(self.pinned()),
            on_gicv2(self.shared()),
            self.pinned().on_pc(),
            self.shared().on_pc(),
            self.pinned().on_power().judge(nothing_lost_on_power),
            self.shared().on_power().judge(nothing_lost_on_power),
        ]
    }

    /// Four vCPUs, each with its CPU.
    fn pinned(self) -> Scenario {
        let config = guest("checker", "checker", "16MiB", &format!("vcpus = 4\n{}", self.cmdline()));
        let steps = vec![Step::Expect(0, "@done seconds="), Step::Stopped(0, StopReason::PowerOff)];
        let scenario = Scenario::new(format!("{}/pinned", self.name), config, steps);
        scenario.counted().limit(400).judge(nothing_lost)
    }

    /// The same four on two CPUs, with another VM's beside them.
    fn shared(self) -> Scenario {
        let vm = |name, vcpus| {
            let more = format!("vcpus = {vcpus}\nschedule = \"shared\"\ncpus = [0, 1]\n{}", self.cmdline());
            guest(name, "checker", "16MiB", &more)
        };
        let config = vm("checker", 4) + &vm("beside", 2);
        let scenario = Scenario::new(format!("{}/shared", self.name), config, Vec::new());
        scenario.counted().limit(600).judge(nothing_lost)
    }

    fn cmdline(self) -> String {
        format!("cmdline = \"seconds={}\"", self.seconds)
    }
}

fn on_gicv2(scenario: Scenario) -> Scenario {
    let config = format!("[machine]\ngic = 2\n\n{}", scenario.config);
    let (folder, name) = scenario.name.rsplit_once('/').unwrap_or_default();
    Scenario { name: format!("{folder}/gicv2-{name}"), config, ..scenario }
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
    /// No more than so many are late in an hour, where the guest counts those.
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
        let seconds = number("seconds").unwrap_or(HOUR.seconds);
        // A CPU of arm64 has two timers, the APIC of a PC has one, and so has a CPU of POWER.
        let rounds = seconds * RATE * if number("sgis").is_some() { 2 } else { 1 };
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
        if let Some(of_an_hour) = bounds.late {
            let most = (of_an_hour * seconds / HOUR.seconds).max(LATE_AT_LEAST);
            if number("late").is_none_or(|late| late > most) {
                return Err(format!("more than {most} interrupts were late: {line}"));
            }
        }
    }
    Ok(())
}
