// SPDX-License-Identifier: Apache-2.0 OR MIT
//! 256 bytes, of which software can write some bits.

/// How many bytes a function implements.
pub(crate) const SPACE: usize = 256;

/// The bytes, and which of their bits can be written.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    bytes: [u8; SPACE],
    writable: [u8; SPACE],
}

impl Space {
    /// All bytes are zero and stay so.
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; SPACE], writable: [0; SPACE] }
    }

    /// Reads up to 4 bytes. Those behind the end are zero.
    pub(crate) fn read(&self, offset: u16, size: u8) -> u32 {
        let bytes = self.bytes.get(usize::from(offset)..).unwrap_or_default().iter().take(size.min(4).into());
        bytes.rev().fold(0, |value, &byte| value << 8 | u32::from(byte))
    }

    /// Reads the 16 bits at an offset within the space.
    #[inline] // On the path of every message.
    pub(crate) fn word(&self, offset: u8) -> u16 {
        let bytes = self.bytes.get(usize::from(offset)..).and_then(<[u8]>::first_chunk);
        bytes.map_or(0, |bytes| u16::from_le_bytes(*bytes))
    }

    /// Writes up to 4 bytes, and tells which ones have changed.
    pub(crate) fn write(&mut self, offset: u16, size: u8, value: u32, mut changed: impl FnMut(usize)) {
        for (at, new) in (usize::from(offset)..).zip(value.to_le_bytes()).take(size.into()) {
            let (Some(byte), Some(&writable)) = (self.bytes.get_mut(at), self.writable.get(at)) else {
                break;
            };
            let before = *byte;
            *byte = before & !writable | new & writable;
            if *byte != before {
                changed(at);
            }
        }
    }

    /// Sets bits.
    pub(crate) fn fix(&mut self, at: u8, bits: &[u8]) {
        set(&mut self.bytes, at, bits);
    }

    /// Lets bits be written.
    pub(crate) fn open(&mut self, at: u8, bits: &[u8]) {
        set(&mut self.writable, at, bits);
    }

    /// Sets or clears a bit of a byte, whether or not it can be written.
    pub(crate) fn show(&mut self, at: u8, bit: u8, on: bool) {
        if let Some(byte) = self.bytes.get_mut(usize::from(at)) {
            *byte = if on { *byte | bit } else { *byte & !bit };
        }
    }

    /// The bytes of which something can be written, eight to a word; bits that cannot be written are zero.
    pub(crate) fn save(&self) -> impl Iterator<Item = u64> + '_ {
        let open = self.bytes.iter().zip(&self.writable).filter(|(_, writable)| **writable != 0);
        let mut bytes = open.map(|(byte, writable)| u64::from(byte & writable));
        core::iter::from_fn(move || {
            let first = bytes.next()?;
            Some(bytes.by_ref().take(7).zip(1..).fold(first, |word, (byte, at)| word | byte << (8 * at)))
        })
    }

    /// Writes those bytes, as far as they can be written. Words that are missing are zero.
    pub(crate) fn restore(&mut self, words: impl IntoIterator<Item = u64>) {
        let mut saved = words.into_iter().flat_map(u64::to_le_bytes);
        for (byte, &writable) in
            self.bytes.iter_mut().zip(&self.writable).filter(|(_, writable)| **writable != 0)
        {
            *byte = *byte & !writable | saved.next().unwrap_or(0) & writable;
        }
    }

    /// Clears everything that can be written.
    pub(crate) fn reset(&mut self) {
        for (byte, writable) in self.bytes.iter_mut().zip(&self.writable) {
            *byte &= !writable;
        }
    }
}

fn set(bytes: &mut [u8], at: u8, bits: &[u8]) {
    for (byte, bits) in bytes.iter_mut().skip(at.into()).zip(bits) {
        *byte |= bits;
    }
}
