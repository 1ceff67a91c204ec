// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table, and what was recorded of others.

use crate::failure::{Failure, Result};

/// One operation that is measured.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name, which is that of its guest.
    pub name: &'static str,
    /// What one operation is.
    pub what: &'static str,
    /// Whether the guest needs a PMU.
    pub pmu: bool,
    /// How many vCPUs the guest needs, each on a CPU of its own.
    pub vcpus: u8,
}

/// All rows, in the order of the table.
pub const ROWS: [Row; 7] = [
    Row { name: "null-hypercall", what: "hvc PSCI_VERSION", pmu: false, vcpus: 1 },
    Row { name: "id-register", what: "mrs ID_AA64ISAR0_EL1", pmu: false, vcpus: 1 },
    Row { name: "sysreg-trap", what: "mrs PMSELR_EL0", pmu: true, vcpus: 1 },
    Row { name: "io-kernel", what: "read GICD_TYPER", pmu: false, vcpus: 1 },
    Row { name: "io-user", what: "read a byte of the UART", pmu: false, vcpus: 1 },
    Row { name: "self-sgi", what: "SGI to itself, IAR, EOIR", pmu: false, vcpus: 1 },
    Row { name: "virtual-ipi", what: "SGI to another vCPU, sender + receiver", pmu: false, vcpus: 2 },
];

/// Somebody else's hypervisor, measured once in the same way: `-icount shift=0` under QEMU 10.0.2, `-cpu max`,
/// GICv3.
#[derive(Debug)]
pub struct Peer {
    /// Its name in JSON.
    pub subject: &'static str,
    /// How it runs.
    pub mode: &'static str,
    /// Its heading in the table.
    pub title: &'static str,
    /// Instructions by row, in the order of [`ROWS`].
    pub instructions: [f64; ROWS.len()],
}

/// The recorded peers.
pub const PEERS: [Peer; 2] = [
    Peer {
        subject: "kvm-vhe",
        mode: "vhe",
        title: "Linux 6.12 KVM VHE",
        instructions: [1364.0, 1687.0, 1704.0, 2116.0, 6154.0, 2747.0, 4553.0],
    },
    Peer {
        subject: "xen",
        mode: "nvhe",
        title: "Xen 4.17",
        instructions: [470.0, 424.0, 437.0, 598.0, f64::NAN, 1096.0, 1617.0],
    },
];

/// Finds rows by name; no names are all rows.
pub fn select(names: &[String]) -> Result<Vec<&'static Row>> {
    for name in names {
        if !ROWS.iter().any(|row| row.name == name) {
            let known: Vec<&str> = ROWS.iter().map(|row| row.name).collect();
            return Err(Failure::usage(format!("there is no row `{name}`"))
                .help(crate::config::problem::did_you_mean(name, &known)));
        }
    }
    Ok(ROWS.iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)).collect())
}
