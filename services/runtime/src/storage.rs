// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of a disk. Its service has it for itself, or shares it with others that do not write it either; so there are references to it.

use core::ptr::{with_exposed_provenance, with_exposed_provenance_mut};
use core::slice::{from_raw_parts, from_raw_parts_mut};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use turnstile_service::abi::{READ_ONLY, REGISTERS};

/// The memory of the disk that the configuration gives this service.
#[derive(Debug)]
pub struct Storage {
    address: usize,
    size: usize,
    writable: bool,
    name: [u64; 2],
}

/// What the event said: flags, size, address, and two words of the name. The size is zero before it, and when it was taken.
static STORAGE: [AtomicU64; REGISTERS - 1] = [const { AtomicU64::new(0) }; REGISTERS - 1];

/// Takes note of it, before the first event that programs see.
pub(crate) fn attach(words: [u64; REGISTERS - 1]) {
    for (to, word) in STORAGE.iter().zip(words) {
        to.store(word, Ordering::Relaxed);
    }
}

impl Storage {
    /// Takes it: once, since nobody else may have it. `None` without a disk.
    pub fn take() -> Option<Self> {
        let [flags, size, address, first, second] =
            STORAGE.each_ref().map(|word| word.load(Ordering::Relaxed));
        let [_, size_left, ..] = &STORAGE;
        size_left.store(0, Ordering::Relaxed);
        // The address space has no more than this.
        let size = usize::try_from(size).ok().filter(|size| *size != 0 && isize::try_from(*size).is_ok())?;
        let address = usize::try_from(address).ok().filter(|address| *address != 0)?;
        Some(Self { address, size, writable: flags & READ_ONLY == 0, name: [first, second] })
    }

    /// Its size in bytes.
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Whether it can be written.
    pub const fn is_writable(&self) -> bool {
        self.writable
    }

    /// The disk's name, with zeros behind it.
    pub fn name(&self) -> [u8; 16] {
        let [first, second] = self.name.map(u64::to_le_bytes);
        core::array::from_fn(|at| if at < 8 { first[at] } else { second[at - 8] })
    }

    /// Gives it up for its address, if that is a word's and so many bytes are there.
    pub(crate) const fn into_address_of(self, end: usize) -> Option<usize> {
        if end <= self.size && self.address.is_multiple_of(align_of::<AtomicU32>()) {
            Some(self.address)
        } else {
            None
        }
    }

    /// All bytes.
    #[inline(always)] // Two moves.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: mapped, readable, and written by nobody but who has this value, of which there is one.
        unsafe { from_raw_parts(with_exposed_provenance(self.address), self.size) }
    }

    /// All bytes, to be written; none if they cannot be.
    #[inline(always)] // A few moves.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let size = if self.writable { self.size } else { 0 };
        // SAFETY: as above, and writable.
        unsafe { from_raw_parts_mut(with_exposed_provenance_mut(self.address), size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One test, because all programs of a process have the same disk.
    #[test]
    fn a_disk_is_there_once() {
        assert!(Storage::take().is_none(), "none was given");
        let bytes: &'static mut [u8] = vec![7; 512].leak();
        let address = bytes.as_mut_ptr().expose_provenance() as u64;
        let name = [u64::from_le_bytes(*b"root-of-"), u64::from_le_bytes(*b"all\0\0\0\0\0")];
        attach([0, 512, address, name[0], name[1]]);
        let mut storage = Storage::take().unwrap();
        assert!(Storage::take().is_none(), "it is taken");
        assert_eq!(
            (storage.size(), storage.is_writable(), &storage.name()),
            (512, true, b"root-of-all\0\0\0\0\0")
        );
        storage.bytes_mut()[511] = 9;
        assert_eq!((storage.bytes()[510], storage.bytes()[511]), (7, 9));
        attach([READ_ONLY, 512, address, 0, 0]);
        let mut storage = Storage::take().unwrap();
        assert!(!storage.is_writable() && storage.bytes_mut().is_empty() && storage.bytes().len() == 512);
        for (size, address) in [(0, address), (u64::MAX, address), (512, 0)] {
            attach([0, size, address, 0, 0]);
            assert!(Storage::take().is_none());
        }
        layers_are_there_once();
    }

    /// Memory for a disk of 3 clusters, of which two can be written.
    #[repr(align(4096))]
    struct Own([u8; 8192 + 4 * 5]);

    fn layers_are_there_once() {
        use crate::layers::{self, Layers};

        let own = Box::leak(Box::new(Own([0; _])));
        own.0[8192 + 8] = 7;
        let address = (&raw mut own.0).expose_provenance() as u64;
        let image: &'static [u8] = vec![5; 700].leak();
        let place = image.as_ptr().expose_provenance() as u64;
        let name = [u64::from_le_bytes(*b"overlay\0"), 0];
        let take = |flags, size, address, over| {
            attach([flags, size, address, name[0], name[1]]);
            layers::attach(over);
            Layers::take()
        };
        let size = size_of_val(&own.0) as u64;
        let over = [700, place, 512 * 17, 8192];
        for (flags, size, address, over) in [
            (READ_ONLY, size, address, over),
            (0, size - 1, address, over),
            (0, size - 2, address + 2, over),
            (0, size, address, [700, place, 512 * 25, 8192]),
            (0, size, address, [700, place, u64::MAX, 8192]),
            (0, size, address, [700, place, 512 * 17, u64::MAX]),
            (0, size, address, [0; 4]),
        ] {
            assert!(take(flags, size, address, over).is_none(), "{flags} {size} {address} {over:?}");
        }
        let layers = take(0, size, address, over).unwrap();
        assert!(Layers::take().is_none(), "they are taken");
        assert_eq!((&layers.name, layers.size), (b"overlay\0\0\0\0\0\0\0\0\0", 512 * 17));
        assert_eq!((layers.image, layers.store.len(), layers.owners.len()), (image, 8192, 2));
        assert_eq!(layers.map.iter().map(|word| word.load(Ordering::Relaxed)).collect::<Vec<_>>(), [7, 0, 0]);
        let layers = take(0, size, address, [0, 0, 512 * 17, 8192]).unwrap();
        assert!(layers.image.is_empty());
    }
}
