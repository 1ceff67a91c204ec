// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where the RAM of a VM is in the machine's.

/// The RAM of a VM: guest real addresses from zero up, in one piece.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GuestRam {
    /// First physical address.
    base: u64,
    /// Bytes.
    size: u64,
}

impl GuestRam {
    /// Makes the RAM of `size` bytes that is at the physical address `base`.
    pub const fn new(base: u64, size: u64) -> Self {
        Self { base, size }
    }

    /// Returns the physical address of `size` bytes at a guest real address; `None` unless all of them are RAM of the VM.
    #[inline]
    pub const fn host(&self, address: u64, size: u64) -> Option<u64> {
        if address < self.size && size <= self.size - address { Some(self.base + address) } else { None }
    }

    /// Returns the physical address of an aligned doubleword, or less, at a guest real address; `None` unless it is RAM of the
    /// VM, which consists of whole pages.
    #[inline]
    pub const fn place(&self, address: u64) -> Option<u64> {
        if address < self.size { Some(self.base + address) } else { None }
    }

    /// Returns how many bytes it has.
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// Returns its first physical address.
    pub const fn base(&self) -> u64 {
        self.base
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_begins_in_a_page_of_ram_is_in_it() {
        let ram = GuestRam::new(0x4000_0000, 0x10_0000);
        assert_eq!(ram.place(0xf_fff8), Some(0x400f_fff8));
        assert_eq!(ram.place(0x10_0000), None);
        assert_eq!(ram.place(u64::MAX - 7), None);
    }

    #[test]
    fn only_what_is_ram_has_an_address() {
        let ram = GuestRam::new(0x4000_0000, 0x10_0000);
        assert_eq!(ram.host(0x1234, 8), Some(0x4000_1234));
        assert_eq!(ram.host(0xf_fff8, 8), Some(0x400f_fff8));
        assert_eq!(ram.host(0xf_fff9, 8), None);
        assert_eq!(ram.host(0x10_0000, 0), None);
        assert_eq!(ram.host(u64::MAX, 1), None);
        assert_eq!(ram.host(0, u64::MAX), None);
        assert_eq!(GuestRam::default().host(0, 1), None);
    }
}
