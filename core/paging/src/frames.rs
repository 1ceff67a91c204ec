// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Hands out physical memory by ranges: to guests, to table pools, to the hypervisor's own heap.
//!
//! A fixed number of ranges, kept sorted and coalesced, and no other memory, so it works before anything else does. It does not
//! record who has which range: memory that was added and is not free is in use.

use core::fmt;

use arrayvec::ArrayVec;

use crate::format::PhysAddr;

/// A range of physical memory: never empty, never wrapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameRange {
    start: u64,
    end: u64,
}

impl FrameRange {
    /// Makes the range of `size` bytes at `start`; `None` if it is empty or wraps around.
    pub const fn new(start: PhysAddr, size: u64) -> Option<Self> {
        match start.0.checked_add(size) {
            Some(end) if size > 0 => Some(Self { start: start.0, end }),
            _ => None,
        }
    }

    /// Returns the first address.
    pub const fn start(&self) -> PhysAddr {
        PhysAddr(self.start)
    }

    /// Returns the first address behind the range.
    pub const fn end(&self) -> PhysAddr {
        PhysAddr(self.end)
    }

    /// Returns the size in bytes.
    pub const fn size(&self) -> u64 {
        self.end - self.start
    }

    /// Says whether the ranges have a byte in common.
    pub const fn overlaps(&self, other: &Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Says whether all of `other` lies in this range.
    pub const fn contains(&self, other: &Self) -> bool {
        self.start <= other.start && other.end <= self.end
    }
}

/// Why the allocator refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameError {
    /// The memory was added before.
    Overlap,
    /// The memory freed is free already, in part or whole.
    DoubleFree,
    /// The memory freed was never added, in part or whole.
    Foreign,
    /// The table of ranges is full.
    Fragmented,
    /// The alignment is not a power of two, or the size is zero.
    Invalid,
    /// No free range is large enough.
    OutOfMemory,
}

impl fmt::Display for FrameError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FrameError::Overlap => "this memory was added before",
            FrameError::DoubleFree => "this memory is free already",
            FrameError::Foreign => "this memory was never added",
            FrameError::Fragmented => "too many separate memory ranges",
            FrameError::Invalid => "the size is zero or the alignment no power of two",
            FrameError::OutOfMemory => "no free memory range is large enough",
        })
    }
}

impl core::error::Error for FrameError {}

/// A sorted list of ranges that neither overlap nor touch.
#[derive(Debug)]
struct RangeList<const N: usize>(ArrayVec<FrameRange, N>);

impl<const N: usize> RangeList<N> {
    /// Finds the index of the first range that ends behind `address`.
    fn position(&self, address: u64) -> usize {
        self.0.partition_point(|range| range.end <= address)
    }

    fn overlaps(&self, range: &FrameRange) -> bool {
        self.0.get(self.position(range.start)).is_some_and(|found| found.overlaps(range))
    }

    fn contains(&self, range: &FrameRange) -> bool {
        self.0.get(self.position(range.start)).is_some_and(|found| found.contains(range))
    }

    /// Inserts a range that overlaps none, coalescing it with its neighbors.
    fn insert(&mut self, range: FrameRange) -> Result<(), FrameError> {
        let at = self.position(range.start);
        let before = at.checked_sub(1).filter(|&b| self.0.get(b).is_some_and(|r| r.end == range.start));
        let after = Some(at).filter(|&a| self.0.get(a).is_some_and(|r| r.start == range.end));
        match (before, after) {
            (Some(before), Some(after)) => {
                let end = self.0.remove(after).end;
                self.set(before, |found| found.end = end);
            }
            (Some(before), None) => self.set(before, |found| found.end = range.end),
            (None, Some(after)) => self.set(after, |found| found.start = range.start),
            (None, None) => self.0.try_insert(at, range).map_err(|_| FrameError::Fragmented)?,
        }
        Ok(())
    }

    /// Removes `range` from the range at `at`, which contains it.
    fn remove(&mut self, at: usize, range: &FrameRange) -> Result<(), FrameError> {
        let Some(found) = self.0.get(at).copied() else { return Err(FrameError::Foreign) };
        match (found.start < range.start, range.end < found.end) {
            (false, false) => {
                self.0.remove(at);
            }
            (true, false) => self.set(at, |found| found.end = range.start),
            (false, true) => self.set(at, |found| found.start = range.end),
            (true, true) => {
                let upper = FrameRange { start: range.end, end: found.end };
                self.0.try_insert(at + 1, upper).map_err(|_| FrameError::Fragmented)?;
                self.set(at, |found| found.end = range.start);
            }
        }
        Ok(())
    }

    fn set(&mut self, at: usize, change: impl FnOnce(&mut FrameRange)) {
        if let Some(range) = self.0.get_mut(at) {
            change(range);
        }
    }

    fn bytes(&self) -> u64 {
        self.0.iter().map(FrameRange::size).sum()
    }
}

/// Allocates ranges of physical memory; at most `N` separate free ranges.
#[derive(Debug)]
pub struct FrameAllocator<const N: usize> {
    /// All memory ever added.
    owned: RangeList<N>,
    free: RangeList<N>,
}

impl<const N: usize> Default for FrameAllocator<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> FrameAllocator<N> {
    /// Makes an allocator without memory.
    pub const fn new() -> Self {
        Self { owned: RangeList(ArrayVec::new_const()), free: RangeList(ArrayVec::new_const()) }
    }

    /// Adds a region of memory, all of it free.
    ///
    /// # Errors
    /// [`FrameError::Overlap`], [`FrameError::Fragmented`]; nothing is added then.
    pub fn add(&mut self, region: FrameRange) -> Result<(), FrameError> {
        if self.owned.overlaps(&region) {
            return Err(FrameError::Overlap);
        }
        self.free.insert(region)?;
        self.owned.insert(region).inspect_err(|_| {
            // Cannot fail: it only takes back what the lines above put in.
            let at = self.free.position(region.start);
            let _ = self.free.remove(at, &region);
        })
    }

    /// Takes out of the free memory whatever of it lies in `range`, and returns how many bytes that was. Parts
    /// that were never added, or are taken already, are passed over: firmware reserves what is not memory, too.
    /// What was taken can be given to [`FrameAllocator::free`] later, like any other memory.
    ///
    /// # Errors
    /// [`FrameError::Fragmented`]; a part may have been taken then.
    pub fn reserve(&mut self, range: FrameRange) -> Result<u64, FrameError> {
        let mut taken = 0;
        loop {
            let at = self.free.position(range.start);
            let Some(found) = self.free.0.get(at).filter(|found| found.overlaps(&range)) else {
                return Ok(taken);
            };
            let part = FrameRange { start: found.start.max(range.start), end: found.end.min(range.end) };
            self.free.remove(at, &part)?;
            taken += part.size();
        }
    }

    /// Allocates `size` bytes aligned to `align`, a power of two.
    ///
    /// Takes the smallest free range that fits, so that large aligned ranges stay for large guests, and in it
    /// the end that leaves the larger rest in one piece. The contents are whatever was there: the caller clears.
    ///
    /// # Errors
    /// [`FrameError::Invalid`], [`FrameError::OutOfMemory`], [`FrameError::Fragmented`].
    pub fn allocate(&mut self, size: u64, align: u64) -> Result<FrameRange, FrameError> {
        if size == 0 || !align.is_power_of_two() {
            return Err(FrameError::Invalid);
        }
        let fits = self.free.0.iter().enumerate().filter_map(|(at, range)| {
            let place = place(range, size, align)?;
            Some((range.size(), at, place))
        });
        let (_, at, place) = fits.min_by_key(|&(size, at, _)| (size, at)).ok_or(FrameError::OutOfMemory)?;
        self.free.remove(at, &place)?;
        Ok(place)
    }

    /// Takes memory back: all or part of what was allocated or reserved.
    ///
    /// # Errors
    /// [`FrameError::Foreign`], [`FrameError::DoubleFree`], [`FrameError::Fragmented`]; nothing is freed then.
    pub fn free(&mut self, range: FrameRange) -> Result<(), FrameError> {
        if !self.owned.contains(&range) {
            return Err(FrameError::Foreign);
        }
        if self.free.overlaps(&range) {
            return Err(FrameError::DoubleFree);
        }
        self.free.insert(range)
    }

    /// Returns how many bytes are free.
    pub fn free_bytes(&self) -> u64 {
        self.free.bytes()
    }

    /// Returns how many bytes were added, free or not.
    pub fn total_bytes(&self) -> u64 {
        self.owned.bytes()
    }

    /// Returns the free ranges in ascending order; no two touch.
    pub fn free_ranges(&self) -> impl Iterator<Item = FrameRange> + '_ {
        self.free.0.iter().copied()
    }
}

/// Finds the lowest or the highest aligned place in `range`, whichever leaves the smaller waste at its end.
fn place(range: &FrameRange, size: u64, align: u64) -> Option<FrameRange> {
    let low = range.start.checked_next_multiple_of(align)?;
    let high = range.end.checked_sub(size)? & !(align - 1);
    if high < low {
        return None;
    }
    let waste_below = low - range.start;
    let waste_above = range.end - size - high;
    let start = if waste_above < waste_below { high } else { low };
    FrameRange::new(PhysAddr(start), size)
}
