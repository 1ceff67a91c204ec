// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table.

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
    Row { name: "virtual-ipi", what: "SGI to another vCPU, both CPUs", pmu: false, vcpus: 2 },
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
