// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Tables of pieces of memory, of an IOMMU of any kind.

use turnstile_paging::{Error, Format, PageTable, PhysAddr, Tables};

/// The most pieces of memory that a function is lent.
pub(crate) const MAX_LENT: usize = 7;

/// A piece: its address and its size.
pub(crate) type Piece = (u64, u64);

/// Makes tables that lead to these pieces, under their own addresses. Without room for all there are none.
pub(crate) fn map_all<F: Format>(
    tables: &mut impl Tables,
    format: F,
    pieces: impl IntoIterator<Item = Piece>,
    attributes: F::Attributes,
) -> Result<PageTable<F>, Error> {
    let mut all = PageTable::new(format, tables)?;
    let mapped = pieces
        .into_iter()
        .try_for_each(|(address, size)| all.map(tables, address, PhysAddr(address), size, attributes));
    match mapped {
        Ok(()) => Ok(all),
        Err(error) => {
            all.free_all(tables);
            Err(error)
        }
    }
}
