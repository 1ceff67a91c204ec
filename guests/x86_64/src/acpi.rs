// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The few facts of ACPI tables that guests need (ACPI 6.5, chapter 5): CPUs and interrupt controllers from the MADT,
//! power-off and reset from FADT and DSDT, PCI's configuration spaces from the MCFG.

use turnstile_guests_common::list::List;

use crate::cpu::MAX_CPUS;

/// What a reset register is, and what is written to it.
#[derive(Clone, Copy)]
pub struct Reset {
    /// The I/O port.
    pub port: u16,
    /// The value.
    pub value: u8,
}

/// What the tables say.
pub struct Facts {
    /// Whether there are tables.
    pub present: bool,
    /// APIC identifiers of the CPUs that can be used.
    pub cpus: List<u32, MAX_CPUS>,
    /// The address of the first I/O APIC.
    pub io_apic: u64,
    /// The I/O APIC's pin of each interrupt of the ISA bus, and whether it is a level, active low.
    pub isa: [(u8, bool); 16],
    /// PM1a_CNT_BLK, or zero.
    pub pm1a_control: u16,
    /// PM1a_EVT_BLK, or zero.
    pub pm1a_event: u16,
    /// PM_TMR_BLK, or zero.
    pub pm_timer: u16,
    /// SLP_TYP of S5.
    pub s5: Option<u16>,
    /// The reset register, if it is a port.
    pub reset: Option<Reset>,
    /// Where the configuration spaces of bus 0 are in memory, or zero.
    pub configuration: u64,
}

impl Facts {
    /// A machine without ACPI: the usual addresses of a PC.
    pub const NONE: Facts = Facts {
        present: false,
        cpus: List::new(0),
        io_apic: 0xfec0_0000,
        isa: [
            (0, false),
            (1, false),
            (2, false),
            (3, false),
            (4, false),
            (5, false),
            (6, false),
            (7, false),
            (8, false),
            (9, false),
            (10, false),
            (11, false),
            (12, false),
            (13, false),
            (14, false),
            (15, false),
        ],
        pm1a_control: 0,
        pm1a_event: 0,
        pm_timer: 0,
        s5: None,
        reset: None,
        configuration: 0,
    };
}

/// Memory below 4 GiB, which is mapped; reads elsewhere give zeros.
fn byte(address: u64) -> u8 {
    if address >= 4 << 30 {
        return 0;
    }
    // SAFETY: mapped; tables are in memory of the firmware, which this program does not use.
    unsafe { (address as *const u8).read_volatile() }
}

fn number(address: u64, bytes: u64) -> u64 {
    (0..bytes).fold(0, |value, index| value | u64::from(byte(address + index)) << (8 * index))
}

fn has(address: u64, text: &[u8]) -> bool {
    (0..).zip(text).all(|(index, wanted)| byte(address + index) == *wanted)
}

/// The address and bytes of a table, header included.
#[derive(Clone, Copy)]
struct Table {
    address: u64,
    length: u64,
}

fn table(address: u64) -> Table {
    Table { address, length: number(address + 4, 4).min(1 << 20) }
}

/// Reads the tables; `root` is the RSDP's address, or zero if it is to be searched for.
pub fn read(root: u64) -> Facts {
    let mut facts = Facts::NONE;
    let root = match root {
        0 => (0xe_0000..0x10_0000).step_by(16).find(|address| has(*address, b"RSD PTR ")),
        root => Some(root).filter(|root| has(*root, b"RSD PTR ")),
    };
    let Some(root) = root else { return facts };
    let extended = byte(root + 15) >= 2 && number(root + 24, 8) != 0;
    let (list, size) = match extended {
        true => (table(number(root + 24, 8)), 8),
        false => (table(number(root + 16, 4)), 4),
    };
    facts.present = true;
    let entries = list.length.saturating_sub(36) / size;
    for entry in (0..entries).map(|index| number(list.address + 36 + index * size, size)) {
        if has(entry, b"APIC") {
            read_madt(&mut facts, table(entry));
        } else if has(entry, b"FACP") {
            read_fadt(&mut facts, table(entry));
        } else if has(entry, b"MCFG") {
            // PCI Firmware Specification 3.0, 4.1.2: the first segment's.
            facts.configuration = number(entry + 44, 8);
        }
    }
    facts
}

/// Section 5.2.12.
fn read_madt(facts: &mut Facts, madt: Table) {
    let mut entry = madt.address + 44;
    let end = madt.address + madt.length;
    let mut found_io_apic = false;
    while entry + 2 <= end {
        let length = u64::from(byte(entry + 1));
        match byte(entry) {
            0 if number(entry + 4, 4) & 3 != 0 => facts.cpus.push(u32::from(byte(entry + 3))),
            9 if number(entry + 8, 4) & 3 != 0 => facts.cpus.push(number(entry + 4, 4) as u32),
            1 if !found_io_apic => {
                found_io_apic = true;
                facts.io_apic = number(entry + 4, 4);
            }
            2 => {
                if let Some(slot) = facts.isa.get_mut(usize::from(byte(entry + 3))) {
                    *slot = (number(entry + 4, 4) as u8, number(entry + 8, 2) & 0xc == 0xc);
                }
            }
            _ => {}
        }
        if length < 2 {
            return;
        }
        entry += length;
    }
}

/// Section 5.2.9.
fn read_fadt(facts: &mut Facts, fadt: Table) {
    const RESET_REG_SUP: u64 = 1 << 10;
    const SYSTEM_IO: u8 = 1;
    facts.pm1a_event = number(fadt.address + 56, 4) as u16;
    facts.pm1a_control = number(fadt.address + 64, 4) as u16;
    facts.pm_timer = number(fadt.address + 76, 4) as u16;
    let register = fadt.address + 116;
    if fadt.length >= 129 && number(fadt.address + 112, 4) & RESET_REG_SUP != 0 && byte(register) == SYSTEM_IO
    {
        facts.reset = Some(Reset { port: number(register + 4, 8) as u16, value: byte(fadt.address + 128) });
    }
    let dsdt = match number(fadt.address + 140, 8) {
        address if fadt.length >= 148 && address != 0 => address,
        _ => number(fadt.address + 40, 4),
    };
    facts.s5 = read_s5(table(dsdt));
}

/// The first element of the package `\_S5`: name, package operator, length, number of elements, then it (section 7.4.2).
fn read_s5(dsdt: Table) -> Option<u16> {
    const PACKAGE: u8 = 0x12;
    const BYTE_PREFIX: u8 = 0x0a;
    let name = (dsdt.address..dsdt.address + dsdt.length).find(|address| has(*address, b"_S5_"))?;
    let package = name + 4;
    if byte(package) != PACKAGE {
        return None;
    }
    // The two highest bits say how many more bytes the length has.
    let first = package + 1 + u64::from(byte(package + 1) >> 6) + 2;
    Some(u16::from(match byte(first) {
        BYTE_PREFIX => byte(first + 1),
        value => value,
    }))
}
