// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rows of the table.

mod arm64;
mod power64;
mod x86_64;

pub use arm64::ROWS;

use super::platform::Platform;
use super::work;
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
    /// Those, and those in which a vCPU is given a facility that another one has used.
    Switch,
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
    /// A facility that is not there yet: FP, SVE and pointer authentication; #NM; the facilities of POWER.
    const FACILITIES: [&str; 5] = ["fp", "sve", "ec-0x09", "exception", "hv-facility-unavailable"];

    /// Whether vCPUs take turns on one CPU.
    pub fn is_of_turns(self) -> bool {
        matches!(self, Counted::Wfi | Counted::Switch)
    }

    /// Whether visits for this reason make the figure.
    pub fn includes(self, reason: &str) -> bool {
        match self {
            Counted::All => true,
            Counted::Sender => Self::SENDING.contains(&reason),
            Counted::Wfi => Self::WAITING.contains(&reason),
            Counted::Switch => Self::WAITING.contains(&reason) || Self::FACILITIES.contains(&reason),
            Counted::InAll | Counted::Boot => false,
        }
    }
}

/// Where a guest's disk is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disk {
    /// In RAM.
    Ram,
    /// It is the machine's, behind a controller of NVM Express.
    Nvme,
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
    /// Whether a second VM with the same guest takes part, on a network of both.
    pub peer: bool,
    /// Whether each of the two is on a network of its own, behind whose uplinks is one wire.
    pub wired: bool,
    /// Whether the network devices have two pairs of queues, as those of VMs with several vCPUs do.
    pub pairs: bool,
    /// The guest's disk, if it has one.
    pub disk: Option<Disk>,
    /// Whether the guest's memory is from a pool, and it has a balloon, which gives some back.
    pub balloon: bool,
    /// Whether the service has a CPU of its own.
    pub own_cpu: bool,
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
    /// Whether the guest needs a CPU with five levels of page tables.
    pub la57: bool,
    /// Whether an operation sleeps: its time is not that of instructions.
    pub sleeps: bool,
    /// Whether an operation is the first touch of memory, which must be mapped on demand.
    pub touches: bool,
}

/// How vCPUs take turns on one CPU: with equal priorities, so that who is woken waits until the other one waits.
const ONE_CPU: &str = "cpus = [0]\nrealtime = 1";

/// The guest that has a virtio console, and its device.
const TERMINAL: &str = "terminal";
const CONSOLE: &str = "console = \"virtio\"\n";
/// Virtio devices are behind MMIO.
const MMIO: &str = "virtio = \"mmio\"\n";

/// What the guest measures after a boot.
const NULL: &str = "null-hypercall";
/// A boot.
const BOOT: Row = Row {
    guest: NULL,
    counted: Counted::Boot,
    ..simple("boot", "the hypervisor's start, to a guest's first instruction")
};

/// Whether an operation of the row is the same on all subjects. A first touch is not: it clears as much as a subject maps.
pub fn is_alike(name: &str) -> bool {
    !Isa::ALL.iter().flat_map(|&isa| of(isa)).any(|row| row.name == name && row.touches)
}

/// A row whose operation takes time: it is measured fewer times than others, but often enough for the visits of the console to be
/// far fewer.
const fn timed(row: Row) -> Row {
    Row { fewer: 16, least: 4096, ..row }
}

/// A row of a disk controller, for which each operation waits.
const fn drive(row: Row) -> Row {
    Row { fewer: 32, least: 2048, ..row }
}

/// A row of blocks of 2 MiB that a service touches or gives back. Each is cleared, which takes long: there are few operations, but they must be more than the
/// visits of the console and of the driver's beginning.
const fn of_blocks(row: Row, operations: u64) -> Row {
    Row { fewer: 128, least: operations, ..row }
}

/// A row that rings a service, which may have to stay inside as long as all of it takes: it is measured fewer times.
const fn ringing(row: Row) -> Row {
    Row { fewer: 4, ..row }
}

/// A row whose operation sleeps.
const fn sleeping(row: Row) -> Row {
    Row { sleeps: true, ..timed(row) }
}

/// The rows of an architecture.
pub fn of(isa: Isa) -> &'static [Row] {
    match isa {
        Isa::Arm64 => &arm64::ROWS,
        Isa::X86_64 => &x86_64::ROWS,
        Isa::Power64 => &power64::ROWS,
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
        peer: false,
        wired: false,
        pairs: false,
        disk: None,
        balloon: false,
        own_cpu: false,
        memory: 16,
        counted,
        target: None,
        fewer: 1,
        least: 0,
        la57: false,
        sleeps: false,
        touches: false,
    }
}

impl Row {
    /// Whether a platform has what the row needs.
    pub fn is_on(&self, platform: &Platform) -> bool {
        // A Raspberry Pi in QEMU has less than 1 GiB, and its boot is not that of QEMU's own boards.
        let fits = platform.board != Board::Rpi4 || !self.touches && self.counted != Counted::Boot;
        let has_levels = !self.la57 || platform.cpu == "max";
        // Operations of the machine's own devices take long in QEMU.
        let is_usual = || platform.name == Platform::usual_of(self.isa).name;
        let is_anywhere = self.disk != Some(Disk::Nvme) && !self.wired;
        // Those of a device that has one elsewhere, whose interrupt says what the platform's costs.
        let is_beside = self.guest == TERMINAL || self.balloon || self.disk.is_some() && self.touches;
        let has_devices = is_anywhere && !is_beside && self.lines != MMIO || is_usual();
        self.isa == platform.isa() && self.cpus() <= platform.cpus() && fits && has_levels && has_devices
    }

    /// Whether the guest's counter counts the operation's instructions: it runs while any CPU does, so with several it counts what
    /// others did meanwhile, and it goes on while a CPU sleeps. Of a driver's request a good part is the guest's own.
    pub fn has_counter(&self) -> bool {
        self.vcpus == 1 && !self.drives() && !self.own_cpu && !self.sleeps
    }

    /// Whether the guest has a driver of a virtio device.
    pub fn drives(&self) -> bool {
        self.peer || self.disk.is_some() || self.balloon || self.guest == TERMINAL
    }

    /// Whether the operation rings a doorbell for which nobody has anything to do.
    pub fn rings(&self) -> bool {
        self.name == "doorbell"
    }

    /// How often the operation is measured, where `usual` rows are measured so often.
    pub fn iterations(&self, usual: u64) -> u64 {
        (usual / self.fewer).max(self.least)
    }

    /// The row as Turnstile runs it: it maps a block of 2 MiB at a touch, where others map a page. Of these there are few; they
    /// must be more than the visits of the console.
    pub fn own(&self) -> Row {
        const BLOCKS: u64 = 512;
        // A partition's firmware is in the first 256 MiB: its block has been touched when the guest begins.
        let firmware = if self.isa == Isa::Power64 { 256 } else { 0 };
        match (self.touches, self.disk) {
            (false, _) => *self,
            (true, None) => {
                let options = match self.isa {
                    Isa::Power64 => "order=2097152 from=0x10000000",
                    Isa::Arm64 | Isa::X86_64 => "order=2097152",
                };
                Row { fewer: 128, least: BLOCKS, memory: 2 * BLOCKS + 64 + firmware, options, ..*self }
            }
            (true, Some(_)) => {
                // On PCs there are fewer visits beside them, and no more memory in one piece.
                let blocks = if self.isa == Isa::X86_64 { 800 } else { 1280 };
                Row { memory: 2 * blocks + 64 + firmware, ..of_blocks(*self, blocks) }
            }
        }
    }

    /// The rest of the VM's table in a configuration. If the row has a second VM, it is on this network.
    pub fn table(&self, network: &str) -> String {
        let Row { memory, vcpus, .. } = self;
        let mut table = format!("memory = \"{memory}MiB\"\nvcpus = {vcpus}\n");
        if self.isa == Isa::Arm64 {
            table.push_str(&format!("pmu = \"{}\"\n", if self.pmu { "trapped" } else { "off" }));
        }
        table.push_str(self.lines);
        if self.peer {
            let port = match self.pairs {
                true => format!("{{ network = \"{network}\", queues = 2 }}"),
                false => format!("\"{network}\""),
            };
            table.push_str(&format!("networks = [{port}]\n"));
        }
        if self.disk.is_some() {
            table.push_str("disks = [\"data\"]\n");
        }
        if self.touches {
            table.push_str("mapping = \"on-demand\"\n");
        }
        if self.balloon {
            table.push_str("mapping = \"from-pool\"\nballoon = true\n");
        }
        if let Some(lines) = self.shared {
            table.push_str(&format!("schedule = \"shared\"\n{lines}\n"));
        }
        table
    }

    /// How many physical CPUs the vCPUs run on.
    pub fn cpus(&self) -> u16 {
        if self.shared.is_some() { 1 } else { self.vcpus + u16::from(self.peer) + u16::from(self.own_cpu) }
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
            let work = work::rows::WORK.iter().map(|work| work.name);
            let words = [ROUTES, work::rows::ALL];
            let known: Vec<&str> = rows.iter().map(|row| row.name).chain(work).chain(words).collect();
            return Err(Failure::usage(format!("there is no row `{name}` for {isa}"))
                .help(crate::config::problem::did_you_mean(name, &known)));
        }
    }
    Ok(rows.iter().filter(|row| names.is_empty() || names.iter().any(|name| is(row, name))).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(isa: Isa, name: &str) -> &'static Row {
        select(isa, &[name.to_owned()]).unwrap()[0]
    }

    #[test]
    fn a_switch_is_the_wait_and_what_is_handed_over() {
        assert!(
            ["wfx", "fp", "ec-0x09", "hv-facility-unavailable"]
                .iter()
                .all(|why| Counted::Switch.includes(why))
        );
        assert!(!Counted::Switch.includes("sysreg") && !Counted::Wfi.includes("fp"));
        assert!(Counted::Switch.is_of_turns() && !Counted::All.is_of_turns());
    }

    #[test]
    fn a_touch_is_of_blocks_that_fit_into_memory() {
        for isa in Isa::ALL {
            for row in of(isa).iter().filter(|row| row.touches).map(Row::own) {
                let blocks = row.iterations(ITERATIONS) + WARM_UP / row.fewer;
                assert!(2 * blocks + 16 < row.memory, "{} on {isa}", row.name);
                assert!(row.table("").contains("mapping = \"on-demand\""));
            }
            let row = row(isa, "give-back");
            assert!(
                row.table("").contains("mapping = \"from-pool\"\nballoon = true\n") && !row.has_counter()
            );
        }
        assert!(
            row(Isa::Power64, "touch-lent")
                .own()
                .cmdline(ITERATIONS)
                .ends_with("untouched from=0x10000000 warm-up=2")
        );
    }

    #[test]
    fn a_row_is_where_its_guest_has_what_it_needs() {
        let on = |name: &str, platform: &str| {
            let platforms = Platform::select(Isa::X86_64, &[platform.to_owned()]);
            row(Isa::X86_64, name).is_on(platforms[0])
        };
        assert!(on("device-access-la57", "q35-max") && !on("device-access-la57", "q35-epyc"));
        assert!(on("io-apic", "q35-epyc"));
        assert!(on("drive-read", "q35-max") && !on("drive-read", "pc-max"));
    }

    #[test]
    fn time_is_instructions_where_one_cpu_never_sleeps() {
        assert!(row(Isa::Arm64, "timer-interrupt").has_counter());
        assert!(
            !row(Isa::Arm64, "sleep-wake").has_counter() && !row(Isa::Arm64, "virtual-ipi").has_counter()
        );
    }
}
