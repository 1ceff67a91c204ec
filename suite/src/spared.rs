// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Scenarios that the usual run spares, because they take long and others show in less time what it may not miss. The long run
//! plays them all. Scenarios that are long by their nature say so themselves.

/// Their names.
pub const NAMES: &[&str] = &[
    // The machines of arm64, and the local APICs of PCs, differ in a few registers, which shorter tests use.
    "arm64/hostile/all-virt",
    "arm64/selftest/kvmtool-64",
    "x86_64/hostile/interrupts-x2apic",
    "x86_64/selftest/x2apic-1",
    "x86_64/selftest/on-demand",
    "x86_64/pressure/none-4",
    // Several Linux VMs on the same CPUs are `arm64/sharing/two-linux` and `power64/linux/sharing`.
    "arm64/scale/4-linux-4-on-4",
    "arm64/scale/2-linux-4-on-2-gicv2",
    "x86_64/scale/4-linux-4-on-4",
    "x86_64/scale/linux-64",
    "power64/scale/3-linux-4-on-2",
    // Self-tests on shared CPUs are `two-selftests` of arm64 and of PCs; POWER's take one to two minutes each.
    "arm64/sharing/selftest-8-on-2",
    "x86_64/sharing/selftest-8-on-2",
    "power64/sharing/two-selftests",
    "power64/sharing/selftest-4-on-2",
    // The scheduler is the same on all architectures: arm64 shows these.
    "x86_64/sharing/silent-timers",
    "x86_64/sharing/stolen-time",
    "x86_64/sharing/crash-restart",
    "power64/sharing/stolen-time",
    // So is the way of what is typed and printed.
    "x86_64/console/flood-restart",
    "power64/console/flood-restart",
    // And what a driver in a service does when it is killed.
    "x86_64/uplinks/killed",
    "power64/uplinks/killed",
    // Attacks on shared CPUs are `x86_64/sharing/hostile` and `power64/sharing/hostile`.
    "arm64/sharing/hostile",
    // Each with the other kind of it on another architecture.
    "arm64/sharing/linux-4-on-2",
    "x86_64/sharing/two-linux",
    "arm64/scale/linux-16",
    // Interrupts of vCPUs on shared CPUs are the harder ones.
    "arm64/minutes/gicv2-pinned",
    "x86_64/minutes/pinned",
    "power64/minutes/pinned",
    // On other boards, and without VHE, some of what the usual board shows.
    "arm64/services/open-nvhe",
    "arm64/gicv2/cortex-a57/hostile/all-kvmtool",
    "arm64/gicv2/cortex-a72/linux/reboot-and-poweroff",
    "arm64/gicv2/cortex-a72/linux/two-at-once",
    "arm64/gicv2/max/linux/hotplug-timer-ipi-memory",
    "arm64/rpi4/hostile/all-virt",
    "arm64/nvhe/cortex-a72/linux/boot-kvmtool-4",
    "arm64/gicv2/cortex-a57/linux/boot-kvmtool-4",
    "arm64/gicv2/cortex-a72/linux/boot-virt-1",
    "power64/linux/boot-linux-xive-1",
    "power64/linux/boot-linux-xics-1",
    "power64/linux/boot-powernv10-linux-xive-1",
    "x86_64/linux/boot-linux-xapic-1",
    // What only the images for ablation have is the same code on all architectures, but for its switches.
    "x86_64/ablation/selftest-without-none",
    "x86_64/ablation/selftest-without-all",
    "power64/ablation/selftest-without-none",
    // Boots of PCs: the other kernels and local APICs boot with four vCPUs or one.
    "x86_64/linux/boot-linux-standard-x2apic-4",
    "x86_64/linux/boot-linux-x2apic-1",
];

/// Whether only the long run plays the scenario of this name.
pub fn has(name: &str) -> bool {
    NAMES.contains(&name)
}
