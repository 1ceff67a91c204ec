// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes from and to a port (section 5.3.6).

use turnstile_virtio::device::{Cursor, Queue, Turn};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::violation::Violation;

/// How many bytes are passed on at once.
const PIECE: usize = 128;

/// Where the bytes of a port go.
pub trait Sink {
    /// How many bytes it takes now.
    fn room(&self) -> usize;

    /// Takes bytes, for which there is room.
    fn put(&mut self, bytes: &[u8]);
}

/// What the driver writes to a port: the buffer that has begun.
#[derive(Debug, Default)]
pub struct Output {
    current: Option<Cursor>,
}

impl Output {
    /// Passes on what the driver has written, up to `most` pieces of 128 bytes. If the sink is full, the rest waits: call again when it is
    /// not.
    pub fn serve<M: Memory, S: Sink>(
        &mut self,
        queue: &mut Queue,
        memory: &M,
        sink: &mut S,
        most: u32,
    ) -> Result<Turn, Violation> {
        let (mut interrupt, mut left) = (false, most);
        queue.suppress(memory)?;
        loop {
            while let Some(fewer) = left.checked_sub(1)
                && sink.room() != 0
            {
                left = fewer;
                let mut cursor = match self.current.take() {
                    Some(cursor) => cursor,
                    None => match queue.pop(memory)? {
                        Some(chain) => Cursor::new(chain),
                        None => break,
                    },
                };
                let mut piece = [0; PIECE];
                let bytes = piece.get_mut(..sink.room().min(PIECE)).unwrap_or_default();
                let (all, length) = (bytes.len(), cursor.read(memory, bytes)?);
                sink.put(bytes.get(..length).unwrap_or_default());
                if length == all {
                    self.current = Some(cursor);
                    continue;
                }
                queue.complete(memory, cursor.finish(), 0)?;
                queue.show(memory)?;
            }
            interrupt |= queue.publish(memory)?;
            let is_full = sink.room() == 0;
            if left == 0 || is_full || !queue.arm(memory)? {
                return Ok(Turn { interrupt, again: left == 0 && !is_full });
            }
        }
    }
}

/// Brings bytes to the driver, as far as it has buffers. Returns how many it has now, and whether it wants an interrupt.
pub fn input<M: Memory>(queue: &mut Queue, memory: &M, bytes: &[u8]) -> Result<(usize, bool), Violation> {
    let mut done = 0;
    while let Some(rest) = bytes.get(done..).filter(|rest| !rest.is_empty()) {
        let Some(chain) = queue.pop(memory)? else { break };
        let mut cursor = Cursor::new(chain);
        done += cursor.write(memory, rest)?;
        let written = cursor.written();
        queue.complete(memory, cursor.finish(), written)?;
    }
    Ok((done, queue.publish(memory)?))
}
