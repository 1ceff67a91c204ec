// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How much memory a visit touches: the lines and pages that caches and TLBs have to hold for it.

use rustc_hash::FxHashSet;
use serde::Serialize;

/// The part of an address that is the same in a line.
const LINE: u64 = !63;
/// The part of an address that is the same in a page of 4 KiB.
const PAGE: u64 = !4095;

/// The lines that bytes lie in. There is at least one byte.
pub fn lines(address: u64, bytes: u64) -> impl Iterator<Item = u64> {
    let (first, last) = (address & LINE, address.wrapping_add(bytes.max(1) - 1) & LINE);
    (0..=last.wrapping_sub(first) / 64).map(move |index| first.wrapping_add(index * 64))
}

/// An access to a part of a line.
///
/// A cache holds a line of the machine's memory, whatever address names it: a hypervisor that reaches it under two
/// addresses touches one. A TLB holds what is mapped where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The virtual address.
    pub address: u64,
    /// The physical one; `None` of a device, which no cache holds.
    pub memory: Option<u64>,
}

/// How many lines and pages there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Footprint {
    /// Lines of code, of 64 bytes.
    pub code_lines: u64,
    /// Lines of data, of 64 bytes.
    pub data_lines: u64,
    /// Pages of either, of 4 KiB.
    pub pages: u64,
}

/// Lines and pages of data, each once.
#[derive(Clone, Debug, Default)]
pub struct Data {
    lines: FxHashSet<u64>,
    pages: FxHashSet<u64>,
}

impl Data {
    /// Adds an access.
    pub fn add(&mut self, touch: Touch) {
        self.pages.insert(touch.address & PAGE);
        self.lines.extend(touch.memory.map(|memory| memory & LINE));
    }

    /// Counts them together with lines of code.
    pub fn footprint(&self, code: &FxHashSet<u64>) -> Footprint {
        let of_code: FxHashSet<u64> = code.iter().map(|line| line & PAGE).collect();
        Footprint {
            code_lines: code.len() as u64,
            data_lines: self.lines.len() as u64,
            pages: of_code.union(&self.pages).count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_lie_in_lines() {
        let of = |address, bytes| lines(address, bytes).collect::<Vec<_>>();
        assert_eq!(of(0x1038, 8), [0x1000]);
        assert_eq!(of(0x103c, 8), [0x1000, 0x1040]);
        assert_eq!(of(0x1000, 192), [0x1000, 0x1040, 0x1080]);
        assert_eq!(of(u64::MAX, 2), [LINE, 0], "around the end");
        assert_eq!(of(0x1000, 0), [0x1000]);
    }

    #[test]
    fn lines_are_of_memory_and_pages_of_addresses() {
        let mut data = Data::default();
        // The same line under two addresses, another line of that page, and a device.
        for (address, memory) in
            [(0xa000, Some(0x4000)), (0xb008, Some(0x4008)), (0xb040, Some(0x4040)), (0xc000, None)]
        {
            data.add(Touch { address, memory });
        }
        let code = FxHashSet::from_iter([0x1000, 0x1040, 0xb080]);
        assert_eq!(data.footprint(&code), Footprint { code_lines: 3, data_lines: 2, pages: 4 });
    }
}
