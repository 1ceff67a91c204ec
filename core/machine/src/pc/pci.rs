// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The PCI bus in the ACPI namespace: the host bridge with its resources, and who keeps the addresses of MMCONFIG.

use alloc::vec;
use alloc::vec::Vec;

use acpi_tables::Aml;
use acpi_tables::aml;

use super::{PCI_CONFIGURATION, PCI_MEMORY, PCI_PORTS};

/// What [`aml::Method`] calls a host bridge's `_OSC` with (PCI Firmware Specification 3.0, 4.5.1).
const OSC: &str = "33db4d5b-1ff7-401c-9657-7441c03dd766";
/// `_OSC`, first word of the answer: the UUID is not known (ACPI 6.5, 6.2.11.1).
const UNKNOWN: u8 = 1 << 2;

/// Returns the devices that a machine with PCI functions has beside the others.
pub(super) fn devices() -> Vec<u8> {
    let mut bytes = bridge();
    bytes.extend(keeper());
    bytes
}

/// The host bridge. No function has an interrupt pin: there is no `_PRT`.
fn bridge() -> Vec<u8> {
    let ports = (PCI_PORTS, PCI_PORTS + 7);
    let bus = aml::AddressSpace::new_bus_number(0u16, 0);
    let own = aml::IO::new(ports.0, ports.0, 1, 8);
    let below = aml::AddressSpace::new_io(0u16, ports.0 - 1, None);
    let above = aml::AddressSpace::new_io(ports.1 + 1, u16::MAX, None);
    let (first, last) = (PCI_MEMORY.start as u32, (PCI_MEMORY.end - 1) as u32);
    let memory =
        aml::AddressSpace::new_memory(aml::AddressSpaceCacheable::NotCacheable, true, first, last, None);
    let resources = aml::ResourceTemplate::new(vec![&bus, &own, &below, &above, &memory]);
    let mut bytes = Vec::new();
    aml::Device::new(
        "PCI0".into(),
        vec![
            &aml::Name::new("_HID".into(), &aml::EISAName::new("PNP0A08")),
            &aml::Name::new("_CID".into(), &aml::EISAName::new("PNP0A03")),
            &aml::Name::new("_UID".into(), &aml::ZERO),
            &aml::Name::new("_SEG".into(), &aml::ZERO),
            &aml::Name::new("_BBN".into(), &aml::ZERO),
            &aml::Name::new("_CRS".into(), &resources),
            &Control,
        ],
    )
    .to_aml_bytes(&mut bytes);
    bytes
}

/// `_OSC` of the host bridge: the guest may control all that it asks for. No firmware wants any of it.
struct Control;

impl Aml for Control {
    fn to_aml_bytes(&self, sink: &mut dyn acpi_tables::AmlSink) {
        let (uuid, words, error) = (aml::Arg(0), aml::Arg(3), aml::Path::new("CDW1"));
        let refused = aml::Or::new(&error, &error, &UNKNOWN);
        aml::Method::new(
            "_OSC".into(),
            4,
            false,
            vec![
                &aml::CreateDWordField::new(&error, &words, &aml::ZERO),
                &aml::If::new(&aml::NotEqual::new(&uuid, &aml::Uuid::new(OSC)), vec![&refused]),
                &aml::Return::new(&words),
            ],
        )
        .to_aml_bytes(sink);
    }
}

/// The resources of the main board: that MMCONFIG's addresses are taken. Linux does not use it otherwise.
fn keeper() -> Vec<u8> {
    let size = PCI_CONFIGURATION.end - PCI_CONFIGURATION.start;
    let memory = aml::Memory32Fixed::new(true, PCI_CONFIGURATION.start as u32, size as u32);
    let mut bytes = Vec::new();
    aml::Device::new(
        "MBRD".into(),
        vec![
            &aml::Name::new("_HID".into(), &aml::EISAName::new("PNP0C02")),
            &aml::Name::new("_UID".into(), &aml::ZERO),
            &aml::Name::new("_CRS".into(), &aml::ResourceTemplate::new(vec![&memory])),
        ],
    )
    .to_aml_bytes(&mut bytes);
    bytes
}
