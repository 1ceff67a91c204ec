// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads what boot loader and firmware say about the machine: those of a PC, or a device tree.
//!
//! | file | what |
//! |---|---|
//! | `boot` | what the boot loader passes, by PVH or by multiboot2 |
//! | `tables` | the ACPI tables and their checksums |
//! | `madt`, `fadt` | CPUs and I/O APICs; power and timers |
//! | [`ivrs`] | IOMMUs, and what is behind them |
//! | `clock` | the real-time clock |
//! | `mp` | MultiProcessor tables, for machines without ACPI |
//! | `tree` | the device tree, on machines other than PCs |
//!
//! All of it is safe code over [`Physical`]. A table that has a wrong length, or points nowhere or to itself, is an error or is
//! skipped. No chain is followed for more than a fixed number of steps.
#![no_std]
#![forbid(unsafe_code)]

pub mod boot;
mod bytes;
pub mod clock;
mod fadt;
pub mod ivrs;
mod madt;
mod mp;
mod tables;
pub mod tree;

use arrayvec::ArrayVec;

pub use boot::{BootInfo, Error, Region};
pub use fadt::{Power, Register, Space};
pub use tables::find_rsdp;

/// The most physical CPUs that are remembered.
pub const MAX_CPUS: usize = 512;
/// The most I/O APICs that are remembered.
pub const MAX_IO_APICS: usize = 16;
/// Interrupts of the ISA bus.
pub const ISA_IRQS: usize = 16;

/// Physical memory, to be read.
pub trait Physical {
    /// Returns `length` bytes at a physical address, if they can be read.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]>;
}

/// A range of physical addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

impl Range {
    /// Says whether all of `other` lies in this range.
    pub fn contains(&self, other: Self) -> bool {
        let end = |range: &Self| range.base.checked_add(range.size);
        self.base <= other.base && end(&other).is_some_and(|last| end(self).is_none_or(|own| last <= own))
    }
}

/// An I/O APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IoApic {
    /// Its identification.
    pub id: u8,
    /// Where its registers are.
    pub address: u64,
    /// The number, among all interrupts of the system, of its first input.
    pub first: u32,
}

/// How an interrupt of the ISA bus reaches an I/O APIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number among all interrupts of the system.
    pub number: u32,
    /// It is active when low.
    pub active_low: bool,
    /// It is level-triggered.
    pub level: bool,
}

impl Line {
    const fn isa(irq: u32) -> Self {
        Self { number: irq, active_low: false, level: false }
    }

    /// As the flags of both kinds of tables say; ISA is active high and edge-triggered by itself.
    const fn with_flags(number: u32, flags: u16) -> Self {
        Self { number, active_low: flags & 0b11 == 0b11, level: flags >> 2 & 0b11 == 0b11 }
    }
}

/// What the firmware's tables say of the machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Identifications of the local APICs of CPUs that may be used, in the order of the tables.
    pub cpus: ArrayVec<u32, MAX_CPUS>,
    /// I/O APICs.
    pub io_apics: ArrayVec<IoApic, MAX_IO_APICS>,
    /// Interrupts of the ISA bus.
    pub isa: [Line; ISA_IRQS],
    /// Where the local APICs' registers are.
    pub local_apic: u64,
    /// Power and timers.
    pub power: Power,
    /// IOMMUs.
    pub iommus: ivrs::Ivrs,
}

impl Machine {
    fn new() -> Self {
        Self {
            cpus: ArrayVec::new(),
            io_apics: ArrayVec::new(),
            isa: core::array::from_fn(|irq| Line::isa(irq as u32)),
            local_apic: 0xfee0_0000,
            power: Power::default(),
            iommus: ivrs::Ivrs::default(),
        }
    }

    /// Adds a CPU once.
    fn add_cpu(&mut self, id: u32) {
        if !self.cpus.contains(&id) {
            let _ = self.cpus.try_push(id);
        }
    }

    /// Reads the ACPI tables that begin at `rsdp`; without them, or if they name no CPU, the MultiProcessor tables.
    /// `None` if neither is there.
    pub fn read(memory: &impl Physical, rsdp: Option<u64>) -> Option<Self> {
        let mut machine = Self::new();
        if let Some(root) = rsdp.and_then(|address| tables::Root::read(memory, address)) {
            if let Some(table) = root.find(memory, b"FACP") {
                machine.power = fadt::read(memory, table);
            }
            if let Some(table) = root.find(memory, b"APIC") {
                madt::read(table, &mut machine);
            }
            if let Some(table) = root.find(memory, b"IVRS") {
                machine.iommus = ivrs::read(table);
            }
        }
        if machine.cpus.is_empty() {
            mp::read(memory, &mut machine)?;
        }
        (!machine.cpus.is_empty()).then_some(machine)
    }
}
