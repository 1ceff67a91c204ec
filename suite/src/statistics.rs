// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The statistics count what the guest `exits` does: exactly that, in the VMs that keep them.

use turnstile::top::reading::{Reading, VmReading};
use turnstile_exitstat::{Exits, Reason};
use turnstile_link::Command;

use super::scenario::{Ending, Record, Scenario, Step, guest};

const KEPT: &str = "statistics = true\n";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    vec![exact(), restart(), several_vcpus(), partitions_exact(), partition_restart(), partition_vcpus()]
}

fn exits(name: &str, options: &str, more: &str) -> String {
    guest(name, "exits", "8MiB", &format!("cmdline = \"{options}\"\n{more}"))
}

fn check(what: &str, found: u64, expected: u64) -> Result<(), String> {
    match found == expected {
        true => Ok(()),
        false => Err(format!("{what}: {found} exits were counted, not {expected}")),
    }
}

fn vm(record: &Record, reading: usize, vm: usize) -> Result<&VmReading, String> {
    let reading: Option<&Reading> = record.readings.get(reading);
    reading.and_then(|reading| reading.vms.get(vm)).ok_or_else(|| format!("VM {vm} was not read"))
}

/// Two VMs whose guests differ in the numbers alone, so that the counts differ by these, and one VM without statistics.
pub fn exact() -> Scenario {
    let few = "hypercalls=100 calls=010 registers=200 reads=300 timers=2 suspends=1";
    let many = "hypercalls=700 calls=050 registers=900 reads=500 timers=5 suspends=3";
    let config = exits("few", few, KEPT) + &exits("many", many, KEPT) + &exits("quiet", few, "");
    let mut steps: Vec<Step> = (0..3).map(|vm| Step::Expect(vm, "@done exits\r\n")).collect();
    steps.push(Step::ReadAtRest);
    let scenario = Scenario::new("statistics/exact", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(|record| {
        let (few, many, quiet) = (vm(record, 0, 0)?, vm(record, 0, 1)?, vm(record, 0, 2)?);
        if !few.statistics || quiet.statistics || !quiet.vcpus.is_empty() {
            return Err("the wrong VMs keep statistics".to_owned());
        }
        let differences = [
            (Reason::Hypercall, 600 + 2),
            (Reason::FirmwareCall, 40),
            (Reason::SystemRegister, 700),
            (Reason::DataAbort, 200),
            (Reason::TimerInterrupt, 3),
            (Reason::Start, 0),
            (Reason::InstructionAbort, 0),
            (Reason::MachineError, 0),
            (Reason::Other, 0),
        ];
        for (reason, expected) in differences {
            check(reason.name(), many.exits(reason).since(&few.exits(reason)).count(), expected)?;
        }
        check("start", few.exits(Reason::Start).count(), 1)?;
        check("hypercall", few.exits(Reason::Hypercall).count(), 101)?;
        check("firmware-call", few.exits(Reason::FirmwareCall).count(), 10)?;
        costs(few)
    })
}

/// Counted time is exact: what costs the same each time is in one bucket, and waiting costs nothing.
fn costs(vm: &VmReading) -> Result<(), String> {
    let within = |what: &str, exits: &Exits, most: f64| match exits.percentile(100.0) {
        Some(cost) if cost <= most => Ok(()),
        cost => Err(format!("{what} cost up to {cost:?} instructions, not {most}")),
    };
    let calls = vm.exits(Reason::Hypercall);
    let light = calls.buckets.iter().copied().max().unwrap_or_default();
    check("hypercalls in one bucket", light, 100)?;
    // The one that waits for 20 ms, which are 20 million instructions.
    within("hypercalls", &calls, 20_000.0)?;
    within("reads of an ID register", &vm.exits(Reason::SystemRegister), 10_000.0)
}

/// A VM that starts again begins anew.
fn restart() -> Scenario {
    let config = exits("one", "hypercalls=100", KEPT);
    let steps = vec![
        Step::Expect(0, "@done exits\r\n"),
        Step::ReadAtRest,
        Step::Tell(Command::Restart { vm: 0 }),
        Step::Started(0, 2),
        Step::Expect(0, "@done exits\r\n"),
        Step::ReadAtRest,
    ];
    let scenario = Scenario::new("statistics/restart", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(|record| {
        let (first, second) = (vm(record, 0, 0)?, vm(record, 1, 0)?);
        if (first.boots, second.boots) != (1, 2) {
            return Err(format!("the lives are {} and {}", first.boots, second.boots));
        }
        for reason in [Reason::Hypercall, Reason::Start, Reason::DataAbort, Reason::SystemRegister] {
            check(reason.name(), second.exits(reason).count(), first.exits(reason).count())?;
        }
        let calls = second.exits(Reason::Hypercall);
        check("hypercall", calls.count(), 100)?;
        // A light exit costs the same each time, and no more than it is allowed to cost without statistics.
        match (calls.total % 100, calls.total / 100) {
            (0, 1..=60) => Ok(()),
            _ => Err(format!("100 hypercalls cost {} instructions", calls.total)),
        }
    })
}

/// vCPUs that are turned on and off, and interrupt each other, all with the timed vectors.
fn several_vcpus() -> Scenario {
    let more = format!("vcpus = 4\n{KEPT}");
    let config = guest("selftest", "selftest", "32MiB", &more) + &exits("other", "hypercalls=100", KEPT);
    let steps = vec![
        Step::Expect(1, "@done exits\r\n"),
        Step::Expect(0, "@done passed="),
        Step::Stopped(0, turnstile_link::StopReason::PowerOff),
        Step::Read,
    ];
    let scenario = Scenario::new("statistics/selftest-4", config, steps);
    scenario.counted().ending(Ending::Poweroff).judge(|record| {
        if !record.console(0).contains(" failed=0") {
            return Err("the guest did not report failed=0".to_owned());
        }
        let vm = vm(record, 0, 0)?;
        check("vCPUs", vm.vcpus.len() as u64, 4)?;
        // The last hypercall turned the machine off: it is in the figures of the life that it ended.
        let quiet = [Reason::Hypercall, Reason::Kick, Reason::TimerInterrupt, Reason::Start];
        match quiet.into_iter().find(|&reason| vm.exits(reason).count() < 4) {
            None => Ok(()),
            Some(reason) => Err(format!("{}: too few exits were counted", reason.name())),
        }
    })
}

/// The same as [`exact`] of partitions: calls that are answered at once, that are unknown, that wait; stores to a device.
fn partitions_exact() -> Scenario {
    let few = "uart=0x10000000000 hypercalls=100 unknown=10 prods=50 stores=300 timers=2";
    let many = "uart=0x10000000000 hypercalls=700 unknown=50 prods=90 stores=500 timers=5";
    let config = exits("few", few, KEPT) + &exits("many", many, KEPT) + &exits("quiet", few, "");
    let mut steps: Vec<Step> = (0..3).map(|vm| Step::Expect(vm, "@done exits")).collect();
    steps.push(Step::ReadAtRest);
    let scenario = Scenario::power("statistics/exact", config.replace("8MiB", "16MiB"), steps);
    scenario.counted().ending(Ending::Poweroff).judge(|record| {
        let (few, many, quiet) = (vm(record, 0, 0)?, vm(record, 0, 1)?, vm(record, 0, 2)?);
        if !few.statistics || quiet.statistics || !quiet.vcpus.is_empty() {
            return Err("the wrong VMs keep statistics".to_owned());
        }
        let differences = [
            // H_PROD and H_CEDE are two; who waits for the decrementer says so by H_CEDE.
            (Reason::Hypercall, 600 + 40 + 2 * 40 + 3),
            (Reason::DataAbort, 200),
            (Reason::InstructionAbort, 0),
            (Reason::SystemRegister, 0),
            (Reason::Exception, 0),
            (Reason::Start, 0),
            (Reason::MachineError, 0),
            (Reason::Other, 0),
        ];
        for (reason, expected) in differences {
            check(reason.name(), many.exits(reason).since(&few.exits(reason)).count(), expected)?;
        }
        check("start", few.exits(Reason::Start).count(), 1)?;
        check("data-abort", few.exits(Reason::DataAbort).count(), 300)
    })
}

/// A partition that starts again begins anew.
fn partition_restart() -> Scenario {
    let scenario = restart();
    Scenario { judge: None, ..scenario.on_power() }.judge(|record| {
        let (first, second) = (vm(record, 0, 0)?, vm(record, 1, 0)?);
        if (first.boots, second.boots) != (1, 2) {
            return Err(format!("the lives are {} and {}", first.boots, second.boots));
        }
        for reason in [Reason::Hypercall, Reason::Start, Reason::DataAbort, Reason::SystemRegister] {
            check(reason.name(), second.exits(reason).count(), first.exits(reason).count())?;
        }
        Ok(())
    })
}

/// vCPUs of a partition that are turned on and off, and interrupt each other, all with the timed entries.
fn partition_vcpus() -> Scenario {
    Scenario { judge: None, ..several_vcpus().on_power() }.judge(|record| {
        if !record.console(0).contains(" failed=0") {
            return Err("the guest did not report failed=0".to_owned());
        }
        let vm = vm(record, 0, 0)?;
        check("vCPUs", vm.vcpus.len() as u64, 4)?;
        // Its timers are the guest's own affair, and so are most of its interrupts.
        match [Reason::Hypercall, Reason::Start].into_iter().find(|&reason| vm.exits(reason).count() < 4) {
            None => Ok(()),
            Some(reason) => Err(format!("{}: too few exits were counted", reason.name())),
        }
    })
}
