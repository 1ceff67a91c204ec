// SPDX-License-Identifier: Apache-2.0 OR MIT
//! PCI functions in the device tree (LoPAPR B.6.5; IEEE 1275's binding to PCI). Linux believes what it finds here, and looks for no
//! other functions.
//!
//! The tree is built before any function runs: it describes disks, network devices and sources of random numbers, as which firmware would have found them.

use alloc::format;

use turnstile_papr::rtas::pci::UNIT;
use vm_fdt::{Error, FdtWriter};

use crate::functions::{FunctionKind, Functions};

use super::{PCI, PCI_SOURCES, pci_bars};

/// Where configuration space, and memory of 32 bits, are said.
const MEMORY_32: u32 = 2 << 24;
/// The address is no other than this.
const FIXED: u32 = 1 << 31;
/// BARs of a function, the larger first, as they are placed: number, bytes.
const BARS: [(u32, u32); 2] = [(4, 0x4000), (1, 0x1000)];

/// What firmware would have found a function to be.
struct Kind {
    /// The name of its node (IEEE 1275's binding to PCI, 2.5, by the class).
    node: &'static str,
    device: u32,
    class: u32,
}

const DISK: Kind = Kind { node: "scsi", device: 0x1042, class: 0x01_8000 };
const NETWORK: Kind = Kind { node: "ethernet", device: 0x1041, class: 0x02_0000 };
/// It has no class of its own, so its name is its number.
const ENTROPY: Kind = Kind { node: "pci1af4,1044", device: 0x1044, class: 0xff_0000 };

const CONSOLE: Kind = Kind { node: "pci1af4,1043", device: 0x1043, class: 0x07_8000 };

/// As that of random numbers.
const BALLOON: Kind = Kind { node: "pci1af4,1045", device: 0x1045, class: 0xff_0000 };

/// Describes the host bridge and its functions.
pub(super) fn bridge(fdt: &mut FdtWriter, functions: &Functions) -> Result<(), Error> {
    let bus = PCI.base as u32;
    let node = fdt.begin_node(&format!("pci@{UNIT:x}"))?;
    fdt.property_string("device_type", "pci")?;
    fdt.property_string("compatible", "IBM,Logical_PHB")?;
    fdt.property_array_u64("reg", &[UNIT, 0])?;
    fdt.property_u32("#address-cells", 3)?;
    fdt.property_u32("#size-cells", 2)?;
    fdt.property_array_u32("bus-range", &[0, 0])?;
    let (high, low) = ((PCI.base >> 32) as u32, PCI.base as u32);
    fdt.property_array_u32("ranges", &[MEMORY_32, 0, bus, high, low, 0, PCI.size as u32])?;
    fdt.property_u32("ibm,pci-config-space-type", 1)?;
    fdt.property_u32("ibm,pe-total-#msi", functions.count as u32 * PCI_SOURCES)?;
    for slot in (1..).take(functions.count) {
        let kind = match functions.kind(slot) {
            FunctionKind::Disk => &DISK,
            FunctionKind::Network => &NETWORK,
            FunctionKind::Entropy => &ENTROPY,
            FunctionKind::Console => &CONSOLE,
            FunctionKind::Balloon => &BALLOON,
        };
        function(fdt, slot, kind)?;
    }
    fdt.end_node(node)
}

fn function(fdt: &mut FdtWriter, slot: u64, kind: &Kind) -> Result<(), Error> {
    let place = (slot as u32) << 11;
    let mut registers = [[place, 0, 0, 0, 0], [0; 5], [0; 5]];
    let mut assigned = [[0; 5]; 2];
    let mut address = pci_bars(slot) as u32;
    for ((register, assigned), (bar, size)) in registers[1..].iter_mut().zip(&mut assigned).zip(BARS) {
        let name = MEMORY_32 | place | (0x10 + 4 * bar);
        *register = [name, 0, 0, 0, size];
        *assigned = [FIXED | name, 0, address, 0, size];
        address += size;
    }
    let node = fdt.begin_node(&format!("{}@{slot:x}", kind.node))?;
    fdt.property_array_u32("reg", registers.as_flattened())?;
    fdt.property_array_u32("assigned-addresses", assigned.as_flattened())?;
    for (name, value) in [
        ("vendor-id", 0x1af4),
        ("device-id", kind.device),
        ("revision-id", 1),
        ("class-code", kind.class),
        ("subsystem-vendor-id", 0x1af4),
        ("subsystem-id", 0x1100),
        ("ibm,pci-config-space-type", 1),
        ("ibm,req#msi-x", PCI_SOURCES),
    ] {
        fdt.property_u32(name, value)?;
    }
    fdt.end_node(node)
}
