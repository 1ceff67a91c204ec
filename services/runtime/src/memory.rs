// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The memory of the VMs that are served, which guests read and write at the same time. Nobody gets a reference to it: all that there
//! is are checked copies, loads and stores of single values, and the indexes and entries of rings that have been found
//! ([`GuestRings`](crate::rings::GuestRings)).

use core::ptr::with_exposed_provenance as place;
use core::sync::atomic::{AtomicU16, AtomicU64, Ordering, fence};

use turnstile_service::abi::{MEMBERS, split_device};
use turnstile_virtio::device::{Place, Span};
pub use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::transfer::{End, Transfer, pieces};

use crate::copy::{WORD, copy, read_few, write_few};

/// The most pieces of memory that a VM has.
const PIECES: usize = 4;

/// Up to so many bytes are copied where they are wanted: a descriptor, a header, the beginning of a packet.
const FEW: usize = 32;

/// The memory of a member, by guest physical addresses; none unless the configuration says `memory = true`.
#[derive(Clone, Copy, Debug)]
pub struct GuestMemory(&'static [Piece; PIECES]);

/// A piece: its guest physical address, its size, what is added to get the address here, and where the device reaches it that the service drives. The
/// size is zero while there is none, and so is the last one where the device does not reach it.
#[derive(Debug)]
struct Piece {
    guest: AtomicU64,
    size: AtomicU64,
    shift: AtomicU64,
    bus: AtomicU64,
}

/// Of each member, and of the device that the service drives. Written before its first event, and read after that.
static MEMORY: [[Piece; PIECES]; MEMBERS as usize + 1] =
    [const { [const { Piece::none() }; PIECES] }; MEMBERS as usize + 1];

/// Takes note of the memory that the device reaches: its address there, its size, its address here.
pub(crate) fn attach_device([bus, size, address]: [u64; 3]) {
    GuestMemory::of_device().0[0].set([bus, size, address, bus]);
}

/// Takes note of a piece: number, guest physical address, size, address here, address for the device.
pub(crate) fn attach([number, guest, size, address, bus]: [u64; 5]) {
    let (member, number) = split_device(number);
    let piece = GuestMemory::of(member).and_then(|memory| memory.0.get(number as usize));
    let Some(piece) = piece else { return };
    piece.set([guest, size, address, bus]);
}

/// Forgets the pieces of a member.
pub(crate) fn detach(member: u64) {
    let pieces = GuestMemory::of(member).into_iter().flat_map(|memory| memory.0);
    pieces.for_each(|piece| piece.size.store(0, Ordering::Relaxed));
}

impl Piece {
    const fn none() -> Self {
        let [guest, size, shift, bus] = [const { AtomicU64::new(0) }; 4];
        Self { guest, size, shift, bus }
    }

    fn set(&self, [guest, size, address, bus]: [u64; 4]) {
        self.guest.store(guest, Ordering::Relaxed);
        self.shift.store(address.wrapping_sub(guest), Ordering::Relaxed);
        self.bus.store(bus, Ordering::Relaxed);
        self.size.store(size, Ordering::Relaxed);
    }

    /// Returns where the device reaches `length` bytes, if all of them are in it.
    #[inline(always)] // On the path of every buffer.
    fn find_on_bus(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.guest.load(Ordering::Relaxed));
        let room = self.size.load(Ordering::Relaxed).checked_sub(length)?;
        let bus = self.bus.load(Ordering::Relaxed);
        (offset <= room && bus != 0).then(|| bus.wrapping_add(offset))
    }

    /// Its values now.
    #[inline(always)] // Three loads.
    fn window(&self) -> Window {
        let [guest, size, shift] =
            [&self.guest, &self.size, &self.shift].map(|word| word.load(Ordering::Relaxed));
        Window { guest, size, shift }
    }

    /// Says whether `length` bytes are all in it.
    #[inline(always)] // On the path of every buffer.
    fn contains(&self, address: u64, length: u64) -> bool {
        let offset = address.wrapping_sub(self.guest.load(Ordering::Relaxed));
        self.size.load(Ordering::Relaxed).checked_sub(length).is_some_and(|room| offset <= room)
    }

    /// Returns how many bytes of it are there from an address on. `None` if that is not in it.
    #[inline(always)] // On the path of every buffer.
    fn behind(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.guest.load(Ordering::Relaxed));
        self.size.load(Ordering::Relaxed).checked_sub(offset)
    }

    /// Returns where `length` bytes are here, if all of them are in it.
    #[inline(always)] // On the path of every buffer, several times.
    fn find(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.guest.load(Ordering::Relaxed));
        let room = self.size.load(Ordering::Relaxed).checked_sub(length)?;
        (offset <= room).then(|| address.wrapping_add(self.shift.load(Ordering::Relaxed)))
    }
}

/// The values of a piece, for several buffers.
#[derive(Clone, Copy)]
struct Window {
    guest: u64,
    size: u64,
    shift: u64,
}

impl Window {
    /// As [`Piece::find`].
    #[inline(always)] // On the path of every buffer.
    fn find(&self, address: u64, length: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.guest);
        let room = self.size.checked_sub(length)?;
        (offset <= room).then(|| address.wrapping_add(self.shift))
    }
}

impl Memory for GuestMemory {
    #[inline(always)] // On the path of every buffer.
    fn contains(&self, address: u64, length: u64) -> bool {
        let [first, ..] = self.0;
        first.contains(address, length) || self.find_elsewhere(address, length).is_ok()
    }

    #[inline(always)] // On the path of every buffer.
    fn together(&self, address: u64) -> u64 {
        // Most of it is in the first one.
        let [first, ..] = self.0;
        first.behind(address).unwrap_or_else(|| self.together_elsewhere(address))
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        Ok(u16::from_le(self.half(address)?.load(Ordering::Acquire)))
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        self.half(address)?.store(value.to_le(), Ordering::Release);
        Ok(())
    }

    #[inline] // On the path of every buffer.
    fn read_u16(&self, address: u64) -> Result<u16, Outside> {
        match self.half(address) {
            Ok(half) => Ok(u16::from_le(half.load(Ordering::Relaxed))),
            Err(_) => {
                let mut bytes = [0; 2];
                self.read(address, &mut bytes)?;
                Ok(u16::from_le_bytes(bytes))
            }
        }
    }

    #[inline(always)] // On the path of every buffer.
    fn read_words(&self, address: u64) -> Result<[u64; 2], Outside> {
        let mut words = [[0; WORD]; 2];
        self.read(address, words.as_flattened_mut())?;
        Ok(words.map(u64::from_le_bytes))
    }

    #[inline(always)] // Of known lengths, often.
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        let at = self.find(address, bytes.len() as u64)? as usize;
        // SAFETY: found above; the others are the caller's alone.
        unsafe {
            match bytes.len() {
                ..=FEW => read_few(bytes, at),
                length => copy(bytes.as_mut_ptr().expose_provenance(), at, length),
            }
        }
        Ok(())
    }

    #[inline(always)] // Of known lengths, often.
    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        let at = self.find(address, bytes.len() as u64)? as usize;
        // SAFETY: found above; the others are the caller's, and nobody writes them.
        unsafe {
            match bytes.len() {
                ..=FEW => write_few(at, bytes),
                length => copy(at, bytes.as_ptr().expose_provenance(), length),
            }
        }
        Ok(())
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

impl Transfer for GuestMemory {
    #[inline(always)] // On the path of every packet.
    fn transfer(&self, from: Span, to: &Self, address: u64) -> Result<(), End> {
        self.transfer_behind(&[], from, to, address)
    }

    #[inline(always)] // As above.
    fn transfer_behind(&self, front: &[u8], from: Span, to: &Self, address: u64) -> Result<(), End> {
        let (few, length) = (front.len() as u64, u64::from(from.length));
        let source = self.find(from.address, length).map_err(End::From)?;
        let target = to.find(address, few + length).map_err(End::To)?;
        // No two members share memory, but one may be at both ends.
        if source.abs_diff(target + few) < length {
            return Err(End::To(Outside { address }));
        }
        let behind = (target + few) as usize;
        // SAFETY: found above: mapped, readable and writable, while the service runs; the bytes that are copied do not overlap. The first ones are the
        // caller's, and nobody writes them.
        unsafe {
            match front.len() {
                ..=FEW => write_few(target as usize, front),
                length => copy(target as usize, front.as_ptr().expose_provenance(), length),
            }
            copy(behind, source as usize, from.length as usize);
        }
        Ok(())
    }

    #[inline(always)] // As above.
    fn transfer_spans(
        &self,
        from: (&[Span], Place),
        to: &Self,
        targets: (&[Span], Place),
        length: u32,
    ) -> Result<(), End> {
        let ([first, ..], [first_to, ..]) = (self.0, to.0);
        // Most spans are in the first pieces.
        let (window, window_to) = (first.window(), first_to.window());
        let find = |Span { address, length }| {
            let found = window.find(address, length.into());
            found.map_or_else(|| self.find_elsewhere(address, length.into()), Ok).map_err(End::From)
        };
        pieces(from, targets, length, find, |source: u64, offset, length, address| {
            let (source, bytes) = (source + u64::from(offset), u64::from(length));
            let target = window_to.find(address, bytes);
            let target = target.map_or_else(|| to.find_elsewhere(address, bytes), Ok).map_err(End::To)?;
            // As above.
            if source.abs_diff(target) < bytes {
                return Err(End::To(Outside { address }));
            }
            // SAFETY: as above.
            unsafe { copy(target as usize, source as usize, length as usize) };
            Ok(())
        })
    }
}

impl GuestMemory {
    /// The memory of the VM of a service that has one.
    #[inline(always)] // An address.
    pub const fn own() -> Self {
        let [own, ..] = &MEMORY;
        Self(own)
    }

    /// The memory of a member. `None` if there can be no such member.
    pub const fn of(member: u64) -> Option<Self> {
        if member < MEMBERS { Some(Self(&MEMORY[member as usize])) } else { None }
    }

    /// The memory that the device reaches which the service drives, by the device's addresses; none without a device. This is how programs use it
    /// among themselves: what the device has to see or has written is ordered by [`DeviceMemory`](crate::DeviceMemory).
    pub const fn of_device() -> Self {
        Self(&MEMORY[MEMBERS as usize])
    }

    /// Returns where its first piece begins, and how many bytes that has.
    pub(crate) fn first(self) -> (u64, u64) {
        let [first, ..] = self.0;
        (first.guest.load(Ordering::Relaxed), first.size.load(Ordering::Relaxed))
    }

    /// Returns where the device that the service drives reaches `length` bytes, all in one piece. `None` if it does not: a program copies then.
    #[inline(always)] // On the path of every buffer.
    pub fn on_bus(self, address: u64, length: u64) -> Option<u64> {
        self.0.iter().find_map(|piece| piece.find_on_bus(address, length))
    }

    /// Returns where a byte is here.
    #[cfg(feature = "misbehave")]
    pub(crate) fn place(self, address: u64) -> Option<u64> {
        self.find(address, 1).ok()
    }

    /// Returns where `length` bytes are, all in one piece. No bytes are anywhere.
    #[inline(always)] // On the path of every buffer, several times.
    pub(crate) fn find(self, address: u64, length: u64) -> Result<u64, Outside> {
        // Most of it is in the first one.
        let [first, ..] = self.0;
        match first.find(address, length) {
            Some(at) => Ok(at),
            None => self.find_elsewhere(address, length),
        }
    }

    #[cold]
    #[inline(never)]
    fn find_elsewhere(self, address: u64, length: u64) -> Result<u64, Outside> {
        let [_, others @ ..] = self.0;
        match others.iter().find_map(|piece| piece.find(address, length)) {
            Some(at) => Ok(at),
            None if length == 0 => Ok(0),
            None => Err(Outside { address }),
        }
    }

    #[cold]
    #[inline(never)]
    fn together_elsewhere(self, address: u64) -> u64 {
        let [_, others @ ..] = self.0;
        others.iter().find_map(|piece| piece.behind(address)).unwrap_or(0)
    }

    /// Returns the two bytes at an even address of the guest's.
    #[inline]
    fn half<'a>(self, address: u64) -> Result<&'a AtomicU16, Outside> {
        let at = self.find(address, 2)?;
        if !at.is_multiple_of(2) {
            return Err(Outside { address });
        }
        // SAFETY: mapped, readable and writable, while the service runs, and aligned; the guest writes it, too, so it is an atomic.
        Ok(unsafe { &*place(at as usize) })
    }
}

#[cfg(test)]
mod tests {
    use turnstile_service::abi::member_device;

    use super::*;

    /// One test, because all programs of a process have the same pieces.
    #[test]
    fn only_what_is_memory_is_reached() {
        let words: &'static [AtomicU64] = Box::leak(Box::new([const { AtomicU64::new(0) }; 4]));
        let here = words.as_ptr().expose_provenance() as u64;
        let memory = GuestMemory::own();
        assert_eq!(memory.read(0x8000, &mut [0]), Err(Outside { address: 0x8000 }), "nothing is attached");
        attach([1, 0x8000, 24, here, 0x7000_0000]);
        attach([PIECES as u64, 0, u64::MAX, here, 0]);
        attach([u64::MAX, 0, u64::MAX, here, 0]);
        attach([member_device(MEMBERS, 0), 0, u64::MAX, here, 0]);
        assert!(GuestMemory::of(MEMBERS).is_none());

        memory.write(0x8003, b"checked copies").unwrap();
        let mut read = [0; 14];
        memory.read(0x8003, &mut read).unwrap();
        assert_eq!(&read, b"checked copies");
        assert_eq!(words[0].load(Ordering::Relaxed), u64::from_le_bytes(*b"\0\0\0check"));
        let mut one = [0; 5];
        memory.read(0x8009, &mut one).unwrap();
        assert_eq!(&one, b"d cop", "not a whole word");

        let on_bus = |address, length| memory.on_bus(address, length);
        assert_eq!([on_bus(0x8003, 14), on_bus(0x8017, 1)], [Some(0x7000_0003), Some(0x7000_0017)]);
        assert_eq!([on_bus(0x7fff, 2), on_bus(0x8003, 22), on_bus(0x7000_0003, 1)], [None; 3]);

        memory.store(0x8016, 0x1234).unwrap();
        assert_eq!((memory.load(0x8016), memory.read_u16(0x8016)), (Ok(0x1234), Ok(0x1234)));
        assert_eq!(memory.load(0x8001), Err(Outside { address: 0x8001 }), "odd");
        memory.fence();

        assert!(memory.contains(0x8000, 24) && memory.contains(0x8017, 1) && memory.contains(1, 0));
        for (address, length) in
            [(0x7fff, 2), (0x8000, 25), (0x8017, 2), (0x8018, 1), (0, 1), (u64::MAX, 2), (0x8001, u64::MAX)]
        {
            assert!(!memory.contains(address, length), "{length} bytes at {address:#x}");
        }
        let together = [0x7fff, 0x8000, 0x8017, 0x8018, 0, u64::MAX].map(|address| memory.together(address));
        assert_eq!(together, [0, 24, 1, 0, 0, 0]);
        assert_eq!(memory.write(0x8017, &[1; 2]), Err(Outside { address: 0x8017 }));
        assert_eq!(memory.store(0x8018, 1), Err(Outside { address: 0x8018 }));
        assert_eq!(words[3].load(Ordering::Relaxed), 0, "behind it is not its memory");
        assert_eq!((memory.read(5, &mut []), memory.write(0x8018, &[])), (Ok(()), Ok(())));
    }

    /// These members are of no other test.
    #[test]
    fn bytes_go_from_member_to_member() {
        let words: &'static [AtomicU64] = Box::leak(Box::new([const { AtomicU64::new(0) }; 9]));
        let here = words.as_ptr().expose_provenance() as u64;
        let [from, to] = [3, 7].map(|member| GuestMemory::of(member).unwrap());
        attach([member_device(3, 1), 0x1000, 32, here, 0]);
        attach([member_device(7, 0), 0x1000, 32, here + 32, 0]);
        from.write(0x1001, b"from page to page, once").unwrap();
        assert_eq!(from.transfer(Span { address: 0x1001, length: 23 }, &to, 0x1004), Ok(()));
        let mut read = [0; 23];
        to.read(0x1004, &mut read).unwrap();
        assert_eq!(&read, b"from page to page, once");
        let outside = |address| Outside { address };
        let transfer =
            |to: &GuestMemory, length, address| from.transfer(Span { address: 0x1001, length }, to, address);
        assert_eq!(transfer(&to, 32, 0x1000), Err(End::From(outside(0x1001))));
        assert_eq!(transfer(&to, 31, 0x1002), Err(End::To(outside(0x1002))));
        assert_eq!(transfer(&from, 8, 0x1003), Err(End::To(outside(0x1003))), "they overlap");
        assert_eq!(transfer(&from, 0, 0x1001), Ok(()));
        assert_eq!(from.on_bus(0x1001, 23), None, "the device does not reach it");
        // From spans to spans, of both pieces.
        attach([member_device(7, 1), 0x8000, 8, here + 64, 0]);
        assert_eq!([0x101e, 0x8003, 0x8008].map(|address| to.together(address)), [2, 5, 0], "of each piece");
        let spans = |list: [(u64, u32); 2]| list.map(|(address, length)| Span { address, length });
        let copy = |to: &GuestMemory, sources, targets| {
            let sources = (&spans(sources)[..], Place::behind_first(1));
            from.transfer_spans(sources, to, (&spans(targets)[..], Place::START), 11)
        };
        let (sources, targets) = ([(0x1001, 4), (0x100a, 10)], [(0x1010, 8), (0x8002, 6)]);
        assert_eq!(copy(&to, sources, targets), Ok(()));
        let mut pieces = [[0; 8]; 2];
        to.read(0x1010, &mut pieces[0]).unwrap();
        to.read(0x8000, &mut pieces[1]).unwrap();
        assert_eq!(&pieces, &[*b"rom to p", *b"\0\0age\0\0\0"]);
        assert_eq!(copy(&to, sources, [(0x1010, 8), (0x8006, 6)]), Err(End::To(outside(0x8006))));
        assert_eq!(copy(&to, [(0x1001, 4), (0x101c, 10)], targets), Err(End::From(outside(0x101c))));
        assert_eq!(
            copy(&from, sources, [(0x1010, 8), (0x100d, 6)]),
            Err(End::To(outside(0x100d))),
            "they overlap"
        );
        detach(MEMBERS);
        detach(7);
        assert_eq!(to.read(0x1004, &mut read), Err(outside(0x1004)));
        assert_eq!(from.read(0x1001, &mut read), Ok(()), "the others have theirs");
    }
}
