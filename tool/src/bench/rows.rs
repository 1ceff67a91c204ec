// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table.

use super::platform::Platform;
use crate::config::Board;
use crate::failure::{Failure, Result};
use crate::isa::Isa;

/// The usual iterations, with which budgets are recorded. Warming up weighs little against so many.
pub const ITERATIONS: u64 = 65536;
/// The fewest: the visits of warming up must not be taken for those of the measured operations.
pub const FEWEST: u64 = 16384;

/// The word for the rows of SGIs by target.
pub const ROUTES: &str = "sgi-routes";

/// Whose visits outside the guest make the figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Those of all CPUs.
    All,
    /// Those in which the SGI is sent.
    Sender,
    /// Those that begin with WFI, HLT or H_CEDE.
    Wfi,
    /// None: there are none, and the figure is what the operation takes in all.
    InAll,
    /// None: the figure is the hypervisor's boot, to the first instruction of the guest.
    Boot,
}

impl Counted {
    /// Reasons for which a CPU that sends an SGI leaves the guest: a system register of GICv3, GICD_SGIR of GICv2.
    const SENDING: [&str; 2] = ["sysreg", "data-abort"];
    /// What waits.
    const WAITING: [&str; 3] = ["wfx", "hlt", "hcall"];

    /// Whether visits for this reason make the figure.
    pub fn includes(self, reason: &str) -> bool {
        match self {
            Counted::All => true,
            Counted::Sender => Self::SENDING.contains(&reason),
            Counted::Wfi => Self::WAITING.contains(&reason),
            Counted::InAll | Counted::Boot => false,
        }
    }
}

/// One operation that is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// Its name.
    pub name: &'static str,
    /// The architecture.
    pub isa: Isa,
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
    /// More lines of the VM's table.
    pub lines: &'static str,
    /// The guest's memory in MiB.
    pub memory: u64,
    /// What of it is the figure.
    pub counted: Counted,
    /// The vCPU that an SGI goes to, where the figure is to be the same for all.
    pub target: Option<u16>,
    /// This row is measured so many times fewer than others: with many CPUs each operation takes long.
    pub fewer: u64,
    /// It is measured as often as this at least.
    pub least: u64,
    /// Whether an operation is the first touch of memory, which must be mapped on demand.
    pub touches: bool,
}

/// All rows, in the order of the table.
pub const ROWS: [Row; 25] = [
    simple("null-hypercall", "hvc PSCI_VERSION"),
    simple("id-register", "mrs ID_AA64ISAR0_EL1"),
    Row { pmu: true, ..simple("sysreg-trap", "mrs PMSELR_EL0") },
    simple("io-kernel", "read GICD_TYPER"),
    simple("io-user", "read a byte of the UART"),
    sgi("self-sgi", "SGI to itself, IAR, EOIR", 1, "target=0"),
    sgi("self-sgi-overflow", "the same, 12 others pending", 1, "target=0 waiting=12"),
    sgi("self-sgi-overflow-90", "the same, 90 others pending", 1, "target=0 waiting=90"),
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
    Row { touches: true, ..simple("first-touch", "first write to a block of memory") },
    Row { guest: NULL, ..BOOT },
];

/// The rows of PCs, in the order of the table.
pub const PC_ROWS: [Row; 15] = [
    pc("null-hypercall", "vmmcall of a number that is none", 1),
    pc("cpuid", "cpuid leaf 0", 1),
    pc("msr-write", "wrmsr KVM_POLL_CONTROL", 1),
    pc("port-read", "in from the 8259's mask", 1),
    pc("io-apic", "read the I/O APIC's version", 1),
    pc("x2apic-self-ipi-eoi", "interrupt to itself, EOI", 1),
    pc("x2apic-self-ipi-pv-eoi", "the same, paravirtual EOI", 1),
    pc("xapic-self-ipi-eoi", "the same by memory, EOI", 1),
    pc("xapic-self-ipi-pv-eoi", "the same, paravirtual EOI", 1),
    pc("ipi-running", "IPI to a running vCPU, both CPUs", 2),
    pc("ipi-halted", "IPI to a vCPU in hlt and back, both CPUs", 2),
    pc("halt-wake", "hlt with an interrupt pending", 1),
    // Each touch takes a page: fewer, in more memory.
    Row { fewer: 16, memory: 128, touches: true, ..pc("first-touch", "first write to a page of memory", 1) },
    Row {
        shared: Some("cpus = [0]\nrealtime = 1"),
        counted: Counted::Wfi,
        ..pc("vcpu-switch", "hlt of a vCPU to the entry of another", 2)
    },
    Row { isa: Isa::X86_64, guest: "measure", ..BOOT },
];

/// The rows of POWER, in the order of the table.
pub const POWER_ROWS: [Row; 10] = [
    power("null-hypercall", "H_CONFER to nobody", 1),
    power("unknown-hypercall", "a hypercall that is none", 1),
    power("prod-cede", "H_PROD of itself, H_CEDE", 1),
    Row { lines: XICS, ..power("self-ipi-xics", "H_IPI to itself, H_XIRR, H_IPI, H_EOI", 1) },
    Row {
        counted: Counted::InAll,
        lines: XIVE,
        ..power("self-ipi-xive", "the same by XIVE's pages, all of it: no exit", 1)
    },
    Row { lines: XICS, ..power("ipi-ceded", "IPI to a vCPU in H_CEDE and back, both CPUs", 2) },
    // The UART's scratch register: no device tree names the UART.
    Row { options: "mmio=0x10000000007", ..power("mmio-store", "store to a register of a UART", 1) },
    // The size of KVM's pages there: each touch takes one.
    Row {
        fewer: 16,
        memory: 128,
        touches: true,
        options: "order=65536",
        ..power("first-touch", "first write to a page of memory", 1)
    },
    power("facility-fault", "msgsndp to itself, and its interrupt", 1),
    Row {
        shared: Some("cpus = [0]\nrealtime = 1"),
        counted: Counted::Wfi,
        lines: XIVE,
        ..power("vcpu-switch", "H_CEDE of a vCPU to the entry of another", 2)
    },
];

/// What the guest measures after a boot.
const NULL: &str = "null-hypercall";
/// A boot.
const BOOT: Row = Row {
    counted: Counted::Boot,
    ..simple("boot", "the hypervisor's start, to a guest's first instruction")
};

/// What the VMs of some rows have besides.
const XICS: &str = "interrupts = \"xics\"\n";
const XIVE: &str = "interrupts = \"xive\"\n";

/// Whether an operation of the row is the same on all subjects. A first touch is not: it clears as much as a subject maps.
pub fn is_alike(name: &str) -> bool {
    !ROWS.iter().any(|row| row.name == name && row.touches)
}

/// A row of the guest that measures on POWER.
const fn power(name: &'static str, what: &'static str, vcpus: u16) -> Row {
    Row { isa: Isa::Power64, guest: "measure", vcpus, ..simple(name, what) }
}

/// A row of the guest that measures on PCs.
const fn pc(name: &'static str, what: &'static str, vcpus: u16) -> Row {
    Row { isa: Isa::X86_64, guest: "measure", vcpus, ..simple(name, what) }
}

/// The rows of an architecture.
pub fn of(isa: Isa) -> &'static [Row] {
    match isa {
        Isa::Arm64 => &ROWS,
        Isa::X86_64 => &PC_ROWS,
        Isa::Power64 => &POWER_ROWS,
    }
}

/// A row with a guest of its own and one vCPU.
pub const fn simple(name: &'static str, what: &'static str) -> Row {
    let counted = Counted::All;
    Row {
        name,
        isa: Isa::Arm64,
        what,
        guest: name,
        options: "",
        pmu: false,
        vcpus: 1,
        shared: None,
        lines: "",
        memory: 16,
        counted,
        target: None,
        fewer: 1,
        least: 0,
        touches: false,
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
        // A Raspberry Pi in QEMU has less than 1 GiB, and its boot is not that of QEMU's own boards.
        let fits = platform.board != Board::Rpi4 || !self.touches && self.counted != Counted::Boot;
        self.isa == platform.isa() && self.vcpus <= platform.cpus() && fits
    }

    /// How often the operation is measured, where `usual` rows are measured so often.
    pub fn iterations(&self, usual: u64) -> u64 {
        (usual / self.fewer).max(self.least)
    }

    /// The row as Turnstile runs it: it maps a block of 2 MiB at a touch, where others map a page. Of these there are few; they
    /// must be more than the visits of the console.
    pub fn own(&self) -> Row {
        const BLOCKS: u64 = 512;
        if !self.touches {
            return *self;
        }
        Row { fewer: 128, least: BLOCKS, memory: 2 * BLOCKS + 64, options: "order=2097152", ..*self }
    }

    /// The rest of the VM's table in a configuration.
    pub fn table(&self) -> String {
        let Row { memory, vcpus, .. } = self;
        let mut table = format!("memory = \"{memory}MiB\"\nvcpus = {vcpus}\n");
        if self.isa == Isa::Arm64 {
            table.push_str(&format!("pmu = \"{}\"\n", if self.pmu { "trapped" } else { "off" }));
        }
        table.push_str(self.lines);
        if self.touches {
            table.push_str("mapping = \"on-demand\"\n");
        }
        if let Some(lines) = self.shared {
            table.push_str(&format!("schedule = \"shared\"\n{lines}\n"));
        }
        table
    }

    /// The name by which its guest reports.
    pub fn reported(&self) -> &'static str {
        if self.counted == Counted::Boot { NULL } else { self.name }
    }

    /// The guest's command line.
    pub fn cmdline(&self, usual: u64) -> String {
        let mut line = format!("iterations={}", self.iterations(usual));
        if self.guest != self.reported() {
            line.push_str(&format!(" row={}", self.reported()));
        }
        if !self.options.is_empty() {
            line.push_str(&format!(" {}", self.options));
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

/// Finds rows of an architecture by name; no names are all rows.
pub fn select(isa: Isa, names: &[String]) -> Result<Vec<&'static Row>> {
    let rows = of(isa);
    let is = |row: &Row, name: &str| row.name == name || name == ROUTES && row.target.is_some();
    for name in names {
        if !rows.iter().any(|row| is(row, name)) {
            let known: Vec<&str> = rows.iter().map(|row| row.name).chain([ROUTES]).collect();
            return Err(Failure::usage(format!("there is no row `{name}` for {isa}"))
                .help(crate::config::problem::did_you_mean(name, &known)));
        }
    }
    Ok(rows.iter().filter(|row| names.is_empty() || names.iter().any(|name| is(row, name))).collect())
}
