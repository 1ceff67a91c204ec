// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device accesses of a size that is known when they are made.

/// Makes the functions `read` and `write`, whose sizes are in bytes (1, 2, 4; else 8), of those that a module of device accesses has for
/// each size, and `touch`, which writes 8 bytes.
#[macro_export]
macro_rules! accesses_by_size {
    ($mmio:ident) => {
        fn read(address: u64, size: u8) -> u64 {
            match size {
                1 => $mmio::read8(address).into(),
                2 => $mmio::read16(address).into(),
                4 => $mmio::read32(address).into(),
                _ => $mmio::read64(address),
            }
        }

        fn write(address: u64, size: u8, value: u64) {
            match size {
                1 => $mmio::write8(address, value as u8),
                2 => $mmio::write16(address, value as u16),
                4 => $mmio::write32(address, value as u32),
                _ => $mmio::write64(address, value),
            }
        }

        #[inline(never)] // Its place says what is done there.
        fn touch(address: u64) {
            $mmio::write64(address, 0);
        }
    };
}
