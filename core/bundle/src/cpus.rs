// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Lists of physical CPUs.

use core::fmt;

/// A list of physical CPUs, by their indexes: a view of the caller's numbers or of the bundle.
#[derive(Clone, Copy)]
pub struct CpuList<'a>(Cells<'a>);

#[derive(Clone, Copy)]
enum Cells<'a> {
    Native(&'a [u16]),
    BigEndian(&'a [[u8; 4]]),
}

impl<'a> CpuList<'a> {
    /// Makes a list of these indexes.
    #[must_use]
    pub const fn new(cpus: &'a [u16]) -> CpuList<'a> {
        CpuList(Cells::Native(cpus))
    }

    /// Makes a list from the cells of a device tree.
    pub(crate) const fn from_cells(cells: &'a [[u8; 4]]) -> CpuList<'a> {
        CpuList(Cells::BigEndian(cells))
    }

    /// Returns the number of CPUs.
    #[must_use]
    pub const fn len(&self) -> usize {
        match self.0 {
            Cells::Native(cpus) => cpus.len(),
            Cells::BigEndian(cells) => cells.len(),
        }
    }

    /// Says whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the CPU at `index`. One that is too large for any machine stays so.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<u16> {
        match self.0 {
            Cells::Native(cpus) => cpus.get(index).copied(),
            Cells::BigEndian(cells) => {
                cells.get(index).map(|&cell| u16::try_from(u32::from_be_bytes(cell)).unwrap_or(u16::MAX))
            }
        }
    }

    /// Returns the CPUs in their order.
    pub fn iter(&self) -> impl Iterator<Item = u16> + use<'a> {
        let list = *self;
        (0..list.len()).filter_map(move |index| list.get(index))
    }
}

impl PartialEq for CpuList<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for CpuList<'_> {}

impl fmt::Debug for CpuList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}
