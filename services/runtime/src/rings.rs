// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The rings of a queue in a VM's memory, found once.
//!
//! A VM's memory stays where it is in the service's address space while its member is attached. Behind that there is nothing, or another
//! member's memory. A program is told of who has left before anything of who has come, and forgets its queues then
//! (`Service::detach`). So who has found a ring may use it without looking again: each index is brought within the ring.

use core::ptr::with_exposed_provenance as place;
use core::sync::atomic::{AtomicU16, Ordering};

use turnstile_virtio::ring::{Areas, DESCRIPTOR, Descriptor, Layout};
use turnstile_virtio::rings::Rings;

use crate::copy::{read_words, write_word};
use crate::memory::{GuestMemory, Outside};

/// The rings of a queue.
#[derive(Clone, Copy, Debug)]
pub struct GuestRings {
    /// Where the driver's area and the device's are here, aligned to 2.
    driver: usize,
    device: usize,
    /// Where the descriptors are here.
    table: usize,
    /// Where the descriptors are, as the driver says.
    descriptors: u64,
    /// How many descriptors there are: a power of two, and within both areas.
    size: u16,
}

impl GuestRings {
    /// Finds an area.
    fn area(memory: &GuestMemory, address: u64, length: u64) -> Result<usize, Outside> {
        let at = memory.find(address, length)?;
        if at.is_multiple_of(2) { Ok(at as usize) } else { Err(Outside { address }) }
    }

    /// Two bytes of one of the areas.
    ///
    /// # Safety
    /// They are within it, and aligned.
    #[inline(always)] // An address.
    unsafe fn half<'a>(at: usize) -> &'a AtomicU16 {
        // SAFETY: the caller's promise. The VM's memory is there, readable and writable, until its member is detached, which forgets the
        // queue; the guest writes it, too, so it is an atomic.
        unsafe { &*place(at) }
    }

    /// The place in a ring of an index.
    #[inline(always)] // An instruction.
    const fn slot(&self, index: u16) -> usize {
        (index & (self.size - 1)) as usize
    }
}

impl Rings<GuestMemory> for GuestRings {
    fn find(memory: &GuestMemory, layout: &Layout) -> Result<Self, Outside> {
        let (Areas { descriptors, driver, device }, size) = (layout.areas(), layout.size());
        let [table_length, driver_length, device_length] = Areas::lengths(size);
        Ok(Self {
            driver: Self::area(memory, driver, driver_length)?,
            device: Self::area(memory, device, device_length)?,
            table: Self::area(memory, descriptors, table_length)?,
            descriptors,
            size,
        })
    }

    #[inline(always)] // A load.
    fn size(&self) -> u16 {
        self.size
    }

    #[inline(always)] // A load.
    fn descriptors(&self) -> u64 {
        self.descriptors
    }

    #[inline(always)] // Two loads.
    fn descriptor(&self, _: &GuestMemory, index: u16) -> Result<Descriptor, Outside> {
        // SAFETY: the slot is below the size.
        Ok(Descriptor::from_words(unsafe { read_words(self.table + DESCRIPTOR as usize * self.slot(index)) }))
    }

    #[inline(always)] // On the path of every batch, as those below.
    fn load_available(&self, _: &GuestMemory) -> Result<u16, Outside> {
        // SAFETY: within the area, whatever its size is.
        Ok(u16::from_le(unsafe { Self::half(self.driver + 2) }.load(Ordering::Acquire)))
    }

    #[inline(always)]
    fn available(&self, _: &GuestMemory, index: u16) -> Result<u16, Outside> {
        // SAFETY: the slot is below the size.
        let entry = unsafe { Self::half(self.driver + 4 + 2 * self.slot(index)) };
        Ok(u16::from_le(entry.load(Ordering::Relaxed)))
    }

    #[inline(always)]
    fn available_flags(&self, _: &GuestMemory) -> Result<u16, Outside> {
        // SAFETY: the first of the area.
        Ok(u16::from_le(unsafe { Self::half(self.driver) }.load(Ordering::Relaxed)))
    }

    #[inline(always)]
    fn used_event(&self, _: &GuestMemory) -> Result<u16, Outside> {
        // SAFETY: the last of the area.
        let event = unsafe { Self::half(self.driver + 4 + 2 * usize::from(self.size)) };
        Ok(u16::from_le(event.load(Ordering::Relaxed)))
    }

    fn load_used(&self, _: &GuestMemory) -> Result<u16, Outside> {
        // SAFETY: within the area, whatever its size is.
        Ok(u16::from_le(unsafe { Self::half(self.device + 2) }.load(Ordering::Acquire)))
    }

    #[inline(always)]
    fn store_used(&self, _: &GuestMemory, value: u16) -> Result<(), Outside> {
        // SAFETY: as above.
        unsafe { Self::half(self.device + 2) }.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn write_used(&self, _: &GuestMemory, index: u16, entry: u64) -> Result<(), Outside> {
        // SAFETY: the slot is below the size.
        unsafe { write_word(self.device + 4 + 8 * self.slot(index), entry.to_le()) };
        Ok(())
    }

    #[inline(always)]
    fn store_flags(&self, _: &GuestMemory, value: u16) -> Result<(), Outside> {
        // SAFETY: the first of the area.
        unsafe { Self::half(self.device) }.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    #[inline(always)]
    fn store_event(&self, _: &GuestMemory, value: u16) -> Result<(), Outside> {
        // SAFETY: the last of the area.
        let event = unsafe { Self::half(self.device + 4 + 8 * usize::from(self.size)) };
        event.store(value.to_le(), Ordering::Release);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use core::sync::atomic::AtomicU64;

    use turnstile_service::abi::member_device;

    use super::*;
    use crate::memory::{Memory, attach, detach};

    /// This member is of no other test.
    #[test]
    fn each_field_is_where_its_layout_says() {
        let words: &'static [AtomicU64] = Box::leak(Box::new([const { AtomicU64::new(0) }; 32]));
        attach([member_device(4, 0), 0x1000, 256, words.as_ptr().expose_provenance() as u64, 0]);
        let memory = GuestMemory::of(4).unwrap();
        let areas = Areas { descriptors: 0x1000, driver: 0x1040, device: 0x1050 };
        let layout = Layout::new(&memory, 4, areas).unwrap();
        let rings = GuestRings::find(&memory, &layout).unwrap();
        (0..0x80_u64).step_by(2).for_each(|at| memory.store(0x1000 + at, at as u16).unwrap());
        for index in [0, 3, 4, u16::MAX] {
            assert_eq!(rings.available(&memory, index), Rings::available(&layout, &memory, index));
            rings.write_used(&memory, index, 0x1234_5678_9abc_def0 + u64::from(index)).unwrap();
            let mut entry = [0; 8];
            memory.read(0x1054 + 8 * u64::from(index % 4), &mut entry).unwrap();
            assert_eq!(u64::from_le_bytes(entry), 0x1234_5678_9abc_def0 + u64::from(index));
        }
        assert_eq!((rings.load_available(&memory), rings.used_event(&memory)), (Ok(0x42), Ok(0x4c)));
        assert_eq!((rings.available_flags(&memory), rings.load_used(&memory)), (Ok(0x40), Ok(0x52)));
        assert_eq!((Rings::size(&rings), Rings::descriptors(&rings)), (4, 0x1000));
        for index in 0..4 {
            let descriptor = Rings::<GuestMemory>::descriptor(&rings, &memory, index);
            assert_eq!(descriptor, Rings::descriptor(&layout, &memory, index));
        }
        let wrapped = rings.descriptor(&memory, 7);
        assert_eq!(wrapped, rings.descriptor(&memory, 3), "nothing behind the table is read");
        rings.store_flags(&memory, 1).unwrap();
        rings.store_used(&memory, 2).unwrap();
        rings.store_event(&memory, 3).unwrap();
        let read = [0x1050, 0x1052, 0x1074, 0x1076].map(|at| memory.read_u16(at));
        assert_eq!(read, [Ok(1), Ok(2), Ok(3), Ok(0x76)], "and nothing behind them is changed");
        // What is not memory has no rings.
        detach(4);
        assert!(GuestRings::find(&memory, &layout).is_err());
    }
}
