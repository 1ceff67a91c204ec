// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A machine's memory that tests write firmware's tables into.

use turnstile_firmware::Physical;

/// The first 16 MiB; the rest cannot be read.
pub struct Ram(pub Vec<u8>);

impl Ram {
    pub fn new() -> Self {
        Self(vec![0; 16 << 20])
    }

    pub fn put(&mut self, address: u64, bytes: &[u8]) {
        self.0[address as usize..address as usize + bytes.len()].copy_from_slice(bytes);
    }
}

impl Physical for Ram {
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
        let start = usize::try_from(address).ok()?;
        self.0.get(start..start.checked_add(length)?)
    }
}

/// Little-endian numbers, one after another.
pub fn bytes(parts: &[(u64, usize)]) -> Vec<u8> {
    parts.iter().flat_map(|(value, size)| value.to_le_bytes()[..*size].to_vec()).collect()
}
