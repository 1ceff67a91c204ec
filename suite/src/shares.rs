// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What each vCPU gets of the CPUs that it shares.

use turnstile_link::StopReason;

use super::scenario::{Judge, Record, Scenario, Step, guest};

/// The tests of a PC's guest that do not ask what clocks do in real time: edges of the 8254 that come while others run are one.
pub(super) const TIMELESS: &str = "test=apic,modes,emulation,state,debug,cpus,kvm,pveoi,memory,msr,cpuid";

/// The configuration of a guest that shares `cpus`.
pub(super) fn shared(name: &str, program: &str, memory: &str, cpus: &str, more: &str) -> String {
    guest(name, program, memory, &format!("schedule = \"shared\"\ncpus = {cpus}\n{more}"))
}

/// VMs that never wait: (vCPUs, CPUs, class).
pub(super) fn shares(name: &str, vms: &[(&str, &str, &str)], judge: Judge) -> Scenario {
    let vm = |(index, (vcpus, cpus, class)): (usize, &(&str, &str, &str))| {
        shared(&format!("share-{index}"), "share", "16MiB", cpus, &format!("vcpus = {vcpus}\n{class}"))
    };
    let config: String = vms.iter().enumerate().map(vm).collect();
    let steps = (0..vms.len() as u8).map(|vm| Step::Stopped(vm, StopReason::PowerOff));
    // They end in an order that depends on who is in front.
    let steps = if vms.len() == 1 { steps.collect() } else { Vec::new() };
    Scenario::new(format!("sharing/{name}"), config, steps).counted().judge(judge)
}

/// What each vCPU of all VMs got, in microseconds.
fn times(record: &Record) -> Result<Vec<u64>, String> {
    let lines = record.consoles.iter().flat_map(|console| console.lines());
    let ran: Vec<u64> = lines.filter_map(|line| line.trim().split_once(" ran=")?.1.parse().ok()).collect();
    if ran.is_empty() { Err("nobody said what it got".to_owned()) } else { Ok(ran) }
}

/// Each share is what it is to be, within so many thousandths of all.
pub(super) fn near(record: &Record, tolerance: u64, parts: impl Fn(usize) -> u64) -> Result<(), String> {
    if record.consoles.iter().any(|console| console.contains("@late")) {
        return Err("a vCPU did not get to its start in time".to_owned());
    }
    let ran = times(record)?;
    let (all, total) = (ran.iter().sum::<u64>(), (0..ran.len()).map(&parts).sum::<u64>());
    let off = ran
        .iter()
        .enumerate()
        .find(|(index, got)| got.abs_diff(all * parts(*index) / total) > all * tolerance / 1000);
    match off {
        Some((index, _)) => Err(format!("vCPU {index} got something else than its share: {ran:?}")),
        None => Ok(()),
    }
}

pub(super) fn equal(record: &Record) -> Result<(), String> {
    near(record, 20, |_| 1)
}

pub(super) fn one_to_three(record: &Record) -> Result<(), String> {
    near(record, 20, |index| [1, 3][index % 2])
}

/// Three vCPUs that never wait, on two CPUs: each gets two thirds of one.
///
/// Not counted: counted, QEMU runs one CPU at a time, for up to 100 ms if it is not interrupted, and what the others are
/// to do in that time comes late.
pub(super) fn three_on_two() -> Scenario {
    let more = "vcpus = 3\ncmdline = \"from=3000000 until=6000000\"";
    let config = shared("share", "share", "16MiB", "[0, 1]", more);
    let steps = vec![Step::Stopped(0, StopReason::PowerOff)];
    Scenario::new("sharing/three-on-two", config, steps).judge(|record| near(record, 80, |_| 1))
}

pub(super) fn all_to_the_first(record: &Record) -> Result<(), String> {
    // It finishes before the other one begins.
    match record.console(1).contains("@late") && times(record)?.len() == 2 {
        true => Ok(()),
        false => Err("the lower priority ran before the higher one was done".to_owned()),
    }
}

/// The same on a PC, where a VM's clock begins with the VM, so that nobody is late: the first gets all of its time, and the
/// other one all of its own, which begins afterwards.
pub(super) fn each_for_itself(record: &Record) -> Result<(), String> {
    let ran = times(record)?;
    let first = record.stops.first().map(|(vm, _)| *vm);
    match ran.len() == 2 && ran.iter().all(|ran| *ran >= 295_000) && first == Some(0) {
        true => Ok(()),
        false => Err(format!("the lower priority ran before the higher one was done: {ran:?}")),
    }
}

/// The first VM gets half of its time, of 300 milliseconds, but for what two hundredths are.
pub(super) fn half(record: &Record) -> Result<(), String> {
    match times(record)?[..] {
        [ran] if ran >= 144_000 => Ok(()),
        ref ran => Err(format!("of 300000 microseconds it got {ran:?}")),
    }
}
