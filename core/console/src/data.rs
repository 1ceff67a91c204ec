// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Bytes from and to a port (section 5.3.6).

use turnstile_virtio::device::{Cursor, Queue, Turn};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::violation::Violation;

use crate::BUFFERS;

/// How many bytes are passed on at once.
const PIECE: usize = 128;

/// Where the bytes of a port go.
pub trait Sink {
    /// How many bytes it takes now.
    fn room(&self) -> usize;

    /// Takes bytes, for which there is room.
    fn put(&mut self, bytes: &[u8]);

    /// The bytes that follow are from the beginning of the buffer at this [position](Queue::position) of the queue.
    fn begin(&mut self, position: u16) {
        let _ = position;
    }
}

/// What the driver writes to a port: the buffer that has begun.
#[derive(Debug, Default)]
pub struct Output {
    current: Option<Cursor>,
    /// How many bytes of the next buffer an earlier life has passed on.
    passed: u64,
}

impl Output {
    /// Goes on behind an earlier life, which has passed on so many bytes of the first buffer.
    pub const fn resume(passed: u64) -> Self {
        Self { current: None, passed }
    }

    /// Completes up to `most` buffers that nobody is to have, the one that has begun first.
    pub fn discard<M: Memory>(
        &mut self,
        queue: &mut Queue,
        memory: &M,
        most: u32,
    ) -> Result<Turn, Violation> {
        self.passed = 0;
        let (mut interrupt, mut left) = (false, most);
        queue.suppress(memory)?;
        loop {
            while left != 0 {
                let cursor = match self.current.take() {
                    Some(cursor) => cursor,
                    None => match queue.pop(memory)? {
                        Some(chain) => Cursor::new(chain),
                        None => break,
                    },
                };
                left -= 1;
                queue.complete(memory, cursor.finish(), 0)?;
            }
            interrupt |= queue.publish(memory)?;
            if left == 0 || !queue.arm(memory)? {
                return Ok(Turn { interrupt, again: left == 0 });
            }
        }
    }

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
            while left != 0 && sink.room() != 0 {
                let mut cursor = match self.current.take() {
                    Some(cursor) => cursor,
                    None => match queue.pop(memory)? {
                        Some(chain) => {
                            // Of one that was begun before, the sink knows it.
                            if self.passed == 0 {
                                sink.begin(queue.position());
                            }
                            Cursor::new(chain)
                        }
                        None => break,
                    },
                };
                left -= 1;
                let mut piece = [0; PIECE];
                let most = match self.passed {
                    0 => sink.room().min(PIECE),
                    passed => passed.min(PIECE as u64) as usize,
                };
                let bytes = piece.get_mut(..most).unwrap_or_default();
                let (all, length) = (bytes.len(), cursor.read(memory, bytes)?);
                match self.passed {
                    0 => sink.put(bytes.get(..length).unwrap_or_default()),
                    passed => self.passed = passed - length as u64,
                }
                if length == all {
                    self.current = Some(cursor);
                    continue;
                }
                self.passed = 0;
                queue.complete(memory, cursor.finish(), 0)?;
            }
            interrupt |= queue.publish(memory)?;
            let is_full = sink.room() == 0;
            if left == 0 || is_full || !queue.arm(memory)? {
                return Ok(Turn { interrupt, again: left == 0 && !is_full });
            }
        }
    }
}

/// Brings bytes to the driver, into one buffer, as far as it has room for them. Before the driver sees them, `note` gets the
/// [position](Queue::position) of that buffer and how many they are. Returns how many, and whether the driver wants an interrupt.
pub fn input<M: Memory>(
    queue: &mut Queue,
    memory: &M,
    bytes: &[u8],
    mut note: impl FnMut(u16, usize),
) -> Result<(usize, bool), Violation> {
    for _ in 0..BUFFERS {
        let Some(chain) = queue.pop(memory)? else { break };
        let mut cursor = Cursor::new(chain);
        let done = cursor.write(memory, bytes)?;
        note(queue.position(), done);
        let written = cursor.written();
        queue.complete(memory, cursor.finish(), written)?;
        if done != 0 {
            return Ok((done, queue.publish(memory)?));
        }
        // There was no room in it: the next one.
    }
    Ok((0, queue.publish(memory)?))
}
