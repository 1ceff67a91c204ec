// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernels for POWER, unmodified: with pages of 64 KiB and of 4 KiB, on XIVE and XICS.

use turnstile::isa::Isa;

use super::debian::{Test, Vms};
use super::scenario::{Record, Scenario};

/// Processor time for a Linux with several vCPUs, in seconds.
const LIMIT: u64 = 400;
/// The Linux VMs of this architecture. A kernel finds its terminal by itself; this makes it the one that it writes to. Its
/// image is larger than those of other architectures.
const VMS: Vms = Vms { isa: Isa::Power64, console: "console=hvc0 ", memory: "512MiB", limit: LIMIT };
/// The other interrupt controller.
const XICS: &str = "interrupts = \"xics\"";

/// The scenarios of this topic.
pub fn scenarios() -> Vec<Scenario> {
    let mut scenarios = Vec::new();
    for interrupts in ["xive", "xics"] {
        scenarios.push(boot(1, interrupts, "linux", "", ""));
        scenarios.push(boot(4, interrupts, "linux", "", "threads = 4").judge(is_one_core));
    }
    scenarios.extend([
        boot(2, "xive", "linux-4k", "", ""),
        boot(1, "xive", "linux", "powernv10", ""),
        boot(4, "xics", "linux", "powernv10", ""),
        VMS.typing("typing", "", &[]),
        checks(),
        VMS.reboot(XICS).limit(2 * LIMIT),
        VMS.two("two-at-once", &[Test::IpiStress], ["", XICS]),
        shared(),
        VMS.crash_beside("", &[]).limit(2 * LIMIT),
    ]);
    scenarios
}

/// From the kernel to a shell, and off again by the firmware.
fn boot(vcpus: u32, interrupts: &str, kernel: &str, board: &str, more: &str) -> Scenario {
    let (machine, place) = match board {
        "" => (String::new(), String::new()),
        board => (format!("[machine]\nboard = \"{board}\"\n"), format!("{board}-")),
    };
    let more = format!("interrupts = \"{interrupts}\"\n{more}");
    VMS.boot(&format!("{place}{kernel}-{interrupts}"), vcpus, kernel, &machine, &more)
}

/// Linux has found four threads of one core, and rings their doorbells.
fn is_one_core(record: &Record) -> Result<(), String> {
    let console = record.console(0);
    if !console.contains("threads of CPU 0's core: 0-3") {
        return Err("Linux sees no core with four threads".to_owned());
    }
    let doorbells = console.lines().find(|line| line.contains("Doorbell interrupts"));
    match doorbells
        .is_some_and(|line| line.split_ascii_whitespace().skip(1).take(4).any(|count| count != "0"))
    {
        true => Ok(()),
        false => Err("no thread has rung another one's doorbell".to_owned()),
    }
}

/// What a kernel does with CPUs, IPIs, memory and floating-point registers.
fn checks() -> Scenario {
    let tests = [Test::Hotplug, Test::IpiStress, Test::Memory, Test::Fp];
    VMS.checks("hotplug-ipi-memory", &tests).limit(2 * LIMIT)
}

/// Two VMs whose vCPUs take turns on two CPUs.
fn shared() -> Scenario {
    let more = "cpus = [0, 1]\nschedule = \"shared\"";
    VMS.two("sharing", &[Test::Fp], [more, more])
}
