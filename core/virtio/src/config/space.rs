// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all configurations have in common.

/// How many bytes a configuration has at most here.
pub const SPACE: usize = 96;

/// A configuration, as its driver sees it: bytes, little-endian.
pub trait Configuration {
    /// How many bytes it has, up to [`SPACE`].
    const LENGTH: usize;

    /// All bytes as they are now; those behind its length are zero.
    fn image(&self) -> [u8; SPACE];

    /// The driver writes `size` bytes at `offset`. Returns whether that changed something. Most fields cannot be written.
    fn write(&mut self, offset: u64, size: u8, value: u64) -> bool {
        let _ = (offset, size, value);
        false
    }

    /// Reads `size` bytes (up to 8) at `offset`; those behind the end read as zero.
    fn read(&self, offset: u64, size: u8) -> u64 {
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let image = self.image();
        let bytes = image.get(offset..).unwrap_or_default().iter().take(size.min(8).into());
        bytes.rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
    }
}

impl Configuration for () {
    const LENGTH: usize = 0;

    fn image(&self) -> [u8; SPACE] {
        [0; SPACE]
    }
}
