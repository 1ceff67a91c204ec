// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian's kernel, unmodified.

use turnstile::isa::Isa;

use super::debian::{RESET, RESETTING, Test, VERSION, Vms, other_stays};
use super::scenario::Scenario;

/// The Linux VMs of this architecture: their kernels find their console by themselves.
const VMS: Vms = Vms { isa: Isa::Arm64, console: "", memory: "256MiB", limit: 300 };

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
        VMS.crash_beside(RESETTING, &RESET),
    ]
}

/// From the kernel to a shell, and off again; on one of the machines in memory that is mapped on demand.
pub fn boot(vcpus: u32, machine: &str) -> Scenario {
    let mapping = if machine == "kvmtool" { "on-demand" } else { "at-start" };
    let more = format!("machine = \"{machine}\"\nmapping = \"{mapping}\"");
    VMS.boot(machine, vcpus, "linux", "", &more)
}

fn typing(machine: &str) -> Scenario {
    VMS.typing(&format!("typing-{machine}"), &format!("machine = \"{machine}\""), &VERSION)
}

/// What a kernel does with CPUs, timers, IPIs and memory.
pub fn checks() -> Scenario {
    VMS.checks("hotplug-timer-ipi-memory", &[Test::Hotplug, Test::Timer, Test::IpiStress, Test::Memory])
}

/// Reboots and powers off, beside another.
pub fn reboot() -> Scenario {
    VMS.reboot("machine = \"kvmtool\"").judge(other_stays)
}

/// Two VMs at once.
pub fn two() -> Scenario {
    VMS.two("two-at-once", &[Test::Timer, Test::IpiStress], ["", "machine = \"kvmtool\""])
}
