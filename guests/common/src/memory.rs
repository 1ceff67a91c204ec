// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ranges of addresses, and what of them a program may use.

use crate::test::Outcome;
use crate::{check, check_eq};

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Region {
    /// First address.
    pub base: u64,
    /// Bytes.
    pub size: u64,
}

impl Region {
    /// Nothing.
    pub const NOWHERE: Region = Region { base: 0, size: 0 };

    /// Returns the region between two addresses.
    pub fn between(base: u64, end: u64) -> Region {
        Region { base, size: end.saturating_sub(base) }
    }

    /// Returns the first address behind it.
    pub fn end(&self) -> u64 {
        self.base.saturating_add(self.size)
    }

    /// Says whether it has an address in common with another.
    pub fn touches(&self, other: Region) -> bool {
        self.base < other.end() && other.base < self.end()
    }

    /// Returns the part of it between two addresses.
    pub fn clipped(&self, base: u64, end: u64) -> Region {
        Region::between(self.base.max(base), self.end().min(end))
    }
}

/// Returns the first address behind all regions.
pub fn end(regions: &[Region]) -> u64 {
    regions.iter().map(Region::end).max().unwrap_or(0)
}

/// Returns the addresses of all whole, aligned blocks of `size` bytes that touch no region of `taken`.
pub fn free_blocks(memory: Region, taken: &[Region], size: u64) -> impl Iterator<Item = u64> + Clone {
    let mut place = memory.base.next_multiple_of(size);
    core::iter::from_fn(move || {
        while place + size <= memory.end() {
            match taken.iter().find(|region| region.touches(Region { base: place, size })) {
                Some(region) => place = region.end().next_multiple_of(size),
                None => {
                    place += size;
                    return Some(place - size);
                }
            }
        }
        None
    })
}

/// A test: a word of each of these blocks of at least 4 KiB can be written, and keeps its value.
pub fn keeps_words(
    blocks: impl Iterator<Item = u64> + Clone,
    read: impl Fn(u64) -> u32,
    write: impl Fn(u64, u32),
) -> Outcome {
    let value = |place: u64| place as u32 ^ 0x5a5a_1234;
    for place in blocks.clone() {
        write(place + 0xff8, value(place));
    }
    let mut count = 0;
    for place in blocks {
        check_eq!(read(place + 0xff8), value(place), "the word at {place:#x}");
        write(place + 0xff8, 0);
        count += 1;
    }
    check!(count > 4, "there is no memory");
    Ok(())
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::cell::RefCell;
    use std::collections::BTreeMap;
    use std::vec::Vec;

    use super::*;

    #[test]
    fn regions_have_ends() {
        let region = Region { base: 0x1000, size: 0x3000 };
        assert_eq!(region.clipped(0x2000, 0x9000), Region { base: 0x2000, size: 0x2000 });
        assert_eq!(region.clipped(0x5000, 0x9000).size, 0);
        assert!(
            region.touches(Region { base: 0, size: 0x1001 })
                && !region.touches(Region { base: 0x4000, size: 1 })
        );
        assert_eq!(end(&[region, Region { base: u64::MAX, size: 2 }]), u64::MAX);
        assert_eq!(end(&[]), 0);
    }

    #[test]
    fn free_blocks_are_whole_and_touch_nothing() {
        let memory = Region { base: 0x800, size: 0x7000 };
        let taken = [Region { base: 0x2fff, size: 2 }, Region { base: 0x5000, size: 0x1000 }];
        let blocks: Vec<u64> = free_blocks(memory, &taken, 0x1000).collect();
        assert_eq!(blocks, [0x1000, 0x4000, 0x6000]);
    }

    #[test]
    fn a_word_that_is_another_is_found() {
        let words = RefCell::new(BTreeMap::new());
        let test = |mask: u64| {
            keeps_words(
                free_blocks(Region::between(0, 0x10_0000), &[], 0x1_0000),
                |place| words.borrow().get(&(place & mask)).copied().unwrap_or(0),
                |place, value| _ = words.borrow_mut().insert(place & mask, value),
            )
        };
        assert!(test(u64::MAX).is_ok());
        assert!(test(!0x8_0000).is_err());
        assert!(keeps_words(0..4, |place| (place - 0xff8) as u32 ^ 0x5a5a_1234, |_, _| {}).is_err());
    }
}
