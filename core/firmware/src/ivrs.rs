// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The I/O Virtualization Reporting Structure (AMD I/O Virtualization Technology specification, 48882, section 5.2): the IOMMUs, and which
//! functions are behind them.

use arrayvec::ArrayVec;

use crate::IoApic;
use crate::bytes::{u8, u16, u64};

/// The most IOMMUs that are remembered.
pub const MAX_IOMMUS: usize = 8;
/// The most ranges of functions that are remembered. Those above it count as behind no IOMMU.
pub const MAX_RANGES: usize = 64;

/// Where the blocks begin.
const BLOCKS: usize = 48;
/// The types of blocks that describe an IOMMU, the most telling one first, and where their entries begin. Firmware describes each IOMMU once
/// by each type that it knows.
const IOMMU_BLOCKS: [(u8, usize); 3] = [(0x40, 40), (0x11, 40), (0x10, 24)];

/// Types of entries (section 5.2.2.1 and following).
const ALL: u8 = 1;
const SELECT: u8 = 2;
const RANGE: u8 = 3;
const RANGE_END: u8 = 4;
const ALIAS_SELECT: u8 = 0x42;
const ALIAS_RANGE: u8 = 0x43;
const EXTENDED_SELECT: u8 = 0x46;
const EXTENDED_RANGE: u8 = 0x47;
const SPECIAL: u8 = 0x48;
/// One that names a device by its ACPI identification.
const NAMED: u8 = 0xf0;
/// The variety of a special device: an I/O APIC, or a timer (HPET) that sends messages.
const SPECIAL_IO_APIC: u8 = 1;

/// An IOMMU. Functions are numbered as requesters: 8 bits of the bus, 5 of the device, 3 of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Iommu {
    /// The function that it is itself.
    pub function: u16,
    /// Where its registers are.
    pub address: u64,
    /// What firmware wants of its links (section 5.2.2.1, the flags of a block).
    pub flags: u8,
}

/// Functions that are behind an IOMMU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Behind {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
    /// What an IOMMU takes all of them for, if that is not the function itself: a bridge in front of them.
    pub alias: Option<u16>,
}

/// What the table says.
#[derive(Clone, Debug, Default)]
pub struct Ivrs {
    /// The IOMMUs.
    pub iommus: ArrayVec<Iommu, MAX_IOMMUS>,
    /// What is behind them.
    pub behind: ArrayVec<Behind, MAX_RANGES>,
    /// The I/O APICs that are behind them.
    pub io_apics: ArrayVec<Named, { crate::MAX_IO_APICS }>,
}

/// An I/O APIC that the table names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its identification, as the MADT has it.
    pub id: u8,
    /// The function that an IOMMU takes it for.
    pub requester: u16,
}

impl Ivrs {
    /// Returns the identification of the first of a machine's I/O APICs that the table does not name. Its interrupts would be lost.
    pub fn unnamed(&self, io_apics: &[IoApic]) -> Option<u8> {
        let is_named = |id| self.io_apics.iter().any(|named| named.id == id);
        io_apics.iter().map(|io_apic| io_apic.id).find(|id| !is_named(*id))
    }

    /// Returns what an IOMMU takes a function for. `None` if it is behind none.
    pub fn requester(&self, function: u16) -> Option<u16> {
        let holds = |range: &&Behind| (range.first..=range.last).contains(&function);
        // An alias is more than a range that only says that the function is there.
        let mut found = self.behind.iter().filter(holds);
        let first = found.clone().next()?;
        Some(found.find_map(|range| range.alias).or(first.alias).unwrap_or(function))
    }
}

/// Reads the table. What is cut off ends it.
pub fn read(table: &[u8]) -> Ivrs {
    let mut ivrs = Ivrs::default();
    let there = |kind: u8| blocks(table).any(|block| u8(block, 0) == Some(kind));
    let Some((kind, entries)) = IOMMU_BLOCKS.into_iter().find(|(kind, _)| there(*kind)) else { return ivrs };
    for block in blocks(table).filter(|block| u8(block, 0) == Some(kind)) {
        if let Some(iommu) = iommu(block)
            && ivrs.iommus.try_push(iommu).is_ok()
        {
            let _ = behind(block.get(entries..).unwrap_or(&[]), &mut ivrs);
        }
    }
    ivrs
}

/// The blocks of a table.
fn blocks(table: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = table.get(BLOCKS..).unwrap_or(&[]);
    core::iter::from_fn(move || {
        let length = usize::from(u16(rest, 2)?);
        let (block, next) = rest.split_at_checked(length).filter(|_| length >= 4)?;
        rest = next;
        Some(block)
    })
}

/// Reads what describes an IOMMU. One of another segment than 0 is not there.
fn iommu(block: &[u8]) -> Option<Iommu> {
    let iommu = Iommu { function: u16(block, 4)?, address: u64(block, 8)?, flags: u8(block, 1)? };
    (u16(block, 16)? == 0 && iommu.address != 0).then_some(iommu)
}

/// Takes the entries of a block. `None` if one is cut off.
fn behind(mut rest: &[u8], ivrs: &mut Ivrs) -> Option<()> {
    let mut open: Option<(u16, Option<u16>)> = None;
    while let Some(kind) = u8(rest, 0) {
        let length = match kind {
            NAMED => 22 + usize::from(u8(rest, 21)?),
            _ => 4 << (kind >> 6),
        };
        let (entry, next) = rest.split_at_checked(length)?;
        rest = next;
        let function = u16(entry, 1)?;
        let alias = matches!(kind, ALIAS_SELECT | ALIAS_RANGE).then(|| u16(entry, 5)).flatten();
        match kind {
            ALL => add(ivrs, 0, u16::MAX, None),
            SELECT | ALIAS_SELECT | EXTENDED_SELECT => add(ivrs, function, function, alias),
            RANGE | ALIAS_RANGE | EXTENDED_RANGE => open = Some((function, alias)),
            RANGE_END => {
                if let Some((first, alias)) = open.take() {
                    add(ivrs, first, function, alias);
                }
            }
            SPECIAL if u8(entry, 7) == Some(SPECIAL_IO_APIC) => {
                let _ = ivrs.io_apics.try_push(Named { id: u8(entry, 4)?, requester: u16(entry, 5)? });
            }
            _ => {}
        }
    }
    Some(())
}

fn add(ivrs: &mut Ivrs, first: u16, last: u16, alias: Option<u16>) {
    let _ = ivrs.behind.try_push(Behind { first, last, alias });
}
