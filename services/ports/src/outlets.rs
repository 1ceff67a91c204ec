// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What ports reach, and which words are kept for them.

use turnstile_console::control::{self, Name};
use turnstile_service_rt::{PORTS, Sent};

/// What is kept: what was said on the control queues, and what is about to be; of each port to which buffer the count of what was passed
/// on belongs, and that of what came.
pub const SAID: usize = 0;
pub const SAYS: usize = control::WORDS;
pub const SENT_BEFORE: usize = SAYS + 1;
pub const CAME_TO: usize = SENT_BEFORE + PORTS as usize;
/// How many words that is.
pub const WORDS: usize = CAME_TO + PORTS as usize;

/// The other sides of ports, and what is kept.
pub trait Outlets: 'static {
    /// Returns the name of a port, if it is there.
    fn name(&self, port: usize) -> Option<Name>;
    /// Passes up to 16 bytes on. Returns how the other side is then.
    fn send(&mut self, port: usize, bytes: &[u8]) -> Sent;
    /// Returns a word that is kept.
    fn get(&self, at: usize) -> u64;
    /// Writes a word that is kept: at once, and in the order of the program.
    fn set(&mut self, at: usize, word: u64);

    /// Keeps the mark of what was passed on.
    fn keep_sent(&mut self, port: usize, mark: u64) {
        self.set(SENT_BEFORE + port - 1, mark);
    }

    /// Keeps the mark of what came.
    fn keep_came(&mut self, port: usize, mark: u64) {
        self.set(CAME_TO + port - 1, mark);
    }
}
