// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the RAM of a VM is in the machine's.

use arrayvec::ArrayVec;

/// The most pieces that the RAM of a VM is in.
pub const MAX_PIECES: usize = 4;

/// A piece of a VM's RAM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Piece {
    /// First guest physical address.
    pub guest: u64,
    /// Bytes.
    pub size: u64,
    /// First physical address.
    pub host: u64,
}

/// The RAM of a VM: pieces of guest physical addresses that are RAM, and where they are. What else is mapped for the guest
/// is not in it.
#[derive(Clone, Debug, Default)]
pub struct GuestRam {
    /// The largest piece, of which whole pages count: where most of what is looked for is.
    main: Piece,
    pieces: ArrayVec<Piece, MAX_PIECES>,
}

impl GuestRam {
    /// Makes the RAM of these pieces, the first ones if there are too many.
    pub fn new(pieces: impl Iterator<Item = Piece>) -> Self {
        let pieces: ArrayVec<Piece, MAX_PIECES> = pieces.take(MAX_PIECES).collect();
        let main = pieces.iter().copied().max_by_key(|piece| piece.size).unwrap_or_default();
        Self { main: Piece { size: main.size & !0xfff, ..main }, pieces }
    }

    /// Returns the physical address of `size` bytes at a guest physical address; `None` unless all of them are RAM of the
    /// VM, in one piece.
    #[inline]
    pub fn host(&self, address: u64, size: u64) -> Option<u64> {
        self.pieces.iter().find_map(|piece| {
            let offset = address.wrapping_sub(piece.guest);
            let inside = offset < piece.size && size <= piece.size - offset;
            inside.then(|| piece.host + offset)
        })
    }

    /// Returns the physical address of bytes that do not reach into the next page; `None` unless they are RAM of the VM. HOT.
    #[inline(always)] // Four instructions where most RAM is.
    pub fn host_in_page(&self, address: u64) -> Option<u64> {
        let offset = address.wrapping_sub(self.main.guest);
        if offset < self.main.size { Some(self.main.host + offset) } else { self.host_elsewhere(address) }
    }

    #[inline(never)] // Out of the way.
    fn host_elsewhere(&self, address: u64) -> Option<u64> {
        let page = self.host(address & !0xfff, 0x1000)?;
        Some(page + (address & 0xfff))
    }

    /// Returns its pieces, in the order of their guest physical addresses.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_ram_has_an_address() {
        let low = Piece { guest: 0, size: 0xa_0000, host: 0x4000_0000 };
        let high = Piece { guest: 0x10_0000, size: 0x10_0000, host: 0x4010_0000 };
        let ram = GuestRam::new([low, high].into_iter());
        assert_eq!(ram.host(0x1234, 8), Some(0x4000_1234));
        assert_eq!(ram.host(0x9_fff8, 8), Some(0x4009_fff8));
        assert_eq!(ram.host(0x9_fff9, 8), None);
        assert_eq!(ram.host(0xa_0000, 1), None);
        assert_eq!(ram.host(0x10_0000, 0x10_0000), Some(0x4010_0000));
        assert_eq!(ram.host(0x10_0000, 0x10_0001), None);
        assert_eq!(ram.host(u64::MAX, 1), None);
        assert_eq!(ram.host(0x1f_ffff, u64::MAX), None);
        for address in [0, 0x1238, 0x9_fff8, 0xa_0000, 0x10_0000, 0x1f_fff8, 0x20_0000, u64::MAX - 7] {
            assert_eq!(ram.host_in_page(address), ram.host(address, 8), "{address:#x}");
        }
    }
}
