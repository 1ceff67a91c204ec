// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The bytes of a chain, however the driver has cut them into buffers (section 2.7.4.1 lets it).

use super::chain::{Chain, Token};
use crate::memory::Memory;
use crate::ring::Buffer;
use crate::violation::Violation;

/// Reads a chain's bytes from its beginning, and then writes.
#[derive(Debug)]
#[must_use = "a chain must be returned to the driver"]
pub struct Cursor {
    chain: Chain,
    /// What is left of the present buffer.
    rest: Option<Buffer>,
    written: u32,
}

impl Cursor {
    /// Begins at a chain's first byte.
    pub const fn new(chain: Chain) -> Self {
        Self { chain, rest: None, written: 0 }
    }

    /// Returns the next piece of at most `most` bytes that the device may read (`writable` false) or must write. `None` behind the
    /// last of the kind. Bytes to read that are left are skipped once writing begins. A piece to write counts as written.
    pub fn piece<M: Memory>(
        &mut self,
        memory: &M,
        writable: bool,
        most: u32,
    ) -> Result<Option<Buffer>, Violation> {
        loop {
            let rest = match self.rest.take() {
                Some(rest) => rest,
                None => match self.chain.next(memory)? {
                    Some(buffer) => buffer,
                    None => return Ok(None),
                },
            };
            if rest.writable && !writable {
                self.rest = Some(rest);
                return Ok(None);
            }
            let length = rest.length.min(most);
            if length == 0 && rest.length != 0 {
                self.rest = Some(rest);
                return Ok(None);
            }
            if rest.writable == writable && length != 0 {
                let address = rest.address.wrapping_add(length.into());
                // An empty rest goes.
                self.rest = Some(Buffer { address, length: rest.length - length, ..rest })
                    .filter(|rest| rest.length != 0);
                if writable {
                    // A chain of 2^32 bytes, all written, is one byte more than the field can say.
                    self.written = self.written.saturating_add(length);
                }
                return Ok(Some(Buffer { length, ..rest }));
            }
        }
    }

    /// Reads bytes; returns how many there were.
    pub fn read<M: Memory>(&mut self, memory: &M, bytes: &mut [u8]) -> Result<usize, Violation> {
        let mut done = 0;
        while let Some(left) = bytes.get_mut(done..).filter(|left| !left.is_empty()) {
            let Some(piece) = self.piece(memory, false, clamp(left.len()))? else { break };
            let length = piece.length as usize;
            memory.read(piece.address, left.get_mut(..length).unwrap_or_default())?;
            done += length;
        }
        Ok(done)
    }

    /// Writes bytes; returns for how many there was room.
    pub fn write<M: Memory>(&mut self, memory: &M, bytes: &[u8]) -> Result<usize, Violation> {
        let mut done = 0;
        while let Some(left) = bytes.get(done..).filter(|left| !left.is_empty()) {
            let Some(piece) = self.piece(memory, true, clamp(left.len()))? else { break };
            let length = piece.length as usize;
            memory.write(piece.address, left.get(..length).unwrap_or_default())?;
            done += length;
        }
        Ok(done)
    }

    /// How many bytes were written.
    pub const fn written(&self) -> u32 {
        self.written
    }

    /// Ends with the chain: what remains is to return it.
    pub fn finish(self) -> Token {
        self.chain.finish()
    }
}

fn clamp(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}
