// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device registers of the machine.

/// A device's registers at a physical address that the hypervisor maps as device memory.
#[derive(Clone, Copy, Debug)]
pub struct Registers {
    base: usize,
}

impl Registers {
    /// Takes the registers at `base`.
    ///
    /// # Safety
    /// `base` must be the start of a device's register block, mapped as device memory for as long as the
    /// value is used, and every offset passed later must lie inside that block.
    #[inline]
    pub const unsafe fn new(base: u64) -> Self {
        Self { base: base as usize }
    }

    /// Returns the physical address of the block.
    #[inline]
    pub const fn base(&self) -> u64 {
        self.base as u64
    }

    /// Reads an 8-bit register.
    #[inline]
    pub fn read8(&self, offset: usize) -> u8 {
        // SAFETY: inside a mapped device block, by the contract of `new`.
        unsafe { core::ptr::read_volatile((self.base + offset) as *const u8) }
    }

    /// Writes an 8-bit register.
    #[inline]
    pub fn write8(&self, offset: usize, value: u8) {
        // SAFETY: as for `read8`.
        unsafe { core::ptr::write_volatile((self.base + offset) as *mut u8, value) }
    }

    /// Reads a 32-bit register.
    #[inline]
    pub fn read32(&self, offset: usize) -> u32 {
        // SAFETY: as for `read8`; offsets of 32-bit registers are multiples of four.
        unsafe { core::ptr::read_volatile((self.base + offset) as *const u32) }
    }

    /// Writes a 32-bit register.
    #[inline]
    pub fn write32(&self, offset: usize, value: u32) {
        // SAFETY: as for `read32`.
        unsafe { core::ptr::write_volatile((self.base + offset) as *mut u32, value) }
    }

    /// Reads a 64-bit register.
    #[inline]
    pub fn read64(&self, offset: usize) -> u64 {
        // SAFETY: as for `read8`; offsets of 64-bit registers are multiples of eight.
        unsafe { core::ptr::read_volatile((self.base + offset) as *const u64) }
    }

    /// Writes a 64-bit register.
    #[inline]
    pub fn write64(&self, offset: usize, value: u64) {
        // SAFETY: as for `read64`.
        unsafe { core::ptr::write_volatile((self.base + offset) as *mut u64, value) }
    }
}
