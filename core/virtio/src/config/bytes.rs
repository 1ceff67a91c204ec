// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Fields one behind the other, little-endian.

/// Bytes that are filled from the beginning. What does not fit is dropped.
pub(super) struct Fields<const N: usize> {
    bytes: [u8; N],
    at: usize,
}

impl<const N: usize> Fields<N> {
    pub(super) const fn new() -> Self {
        Self { bytes: [0; N], at: 0 }
    }

    pub(super) fn put(mut self, bytes: &[u8]) -> Self {
        if let Some(field) = self.bytes.get_mut(self.at..self.at + bytes.len()) {
            field.copy_from_slice(bytes);
        }
        self.at += bytes.len();
        self
    }

    pub(super) fn u8(self, value: u8) -> Self {
        self.put(&[value])
    }

    pub(super) fn u16(self, value: u16) -> Self {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u32(self, value: u32) -> Self {
        self.put(&value.to_le_bytes())
    }

    pub(super) fn u64(self, value: u64) -> Self {
        self.put(&value.to_le_bytes())
    }

    pub(super) const fn bytes(self) -> [u8; N] {
        self.bytes
    }
}

/// Fields that are read one behind the other. Behind the end they are zero.
pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else { return [0; N] };
        self.0 = rest;
        *field
    }

    pub(super) fn u8(&mut self) -> u8 {
        u8::from_le_bytes(self.take())
    }

    pub(super) fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}
