// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of arm64.

use super::{
    BOOT, CONSOLE, Counted, Disk, MMIO, ONE_CPU, Row, TERMINAL, drive, of_blocks, ringing, simple, sleeping,
    timed,
};

/// All of them, in the order of the table.
pub const ROWS: [Row; 54] = [
    simple("null-hypercall", "hvc PSCI_VERSION"),
    simple("id-register", "mrs ID_AA64ISAR0_EL1"),
    Row { pmu: true, ..simple("sysreg-trap", "mrs PMSELR_EL0") },
    simple("io-kernel", "read GICD_TYPER"),
    simple("io-user", "read a byte of the UART, a service"),
    Row { guest: "io-user", ..simple("io-device", "read a byte of the UART, in the hypervisor") },
    doorbell("doorbell", "write a doorbell: the service has nothing to do", 1),
    doorbell("doorbell-busy", "the same: another CPU is in the service", 2),
    Row { own_cpu: true, ..doorbell("service-cpu", "the same: the service has a CPU of its own", 1) },
    packet("packet", "64 bytes to another VM, both CPUs", "bytes=64"),
    Row {
        pairs: true,
        ..packet("packet-pairs", "the same with an open checksum, by two pairs of queues", "bytes=64 pairs")
    },
    packet("packet-1500", "1500 bytes to another VM, both CPUs", "bytes=1514"),
    packet("packet-batch", "64 packets with one doorbell, both CPUs", "bytes=64 packets=64"),
    packet("segment", "64 KiB of TCP to another VM, both CPUs", "segments"),
    packet("packet-sleeping", "64 bytes to a VM that sleeps on its own CPU", "bytes=64 silence=30"),
    Row {
        wired: true,
        ..packet("packet-uplink", "64 bytes by two network cards to a VM that sleeps", "bytes=64 sleep")
    },
    Row {
        shared: Some(ONE_CPU),
        ..packet("packet-1cpu", "64 bytes to a VM on the same CPU, which sleeps", "bytes=64 sleep")
    },
    disk("disk-read", "4 KiB of a disk in RAM read", Disk::Ram, ""),
    disk("disk-write", "4 KiB of a disk in RAM written", Disk::Ram, "write"),
    disk("disk-batch", "16 times 4 KiB read with one doorbell", Disk::Ram, "depth=16"),
    Row { lines: MMIO, ..disk("disk-read-mmio", "4 KiB read, virtio behind MMIO", Disk::Ram, "") },
    drive(disk("drive-read", "4 KiB of a disk of the machine read", Disk::Nvme, "zeros")),
    drive(disk("drive-write", "4 KiB of a disk of the machine written", Disk::Nvme, "zeros write")),
    drive(disk("drive-batch", "16 times 4 KiB read with one doorbell", Disk::Nvme, "zeros depth=16")),
    Row {
        guest: TERMINAL,
        lines: CONSOLE,
        ..timed(simple("console-write", "a line of 64 bytes to a virtio console"))
    },
    sgi("self-sgi", "SGI to itself, IAR, EOIR", 1, "target=0"),
    sgi("self-sgi-x20", "the same, written from x20", 1, "target=0 x20"),
    sgi("self-sgi-overflow", "SGI to itself, 12 others pending", 1, "target=0 waiting=12"),
    sgi("self-sgi-overflow-90", "the same, 90 others pending", 1, "target=0 waiting=90"),
    Row { guest: "null-hypercall", ..simple("hypercall-unknown", "hvc of a function that is none") },
    simple("absent", "read where nothing is"),
    timed(timer("timer-interrupt", "the timer set, its interrupt, its end")),
    sleeping(timer("sleep-wake", "wfi until the timer fires")),
    sgi("virtual-ipi", "SGI to another vCPU, both CPUs", 2, "target=1"),
    sgi("ipi-wfi", "SGI to a vCPU in WFI, both CPUs", 2, "target=1 wfi"),
    route("sgi-to-1-of-4", 1, 4, "target=1"),
    route("sgi-to-3-of-4", 3, 4, "target=3"),
    route("sgi-to-1-of-32", 1, 32, "target=1"),
    route("sgi-to-15-of-32", 15, 32, "target=15"),
    route("sgi-to-16-of-32", 16, 32, "target=16"),
    route("sgi-to-31-of-32", 31, 32, "target=31"),
    Row { fewer: 64, memory: 64, ..route("sgi-to-511-of-512", 511, 512, "target=511") },
    sender("sgi-to-wfi", "SGI to a vCPU in WFI, the sender", 2, "target=1 wfi"),
    Row {
        counted: Counted::Sender,
        ..sharing("sgi-to-parked", "SGI to a vCPU that is on no CPU, the sender")
    },
    sender("broadcast-of-4", "SGI to all others of 4, the sender", 4, "broadcast"),
    Row { fewer: 8, ..sender("broadcast-of-32", "SGI to all others of 32, the sender", 32, "broadcast") },
    Row {
        fewer: 64,
        memory: 64,
        ..sender("broadcast-of-512", "SGI to all others of 512, the sender", 512, "broadcast wfi")
    },
    Row { counted: Counted::Wfi, ..sharing("vcpu-switch", "WFI of a vCPU to the entry of another") },
    Row {
        counted: Counted::Switch,
        options: "target=1 handoff facilities",
        ..sharing("vcpu-switch-fp", "the same, FP and keys in use")
    },
    // Each touch takes a page: fewer, in more memory.
    Row {
        fewer: 16,
        memory: 128,
        touches: true,
        options: "order=4096",
        ..simple("first-touch", "first write to a block of memory")
    },
    Row {
        touches: true,
        ..disk(
            "touch-lent",
            "4 KiB of a disk read to a block that nobody has touched",
            Disk::Ram,
            "untouched",
        )
    },
    balloon("give-back", "2 MiB reported by a balloon, which go back to a pool", "blocks=1", 64),
    balloon("give-back-batch", "8 times 2 MiB with one report", "blocks=8", 128),
    BOOT,
];

/// A row of the guest that rings a service. Its device is where kvmtool has none.
const fn doorbell(name: &'static str, what: &'static str, vcpus: u16) -> Row {
    Row { guest: "ringer", vcpus, options: "device=0x1030000", ..ringing(simple(name, what)) }
}

/// A row of the guest that sends packets.
const fn packet(name: &'static str, what: &'static str, options: &'static str) -> Row {
    Row { guest: "network", options, peer: true, ..timed(simple(name, what)) }
}

/// A row of the guest that has a disk.
const fn disk(name: &'static str, what: &'static str, disk: Disk, options: &'static str) -> Row {
    Row { guest: "block", options, disk: Some(disk), ..timed(simple(name, what)) }
}

/// A row of the guest that measures the timer.
const fn timer(name: &'static str, what: &'static str) -> Row {
    Row { guest: "timer", ..simple(name, what) }
}

const fn sgi(name: &'static str, what: &'static str, vcpus: u16, options: &'static str) -> Row {
    Row { guest: "sgi", vcpus, options, ..simple(name, what) }
}

const fn sender(name: &'static str, what: &'static str, vcpus: u16, options: &'static str) -> Row {
    Row { counted: Counted::Sender, ..sgi(name, what, vcpus, options) }
}

/// A row of the guest that gives blocks back.
const fn balloon(name: &'static str, what: &'static str, options: &'static str, memory: u64) -> Row {
    Row { guest: "reporter", options, memory, balloon: true, ..of_blocks(simple(name, what), 2048) }
}

/// Two vCPUs take turns on one CPU, of equal priority, so that who is woken waits until the other one waits.
const fn sharing(name: &'static str, what: &'static str) -> Row {
    Row { shared: Some(ONE_CPU), ..sgi(name, what, 2, "target=1 handoff") }
}

/// An SGI to one vCPU of many.
const fn route(name: &'static str, target: u16, vcpus: u16, options: &'static str) -> Row {
    Row { target: Some(target), ..sender(name, "SGI to one of them, the sender", vcpus, options) }
}
