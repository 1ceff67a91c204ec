// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of PCs.

use super::{
    BOOT, CONSOLE, Counted, Disk, ONE_CPU, Row, TERMINAL, drive, of_blocks, ringing, simple, sleeping, timed,
};
use crate::isa::Isa;

/// All of them, in the order of the table.
pub const ROWS: [Row; 44] = [
    pc("null-hypercall", "vmmcall of a number that is none", 1),
    pc("cpuid", "cpuid leaf 0", 1),
    pc("msr-write", "wrmsr KVM_POLL_CONTROL", 1),
    pc("port-read", "in from the 8259's mask", 1),
    pc("io-user", "in from the UART, a service", 1),
    pc("io-device", "in from the UART, in the hypervisor", 1),
    Row { guest: "ringer", ..ringing(pc("doorbell", "write a doorbell: the service has nothing to do", 1)) },
    Row { guest: "ringer", ..ringing(pc("doorbell-busy", "the same: another CPU is in the service", 2)) },
    Row {
        guest: "ringer",
        own_cpu: true,
        ..ringing(pc("service-cpu", "the same: the service has a CPU of its own", 1))
    },
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
    drive(disk("drive-read", "4 KiB of a disk of the machine read", Disk::Nvme, "zeros")),
    drive(disk("drive-write", "4 KiB of a disk of the machine written", Disk::Nvme, "zeros write")),
    drive(disk("drive-batch", "16 times 4 KiB read with one doorbell", Disk::Nvme, "zeros depth=16")),
    Row {
        guest: TERMINAL,
        lines: CONSOLE,
        ..timed(pc("console-write", "a line of 64 bytes to a virtio console", 1))
    },
    pc("io-apic", "read the I/O APIC's version", 1),
    Row { la57: true, ..pc("device-access-la57", "the same, five-level page tables", 1) },
    pc("absent", "read where nothing is", 1),
    pc("absent-port", "in from a port that no device has", 1),
    pc("x2apic-self-ipi-eoi", "interrupt to itself, EOI", 1),
    pc("x2apic-self-ipi-pv-eoi", "the same, paravirtual EOI", 1),
    pc("xapic-self-ipi-eoi", "the same by memory, EOI", 1),
    pc("xapic-self-ipi-pv-eoi", "the same, paravirtual EOI", 1),
    Row { la57: true, ..pc("xapic-self-ipi-eoi-la57", "by memory, EOI, five-level page tables", 1) },
    timed(pc("timer-interrupt", "the timer set, its interrupt, its end", 1)),
    sleeping(pc("sleep-wake", "hlt until the timer fires", 1)),
    pc("ipi-running", "IPI to a running vCPU, both CPUs", 2),
    pc("ipi-halted", "IPI to a vCPU in hlt and back, both CPUs", 2),
    pc("halt-wake", "hlt with an interrupt pending", 1),
    // Each touch takes a page: fewer, in more memory.
    Row { fewer: 16, memory: 128, touches: true, ..pc("first-touch", "first write to a page of memory", 1) },
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
    Row { counted: Counted::Wfi, ..sharing("vcpu-switch", "hlt of a vCPU to the entry of another") },
    Row {
        counted: Counted::Switch,
        options: "facilities",
        ..sharing("vcpu-switch-fp", "the same, vector registers in use")
    },
    Row { isa: Isa::X86_64, guest: "measure", ..BOOT },
];

/// A row of the guest that measures on PCs.
const fn pc(name: &'static str, what: &'static str, vcpus: u16) -> Row {
    Row { isa: Isa::X86_64, guest: "measure", vcpus, ..simple(name, what) }
}

/// A row of the guest that sends packets.
const fn packet(name: &'static str, what: &'static str, options: &'static str) -> Row {
    Row { guest: "network", options, peer: true, ..timed(pc(name, what, 1)) }
}

/// A row of the guest that has a disk.
const fn disk(name: &'static str, what: &'static str, disk: Disk, options: &'static str) -> Row {
    Row { guest: "block", options, disk: Some(disk), ..timed(pc(name, what, 1)) }
}

/// A row of the guest that gives blocks back.
const fn balloon(name: &'static str, what: &'static str, options: &'static str, memory: u64) -> Row {
    Row { guest: "reporter", options, memory, balloon: true, ..of_blocks(pc(name, what, 1), 800) }
}

/// Two vCPUs take turns on one CPU.
const fn sharing(name: &'static str, what: &'static str) -> Row {
    Row { shared: Some(ONE_CPU), ..pc(name, what, 2) }
}
