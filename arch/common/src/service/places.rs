// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where windows on memory are in the address space of a service: slots of 1 GiB, of which each member takes as many as it needs.

use alloc::vec::Vec;

use turnstile_service::abi::MEMBERS;

use super::Window;
use crate::memory::Error;

/// Bytes of a slot.
pub const SLOT: u64 = 1 << 30;
/// How many slots there are.
pub const SLOTS: u64 = 512;
/// The member whose windows are those of the machine's device that the service drives.
pub const DEVICE: usize = MEMBERS as usize;
/// Slots in a word.
const WORD: u64 = 64;

/// A window that is mapped: its offset from the first slot, and its size in bytes.
type Place = (u64, u64);

/// The tables in which windows are mapped.
pub trait Mapping {
    /// Maps a window so many bytes behind the first slot.
    ///
    /// # Errors
    /// When there is no memory for tables. Nothing of it is mapped then.
    fn map(&mut self, offset: u64, window: &Window) -> Result<(), Error>;
    /// Takes away what is mapped there: a whole window of so many bytes.
    fn unmap(&mut self, offset: u64, size: u64);
}

/// The places of a service's windows.
#[derive(Debug, Default)]
pub struct Places {
    /// A bit for each slot that is taken.
    taken: [u64; (SLOTS / WORD) as usize],
    /// The windows of each member, and those of the device.
    members: [Vec<Place>; DEVICE + 1],
}

impl Places {
    /// Makes those of a service that has no windows.
    pub const fn new() -> Self {
        Self { taken: [0; (SLOTS / WORD) as usize], members: [const { Vec::new() }; DEVICE + 1] }
    }

    /// Finds places for a member's windows, which has none, maps them there, and fills in their offsets. Each begins as far behind its
    /// slot's first byte as the memory does behind a multiple of [`SLOT`], so that the largest pages fit. Nothing stays mapped if one fails.
    ///
    /// # Errors
    /// When there is no room, or what [`Mapping::map`] says.
    pub fn open(
        &mut self,
        member: usize,
        windows: &mut [Window],
        mapping: &mut impl Mapping,
    ) -> Result<(), Error> {
        let opened = windows.iter_mut().try_for_each(|window| {
            let offset = self.find(window).ok_or(Error::NoService)?;
            let places = self.members.get_mut(member).ok_or(Error::NoService)?;
            mapping.map(offset, window)?;
            window.address = offset;
            places.push((offset, window.size));
            self.mark(offset, window.size, true);
            Ok(())
        });
        opened.inspect_err(|_| self.close(member, mapping))
    }

    /// Takes a member's windows away.
    pub fn close(&mut self, member: usize, mapping: &mut impl Mapping) {
        let places = self.members.get_mut(member).map(core::mem::take);
        for (offset, size) in places.into_iter().flatten() {
            mapping.unmap(offset, size);
            self.mark(offset, size, false);
        }
    }

    /// Returns the offset of the first place with room for a window.
    fn find(&self, window: &Window) -> Option<u64> {
        let inside = window.host % SLOT;
        let end = inside.checked_add(window.size).filter(|end| *end > inside)?;
        let count = end.div_ceil(SLOT);
        let (mut first, mut slot) = (0, 0);
        while slot < first + count {
            if first + count > SLOTS {
                return None;
            }
            if self.is_taken(slot) {
                first = slot + 1;
            }
            slot += 1;
        }
        Some(first * SLOT + inside)
    }

    fn is_taken(&self, slot: u64) -> bool {
        self.taken.get((slot / WORD) as usize).is_none_or(|word| word >> (slot % WORD) & 1 != 0)
    }

    fn mark(&mut self, offset: u64, size: u64, taken: bool) {
        for slot in offset / SLOT..(offset + size).div_ceil(SLOT) {
            if let Some(word) = self.taken.get_mut((slot / WORD) as usize) {
                *word = *word & !(1 << (slot % WORD)) | u64::from(taken) << (slot % WORD);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn has(places: &Places, member: usize) -> bool {
        !places.members[member].is_empty()
    }

    fn window(host: u64, size: u64) -> Window {
        Window { host, size, ..Window::default() }
    }

    /// What was unmapped, and how many windows there is memory for.
    struct Tables(Vec<(u64, u64)>, usize);

    impl Tables {
        const fn new() -> Self {
            Self(Vec::new(), usize::MAX)
        }
    }

    impl Mapping for Tables {
        fn map(&mut self, _: u64, _: &Window) -> Result<(), Error> {
            self.1 = self.1.checked_sub(1).ok_or(Error::NoService)?;
            Ok(())
        }

        fn unmap(&mut self, offset: u64, size: u64) {
            self.0.push((offset, size));
        }
    }

    fn open(places: &mut Places, member: usize, windows: &[Window]) -> Result<Vec<u64>, Error> {
        let mut windows = windows.to_vec();
        places.open(member, &mut windows, &mut Tables::new())?;
        Ok(windows.iter().map(|window| window.address).collect())
    }

    /// Takes a member's windows away, and returns what was unmapped.
    fn close(places: &mut Places, member: usize) -> Vec<(u64, u64)> {
        let mut tables = Tables::new();
        places.close(member, &mut tables);
        tables.0
    }

    #[test]
    fn members_have_places_of_their_own_and_give_them_back() {
        let mut places = Places::new();
        let first =
            open(&mut places, 0, &[window(0x8000_0000, SLOT), window(0x4020_0000, 2 * SLOT)]).unwrap();
        assert_eq!(first, [0, SLOT + 0x20_0000], "as the memory is, within a slot");
        let second = open(&mut places, 3, &[window(0, 1)]).unwrap();
        assert_eq!(second, [4 * SLOT], "two slots and a part of a third are the first member's");
        assert_eq!(close(&mut places, 0), [(0, SLOT), (SLOT + 0x20_0000, 2 * SLOT)]);
        assert!(!has(&places, 0) && has(&places, 3));
        assert_eq!(close(&mut places, 0), [], "nothing is left");
        assert_eq!(open(&mut places, 1, &[window(0, 4 * SLOT), window(0, SLOT)]).unwrap(), [0, 5 * SLOT]);
    }

    #[test]
    fn what_does_not_fit_leaves_nothing() {
        let mut places = Places::new();
        open(&mut places, 0, &[window(0, 511 * SLOT)]).unwrap();
        for windows in
            [&[window(0, 1), window(0, 1)][..], &[window(1, SLOT)], &[window(0, u64::MAX)], &[window(0, 0)]]
        {
            assert!(matches!(open(&mut places, 1, windows), Err(Error::NoService)));
            assert!(!has(&places, 1));
        }
        assert_eq!(open(&mut places, 1, &[window(0, SLOT)]).unwrap(), [511 * SLOT]);
        close(&mut places, 1);
        let mut tables = Tables(Vec::new(), 1);
        assert!(places.open(1, &mut [window(0, SLOT / 2), window(0, 1)], &mut tables).is_err());
        assert_eq!(tables.0, [(511 * SLOT, SLOT / 2)], "what was mapped is taken away");
        assert!(open(&mut places, DEVICE + 1, &[window(0, SLOT)]).is_err(), "there is no such member");
    }
}
