// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a disk over an image: the image, which others read, too, and the service's own memory, in three parts.

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::slice::{from_raw_parts, from_raw_parts_mut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::storage::Storage;

/// The bytes of the room, or of the disk, for which there is an entry.
const CLUSTER: usize = 4096;
/// The bytes of an entry.
const ENTRY: usize = size_of::<AtomicU32>();

/// The layers of the disk that the configuration gives this service.
#[derive(Debug)]
pub struct Layers {
    /// The disk's name, with zeros behind it.
    pub name: [u8; 16],
    /// The bytes of the disk.
    pub size: u64,
    /// Its image, which nobody writes.
    pub image: &'static [u8],
    /// The room for what is written.
    pub store: &'static mut [u8],
    /// A word for each 4096 bytes of that.
    pub owners: &'static [AtomicU32],
    /// A word for each 4096 bytes of the disk.
    pub map: &'static [AtomicU32],
}

/// What the event said: the size of the image, its address, the size of the disk, the room.
static IMAGE: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// Takes note of it, before the first event that programs see.
pub(crate) fn attach(words: [u64; 4]) {
    for (to, word) in IMAGE.iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
}

impl Layers {
    /// Takes them: once, since nobody else may write them. `None` without such a disk.
    pub fn take() -> Option<Self> {
        let [length, place, size, room] = IMAGE.each_ref().map(|word| word.load(Ordering::Relaxed));
        let storage = Storage::take().filter(|storage| storage.is_writable() && room != 0)?;
        let name = storage.name();
        let places = usize::try_from(room).ok()? / CLUSTER;
        let clusters = usize::try_from(size.div_ceil(CLUSTER as u64)).ok()?;
        let [owners, map, end] = parts(places, clusters)?;
        let own = storage.into_address_of(end)?;
        let image = match (isize::try_from(length).ok()? as usize, usize::try_from(place).ok()?) {
            (0, _) | (_, 0) => &[],
            // SAFETY: mapped for the whole life of the program, and written by nobody.
            (length, place) => unsafe { from_raw_parts(with_exposed_provenance(place), length) },
        };
        // SAFETY: mapped and writable for the whole life of the program, and nobody else's, as the value that had it is gone. The parts lie
        // within it, one behind the other, at words, as it begins at a page.
        let (store, owners, map) = unsafe {
            (
                from_raw_parts_mut(with_exposed_provenance_mut(own), owners),
                from_raw_parts(with_exposed_provenance(own + owners), places),
                from_raw_parts(with_exposed_provenance(own + map), clusters),
            )
        };
        Some(Self { name, size, image, store, owners, map })
    }
}

/// Returns where the owners, the map and their end are behind the beginning of the store.
fn parts(places: usize, clusters: usize) -> Option<[usize; 3]> {
    let owners = places.checked_mul(CLUSTER)?;
    let map = owners.checked_add(places.checked_mul(ENTRY)?)?;
    Some([owners, map, map.checked_add(clusters.checked_mul(ENTRY)?)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_lie_one_behind_the_other() {
        assert_eq!(parts(2, 3), Some([8192, 8200, 8212]));
        assert_eq!(parts(0, 0), Some([0; 3]));
        assert_eq!((parts(usize::MAX / 4096 + 1, 0), parts(0, usize::MAX / 4 + 1)), (None, None));
        assert_eq!(parts(usize::MAX / 4100, usize::MAX / 4), None);
    }
}
