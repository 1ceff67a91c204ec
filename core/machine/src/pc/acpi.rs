// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The ACPI tables of the machine `pc` (ACPI 6.5, section 5.2): RSDP, XSDT, FADT, FACS, MADT, DSDT. They lie in the firmware's
//! memory below 1 MiB, where guests that are told no address look for the RSDP.

use alloc::vec;
use alloc::vec::Vec;

use acpi_tables::Aml;
use acpi_tables::aml;
use acpi_tables::facs::FACS;
use acpi_tables::mcfg::MCFG;
use acpi_tables::rsdp::Rsdp;
use acpi_tables::sdt::{GenericAddress, Sdt};
use turnstile_devices::{AcpiPm, ResetPorts};

use super::{
    ACPI_PM, CMOS_IRQ, COM1, COM1_IRQ, FIRMWARE, HIGH_START, IO_APIC, LOCAL_APIC, PCI_CONFIGURATION, SCI_IRQ,
    TIMER_IRQ, TIMER_PIN, pci,
};

const OEM: [u8; 6] = *b"TRNSTL";
const OEM_TABLE: [u8; 8] = *b"TURNSTIL";
/// The header that all tables but RSDP and FACS begin with.
const HEADER: u32 = 36;
/// Tables start at multiples of this; the FACS demands it.
const ALIGN: usize = 64;
/// The RSDP is searched for at multiples of 16 in this range.
pub const RSDP: u64 = FIRMWARE;
/// The register of the clock that holds the century.
const CENTURY: u8 = 0x32;

/// FADT, `IAPC_BOOT_ARCH`: devices at their usual ports; no keyboard controller, no VGA.
const BOOT_ARCHITECTURE: u16 = 1 << 0 | 1 << 2;
/// The same: no message-signalled interrupts.
const NO_MESSAGES: u16 = 1 << 3;
/// FADT flags: WBINVD works; C1 on every processor; no fixed power and sleep buttons; the clock wakes nobody through a fixed
/// register; the timer has 32 bits; there is a reset register.
const FADT_FLAGS: u32 = 1 << 0 | 1 << 2 | 1 << 4 | 1 << 5 | 1 << 6 | 1 << 8 | 1 << 10;
const FADT_LENGTH: u32 = 276;
/// The largest APIC ID of an entry of eight bits: 255 is the broadcast.
const LAST_SHORT_ID: usize = 254;

/// Returns the tables of a machine with so many vCPUs and PCI functions, to be put at [`FIRMWARE`]; the RSDP is their first byte.
///
/// At most [`crate::map::MAX_VCPUS`]: then they fit the firmware's memory.
#[must_use]
pub fn build(vcpus: usize, functions: usize) -> Vec<u8> {
    let mut tables = Tables { bytes: vec![0; align(Rsdp::len())] };
    let mut facs = Vec::new();
    FACS::new().to_aml_bytes(&mut facs);
    let facs = tables.add(&facs);
    let has_pci = functions > 0;
    let dsdt = tables.add(dsdt(has_pci).as_slice());
    let fadt = tables.add(fadt(facs, dsdt, has_pci).as_slice());
    let madt = tables.add(madt(vcpus).as_slice());
    let mut xsdt = Sdt::new(*b"XSDT", HEADER, 1, OEM, OEM_TABLE, 1);
    xsdt.append(u64::from(fadt));
    xsdt.append(u64::from(madt));
    if has_pci {
        let mut mcfg = Vec::new();
        self::mcfg().to_aml_bytes(&mut mcfg);
        xsdt.append(u64::from(tables.add(&mcfg)));
    }
    let xsdt = tables.add(xsdt.as_slice());
    let mut rsdp = Vec::new();
    Rsdp::new(OEM, xsdt.into()).to_aml_bytes(&mut rsdp);
    tables.bytes[..rsdp.len()].copy_from_slice(&rsdp);
    debug_assert!(tables.bytes.len() as u64 <= HIGH_START - FIRMWARE);
    tables.bytes
}

const fn align(length: usize) -> usize {
    length.next_multiple_of(ALIGN)
}

struct Tables {
    bytes: Vec<u8>,
}

impl Tables {
    /// Appends a table and returns its address.
    fn add(&mut self, table: &[u8]) -> u32 {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(table);
        self.bytes.resize(align(self.bytes.len()), 0);
        FIRMWARE as u32 + at as u32
    }
}

/// FADT (5.2.9). Blocks by their 32-bit fields: they are ports.
fn fadt(facs: u32, dsdt: u32, has_pci: bool) -> Sdt {
    let mut fadt = Sdt::new(*b"FACP", FADT_LENGTH, 6, OEM, OEM_TABLE, 1);
    let pm = u32::from(ACPI_PM);
    fadt.write_u32(36, facs);
    fadt.write_u32(40, dsdt);
    fadt.write_u16(46, SCI_IRQ.into());
    fadt.write_u32(56, pm);
    fadt.write_u32(64, pm + 4);
    fadt.write_u32(76, pm + 8);
    // The lengths of the event block, the control block and the timer.
    fadt.write_bytes(88, &[4, 2]);
    fadt.write_u8(91, 4);
    // Latencies of C2 and C3 that say that there is neither.
    fadt.write_u16(96, 101);
    fadt.write_u16(98, 1001);
    fadt.write_u8(108, CENTURY);
    fadt.write_u16(109, if has_pci { BOOT_ARCHITECTURE } else { BOOT_ARCHITECTURE | NO_MESSAGES });
    fadt.write_u32(112, FADT_FLAGS);
    fadt.write(116, GenericAddress::io_port_address::<u8>(ResetPorts::CONTROL));
    fadt.write_u8(128, ResetPorts::FULL);
    fadt
}

/// MADT (5.2.12). The processors' UIDs and APIC IDs are their numbers.
fn madt(vcpus: usize) -> Sdt {
    const PCAT_COMPATIBLE: u32 = 1;
    const ENABLED: u32 = 1;
    let mut madt = Sdt::new(*b"APIC", HEADER + 8, 5, OEM, OEM_TABLE, 1);
    madt.write_u32(36, LOCAL_APIC as u32);
    madt.write_u32(40, PCAT_COMPATIBLE);
    for id in 0..vcpus {
        if id <= LAST_SHORT_ID {
            append(&mut madt, 0, &[id as u8, id as u8, ENABLED as u8, 0, 0, 0]);
        } else {
            let [id, enabled] = [id as u32, ENABLED].map(u32::to_le_bytes);
            append(&mut madt, 9, &[&[0, 0], &id[..], &enabled, &id].concat());
        }
    }
    let address = (IO_APIC as u32).to_le_bytes();
    append(&mut madt, 1, &[&[0, 0], &address[..], &[0; 4]].concat());
    // Flags: as the bus has it (an edge, active high); level and active high.
    append(&mut madt, 2, &[0, TIMER_IRQ, TIMER_PIN, 0, 0, 0, 0, 0]);
    append(&mut madt, 2, &[0, SCI_IRQ, SCI_IRQ, 0, 0, 0, 0b1101, 0]);
    // LINT1 of all processors is NMI, by both kinds of entries.
    append(&mut madt, 4, &[0xff, 0, 0, 1]);
    if vcpus > LAST_SHORT_ID + 1 {
        append(&mut madt, 10, &[0, 0, 0xff, 0xff, 0xff, 0xff, 1, 0, 0, 0]);
    }
    madt
}

/// Appends an entry of the MADT: its type and length, and what follows.
fn append(madt: &mut Sdt, kind: u8, body: &[u8]) {
    madt.append_slice(&[kind, body.len() as u8 + 2]);
    madt.append_slice(body);
}

/// MCFG (PCI Firmware Specification 3.0, 4.1.2): where the configuration spaces of bus 0 are.
fn mcfg() -> MCFG {
    let mut mcfg = MCFG::new(OEM, OEM_TABLE, 1);
    mcfg.add_ecam(PCI_CONFIGURATION.start, 0, 0, 0);
    mcfg
}

/// DSDT: how to switch the machine off, the serial port, the clock, the PCI bus.
fn dsdt(has_pci: bool) -> Sdt {
    let mut dsdt = Sdt::new(*b"DSDT", HEADER, 2, OEM, OEM_TABLE, 1);
    let s5 = AcpiPm::S5 as u8;
    let s5 = aml::Package::new(vec![&s5, &s5, &aml::ZERO, &aml::ZERO]);
    aml::Name::new("_S5_".into(), &s5).to_aml_bytes(&mut dsdt);
    let port = device("COM1", "PNP0501", COM1, 8, COM1_IRQ);
    let clock = device("RTC_", "PNP0B00", 0x70, 2, CMOS_IRQ);
    let pci = if has_pci { pci::devices() } else { Vec::new() };
    aml::Scope::new("_SB_".into(), vec![&Raw(port), &Raw(clock), &Raw(pci)]).to_aml_bytes(&mut dsdt);
    dsdt.update_checksum();
    dsdt
}

/// AML that is finished already.
struct Raw(Vec<u8>);

impl Aml for Raw {
    fn to_aml_bytes(&self, sink: &mut dyn acpi_tables::AmlSink) {
        sink.vec(&self.0);
    }
}

/// A device with ports and an interrupt line, an edge that is active high.
fn device(name: &str, id: &str, ports: u16, count: u8, line: u8) -> Vec<u8> {
    let (present, unique) = (0xfu8, aml::ZERO);
    let ports = aml::IO::new(ports, ports, 1, count);
    let line = aml::Interrupt::new(true, true, false, false, line.into());
    let mut bytes = Vec::new();
    aml::Device::new(
        name.into(),
        vec![
            &aml::Name::new("_HID".into(), &aml::EISAName::new(id)),
            &aml::Name::new("_UID".into(), &unique),
            &aml::Name::new("_STA".into(), &present),
            &aml::Name::new("_CRS".into(), &aml::ResourceTemplate::new(vec![&ports, &line])),
        ],
    )
    .to_aml_bytes(&mut bytes);
    bytes
}
