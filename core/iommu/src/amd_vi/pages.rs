// SPDX-License-Identifier: Apache-2.0 OR MIT
//! I/O page tables of the host (section 2.2.3): four levels, with pages of 4 KiB, 2 MiB and 1 GiB.

use turnstile_paging::{Entry, Format, Level, PhysAddr};

const PRESENT: u64 = 1;
/// Where an entry says what level it leads to; none if it maps a page.
const NEXT_SHIFT: u32 = 9;
const NEXT: u64 = 0b111 << NEXT_SHIFT;
/// Bits [51:12].
const ADDRESS: u64 = 0x000f_ffff_ffff_f000;
/// The access is coherent, whatever the device says.
const COHERENT: u64 = 1 << 60;
pub(super) const READ: u64 = 1 << 61;
pub(super) const WRITE: u64 = 1 << 62;

/// How many levels there are, as an entry of the device table says it, too.
pub(super) const LEVELS: u64 = 4;

const ALL: [Level; LEVELS as usize] = [
    Level { shift: 39, bits: 9, leaf: false, last: false },
    Level { shift: 30, bits: 9, leaf: true, last: false },
    Level { shift: 21, bits: 9, leaf: true, last: false },
    Level { shift: 12, bits: 9, leaf: true, last: true },
];

/// The format: what is mapped is read and written.
#[derive(Clone, Copy, Debug)]
pub(super) struct IoPages;

/// The level that a table of the next one has, counted from the last one: what an entry that leads there says.
fn next(level: Level) -> u64 {
    u64::from(level.shift - 12) / 9
}

impl Format for IoPages {
    type Attributes = ();

    fn levels(&self) -> &[Level] {
        &ALL
    }

    fn output_bits(&self) -> u32 {
        52
    }

    fn leaf(&self, _: Level, address: PhysAddr, (): ()) -> u64 {
        PRESENT | COHERENT | READ | WRITE | address.0 & ADDRESS
    }

    fn table(&self, level: Level, address: PhysAddr) -> u64 {
        PRESENT | READ | WRITE | next(level) << NEXT_SHIFT | address.0 & ADDRESS
    }

    fn decode(&self, _: Level, entry: u64) -> Entry<()> {
        let address = PhysAddr(entry & ADDRESS);
        match (entry & PRESENT != 0, entry & NEXT != 0) {
            (false, _) => Entry::Invalid,
            (true, true) => Entry::Table(address),
            (true, false) => Entry::Leaf(address, ()),
        }
    }

    fn needs_break(&self, (): (), (): ()) -> bool {
        false
    }
}
