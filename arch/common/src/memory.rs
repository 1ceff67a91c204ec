// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the memory of all machines has in common: ranges of pages, and why memory could not be set up or given out.

use turnstile_paging::{Error as PagingError, Format, FrameError, FrameRange, PageTable, PhysAddr, Tables};

/// Bytes of a page.
pub const PAGE: u64 = 4096;
/// Bytes of a mebibyte.
pub const MIB: u64 = 1 << 20;
/// Bytes of the arena: heap and tables of everything.
pub const ARENA: u64 = 64 * MIB;
/// Bytes of the heap inside the arena. It gives out powers of two: 512 vCPUs that keep statistics take 32 KiB each on arm64.
pub const HEAP: u64 = 32 * MIB;

/// Why memory could not be set up or given out.
#[derive(Debug)]
pub enum Error {
    /// No RAM is large enough for the hypervisor's own arena.
    NoArena,
    /// No room is left for another stack.
    NoStack,
    /// Not enough contiguous memory of this many bytes is left for a guest.
    NoGuestMemory(u64),
    /// Not enough contiguous memory of this many bytes is left for the pool.
    NoPool(u64),
    /// The pool that the VM's memory comes from has no block left for what is loaded into it.
    PoolEmpty,
    /// A device may still write to the memory of a VM that has stopped: so many bytes, of so many that are kept for such reasons.
    InUse {
        /// The VM's.
        size: u64,
        /// Those of all VMs since power-on.
        all: u64,
    },
    /// An IOMMU does not say that a device has let go of the memory of a VM that has stopped.
    Reached,
    /// An IOMMU does not answer, so it is not known what memory a device reaches.
    Silent,
    /// No memory is left for a service, or there are too many.
    NoService,
    /// A mapping failed.
    Paging(PagingError),
    /// The allocator's books do not allow it.
    Frames(FrameError),
}

impl core::fmt::Display for Error {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::NoArena => write!(f, "no RAM has {} MiB for the hypervisor", ARENA / MIB),
            Self::NoStack => {
                write!(f, "no memory is left for another stack: use fewer vCPUs that share CPUs")
            }
            Self::NoGuestMemory(size) => {
                write!(f, "no {} MiB of contiguous memory are left for the VM", size / MIB)
            }
            Self::NoPool(size) => write!(
                f,
                "no {} MiB of contiguous memory are left for the pool: make it smaller",
                size / MIB
            ),
            Self::PoolEmpty => f.write_str(
                "the pool has too little left for its images: stop another VM of the pool, or make the pool larger",
            ),
            Self::InUse { size, all } => write!(
                f,
                "the firmware does not take its event queues back, so its {} MiB stay out of use; {} MiB in all do",
                size / MIB,
                all / MIB
            ),
            Self::Reached => f.write_str(
                "the IOMMU in front of its disk controller does not answer, so its memory stays out of use until the machine is restarted",
            ),
            Self::Silent => {
                f.write_str("the IOMMU in front of its disk controller does not answer: restart the machine")
            }
            Self::NoService => f.write_str("no memory is left for another service"),
            Self::Paging(error) => write!(f, "a translation table could not be built: {error:?}"),
            Self::Frames(error) => write!(f, "the memory map is inconsistent: {error:?}"),
        }
    }
}

impl From<PagingError> for Error {
    fn from(error: PagingError) -> Self {
        Self::Paging(error)
    }
}

impl From<FrameError> for Error {
    fn from(error: FrameError) -> Self {
        Self::Frames(error)
    }
}

/// Makes a range of frames.
///
/// # Errors
/// When it is not one of whole pages.
pub fn range(start: u64, size: u64) -> Result<FrameRange, Error> {
    FrameRange::new(PhysAddr(start), size).ok_or(Error::NoArena)
}

/// The whole pages inside `size` bytes at `base`: start and size.
pub fn align(base: u64, size: u64) -> Option<(u64, u64)> {
    let start = base.checked_next_multiple_of(PAGE)?;
    let end = base.checked_add(size)? & !(PAGE - 1);
    (end > start).then_some((start, end - start))
}

/// The pages that `size` bytes at `base` touch: start and size. None if there are none; without the last page of the
/// address space, whose end is no address.
pub fn cover(base: u64, size: u64) -> Option<(u64, u64)> {
    let start = base & !(PAGE - 1);
    let last = base.saturating_add(size.checked_sub(1)?);
    let end = (last | (PAGE - 1)).checked_add(1).unwrap_or(!(PAGE - 1));
    (end > start).then(|| (start, end - start))
}

/// Maps a range one to one; where parts of it are mapped already (two devices in a page, the bundle behind the
/// device tree), page by page what is not.
///
/// # Errors
/// When there is no memory for tables.
pub fn map_missing<F: Format>(
    table: &mut PageTable<F>,
    tables: &mut impl Tables,
    (start, size): (u64, u64),
    attributes: F::Attributes,
) -> Result<(), Error> {
    match table.map(tables, start, PhysAddr(start), size, attributes) {
        Err(PagingError::AlreadyMapped(_)) => {}
        result => return Ok(result?),
    }
    for page in (start..start + size).step_by(PAGE as usize) {
        if table.translate(tables, page).is_none() {
            table.map(tables, page, PhysAddr(page), PAGE, attributes)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_shrink_or_grow_to_pages() {
        assert_eq!(align(1, 3 * PAGE), Some((PAGE, 2 * PAGE)));
        assert_eq!(align(1, PAGE), None);
        assert_eq!(align(u64::MAX, 1), None);
        assert_eq!(cover(PAGE + 1, 1), Some((PAGE, PAGE)));
        assert_eq!(cover(PAGE - 1, 2), Some((0, 2 * PAGE)));
        assert_eq!(cover(PAGE, PAGE), Some((PAGE, PAGE)));
        assert_eq!(cover(PAGE, 0), None);
        assert_eq!(cover(u64::MAX - 2 * PAGE, u64::MAX), Some((!(3 * PAGE - 1), 2 * PAGE)));
        assert_eq!(cover(u64::MAX - 1, 5), None);
    }
}
