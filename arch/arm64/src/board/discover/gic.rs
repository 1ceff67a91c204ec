// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The interrupt controller in the device tree: Linux bindings `arm,gic-v3` and `arm,gic`.

use arrayvec::ArrayVec;
use core::fmt;
use dtoolkit::fdt::{Fdt, FdtNode};
use dtoolkit::standard::NodeStandard;
use turnstile_firmware::Range;
use turnstile_firmware::tree::number;

use super::interrupt::intid;
use super::place::Place;

/// A page of registers, in bytes.
const PAGE: u64 = 0x1000;
/// The size that says that the pages of a CPU interface lie 64 KiB apart.
const SPREAD: u64 = 0x2_0000;
/// What is compatible with a GICv2 that has the virtualization extensions.
const GICV2: [&str; 3] = ["arm,gic-400", "arm,cortex-a15-gic", "arm,cortex-a7-gic"];

/// The interrupt controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GicNode {
    /// A GICv3 or later (IHI 0069).
    V3(V3Node),
    /// A GICv2 with the virtualization extensions (IHI 0048).
    V2(V2Node),
}

/// The registers of a GICv3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V3Node {
    /// Distributor.
    pub distributor: Range,
    /// Redistributor regions.
    pub redistributors: ArrayVec<Range, 8>,
    /// The virtual CPU interface of a GICv2 (GICV), where CPUs can present that to guests, too.
    pub virtual_interface: Option<TwoPages>,
}

/// The registers of a GICv2. Each block is a page, or two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct V2Node {
    /// The distributor (GICD).
    pub distributor: u64,
    /// The physical CPU interface (GICC).
    pub interface: TwoPages,
    /// The virtual interface control (GICH).
    pub control: u64,
    /// The virtual CPU interface (GICV).
    pub virtual_interface: TwoPages,
    /// INTID of the maintenance interrupt.
    pub maintenance: u32,
}

/// The physical addresses of the two pages of a CPU interface; `GICC_DIR` and `GICV_DIR` are in the second one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TwoPages {
    /// The page with offset 0.
    pub first: u64,
    /// The page with offset 0x1000.
    pub second: u64,
}

/// Why no interrupt controller can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GicError {
    /// There is no GICv3 and no GICv2.
    None,
    /// A GICv2 without GICH and GICV.
    NoVirtualization,
    /// The block at this address does not begin with a page: mapping it would give away what is beside it.
    Unaligned(u64),
    /// The CPU interface at this address is too small for `GICC_DIR`.
    NoDeactivate(u64),
    /// A GICv2 whose maintenance interrupt is not a PPI.
    NoMaintenance,
}

impl fmt::Display for GicError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => write!(
                f,
                "the machine has no GICv3 or GICv2 (under QEMU: -machine virt,gic-version=3 or gic-version=2)"
            ),
            Self::NoVirtualization => write!(
                f,
                "the device tree names no GICH and GICV of its GICv2 (under QEMU: -machine virt,virtualization=on)"
            ),
            Self::Unaligned(address) => {
                write!(f, "the GIC's registers at {address:#x} are not at the beginning of a 4 KiB page")
            }
            Self::NoDeactivate(address) => {
                write!(
                    f,
                    "the GIC's CPU interface at {address:#x} is smaller than 8 KiB, so it has no GICC_DIR"
                )
            }
            Self::NoMaintenance => {
                write!(f, "the device tree names no PPI as maintenance interrupt of its GICv2")
            }
        }
    }
}

impl TwoPages {
    /// Takes the pages of a CPU interface. Where the two pages of a GIC-400 are 64 KiB apart, `range` has 128 KiB.
    fn new(range: Range) -> Result<Self, GicError> {
        let first = page(range)?;
        match range.size {
            SPREAD.. => Ok(Self { first, second: first + SPREAD / 2 }),
            size if size >= 2 * PAGE => Ok(Self { first, second: first + PAGE }),
            _ => Err(GicError::NoDeactivate(first)),
        }
    }
}

/// Returns the first page of a block.
fn page(range: Range) -> Result<u64, GicError> {
    if range.base.is_multiple_of(PAGE) { Ok(range.base) } else { Err(GicError::Unaligned(range.base)) }
}

fn is_v3(node: &FdtNode<'_>) -> bool {
    node.is_compatible("arm,gic-v3")
}

fn is_v2(node: &FdtNode<'_>) -> bool {
    GICV2.iter().any(|name| node.is_compatible(name))
}

/// Says whether a node is an interrupt controller as [`find`] looks for.
pub(super) fn is_gic(node: &FdtNode<'_>) -> bool {
    is_v3(node) || is_v2(node)
}

/// Finds the interrupt controller, and takes the newest if there are two.
pub(super) fn find(fdt: Fdt<'_>) -> Result<GicNode, GicError> {
    if let Some(place) = Place::find(fdt, &is_v3) {
        return v3(&place).map(GicNode::V3).ok_or(GicError::None);
    }
    Place::find(fdt, &is_v2).ok_or(GicError::None).and_then(|place| v2(&place)).map(GicNode::V2)
}

fn v3(place: &Place<'_>) -> Option<V3Node> {
    let regions = number(&place.node, "#redistributor-regions").unwrap_or(1).clamp(1, 8) as usize;
    let mut reg = place.registers();
    let distributor = reg.next()?;
    let redistributors = reg.by_ref().take(regions).collect();
    // GICC, GICH, GICV: optional, the last one is what a guest could be given.
    let virtual_interface = reg.nth(2).and_then(|range| TwoPages::new(range).ok());
    Some(V3Node { distributor, redistributors, virtual_interface })
}

fn v2(place: &Place<'_>) -> Result<V2Node, GicError> {
    let blocks: ArrayVec<Range, 4> = place.registers().take(4).collect();
    let &[distributor, interface, control, virtual_interface] = blocks.as_slice() else {
        return Err(GicError::NoVirtualization);
    };
    Ok(V2Node {
        distributor: page(distributor)?,
        interface: TwoPages::new(interface)?,
        control: page(control)?,
        virtual_interface: TwoPages::new(virtual_interface)?,
        maintenance: intid(&place.node).filter(|n| (16..32).contains(n)).ok_or(GicError::NoMaintenance)?,
    })
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use vm_fdt::FdtWriter;

    use super::*;

    /// A device tree with an interrupt controller under `/soc`.
    fn tree(compatible: &str, reg: &[u64], interrupts: &[u32]) -> Vec<u8> {
        let mut fdt = FdtWriter::new().unwrap();
        let root = fdt.begin_node("").unwrap();
        fdt.property_u32("#address-cells", 2).unwrap();
        fdt.property_u32("#size-cells", 2).unwrap();
        let soc = fdt.begin_node("soc").unwrap();
        fdt.property_u32("#address-cells", 2).unwrap();
        fdt.property_u32("#size-cells", 2).unwrap();
        fdt.property_null("ranges").unwrap();
        let gic = fdt.begin_node("interrupt-controller@40041000").unwrap();
        fdt.property_string("compatible", compatible).unwrap();
        fdt.property_array_u64("reg", reg).unwrap();
        if !interrupts.is_empty() {
            fdt.property_array_u32("interrupts", interrupts).unwrap();
        }
        fdt.end_node(gic).unwrap();
        fdt.end_node(soc).unwrap();
        fdt.end_node(root).unwrap();
        fdt.finish().unwrap()
    }

    fn found(compatible: &str, reg: &[u64], interrupts: &[u32]) -> Result<GicNode, GicError> {
        find(super::super::parse(&tree(compatible, reg, interrupts)).unwrap())
    }

    const MAINTENANCE: [u32; 3] = [1, 9, 0xf04];

    fn two(first: u64, second: u64) -> TwoPages {
        TwoPages { first, second }
    }

    #[test]
    fn a_gic_400_is_a_gicv2() {
        let reg = [0x4004_1000, 0x1000, 0x4004_2000, 0x2000, 0x4004_4000, 0x2000, 0x4004_6000, 0x2000];
        let expected = V2Node {
            distributor: 0x4004_1000,
            interface: two(0x4004_2000, 0x4004_3000),
            control: 0x4004_4000,
            virtual_interface: two(0x4004_6000, 0x4004_7000),
            maintenance: 25,
        };
        assert_eq!(found("arm,gic-400", &reg, &MAINTENANCE), Ok(GicNode::V2(expected)));
    }

    #[test]
    fn pages_may_be_64_kib_apart() {
        let reg =
            [0x1000_0000, 0x1_0000, 0x1001_0000, 0x1_0000, 0x1003_0000, 0x1_0000, 0x1004_0000, 0x2_0000];
        let Ok(GicNode::V2(node)) = found("arm,cortex-a15-gic", &reg, &MAINTENANCE) else { panic!() };
        assert_eq!(node.interface, two(0x1001_0000, 0x1001_1000));
        assert_eq!(node.virtual_interface, two(0x1004_0000, 0x1005_0000));
    }

    #[test]
    fn what_a_gicv2_needs_is_asked_for() {
        let reg = [0x1000, 0x1000, 0x2000, 0x2000, 0x4000, 0x1000, 0x6000, 0x2000];
        let with = |at: usize, value| {
            let mut reg = reg;
            reg[at] = value;
            found("arm,gic-400", &reg, &MAINTENANCE)
        };
        assert!(with(0, 0x1000).is_ok());
        assert_eq!(found("arm,gic-400", &reg[..4], &MAINTENANCE), Err(GicError::NoVirtualization));
        assert_eq!(with(3, 0x1000), Err(GicError::NoDeactivate(0x2000)));
        assert_eq!(with(6, 0x6400), Err(GicError::Unaligned(0x6400)));
        assert_eq!(found("arm,gic-400", &reg, &[]), Err(GicError::NoMaintenance));
        assert_eq!(found("arm,gic-400", &reg, &[0, 9, 4]), Err(GicError::NoMaintenance));
        assert_eq!(found("arm,pl390", &reg, &MAINTENANCE), Err(GicError::None));
    }

    #[test]
    fn a_gicv3_may_have_the_interface_of_its_predecessor() {
        let reg = [0x1000_0000, 0x1_0000, 0x2000_0000, 0x20_0000, 0x3000_0000, 0x2000];
        let Ok(GicNode::V3(node)) = found("arm,gic-v3", &reg[..4], &MAINTENANCE) else { panic!() };
        assert_eq!((node.redistributors.len(), node.virtual_interface), (1, None));
        let more = [0x3001_0000, 0x1_0000, 0x3002_0000, 0x2000];
        let Ok(GicNode::V3(node)) = found("arm,gic-v3", &[&reg[..], &more].concat(), &MAINTENANCE) else {
            panic!()
        };
        assert_eq!(node.virtual_interface, Some(two(0x3002_0000, 0x3002_1000)));
    }
}
