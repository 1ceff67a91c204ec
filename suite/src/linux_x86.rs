// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernels for PCs, unmodified.

use turnstile::isa::Isa;
use turnstile_link::StopReason;

use super::debian::{RESET, RESETTING, Test, VERSION, Vms, other_stays, quiet_kernel};
use super::scenario::{Record, Scenario, Step, linux};

/// The Linux VMs of this architecture.
const VMS: Vms = Vms { isa: Isa::X86_64, console: "console=ttyS0 ", memory: "256MiB", limit: 300 };

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    vec![
        boot(1, "x2apic", "linux"),
        boot(4, "x2apic", "linux"),
        boot(1, "xapic", "linux"),
        boot(4, "xapic", "linux"),
        // One vCPU shows less than four.
        boot(1, "x2apic", "linux-standard").long(),
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
    let mapping = if apic == "xapic" { "on-demand" } else { "at-start" };
    let more = format!("apic = \"{apic}\"\nmapping = \"{mapping}\"");
    let judge = match (vcpus, apic) {
        (1, _) => recognized,
        (_, "xapic") => several_by_page,
        _ => several_by_msr,
    };
    VMS.boot(&format!("{kernel}-{apic}"), vcpus, kernel, "", &more).judge(judge)
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
    let cmdline = format!("{}turnstile.run=info,timer,ipi-stress,poweroff", VMS.console);
    let config = linux("linux", 2, &cmdline, "paravirt = \"none\"");
    let steps = vec![
        Step::Expect(0, "turnstile: shell ready cpus=2"),
        Step::Expect(0, "turnstile: timer ok"),
        Step::Expect(0, "turnstile: ipi-stress ok"),
        Step::Stopped(0, StopReason::PowerOff),
    ];
    Scenario::pc("linux/boot-without-kvm", config, steps).limit(VMS.limit).judge(|record| {
        quiet_kernel(record)?;
        match record.console(0).contains("kvm-clock") {
            true => Err("the kernel found what it was not offered".into()),
            false => Ok(()),
        }
    })
}

fn typing() -> Scenario {
    VMS.typing("typing", "", &VERSION)
}

/// What a kernel does with CPUs, timers, IPIs and memory.
fn checks() -> Scenario {
    VMS.checks("hotplug-timer-ipi-memory", &[Test::Hotplug, Test::Timer, Test::IpiStress, Test::Memory])
}

/// Reboots and powers off, beside another.
fn reboot() -> Scenario {
    VMS.reboot("apic = \"xapic\"").judge(other_stays)
}

/// Two VMs at once.
fn two() -> Scenario {
    VMS.two("two-at-once", &[Test::Timer, Test::IpiStress], ["", "paravirt = \"none\""])
}

/// A kernel panics and is started again; the other VM works on.
fn crash_beside() -> Scenario {
    VMS.crash_beside(RESETTING, &RESET)
}
