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
/// Slots in a word.
const WORD: u64 = 64;

/// A window that is mapped: its offset from the first slot, and its size in bytes.
type Place = (u64, u64);

/// The places of a service's windows.
#[derive(Debug, Default)]
pub struct Places {
    /// A bit for each slot that is taken.
    taken: [u64; (SLOTS / WORD) as usize],
    /// The windows of each member.
    members: [Vec<Place>; MEMBERS as usize],
}

impl Places {
    /// Makes those of a service that has no windows.
    pub const fn new() -> Self {
        Self { taken: [0; (SLOTS / WORD) as usize], members: [const { Vec::new() }; MEMBERS as usize] }
    }

    /// Finds places for a member's windows, which has none, and fills in their offsets. Each begins as far behind its slot's first byte as
    /// the memory does behind a multiple of [`SLOT`], so that the largest pages fit. `map` maps one at its offset. If that fails, `unmap`
    /// takes away what was mapped.
    ///
    /// # Errors
    /// When there is no room, or what `map` says.
    pub fn open<E: From<Error>>(
        &mut self,
        member: usize,
        windows: &mut [Window],
        mut map: impl FnMut(u64, &Window) -> Result<(), E>,
        unmap: impl FnMut(u64, u64),
    ) -> Result<(), E> {
        let opened = windows.iter_mut().try_for_each(|window| {
            let offset = self.find(window).ok_or(Error::NoService)?;
            let places = self.members.get_mut(member).ok_or(Error::NoService)?;
            map(offset, window)?;
            window.address = offset;
            places.push((offset, window.size));
            self.mark(offset, window.size, true);
            Ok(())
        });
        if opened.is_err() {
            self.close(member, unmap);
        }
        opened
    }

    /// Forgets a member's windows, each of which `unmap` takes away: its offset and its size.
    pub fn close(&mut self, member: usize, mut unmap: impl FnMut(u64, u64)) {
        let places = self.members.get_mut(member).map(core::mem::take);
        for (offset, size) in places.into_iter().flatten() {
            unmap(offset, size);
            self.mark(offset, size, false);
        }
    }

    /// Says whether a member has windows.
    pub fn has(&self, member: usize) -> bool {
        self.members.get(member).is_some_and(|places| !places.is_empty())
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
    use std::vec;

    fn window(host: u64, size: u64) -> Window {
        Window { host, size, ..Window::default() }
    }

    fn open(places: &mut Places, member: usize, windows: &[Window]) -> Result<Vec<u64>, Error> {
        let mut windows = windows.to_vec();
        places.open::<Error>(member, &mut windows, |_, _| Ok(()), |_, _| ())?;
        Ok(windows.iter().map(|window| window.address).collect())
    }

    #[test]
    fn members_have_places_of_their_own_and_give_them_back() {
        let mut places = Places::new();
        let first =
            open(&mut places, 0, &[window(0x8000_0000, SLOT), window(0x4020_0000, 2 * SLOT)]).unwrap();
        assert_eq!(first, [0, SLOT + 0x20_0000], "as the memory is, within a slot");
        let second = open(&mut places, 3, &[window(0, 1)]).unwrap();
        assert_eq!(second, [4 * SLOT], "two slots and a part of a third are the first member's");
        let mut gone = vec![];
        places.close(0, |offset, size| gone.push((offset, size)));
        assert_eq!(gone, [(0, SLOT), (SLOT + 0x20_0000, 2 * SLOT)]);
        assert!(!places.has(0) && places.has(3));
        places.close(0, |_, _| panic!("nothing is left"));
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
            assert!(!places.has(1));
        }
        assert_eq!(open(&mut places, 1, &[window(0, SLOT)]).unwrap(), [511 * SLOT]);
        places.close(1, |_, _| ());
        let mut undone = vec![];
        let mut windows = [window(0, SLOT / 2), window(0, 1)];
        let mut maps = 0;
        let map = |_: u64, _: &Window| {
            maps += 1;
            if maps == 1 { Ok(()) } else { Err(Error::NoService) }
        };
        assert!(places.open(1, &mut windows, map, |offset, size| undone.push((offset, size))).is_err());
        assert_eq!(undone, [(511 * SLOT, SLOT / 2)], "what was mapped is taken away");
        assert!(open(&mut places, MEMBERS as usize, &[window(0, SLOT)]).is_err(), "there is no such member");
    }
}
