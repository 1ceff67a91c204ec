// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory maps and interrupt numbers of the guest machines.
//!
//! `virt` has the addresses of QEMU's machine of that name, `kvmtool` those of kvmtool on arm64, so that
//! images built for either run unchanged. Interrupts are given as INTIDs (GIC architecture, IHI 0069,
//! section 2.2): PPIs are 16 to 31, SPI *n* is 32 + *n*.

use core::fmt;
use core::str::FromStr;

use crate::gic::{GICC_SIZE, GICD_SIZE, GICR_MORE_SIZE, GicVersion, Gicr, Redistributors};
pub use crate::region::{MAX_VCPUS, Region};

/// The size of the records of stolen time of as many vCPUs (DEN0057: 64 bytes each).
const STOLEN_TIME_SIZE: u64 = 64 * MAX_VCPUS as u64;
/// The smallest guest memory, in bytes.
pub const MIN_MEMORY: u64 = 4 << 20;
/// What a guest's memory size is a multiple of, in bytes: stage 2 is built of blocks at least this large.
pub const MEMORY_UNIT: u64 = 2 << 20;
/// The smallest bank of flash, in bytes: stage 2 shows and hides it in blocks of this size.
pub const MIN_FLASH: u64 = 2 << 20;
/// The size of the guest physical (IPA) space, in bits.
pub const IPA_BITS: u32 = 40;

/// The number of SPIs offered to a guest.
pub const SPI_COUNT: u32 = 96;
/// The number of INTIDs offered to a guest: SGIs, PPIs and SPIs.
pub const INTID_COUNT: u32 = FIRST_SPI + SPI_COUNT;
/// The INTID of SPI 0.
pub const FIRST_SPI: u32 = 32;
/// The INTID of PPI 0.
pub const FIRST_PPI: u32 = 16;
/// The INTID (PPI) of the PMU's overflow interrupt.
pub const PMU_INTID: u32 = 23;
/// The INTID (PPI) of the EL2 physical timer, which the device tree binding wants named; never raised.
pub const TIMER_HYPERVISOR_INTID: u32 = 26;
/// The INTID (PPI) of the virtual timer.
pub const TIMER_VIRTUAL_INTID: u32 = 27;
/// The INTID (PPI) of the secure EL1 timer, which the device tree binding wants named; never raised.
pub const TIMER_SECURE_INTID: u32 = 29;
/// The INTID (PPI) of the non-secure EL1 physical timer.
pub const TIMER_PHYSICAL_INTID: u32 = 30;

/// The register interface of a machine's serial port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UartKind {
    /// Arm PrimeCell UART (DDI 0183).
    Pl011,
    /// 16550A with byte-wide registers one byte apart.
    Uart16550,
}

/// A device with one register region and one interrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Where its registers are.
    pub region: Region,
    /// The INTID of its interrupt.
    pub intid: u32,
}

/// The INTID of the first SPI that is a message's, where a VM has PCI functions.
pub const FIRST_MESSAGE: u32 = 64;
/// How many SPIs messages have.
pub const MESSAGES: u32 = INTID_COUNT - FIRST_MESSAGE;

/// What a VM has beside its other devices if it has PCI functions: one bus.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pci {
    /// The configuration spaces of the bus: 4 KiB for each function (PCI Express 5.0, section 7.2.2).
    pub ecam: Region,
    /// Where BARs can be.
    pub memory: Region,
    /// The GICv2m frame, whose SPIs are [`FIRST_MESSAGE`] and those behind it.
    pub frame: Region,
}

/// What a VM has instead of PCI if its virtio devices are behind MMIO: the n-th has the n-th window of the region, and the n-th SPI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Windows {
    /// Where they are: [`Windows::COUNT`] of them.
    pub region: Region,
    /// The INTID of the first one's interrupt.
    pub first: u32,
}

impl Windows {
    /// The bytes of a window.
    pub const SIZE: u64 = 0x200;
    /// How many there are.
    pub const COUNT: usize = 32;

    const fn at(base: u64) -> Self {
        Self { region: Region { base, size: Self::SIZE * Self::COUNT as u64 }, first: FIRST_SPI + 16 }
    }

    /// Returns a device of this number; `None` if there can be no such one.
    #[must_use]
    pub const fn device(&self, number: usize) -> Option<Device> {
        if number >= Self::COUNT {
            return None;
        }
        let region = Region { base: self.region.base + Self::SIZE * number as u64, size: Self::SIZE };
        Some(Device { region, intid: self.first + number as u32 })
    }

    /// Returns which device begins at an address.
    #[must_use]
    pub const fn number(&self, address: u64) -> Option<usize> {
        let offset = address.wrapping_sub(self.region.base);
        if offset < self.region.size && offset.is_multiple_of(Self::SIZE) {
            Some((offset / Self::SIZE) as usize)
        } else {
            None
        }
    }
}

/// The size of the configuration spaces of a bus.
const ECAM_SIZE: u64 = 1 << 20;

/// A machine's memory map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// The distributor.
    pub gicd: Region,
    /// The CPU interface of a GICv2.
    pub gicc: Region,
    /// Records of stolen time, one for each vCPU: memory beside the RAM.
    pub stolen_time: Region,
    /// The register interface of [`Map::uart`].
    pub uart_kind: UartKind,
    /// The serial port.
    pub uart: Device,
    /// The PL031 real-time clock.
    pub rtc: Device,
    /// The registers of a service that a VM has beside these devices.
    pub service: Device,
    /// PCI.
    pub pci: Pci,
    /// virtio devices behind MMIO.
    pub virtio: Windows,
    /// Where banks of NOR flash can be, and how large each can be.
    pub flash: &'static [Region],
    /// The first address of RAM.
    pub ram_base: u64,
    redistributors: Redistributors,
}

static VIRT: Map = Map {
    gicd: Region { base: 0x0800_0000, size: GICD_SIZE },
    gicc: Region { base: 0x0801_0000, size: GICC_SIZE },
    stolen_time: Region { base: 0x090b_0000, size: STOLEN_TIME_SIZE },
    uart_kind: UartKind::Pl011,
    uart: Device { region: Region { base: 0x0900_0000, size: 0x1000 }, intid: 33 },
    rtc: Device { region: Region { base: 0x0901_0000, size: 0x1000 }, intid: 34 },
    service: Device { region: Region { base: 0x090d_0000, size: 0x1000 }, intid: 35 },
    pci: Pci {
        ecam: Region { base: 0x3f00_0000, size: ECAM_SIZE },
        memory: Region { base: 0x1000_0000, size: 0x2eff_0000 },
        frame: Region { base: 0x0802_0000, size: 0x1000 },
    },
    virtio: Windows::at(0x0a00_0000),
    flash: &[Region { base: 0, size: 64 << 20 }, Region { base: 64 << 20, size: 64 << 20 }],
    ram_base: 0x4000_0000,
    redistributors: Redistributors::Upwards { base: 0x080a_0000, limit: 0x0900_0000, more: 256 << 30 },
};

static KVMTOOL: Map = Map {
    gicd: Region { base: 0x3fff_0000, size: GICD_SIZE },
    gicc: Region { base: 0x3ffd_0000, size: GICC_SIZE },
    stolen_time: Region { base: 0x0102_0000, size: STOLEN_TIME_SIZE },
    uart_kind: UartKind::Uart16550,
    uart: Device { region: Region { base: 0x0100_0000, size: 8 }, intid: 32 },
    rtc: Device { region: Region { base: 0x0101_0000, size: 0x1000 }, intid: 33 },
    service: Device { region: Region { base: 0x0103_0000, size: 0x1000 }, intid: 34 },
    pci: Pci {
        ecam: Region { base: 0x4000_0000, size: ECAM_SIZE },
        memory: Region { base: 0x5000_0000, size: 0x3000_0000 },
        frame: Region { base: 0x0104_0000, size: 0x1000 },
    },
    virtio: Windows::at(0x0300_0000),
    flash: &[Region { base: 0x0200_0000, size: 16 << 20 }],
    ram_base: 0x8000_0000,
    redistributors: Redistributors::Below { base: 0x3fbf_0000, limit: 0x3ffd_0000 },
};

impl Map {
    /// Returns the redistributors of a VM with `vcpus` vCPUs and `memory` bytes of RAM.
    #[must_use]
    pub const fn gicr(&self, vcpus: usize, memory: u64) -> Gicr {
        self.redistributors.place(vcpus, self.ram_base + memory)
    }

    /// Returns the region of `memory` bytes of RAM.
    #[must_use]
    pub const fn ram(&self, memory: u64) -> Region {
        Region { base: self.ram_base, size: memory }
    }

    /// Checks that a VM of `vcpus` vCPUs and `memory` bytes of RAM fits this machine with this controller.
    ///
    /// # Errors
    ///
    /// Says which bound does not hold: the number of vCPUs, or the memory's minimum, multiple or maximum
    /// (RAM, and redistributors behind it, end within the 40-bit IPA space).
    pub const fn check(&self, gic: GicVersion, vcpus: usize, memory: u64) -> Result<(), MapError> {
        if vcpus == 0 || vcpus > gic.max_vcpus() {
            return Err(MapError::Vcpus { gic, vcpus });
        }
        let most = self.max_memory(gic, vcpus);
        if memory < MIN_MEMORY {
            Err(MapError::TooSmall(memory))
        } else if !memory.is_multiple_of(MEMORY_UNIT) {
            Err(MapError::Unaligned(memory))
        } else if memory > most {
            Err(MapError::TooLarge { memory, most })
        } else {
            Ok(())
        }
    }

    /// Returns the banks of flash of a VM that has `size` bytes in each; none if that is zero.
    pub fn flash_banks(&self, size: u64) -> impl Iterator<Item = Region> + use<> {
        let banks = if size == 0 { &[] } else { self.flash };
        banks.iter().map(move |bank| Region { base: bank.base, size })
    }

    /// Checks that this machine can have banks of flash of `size` bytes; zero is none.
    ///
    /// # Errors
    ///
    /// Says what a bank can have, when it cannot have that.
    pub fn check_flash(&self, size: u64) -> Result<(), MapError> {
        let most = self.flash.first().map_or(0, |bank| bank.size);
        match size {
            0 => Ok(()),
            _ if size.is_power_of_two() && (MIN_FLASH..=most).contains(&size) => Ok(()),
            _ => Err(MapError::Flash { size, most }),
        }
    }

    /// Returns the most memory that a VM of `vcpus` vCPUs can have, in bytes.
    const fn max_memory(&self, gic: GicVersion, vcpus: usize) -> u64 {
        let all = (1 << IPA_BITS) - self.ram_base;
        match gic {
            GicVersion::V3 if self.gicr(vcpus, 0).in_first() < vcpus => all - GICR_MORE_SIZE,
            _ => all,
        }
    }
}

/// Returns the affinity fields of a vCPU's `MPIDR_EL1` (Aff3 in bits 39:32, Aff2..Aff0 in bits 23:0),
/// or `None` when there can be no such vCPU.
///
/// This is what the device tree's `reg`, PSCI and the GIC's routing use. Sixteen vCPUs share a cluster
/// (Aff1), because one write of `ICC_SGI1R_EL1` names up to sixteen values of Aff0.
#[must_use]
pub const fn mpidr(vcpu: usize) -> Option<u64> {
    if vcpu < MAX_VCPUS { Some(MPIDRS[vcpu]) } else { None }
}

/// A table, so that sparse affinities are a change of its contents only.
static MPIDRS: [u64; MAX_VCPUS] = {
    let mut table = [0; MAX_VCPUS];
    let mut vcpu = 0;
    while vcpu < MAX_VCPUS {
        table[vcpu] = ((vcpu as u64 / 16) << 8) | (vcpu as u64 % 16);
        vcpu += 1;
    }
    table
};

/// A machine that a guest can ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuestMachine {
    /// The addresses of QEMU's `virt`, with a PL011.
    #[default]
    Virt,
    /// The addresses of kvmtool, with a 16550.
    Kvmtool,
}

impl GuestMachine {
    /// Every machine, in the order in which messages list them.
    pub const ALL: [GuestMachine; 2] = [GuestMachine::Virt, GuestMachine::Kvmtool];

    /// Returns the machine's memory map.
    #[must_use]
    pub const fn map(self) -> &'static Map {
        match self {
            GuestMachine::Virt => &VIRT,
            GuestMachine::Kvmtool => &KVMTOOL,
        }
    }

    /// Returns the machine's name in configurations and bundles.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            GuestMachine::Virt => "virt",
            GuestMachine::Kvmtool => "kvmtool",
        }
    }
}

impl fmt::Display for GuestMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for GuestMachine {
    type Err = UnknownMachine;

    fn from_str(name: &str) -> Result<Self, UnknownMachine> {
        Self::ALL.into_iter().find(|machine| machine.name() == name).ok_or(UnknownMachine)
    }
}

/// The name is not that of a guest machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownMachine;

impl fmt::Display for UnknownMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("there is no such guest machine; use `virt` or `kvmtool`")
    }
}

impl core::error::Error for UnknownMachine {}

/// What does not fit a guest machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MapError {
    /// The number of vCPUs is not 1 to [`GicVersion::max_vcpus`].
    Vcpus {
        /// The interrupt controller.
        gic: GicVersion,
        /// The number asked for.
        vcpus: usize,
    },
    /// The memory, in bytes, is less than [`MIN_MEMORY`].
    TooSmall(u64),
    /// The memory, in bytes, is no multiple of [`MEMORY_UNIT`].
    Unaligned(u64),
    /// A bank of flash cannot have this size.
    Flash {
        /// The size asked for, in bytes.
        size: u64,
        /// The most a bank of this machine can have, in bytes.
        most: u64,
    },
    /// The memory does not fit between the machine's RAM base and the end of the IPA space.
    TooLarge {
        /// The memory asked for, in bytes.
        memory: u64,
        /// The most this machine can have, in bytes.
        most: u64,
    },
}

impl fmt::Display for MapError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapError::Vcpus { vcpus: 0, .. } => f.write_str("there are no vCPUs; give at least 1"),
            MapError::Vcpus { gic, vcpus } => {
                write!(f, "{vcpus} vCPUs are too many for a {gic}; give at most {}", gic.max_vcpus())
            }
            MapError::TooSmall(memory) => {
                write!(f, "{memory} bytes of memory are too few; give at least {} MiB", MIN_MEMORY >> 20)
            }
            MapError::Unaligned(memory) => {
                let below = (memory / MEMORY_UNIT * MEMORY_UNIT) >> 20;
                let above = below + (MEMORY_UNIT >> 20);
                write!(f, "{memory} bytes of memory are no multiple of 2 MiB; give {below} or {above} MiB")
            }
            MapError::Flash { size, most } => {
                write!(
                    f,
                    "a bank of flash cannot have {size} bytes; give a power of two from {} to {} MiB",
                    MIN_FLASH >> 20,
                    most >> 20
                )
            }
            MapError::TooLarge { memory, most } => {
                write!(
                    f,
                    "{memory} bytes of memory do not fit the {IPA_BITS}-bit guest physical address space; \
                     give at most {} MiB",
                    most >> 20
                )
            }
        }
    }
}

impl core::error::Error for MapError {}
