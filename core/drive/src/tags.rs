// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which tags are under way, and whether a command can be given.

use turnstile_virtio::memory::Memory;

use crate::drive::{Direction, Geometry, MOST_SEGMENTS, PAGE, Refusal, SECTOR, Segment};

/// How many tags there are.
pub(crate) const TAGS: u16 = 32;

/// Tags that are under way: a bit for each.
#[derive(Debug)]
pub(crate) struct Tags(u32);

impl Tags {
    /// No tag is under way.
    pub(crate) const NEW: Self = Self(0);

    /// Says whether a tag can be used, while no more than `depth` may be.
    pub(crate) const fn check(&self, tag: u16, depth: u16) -> Result<(), Refusal> {
        match Self::bit(tag) {
            Some(bit) if self.0 & bit == 0 => {}
            _ => return Err(Refusal::Tag),
        }
        // Most disks have room for all. Then there is room for who has one that is free, and nothing is counted.
        match depth >= TAGS || self.0.count_ones() < depth as u32 {
            true => Ok(()),
            false => Err(Refusal::Full),
        }
    }

    /// A tag is under way.
    pub(crate) fn take(&mut self, tag: u16) {
        self.0 |= Self::bit(tag).unwrap_or(0);
    }

    /// A tag is not under way any more. False if it was not.
    pub(crate) fn give_back(&mut self, tag: u16) -> bool {
        let bit = Self::bit(tag).unwrap_or(0);
        let was = self.0 & bit != 0;
        self.0 &= !bit;
        was
    }

    const fn bit(tag: u16) -> Option<u32> {
        1u32.checked_shl(tag as u32)
    }
}

impl Geometry {
    /// Checks the bytes of a command that reads or writes.
    pub(crate) fn check_bytes<M: Memory>(
        &self,
        memory: &M,
        sector: u64,
        address: u64,
        length: u32,
    ) -> Result<(), Refusal> {
        self.check_length(sector, length)?;
        match address.is_multiple_of(PAGE) && memory.contains(address, length.into()) {
            true => Ok(()),
            false => Err(Refusal::Memory),
        }
    }

    /// Checks the bytes of a command on the disk.
    #[inline] // As below.
    pub(crate) fn check_length(&self, sector: u64, length: u32) -> Result<(), Refusal> {
        if length > self.most_bytes || length & (self.block - 1) != 0 {
            return Err(Refusal::Range);
        }
        self.check_sectors(sector, length / SECTOR)
    }

    /// Checks a command whose bytes are in these segments; returns how many there are.
    #[inline] // On the path of every command.
    pub(crate) fn check_segments(
        &self,
        direction: Direction,
        sector: u64,
        segments: &[Segment],
    ) -> Result<u32, Refusal> {
        if direction == Direction::Write && !self.writable {
            return Err(Refusal::Unsupported);
        }
        if segments.len() > MOST_SEGMENTS {
            return Err(Refusal::Memory);
        }
        // The sum of a few words of 32 bits.
        let mut all = 0;
        for segment in segments {
            if segment.length == 0 {
                return Err(Refusal::Memory);
            }
            all += u64::from(segment.length);
        }
        let length = u32::try_from(all).map_err(|_| Refusal::Range)?;
        self.check_length(sector, length)?;
        Ok(length)
    }

    /// Checks the sectors of a command: whole blocks of the disk, and not none.
    #[inline] // On the path of every command.
    pub(crate) fn check_sectors(&self, sector: u64, sectors: u32) -> Result<(), Refusal> {
        let end = sector.checked_add(sectors.into()).filter(|&end| end <= self.sectors);
        let is_whole = (sector | u64::from(sectors)) & u64::from(self.sectors_of_block() - 1) == 0;
        match end.is_some() && is_whole && sectors != 0 {
            true => Ok(()),
            false => Err(Refusal::Range),
        }
    }

    /// Checks the sectors of a command that has up to `most`, none if there are no such commands.
    pub(crate) fn check_most(&self, sector: u64, sectors: u32, most: u32) -> Result<(), Refusal> {
        match sectors {
            _ if most == 0 => Err(Refusal::Unsupported),
            _ if sectors > most => Err(Refusal::Range),
            _ => self.check_sectors(sector, sectors),
        }
    }

    /// How many sectors a block has: a power of two.
    pub(crate) const fn sectors_of_block(&self) -> u32 {
        self.block / SECTOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_tags_are_under_way_as_may_be() {
        let mut tags = Tags::NEW;
        for round in 0..100 {
            let first = round % TAGS;
            assert_eq!(tags.check(first, 2), Ok(()));
            tags.take(first);
            let second = (first + 1) % TAGS;
            assert_eq!(
                (tags.check(first, 2), tags.check(second, 1)),
                (Err(Refusal::Tag), Err(Refusal::Full))
            );
            tags.take(second);
            assert_eq!(tags.check((first + 2) % TAGS, 2), Err(Refusal::Full));
            assert!(tags.give_back(second) && tags.give_back(first) && !tags.give_back(first));
        }
        assert_eq!(tags.check(TAGS, 2), Err(Refusal::Tag));
        tags.take(TAGS);
        assert!(!tags.give_back(TAGS) && tags.check(0, 1) == Ok(()));
    }
}
