// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernels for PCs, unmodified.

use turnstile_link::StopReason;

use super::linux::quiet_kernel;
use super::scenario::{Ending, Record, Scenario, Step, linux};

const READY: &str = "turnstile: shell ready";
/// Processor time for a Linux with several vCPUs, in seconds.
const LIMIT: u64 = 300;
/// A PC's kernel has to be told where its console is.
const CONSOLE: &str = "console=ttyS0";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        boot(1, "x2apic", "linux"),
        boot(4, "x2apic", "linux"),
        boot(1, "xapic", "linux"),
        boot(4, "xapic", "linux"),
        boot(1, "x2apic", "linux-standard"),
        boot(4, "x2apic", "linux-standard"),
        bare(),
        typing(),
        checks(),
        reboot(),
        two(),
        crash_beside(),
    ]
}

/// From the kernel to a shell, and off again by ACPI; with an xAPIC in memory that is mapped on demand.
fn boot(vcpus: u32, apic: &str, kernel: &str) -> Scenario {
    let cmdline = format!("{CONSOLE} turnstile.run=info,poweroff");
    let mapping = if apic == "xapic" { "on-demand" } else { "at-start" };
    let config = linux("linux", vcpus, &cmdline, &format!("apic = \"{apic}\"\nmapping = \"{mapping}\""))
        .replace("debian:linux\"", &format!("debian:{kernel}\""));
    let ready = match vcpus {
        1 => "turnstile: shell ready cpus=1",
        _ => "turnstile: shell ready cpus=4",
    };
    let steps = vec![
        Step::Expect(0, ready),
        Step::Expect(0, "turnstile: info ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    let judge = match (vcpus, apic) {
        (1, _) => recognized,
        (_, "xapic") => several_by_page,
        _ => several_by_msr,
    };
    Scenario::pc(format!("linux/boot-{kernel}-{apic}-{vcpus}"), config, steps).limit(LIMIT).judge(judge)
}

/// The kernel says all of this.
fn says(record: &Record, texts: &[&str]) -> Result<(), String> {
    let console = record.console(0);
    match texts.iter().find(|text| !console.contains(**text)) {
        Some(text) => Err(format!("the kernel does not say \"{text}\"")),
        None => Ok(()),
    }
}

/// The kernel found KVM's interface and its clock, the tables of ACPI, and nothing to complain about.
fn recognized(record: &Record) -> Result<(), String> {
    quiet_kernel(record)?;
    let texts =
        ["Hypervisor detected: KVM", "Switched to clocksource kvm-clock", "ACPI: PM: (supports S0 S5)"];
    says(record, &texts)?;
    let complaints = ["ACPI Error", "ACPI BIOS Error", "unchecked MSR access", "Bug]"];
    match complaints.into_iter().find(|text| record.console(0).contains(text)) {
        Some(text) => Err(format!("the kernel complains: {text}")),
        None => Ok(()),
    }
}

/// With several vCPUs it uses the rest of the interface.
fn several_by_page(record: &Record) -> Result<(), String> {
    recognized(record)?;
    says(record, &["setup pv remote TLB flush", "PV spinlocks enabled", "setup PV IPIs"])
}

fn several_by_msr(record: &Record) -> Result<(), String> {
    several_by_page(record)?;
    says(record, &["x2apic enabled"])
}

/// Without KVM's interface: the kernel calibrates and times by the board alone.
fn bare() -> Scenario {
    let cmdline = format!("{CONSOLE} turnstile.run=info,timer,ipi-stress,poweroff");
    let config = linux("linux", 2, &cmdline, "paravirt = \"none\"");
    let steps = vec![
        Step::Expect(0, "turnstile: shell ready cpus=2"),
        Step::Expect(0, "turnstile: timer ok"),
        Step::Expect(0, "turnstile: ipi-stress ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::pc("linux/boot-without-kvm", config, steps).limit(LIMIT).judge(|record| {
        quiet_kernel(record)?;
        match record.console(0).contains("kvm-clock") {
            true => Err("the kernel found what it was not offered".into()),
            false => Ok(()),
        }
    })
}

fn typing() -> Scenario {
    let config = linux("linux", 1, &format!("{CONSOLE} quiet"), "");
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
    Scenario::pc("linux/typing", config, steps).limit(LIMIT).judge(quiet_kernel)
}

/// What a kernel does with CPUs, timers, IPIs and memory.
fn checks() -> Scenario {
    let cmdline = format!("{CONSOLE} quiet turnstile.run=hotplug,timer,ipi-stress,memory,poweroff");
    let config = linux("linux", 4, &cmdline, "");
    let steps = vec![
        Step::Expect(0, READY),
        Step::Expect(0, "turnstile: hotplug ok"),
        Step::Expect(0, "turnstile: timer ok"),
        Step::Expect(0, "turnstile: ipi-stress ok"),
        Step::Expect(0, "turnstile: memory ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::pc("linux/hotplug-timer-ipi-memory", config, steps).limit(LIMIT).judge(quiet_kernel)
}

/// Reboots and powers off, beside another.
fn reboot() -> Scenario {
    let cmdline = format!("{CONSOLE} quiet");
    let config = linux("one", 2, &cmdline, "") + &linux("two", 1, &cmdline, "apic = \"xapic\"");
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
    Scenario::pc("linux/reboot-and-poweroff", config, steps).limit(LIMIT).judge(|record| {
        let starts = record.starts.iter().filter(|start| start.vm == 1).count();
        if starts != 1 {
            return Err(format!("the other VM started {starts} times"));
        }
        quiet_kernel(record)
    })
}

/// Two VMs at once.
fn two() -> Scenario {
    let checks = format!("{CONSOLE} quiet turnstile.run=timer,ipi-stress,poweroff");
    let config = linux("one", 2, &checks, "") + &linux("two", 2, &checks, "paravirt = \"none\"");
    let mut steps = Vec::new();
    for vm in [0, 1] {
        steps.push(Step::Expect(vm, READY));
        steps.push(Step::Expect(vm, "turnstile: timer ok"));
        steps.push(Step::Expect(vm, "turnstile: ipi-stress ok"));
    }
    Scenario::pc("linux/two-at-once", config, steps).limit(2 * LIMIT).judge(quiet_kernel)
}

/// A kernel panics and is started again; the other VM works on.
fn crash_beside() -> Scenario {
    let cmdline = format!("{CONSOLE} quiet");
    let config = linux("one", 1, &format!("{cmdline} panic=-1 reboot=panic_warm"), "on-crash = \"restart\"")
        + &linux("two", 1, &cmdline, "");
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
    Scenario::pc("linux/crash-beside-another", config, steps).limit(LIMIT).ending(Ending::Poweroff)
}
