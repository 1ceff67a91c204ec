// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernel, unmodified.

use turnstile_link::StopReason;

use super::scenario::{Ending, Record, Scenario, Step, linux};

const READY: &str = "turnstile: shell ready";
/// Processor time for a Linux with several vCPUs, in seconds.
const LIMIT: u64 = 300;

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        boot(1, "virt"),
        boot(4, "virt"),
        boot(1, "kvmtool"),
        boot(4, "kvmtool"),
        typing("virt"),
        typing("kvmtool"),
        checks(),
        reboot(),
        two(),
        crash_beside(),
    ]
}

/// From the kernel to a shell, and off again; on one of the machines in memory that is mapped on demand.
pub fn boot(vcpus: u32, machine: &str) -> Scenario {
    let mapping = if machine == "kvmtool" { "on-demand" } else { "at-start" };
    let more = format!("machine = \"{machine}\"\nmapping = \"{mapping}\"");
    let config = linux("linux", vcpus, "turnstile.run=info,poweroff", &more);
    let ready = match vcpus {
        1 => "turnstile: shell ready cpus=1",
        _ => "turnstile: shell ready cpus=4",
    };
    let steps = vec![
        Step::Expect(0, ready),
        Step::Expect(0, "turnstile: info ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::new(format!("linux/boot-{machine}-{vcpus}"), config, steps).limit(LIMIT).judge(quiet_kernel)
}

/// The kernel had nothing to complain about.
pub fn quiet_kernel(record: &Record) -> Result<(), String> {
    let signs =
        ["Kernel panic", "BUG:", "Oops", "WARNING: CPU", "rcu: INFO", "soft lockup", "irq: nobody cared"];
    let lines = record.consoles.iter().flat_map(|console| console.lines());
    match lines.into_iter().find(|line| signs.iter().any(|sign| line.contains(sign))) {
        Some(line) => Err(format!("the kernel says: {}", line.trim())),
        None => Ok(()),
    }
}

fn typing(machine: &str) -> Scenario {
    let config = linux("linux", 1, "quiet", &format!("machine = \"{machine}\""));
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(0, "# "),
        // What is echoed is not what is expected.
        Step::Type(0, "echo sum-$((6*7))\r"),
        Step::Expect(0, "sum-42"),
        Step::Type(0, "cat /proc/version | tr a-z A-Z\r"),
        Step::Expect(0, "LINUX VERSION"),
        Step::Type(0, "poweroff -f\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::new(format!("linux/typing-{machine}"), config, steps).limit(LIMIT).judge(quiet_kernel)
}

/// What a kernel does with CPUs, timers, IPIs and memory.
pub fn checks() -> Scenario {
    let config = linux("linux", 4, "quiet turnstile.run=hotplug,timer,ipi-stress,memory,poweroff", "");
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(0, "turnstile: hotplug ok"),
        Step::Expect(0, "turnstile: timer ok"),
        Step::Expect(0, "turnstile: ipi-stress ok"),
        Step::Expect(0, "turnstile: memory ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::new("linux/hotplug-timer-ipi-memory", config, steps).limit(LIMIT).judge(quiet_kernel)
}

/// Reboots and powers off, beside another.
pub fn reboot() -> Scenario {
    let config = linux("one", 2, "quiet", "") + &linux("two", 1, "quiet", "machine = \"kvmtool\"");
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(1, READY),
        Step::Expect(0, "# "),
        Step::Type(0, "reboot -f\r"),
        Step::Stopped(0, StopReason::Reset),
        Step::Started(0, 2),
        Step::Expect(0, READY),
        Step::Expect(1, "# "),
        Step::Type(1, "echo alive-$((1+1)); poweroff -f\r"),
        Step::Expect(1, "alive-2"),
        Step::Stopped(1, StopReason::PowerOff),
        Step::Expect(0, "# "),
        Step::Type(0, "poweroff -f\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::new("linux/reboot-and-poweroff", config, steps).limit(LIMIT).judge(|record| {
        let starts = record.starts.iter().filter(|start| start.vm == 1).count();
        if starts != 1 {
            return Err(format!("the other VM started {starts} times"));
        }
        quiet_kernel(record)
    })
}

/// Two VMs at once.
pub fn two() -> Scenario {
    let checks = "quiet turnstile.run=timer,ipi-stress,poweroff";
    let config = linux("one", 2, checks, "") + &linux("two", 2, checks, "machine = \"kvmtool\"");
    let mut steps = Vec::new();
    for vm in [0, 1] {
        steps.push(Step::Expect(vm, READY));
        steps.push(Step::Expect(vm, "turnstile: timer ok"));
        steps.push(Step::Expect(vm, "turnstile: ipi-stress ok"));
    }
    Scenario::new("linux/two-at-once", config, steps).limit(2 * LIMIT).judge(quiet_kernel)
}

/// A kernel panics and is started again; the other VM works on.
fn crash_beside() -> Scenario {
    let config = linux("one", 1, "quiet panic=-1 reboot=panic_warm", "on-crash = \"restart\"")
        + &linux("two", 1, "quiet", "");
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(1, READY),
        Step::Expect(0, "# "),
        Step::Expect(1, "# "),
        Step::Type(0, "echo c >/proc/sysrq-trigger\r"),
        Step::Expect(0, "Kernel panic"),
        Step::Reported("warm reset"),
        Step::Stopped(0, StopReason::Crash),
        Step::Started(0, 2),
        Step::Type(1, "echo alive-$((1+1))\r"),
        Step::Expect(1, "alive-2"),
        Step::Expect(0, READY),
        Step::Type(1, "poweroff -f\r"),
        Step::Stopped(1, StopReason::PowerOff),
    ];
    let scenario = Scenario::new("linux/crash-beside-another", config, steps);
    scenario.limit(LIMIT).ending(Ending::Poweroff)
}
