// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A virtio entropy device (virtio 1.2, section 5.4) as a pure model.
#![no_std]
#![forbid(unsafe_code)]

use turnstile_virtio::device::{Cursor, Queue, Turn};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::violation::Violation;

/// How many bytes a request gets at most; the driver asks again for more.
pub const MOST: usize = 256;
/// How many buffers a request has at most.
pub const BUFFERS: u32 = 16;

/// Where random bytes come from.
pub trait Source {
    /// Fills bytes that nobody can guess. False if there are none now; then the bytes mean nothing.
    fn fill(&mut self, bytes: &mut [u8]) -> bool;
}

/// Fills what the driver has offered, up to `most` requests. If the source has nothing, requests wait: call again when it has.
pub fn serve<M: Memory, S: Source>(
    queue: &mut Queue,
    memory: &M,
    source: &mut S,
    most: u32,
) -> Result<Turn, Violation> {
    let mut interrupt = false;
    let mut left = most;
    queue.suppress(memory)?;
    loop {
        while let Some(fewer) = left.checked_sub(1)
            && let Some(mut chain) = queue.pop(memory)?
        {
            left = fewer;
            let mut bytes = [0; MOST];
            let mut room = 0;
            while let Some(buffer) = chain.next(memory)? {
                room += if buffer.writable { u64::from(buffer.length) } else { 0 };
            }
            let bytes = bytes.get_mut(..room.min(MOST as u64) as usize).unwrap_or_default();
            queue.put_back(chain.finish());
            if !source.fill(bytes) {
                return Ok(Turn { interrupt: interrupt | queue.publish(memory)?, again: false });
            }
            // The chain is read again, for its buffers; whatever it holds now is checked anew.
            let Some(chain) = queue.pop(memory)? else { break };
            let mut cursor = Cursor::new(chain);
            cursor.write(memory, bytes)?;
            let written = cursor.written();
            queue.complete(memory, cursor.finish(), written)?;
        }
        interrupt |= queue.publish(memory)?;
        if left == 0 || !queue.arm(memory)? {
            return Ok(Turn { interrupt, again: left == 0 });
        }
    }
}
