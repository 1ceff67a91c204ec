// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of POWER.

use super::{Counted, Disk, ONE_CPU, Row, drive, of_blocks, ringing, simple, sleeping, timed};
use crate::isa::Isa;

/// All of them, in the order of the table.
pub const ROWS: [Row; 37] = [
    power("null-hypercall", "H_CONFER to nobody", 1),
    power("unknown-hypercall", "a hypercall that is none", 1),
    power("prod-cede", "H_PROD of itself, H_CEDE", 1),
    power("io-user", "H_GET_TERM_CHAR, a service", 1),
    power("io-device", "H_GET_TERM_CHAR, in the hypervisor", 1),
    Row {
        guest: "ringer",
        ..ringing(power("doorbell", "store to a doorbell: the service has nothing to do", 1))
    },
    Row { guest: "ringer", ..ringing(power("doorbell-busy", "the same: another CPU is in the service", 2)) },
    Row {
        guest: "ringer",
        own_cpu: true,
        ..ringing(power("service-cpu", "the same: the service has a CPU of its own", 1))
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
    Row { lines: XICS, ..power("self-ipi-xics", "H_IPI to itself, H_XIRR, H_IPI, H_EOI", 1) },
    Row {
        counted: Counted::InAll,
        lines: XIVE,
        ..power("self-ipi-xive", "the same by XIVE's pages, all of it: no exit", 1)
    },
    Row { lines: XICS, ..power("ipi-ceded", "IPI to a vCPU in H_CEDE and back, both CPUs", 2) },
    Row {
        counted: Counted::InAll,
        ..power("timer-interrupt", "the decrementer set, its interrupt, all of it: no exit", 1)
    },
    sleeping(power("sleep-wake", "H_CEDE until the decrementer has expired", 1)),
    Row { options: SCRATCH, ..power("mmio-store", "store to a register of a UART", 1) },
    Row { options: SCRATCH, ..power("mmio-store-translated", "the same, translation on", 1) },
    power("absent", "load where nothing is, translation on", 1),
    // The size of KVM's pages there: each touch takes one.
    Row {
        fewer: 16,
        memory: 128,
        touches: true,
        options: "order=65536",
        ..power("first-touch", "first write to a page of memory", 1)
    },
    Row {
        touches: true,
        ..disk(
            "touch-lent",
            "4 KiB of a disk read to a block that nobody has touched",
            Disk::Ram,
            "untouched from=0x10000000",
        )
    },
    balloon(
        "give-back",
        "2 MiB reported by a balloon, which go back to a pool",
        "blocks=1 from=0x10000000",
        320,
    ),
    balloon("give-back-batch", "8 times 2 MiB with one report", "blocks=8 from=0x10000000", 384),
    power("facility-fault", "msgsndp to itself, and its interrupt", 1),
    Row { counted: Counted::Wfi, ..sharing("vcpu-switch", "H_CEDE of a vCPU to the entry of another") },
    Row {
        counted: Counted::Switch,
        options: "facilities",
        ..sharing("vcpu-switch-fp", "the same, vector-scalar registers in use")
    },
];

/// What the VMs of some rows have besides.
const XICS: &str = "interrupts = \"xics\"\n";
const XIVE: &str = "interrupts = \"xive\"\n";

/// The UART's scratch register: no device tree names the UART.
const SCRATCH: &str = "mmio=0x10000000007";

/// A row of the guest that gives blocks back.
const fn balloon(name: &'static str, what: &'static str, options: &'static str, memory: u64) -> Row {
    Row { guest: "reporter", options, memory, balloon: true, ..of_blocks(power(name, what, 1), 1280) }
}

/// Two vCPUs take turns on one CPU.
const fn sharing(name: &'static str, what: &'static str) -> Row {
    Row { shared: Some(ONE_CPU), lines: XIVE, ..power(name, what, 2) }
}

/// A row of the guest that sends packets.
const fn packet(name: &'static str, what: &'static str, options: &'static str) -> Row {
    Row { guest: "network", options, peer: true, ..ringing(power(name, what, 1)) }
}

/// A row of the guest that has a disk.
const fn disk(name: &'static str, what: &'static str, disk: Disk, options: &'static str) -> Row {
    Row { guest: "block", options, disk: Some(disk), ..timed(power(name, what, 1)) }
}

/// A row of the guest that measures on POWER.
const fn power(name: &'static str, what: &'static str, vcpus: u16) -> Row {
    Row { isa: Isa::Power64, guest: "measure", vcpus, ..simple(name, what) }
}
