// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine `pc`: where everything is, the ACPI tables that say so, and how a kernel is placed and entered.
//!
//! It has the addresses and ports of QEMU's `q35` that guests assume. Its devices are in the ACPI tables, or where every PC has them;
//! there is a bus to enumerate if the VM has PCI functions, and none otherwise.

pub mod acpi;
pub mod boot;
mod pci;

use core::ops::Range;

use arrayvec::ArrayVec;

use crate::map::MEMORY_UNIT;

/// The end of the memory of the first megabyte that is one piece: above it PCs have the display and its ROM.
pub const LOW_END: u64 = 0xa_0000;
/// Where a PC has the ROMs of its cards, up to the firmware. Here it is memory that the guest's map does not name: a kernel that looks
/// for ROMs finds none, and looking costs it no exit.
pub const OPTION_ROMS: u64 = 0xc_0000;
/// The memory below 1 MiB where a PC's firmware is: the ACPI tables.
pub const FIRMWARE: u64 = 0xe_0000;
/// The end of the firmware, and the first address of the memory that is one piece up to the hole.
pub const HIGH_START: u64 = 0x10_0000;
/// The hole below 4 GiB, where devices are.
pub const HOLE: u64 = 0xc000_0000;
/// Where memory goes on above the hole.
pub const ABOVE: u64 = 1 << 32;
/// The I/O APIC's registers.
pub const IO_APIC: u64 = 0xfec0_0000;
/// The local APIC's registers, after a reset.
pub const LOCAL_APIC: u64 = 0xfee0_0000;
/// The registers of a service that a VM has beside its devices: a page. Not in ACPI's tables.
pub const SERVICE: u64 = 0xfed8_0000;

/// What BARs of PCI functions can decode: the hole's lower half.
pub const PCI_MEMORY: Range<u64> = HOLE..0xe000_0000;
/// The memory in which firmware places the BARs of a PCI function, by its slot.
const PCI_BARS: u64 = 0x10_0000;
/// The configuration spaces of bus 0 in memory (PCI Express Base Specification, 7.2.2: ECAM; on PCs, MMCONFIG).
pub const PCI_CONFIGURATION: Range<u64> = PCI_MEMORY.end..PCI_MEMORY.end + 0x10_0000;
/// Bytes of [`PCI_CONFIGURATION`] from one slot to the next.
const PCI_SLOT: u64 = 0x8000;
/// Slots of bus 0; the first is the host bridge's.
pub const PCI_SLOTS: u64 = 32;
/// The ports of PCI's configuration mechanism #1, eight of them.
pub const PCI_PORTS: u16 = 0xcf8;

/// The first serial port, a 16550.
pub const COM1: u16 = 0x3f8;
/// ACPI's PM1 event block, PM1 control block and timer.
pub const ACPI_PM: u16 = 0x600;
/// The port whose writes stop the VM: QEMU's `isa-debug-exit`.
pub const DEBUG_EXIT: u16 = 0xf4;

/// The 8254's interrupt line. On the I/O APIC it is [`TIMER_PIN`].
pub const TIMER_IRQ: u8 = 0;
/// The I/O APIC's pin of the 8254: line 0 is the cascade of the 8259s there.
pub const TIMER_PIN: u8 = 2;
/// The interrupt line of [`SERVICE`].
pub const SERVICE_IRQ: u8 = 5;
/// COM1's interrupt line, an edge.
pub const COM1_IRQ: u8 = 4;
/// The clock's interrupt line, an edge.
pub const CMOS_IRQ: u8 = 8;
/// ACPI's interrupt line (SCI): level, active high.
pub const SCI_IRQ: u8 = 9;

/// Pieces of RAM at most.
pub const MAX_PIECES: usize = 4;

/// A list of ranges of RAM: addresses and sizes in bytes.
pub type Pieces = ArrayVec<(u64, u64), MAX_PIECES>;

/// Returns how much of so many bytes of memory is below the hole, and how much above 4 GiB. Memory is counted from address
/// zero: what the first megabyte lacks is lost.
#[must_use]
pub const fn split(memory: u64) -> [u64; 2] {
    if memory <= HOLE { [memory, 0] } else { [HOLE, memory - HOLE] }
}

/// Returns the RAM of a machine with so many bytes of memory, at least [`crate::map::MIN_MEMORY`], in ascending order.
#[must_use]
pub fn ram(memory: u64) -> Pieces {
    let [low, high] = split(memory);
    let all = [(0, LOW_END), (OPTION_ROMS, low.saturating_sub(OPTION_ROMS)), (ABOVE, high)];
    all.into_iter().filter(|(_, size)| *size > 0).collect()
}

/// Returns how many bytes of that RAM are in whole units of [`MEMORY_UNIT`]; the first one is never whole.
#[must_use]
pub fn whole_units(memory: u64) -> u64 {
    let whole = |(start, size): (u64, u64)| {
        let end = start + size;
        (end - end % MEMORY_UNIT).saturating_sub(start.next_multiple_of(MEMORY_UNIT))
    };
    ram(memory).into_iter().map(whole).sum()
}

/// What a range of addresses is to the guest: types of the E820 map (ACPI 6.5, table 15.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Use {
    /// Memory to use.
    Ram = 1,
    /// Nothing to use.
    Reserved = 2,
    /// The ACPI tables.
    Acpi = 3,
}

/// A line of the map that a guest is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Its first address.
    pub base: u64,
    /// Its bytes.
    pub size: u64,
    /// What it is.
    pub kind: Use,
}

/// Returns the address at which firmware places the BARs of the PCI function in a slot below [`PCI_SLOTS`].
#[must_use]
pub const fn pci_bars(slot: u64) -> u64 {
    PCI_MEMORY.start + slot * PCI_BARS
}

/// Returns the address of the configuration space of the PCI function in a slot below [`PCI_SLOTS`].
#[must_use]
pub const fn pci_configuration(slot: u64) -> u64 {
    PCI_CONFIGURATION.start + slot * PCI_SLOT
}

/// Returns the map that a guest is given; with so many PCI functions.
#[must_use]
pub fn regions(memory: u64, functions: usize) -> ArrayVec<Region, 8> {
    let [low, high] = split(memory);
    let configuration = if functions == 0 { 0 } else { PCI_CONFIGURATION.end - PCI_CONFIGURATION.start };
    let all = [
        Region { base: 0, size: LOW_END, kind: Use::Ram },
        Region { base: FIRMWARE, size: HIGH_START - FIRMWARE, kind: Use::Acpi },
        Region { base: HIGH_START, size: low.saturating_sub(HIGH_START), kind: Use::Ram },
        Region { base: PCI_CONFIGURATION.start, size: configuration, kind: Use::Reserved },
        Region { base: IO_APIC, size: 0x1000, kind: Use::Reserved },
        Region { base: LOCAL_APIC, size: 0x1000, kind: Use::Reserved },
        Region { base: ABOVE, size: high, kind: Use::Ram },
    ];
    all.into_iter().filter(|region| region.size > 0).collect()
}
