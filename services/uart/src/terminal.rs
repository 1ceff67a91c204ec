// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The terminal of a POWER guest, which it reads and writes by calls.

use turnstile_service_rt::{Answer, Attach, Characters, Event, ROOM, Service, kept};

kept! {
    /// How many characters wait, and these.
    static WAITING: Kept<3>;
}

/// The most characters that wait.
const MOST: u32 = 16;

/// A terminal.
pub struct Terminal {
    /// How many characters wait for the guest.
    count: u32,
    /// The characters, the first in the lowest byte.
    waiting: u128,
    /// Characters were offered, and not taken.
    refused: bool,
}

impl Service for Terminal {
    const NEW: Self = Self { count: 0, waiting: 0, refused: false };

    fn attach(&mut self, Attach { kept, .. }: Attach) -> Answer {
        if kept {
            self.count = WAITING.get(0).min(MOST.into()) as u32;
            self.waiting =
                (u128::from(WAITING.get(2)) << 64 | u128::from(WAITING.get(1))) & below(self.count);
        }
        // Whether characters were refused is forgotten.
        Answer { lines: self.lines() | ROOM, ..Answer::default() }
    }

    #[inline(always)] // The way of each access.
    fn event(&mut self, event: Event) -> Answer {
        match event {
            Event::TerminalRead => self.read(),
            Event::TerminalWrite(Characters { count, words }) => {
                Answer { count, words, lines: self.lines(), ..Answer::default() }
            }
            Event::Input { typed, .. } => self.input(&typed),
            _ => Answer { lines: self.lines(), ..Answer::default() },
        }
    }
}

impl Terminal {
    /// Its interrupt: there is something to read.
    fn lines(&self) -> u64 {
        u64::from(self.count != 0)
    }

    #[inline]
    fn read(&mut self) -> Answer {
        if self.count == 0 {
            return Answer::default();
        }
        let words = [self.waiting as u64, (self.waiting >> 64) as u64];
        let answer = Answer { count: self.count.into(), words, ..Answer::default() };
        (self.count, self.waiting) = (0, 0);
        WAITING.set(0, 0);
        let room = if core::mem::take(&mut self.refused) { ROOM } else { 0 };
        Answer { lines: room, ..answer }
    }

    #[inline(never)] // It would take registers from the way of reads.
    fn input(&mut self, typed: &Characters) -> Answer {
        let mut taken = 0;
        for byte in typed.iter().take((MOST - self.count) as usize) {
            self.waiting |= u128::from(byte) << (8 * self.count);
            self.count += 1;
            taken += 1;
        }
        // More may wait than was offered at once.
        self.refused = taken < typed.count || self.count == MOST;
        // The number last: what it counts is there.
        WAITING.set(1, self.waiting as u64);
        WAITING.set(2, (self.waiting >> 64) as u64);
        WAITING.set(0, self.count.into());
        Answer { value: taken, lines: self.lines(), ..Answer::default() }
    }
}

/// Returns ones where the first `count` characters are.
fn below(count: u32) -> u128 {
    1_u128.checked_shl(8 * count).map_or(u128::MAX, |bit| bit - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &[u8; 8]) -> Event {
        let typed = Characters { count: 8, words: [u64::from_le_bytes(*text), 0] };
        Event::Input { device: 0, typed, position: 0, size: 0 }
    }

    #[test]
    fn a_terminal_survives_a_crash() {
        let mut terminal = Terminal::NEW;
        terminal.attach(Attach::default());
        assert_eq!(terminal.event(Event::TerminalRead), Answer::default());
        let words = [7, 8];
        let written = terminal.event(Event::TerminalWrite(Characters { count: 9, words }));
        assert_eq!((written.count, written.words), (9, words));
        assert_eq!(terminal.event(typed(b"12345678")).value, 8);
        assert_eq!(terminal.event(typed(b"abcdefgh")), Answer { value: 8, lines: 1, ..Answer::default() });
        assert_eq!(terminal.event(typed(b"excluded")).value, 0);
        let mut after = Terminal::NEW;
        assert_eq!(after.attach(Attach { kept: true, ..Attach::default() }).lines, 1 | ROOM);
        after.refused = true;
        let read = after.event(Event::TerminalRead);
        assert!(read.characters().eq(*b"12345678abcdefgh"));
        assert_eq!((read.count, read.lines), (16, ROOM));
        let mut after = Terminal::NEW;
        after.attach(Attach { kept: true, ..Attach::default() });
        assert_eq!(after.event(Event::TerminalRead), Answer::default());
    }
}
