// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machines on which Turnstile is measured, each with the mode that it has there.

/// The word for all platforms.
pub const ALL: &str = "all";

use turnstile_bundle::Apic;

use crate::config::Board;
use crate::isa::Isa;

/// A board, a processor model, an interrupt controller and a mode.
#[derive(Debug, PartialEq, Eq)]
pub struct Platform {
    /// Its name on the command line and in `bench/budgets.toml`.
    pub name: &'static str,
    /// The board.
    pub board: Board,
    /// QEMU's name of the processor model.
    pub cpu: &'static str,
    /// The version of the interrupt controller of a board for arm64.
    pub gic: u8,
    /// How the local APICs of a PC are reached, if that is not as the processor model has it.
    pub apic: Option<Apic>,
    /// Turnstile's mode there.
    pub mode: &'static str,
    /// Whether the CPU has VHE, and the hypervisor is told to do without.
    pub refused: bool,
}

/// All of them, the one on which all other subjects are measured first.
pub static PLATFORMS: [Platform; 13] = [
    with_vhe("max-gicv3", "max", 3),
    refusing("max-gicv3-nvhe", "max", 3),
    with_vhe("max-gicv2", "max", 2),
    refusing("max-gicv2-nvhe", "max", 2),
    with_vhe("neoverse-n1-gicv3", "neoverse-n1", 3),
    refusing("neoverse-n1-gicv3-nvhe", "neoverse-n1", 3),
    with_vhe("neoverse-n1-gicv2", "neoverse-n1", 2),
    refusing("neoverse-n1-gicv2-nvhe", "neoverse-n1", 2),
    without_vhe("cortex-a57-gicv3", "cortex-a57", 3),
    without_vhe("cortex-a57-gicv2", "cortex-a57", 2),
    without_vhe("cortex-a72-gicv3", "cortex-a72", 3),
    without_vhe("cortex-a72-gicv2", "cortex-a72", 2),
    Platform { board: Board::Rpi4, ..without_vhe("raspi4b", "cortex-a72", 2) },
];

/// The PCs.
pub static PCS: [Platform; 5] = [
    pc("q35-max", Board::Q35, "max"),
    Platform { apic: Some(Apic::Xapic), ..pc("q35-max-xapic", Board::Q35, "max") },
    pc("q35-epyc", Board::Q35, "EPYC"),
    pc("pc-max", Board::Pc, "max"),
    pc("microvm-max", Board::Microvm, "max"),
];

/// The machines with POWER.
pub static POWERS: [Platform; 2] =
    [powernv("powernv9", Board::Powernv9, "power9"), powernv("powernv10", Board::Powernv10, "power10")];

const fn powernv(name: &'static str, board: Board, cpu: &'static str) -> Platform {
    Platform { name, board, cpu, gic: 0, apic: None, mode: "hv", refused: false }
}

const fn pc(name: &'static str, board: Board, cpu: &'static str) -> Platform {
    Platform { name, board, cpu, gic: 0, apic: None, mode: "svm", refused: false }
}

const fn with_vhe(name: &'static str, cpu: &'static str, gic: u8) -> Platform {
    Platform { name, board: Board::Virt, cpu, gic, apic: None, mode: "vhe", refused: false }
}

const fn without_vhe(name: &'static str, cpu: &'static str, gic: u8) -> Platform {
    Platform { mode: "nvhe", ..with_vhe(name, cpu, gic) }
}

const fn refusing(name: &'static str, cpu: &'static str, gic: u8) -> Platform {
    Platform { refused: true, ..without_vhe(name, cpu, gic) }
}

impl Default for &Platform {
    fn default() -> Self {
        Platform::usual()
    }
}

impl Platform {
    /// The one for arm64 on which all subjects are measured.
    pub fn usual() -> &'static Platform {
        Self::usual_of(Isa::Arm64)
    }

    /// The one of an architecture on which all subjects are measured.
    pub fn usual_of(isa: Isa) -> &'static Platform {
        let ([arm64, ..], [pc, ..], [power, ..]) = (&PLATFORMS, &PCS, &POWERS);
        match isa {
            Isa::Arm64 => arm64,
            Isa::X86_64 => pc,
            Isa::Power64 => power,
        }
    }

    /// All of an architecture, the usual one first.
    pub fn of(isa: Isa) -> &'static [Platform] {
        match isa {
            Isa::Arm64 => &PLATFORMS,
            Isa::X86_64 => &PCS,
            Isa::Power64 => &POWERS,
        }
    }

    /// The architecture.
    pub fn isa(&self) -> Isa {
        self.board.isa()
    }

    /// The names that [`Platform::select`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PLATFORMS.iter().chain(&PCS).chain(&POWERS).map(|platform| platform.name).chain([ALL])
    }

    /// Takes platforms of an architecture by name, each once, in the order in which they are given; `all` is all, and
    /// none is the usual one.
    pub fn select(isa: Isa, names: &[String]) -> Vec<&'static Platform> {
        if names.is_empty() {
            return vec![Platform::usual_of(isa)];
        }
        let mut chosen: Vec<&'static Platform> = Vec::new();
        for name in names {
            for platform in Platform::of(isa).iter().filter(|platform| platform.name == name || name == ALL) {
                if !chosen.contains(&platform) {
                    chosen.push(platform);
                }
            }
        }
        chosen
    }

    /// The machine, for people.
    pub fn machine(&self) -> String {
        match self.board {
            Board::Virt => format!("qemu-virt {} gicv{}", self.cpu, self.gic),
            Board::Rpi4 => format!("qemu-raspi4b {} gicv{}", self.cpu, self.gic),
            Board::Q35 | Board::Pc | Board::Microvm => {
                let apic = self.apic.map_or(String::new(), |apic| format!(" {apic}"));
                format!("qemu-{} {}{apic}", self.board, self.cpu)
            }
            Board::Powernv9 | Board::Powernv10 => format!("qemu-{} {}", self.board, self.cpu),
        }
    }

    /// How many CPUs it can have.
    pub fn cpus(&self) -> u16 {
        match (self.board, self.gic) {
            (Board::Rpi4, _) => 4,
            // Each is a bit in a byte of GICD_ITARGETSR (IHI 0048, 4.3.12).
            (Board::Virt, 2) => 8,
            (Board::Virt, _) => 512,
            // As many as an xAPIC's identifiers can name (AMD APM vol. 2, 16.3.3).
            (Board::Q35 | Board::Pc | Board::Microvm, _) => 255,
            // Cores of one chip.
            (Board::Powernv9 | Board::Powernv10, _) => 24,
        }
    }

    /// Its section in `bench/budgets.toml`, for VMs with or without statistics of their exits.
    pub fn budgeted(&self, statistics: bool) -> String {
        let more = if statistics { "-statistics" } else { "" };
        format!("{}{more}", self.name)
    }

    /// The machine in a configuration.
    pub fn table(&self) -> String {
        match self.board {
            Board::Virt => format!("[machine]\ncpu = \"{}\"\ngic = {}\n", self.cpu, self.gic),
            Board::Rpi4 | Board::Powernv9 | Board::Powernv10 => {
                format!("[machine]\nboard = \"{}\"\n", self.board)
            }
            Board::Q35 | Board::Pc | Board::Microvm => {
                let apic = self.apic.map_or(String::new(), |apic| format!("apic = \"{apic}\"\n"));
                format!("[machine]\nboard = \"{}\"\ncpu = \"{}\"\n{apic}", self.board, self.cpu)
            }
        }
    }

    /// Words of the hypervisor's command line.
    pub fn append(&self) -> &'static str {
        if self.refused { "mode=nvhe" } else { "" }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::subjects::Subject;

    fn select(names: &[&str]) -> Vec<&'static str> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        Platform::select(Isa::Arm64, &names).into_iter().map(|platform| platform.name).collect()
    }

    #[test]
    fn names_say_what_they_are() {
        for platform in PLATFORMS.iter().filter(|platform| platform.board == Board::Virt) {
            let refused = if platform.refused { "-nvhe" } else { "" };
            assert_eq!(platform.name, format!("{}-gicv{}{refused}", platform.cpu, platform.gic));
        }
        let first = Platform::usual();
        assert_eq!(first.machine(), "qemu-virt max gicv3");
        assert_eq!(Subject::Turnstile.mode(first), "vhe");
        assert_eq!(Subject::Turnstile.mode(&PLATFORMS[1]), "nvhe");
    }

    #[test]
    fn platforms_are_found_by_name_and_once() {
        assert_eq!(select(&["raspi4b", "max-gicv2", "raspi4b"]), ["raspi4b", "max-gicv2"]);
        assert_eq!(select(&["max-gicv2", ALL]).len(), PLATFORMS.len());
        assert_eq!(select(&[]), ["max-gicv3"]);
        let pcs = Platform::select(Isa::X86_64, &[ALL.to_owned()]);
        assert_eq!((pcs.len(), pcs[0].machine().as_str()), (PCS.len(), "qemu-q35 max"));
        assert!(POWERS.iter().all(|power| power.isa() == Isa::Power64 && power.mode == "hv"));
        assert!(PCS.iter().all(|pc| pc.isa() == Isa::X86_64 && pc.mode == "svm"));
    }
}
