// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O APIC (82093AA; its newer versions have an EOI register).

use crate::mmio;
use crate::platform::platform;

/// The register that selects.
pub const SELECT: u64 = 0;
/// The window to the selected register.
pub const WINDOW: u64 = 0x10;
/// EOI of version 0x20.
pub const EOI: u64 = 0x40;
/// Version and number of pins.
pub const VERSION: u32 = 1;
/// The first register of the redirection table.
pub const TABLE: u32 = 0x10;

/// A pin is masked.
pub const MASKED: u64 = 1 << 16;
/// A pin is a level.
pub const LEVEL: u64 = 1 << 15;
/// An interrupt of a level has been accepted and not ended.
pub const REMOTE_IRR: u64 = 1 << 14;
/// A pin is active low.
pub const LOW: u64 = 1 << 13;
/// The destination is a logical one.
pub const LOGICAL: u64 = 1 << 11;

/// Returns its address.
pub fn base() -> u64 {
    platform().acpi.io_apic
}

/// Reads a register.
pub fn read(register: u32) -> u32 {
    mmio::write32(base() + SELECT, register);
    mmio::read32(base() + WINDOW)
}

/// Writes a register.
pub fn write(register: u32, value: u32) {
    mmio::write32(base() + SELECT, register);
    mmio::write32(base() + WINDOW, value);
}

/// Returns the number of pins.
pub fn pins() -> u32 {
    (read(VERSION) >> 16 & 0xff) + 1
}

/// Reads a pin's entry.
pub fn entry(pin: u32) -> u64 {
    u64::from(read(TABLE + 2 * pin + 1)) << 32 | u64::from(read(TABLE + 2 * pin))
}

/// Writes a pin's entry, masked meanwhile.
pub fn set_entry(pin: u32, entry: u64) {
    write(TABLE + 2 * pin, MASKED as u32);
    write(TABLE + 2 * pin + 1, (entry >> 32) as u32);
    write(TABLE + 2 * pin, entry as u32);
}

/// Routes an interrupt of the ISA bus to a CPU.
pub fn route_isa(irq: u8, vector: u8, destination: u32) {
    let (pin, level) = platform().acpi.isa[usize::from(irq & 15)];
    let mode = if level { LEVEL | LOW } else { 0 };
    set_entry(u32::from(pin), u64::from(destination) << 56 | mode | u64::from(vector));
}

/// The same as a level that is active high, whatever the bus says: its end reaches the I/O APIC.
pub fn route_isa_as_level(irq: u8, vector: u8, destination: u32) {
    let (pin, _) = platform().acpi.isa[usize::from(irq & 15)];
    set_entry(u32::from(pin), u64::from(destination) << 56 | LEVEL | u64::from(vector));
}

/// Masks all pins.
pub fn mask_all() {
    (0..pins().min(240)).for_each(|pin| set_entry(pin, MASKED));
}
