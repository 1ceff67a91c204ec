// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table.

use super::platform::Platform;
use crate::failure::{Failure, Result};

/// The word for the rows of SGIs by target.
pub const ROUTES: &str = "sgi-routes";

/// Whose visits outside the guest make the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those of all CPUs.
    All,
    /// Those in which the SGI is sent.
    Sender,
    /// Those that begin with WFI.
    Wfi,
}

impl Counted {
    /// Reasons for which a CPU that sends an SGI leaves the guest: a system register of GICv3, GICD_SGIR of GICv2.
    const SENDING: [&str; 2] = ["sysreg", "data-abort"];

    /// Whether visits for this reason make the figure.
    pub fn includes(self, reason: &str) -> bool {
        match self {
            Counted::All => true,
            Counted::Sender => Self::SENDING.contains(&reason),
            Counted::Wfi => reason == "wfx",
        }
    }
}

/// One operation that is measured.
#[derive(Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// What one operation is.
    pub what: &'static str,
    /// The guest that measures it.
    pub guest: &'static str,
    /// More words of the guest's command line.
    pub options: &'static str,
    /// Whether the guest needs a PMU.
    pub pmu: bool,
    /// How many vCPUs the guest needs, each on a CPU of its own if they share none.
    pub vcpus: u16,
    /// If the vCPUs share physical CPUs: which, and how, in lines of the VM's table.
    pub shared: Option<&'static str>,
    /// The guest's memory in MiB.
    pub memory: u64,
    /// What of it is the figure.
    pub counted: Counted,
    /// The vCPU that an SGI goes to, where the figure is to be the same for all.
    pub target: Option<u16>,
    /// This row is measured so many times fewer than others: with many CPUs each operation takes long.
    pub fewer: u64,
}

/// All rows, in the order of the table.
pub const ROWS: [Row; 21] = [
    simple("null-hypercall", "hvc PSCI_VERSION"),
    simple("id-register", "mrs ID_AA64ISAR0_EL1"),
    Row { pmu: true, ..simple("sysreg-trap", "mrs PMSELR_EL0") },
    simple("io-kernel", "read GICD_TYPER"),
    simple("io-user", "read a byte of the UART"),
    sgi("self-sgi", "SGI to itself, IAR, EOIR", 1, "target=0"),
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
];

/// A row with a guest of its own and one vCPU.
pub const fn simple(name: &'static str, what: &'static str) -> Row {
    let counted = Counted::All;
    Row {
        name,
        what,
        guest: name,
        options: "",
        pmu: false,
        vcpus: 1,
        shared: None,
        memory: 16,
        counted,
        target: None,
        fewer: 1,
    }
}

const fn sgi(name: &'static str, what: &'static str, vcpus: u16, options: &'static str) -> Row {
    Row { guest: "sgi", vcpus, options, ..simple(name, what) }
}

const fn sender(name: &'static str, what: &'static str, vcpus: u16, options: &'static str) -> Row {
    Row { counted: Counted::Sender, ..sgi(name, what, vcpus, options) }
}

/// Two vCPUs take turns on one CPU, of equal priority, so that who is woken waits until the other one waits.
const fn sharing(name: &'static str, what: &'static str) -> Row {
    Row { shared: Some("cpus = [0]\nrealtime = 1"), ..sgi(name, what, 2, "target=1 handoff") }
}

/// An SGI to one vCPU of many.
const fn route(name: &'static str, target: u16, vcpus: u16, options: &'static str) -> Row {
    Row { target: Some(target), ..sender(name, "SGI to one of them, the sender", vcpus, options) }
}

impl Row {
    /// Whether a platform has what the row needs.
    pub fn is_on(&self, platform: &Platform) -> bool {
        self.vcpus <= platform.cpus()
    }

    /// How often the operation is measured, where `usual` rows are measured so often.
    pub fn iterations(&self, usual: u64) -> u64 {
        usual / self.fewer
    }

    /// The rest of the VM's table in a configuration.
    pub fn table(&self) -> String {
        let Row { memory, vcpus, .. } = self;
        let pmu = if self.pmu { "trapped" } else { "off" };
        let mut table = format!("memory = \"{memory}MiB\"\npmu = \"{pmu}\"\nvcpus = {vcpus}\n");
        if let Some(lines) = self.shared {
            table.push_str(&format!("schedule = \"shared\"\n{lines}\n"));
        }
        table
    }

    /// The guest's command line.
    pub fn cmdline(&self, usual: u64) -> String {
        let mut line = format!("iterations={}", self.iterations(usual));
        if self.guest != self.name {
            line.push_str(&format!(" row={} {}", self.name, self.options));
        }
        if self.fewer > 1 {
            // In the same proportion.
            line.push_str(&format!(" warm-up={}", WARM_UP / self.fewer));
        }
        line
    }
}

/// How often guests run an operation before they measure it, if they are not told.
const WARM_UP: u64 = 256;

/// Finds rows by name; no names are all rows.
pub fn select(names: &[String]) -> Result<Vec<&'static Row>> {
    let is = |row: &Row, name: &str| row.name == name || name == ROUTES && row.target.is_some();
    for name in names {
        if !ROWS.iter().any(|row| is(row, name)) {
            let known: Vec<&str> = ROWS.iter().map(|row| row.name).chain([ROUTES]).collect();
            return Err(Failure::usage(format!("there is no row `{name}`"))
                .help(crate::config::problem::did_you_mean(name, &known)));
        }
    }
    Ok(ROWS.iter().filter(|row| names.is_empty() || names.iter().any(|name| is(row, name))).collect())
}
