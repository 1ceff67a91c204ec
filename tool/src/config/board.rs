// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The boards, and what is fixed about each.

use std::fmt;

use turnstile_bundle::GicVersion;

use crate::isa::Isa;

/// The processor models that the machine can have. Those of Armv8.0, which have no VHE, come last.
const CPU_MODELS: [&str; 10] = [
    "max",
    "neoverse-n1",
    "neoverse-n2",
    "neoverse-v1",
    "cortex-a55",
    "cortex-a76",
    "cortex-a710",
    "cortex-a53",
    "cortex-a57",
    "cortex-a72",
];
/// The processor models of PCs that have SVM.
const PC_MODELS: [&str; 5] = ["max", "EPYC", "EPYC-Rome", "EPYC-Milan", "EPYC-Genoa"];

/// The processor of each of QEMU's machines for POWER.
const POWER_MODELS: [&str; 2] = ["power9", "power10"];

/// A physical machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Board {
    /// QEMU's virt, with the processors, interrupt controller and memory that are asked for
    #[default]
    Virt,
    /// Raspberry Pi 4 Model B; in QEMU raspi4b
    Rpi4,
    /// QEMU's q35, a PC with PCI Express
    Q35,
    /// QEMU's pc, a PC of the nineties
    Pc,
    /// QEMU's microvm, a PC without PCI and BIOS
    Microvm,
    /// QEMU's powernv9, a machine with POWER9 and OPAL
    Powernv9,
    /// QEMU's powernv10, a machine with Power10 and OPAL
    Powernv10,
}

impl Board {
    /// Every board, in the order in which messages list them.
    pub const ALL: [Board; 7] =
        [Board::Virt, Board::Rpi4, Board::Q35, Board::Pc, Board::Microvm, Board::Powernv9, Board::Powernv10];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        match self {
            Board::Virt => "virt",
            Board::Rpi4 => "rpi4",
            Board::Q35 => "q35",
            Board::Pc => "pc",
            Board::Microvm => "microvm",
            Board::Powernv9 => "powernv9",
            Board::Powernv10 => "powernv10",
        }
    }

    /// Its architecture.
    pub fn isa(self) -> Isa {
        match self {
            Board::Virt | Board::Rpi4 => Isa::Arm64,
            Board::Q35 | Board::Pc | Board::Microvm => Isa::X86_64,
            Board::Powernv9 | Board::Powernv10 => Isa::Power64,
        }
    }

    /// The board of an architecture for which no board is asked.
    pub fn usual(isa: Isa) -> Self {
        match isa {
            Isa::Arm64 => Board::Virt,
            Isa::X86_64 => Board::Q35,
            Isa::Power64 => Board::Powernv9,
        }
    }

    /// The processor models that it can have, the usual one first.
    pub fn models(self) -> &'static [&'static str] {
        match self {
            Board::Virt | Board::Rpi4 => &CPU_MODELS,
            Board::Q35 | Board::Pc | Board::Microvm => &PC_MODELS,
            Board::Powernv9 => &POWER_MODELS[..1],
            Board::Powernv10 => &POWER_MODELS[1..],
        }
    }

    /// What cannot be changed about it; `None` if everything can.
    pub(super) fn fixed(self) -> Option<Fixed> {
        match self {
            Board::Virt | Board::Q35 | Board::Pc | Board::Microvm | Board::Powernv9 | Board::Powernv10 => {
                None
            }
            Board::Rpi4 => Some(Fixed {
                cpu: "cortex-a72",
                cpus: 4,
                gic: GicVersion::V2,
                memory: &[1 << 30, 2 << 30, 4 << 30, 8 << 30],
                kept: 76 << 20,
                emulated: 960 << 20,
            }),
        }
    }

    /// How many PCI functions that services drive it can have: network cards and disk controllers.
    pub fn functions(self) -> usize {
        match self {
            Board::Microvm | Board::Rpi4 => 0,
            // Each is below a bridge of its own, and a chip has six.
            Board::Powernv9 | Board::Powernv10 => 6,
            // Each has a pin of its own.
            Board::Virt => 4,
            // Their buses have 32 places, of which some are taken.
            Board::Q35 | Board::Pc => 24,
        }
    }

    /// Whether it has an IOMMU that the hypervisor drives, or QEMU's can have one.
    pub fn has_iommu(self) -> bool {
        matches!(self, Board::Virt | Board::Q35 | Board::Powernv9 | Board::Powernv10)
    }

    /// The memory that its firmware is in, if that is in the middle of it.
    pub fn firmware_memory(self) -> Option<Firmware> {
        (self.isa() == Isa::Power64).then_some(Firmware { end: 1 << 30, free: 384 << 20 })
    }

    /// The memory that it has in QEMU, in bytes; `None` if that is as the user likes.
    pub fn emulated_memory(self) -> Option<u64> {
        self.fixed().map(|fixed| fixed.emulated)
    }
}

impl fmt::Display for Board {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Memory in whose middle the firmware is: all machines have that much.
pub struct Firmware {
    /// Where it ends, in bytes.
    pub end: u64,
    /// What of it is free in one piece.
    pub free: u64,
}

/// What a real board has.
pub(super) struct Fixed {
    pub(super) cpu: &'static str,
    pub(super) cpus: u64,
    pub(super) gic: GicVersion,
    /// The sizes of memory with which it is sold.
    pub(super) memory: &'static [u64],
    /// What of it its firmware keeps.
    pub(super) kept: u64,
    /// The memory that it has in QEMU.
    pub(super) emulated: u64,
}
