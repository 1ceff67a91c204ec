// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Serial ports with registers.

use turnstile_devices::{Pl011, SAVED, SAVED_CHARACTERS, Uart16550};
use turnstile_service_rt::{Answer, Attach, Characters, Event, ROOM, Service};

use crate::record;

/// What both models can.
pub trait Model: 'static {
    /// The reset state.
    const NEW: Self;
    /// Reads a register.
    fn read(&mut self, offset: u64, size: u8) -> u64;
    /// Says whether reading there changes anything.
    fn read_changes(offset: u64) -> bool;
    /// Writes a register. Returns the character sent, if any.
    fn write(&mut self, offset: u64, size: u8, value: u64) -> Option<u8>;
    /// Takes a typed character.
    fn receive(&mut self, byte: u8);
    /// Returns how many typed characters the guest has not read.
    fn waiting(&self) -> usize;
    /// Returns the level of the interrupt line.
    fn interrupt(&self) -> bool;
    /// Returns the state.
    fn save(&self) -> [u64; SAVED];
    /// Makes one of a state.
    fn restore(saved: [u64; SAVED]) -> Self;
}

macro_rules! model {
    ($model:ident, |$offset:ident| $changes:expr) => {
        impl Model for $model {
            const NEW: Self = $model::new();

            #[inline]
            fn read(&mut self, offset: u64, size: u8) -> u64 {
                self.read(offset, size)
            }

            #[inline]
            fn read_changes($offset: u64) -> bool {
                $changes
            }

            fn write(&mut self, offset: u64, size: u8, value: u64) -> Option<u8> {
                self.write(offset, size, value)
            }

            fn receive(&mut self, byte: u8) {
                // It has room for many more than are offered.
                let _ = self.receive(byte);
            }

            fn waiting(&self) -> usize {
                self.waiting()
            }

            #[inline]
            fn interrupt(&self) -> bool {
                self.interrupt()
            }

            fn save(&self) -> [u64; SAVED] {
                self.save()
            }

            fn restore(saved: [u64; SAVED]) -> Self {
                $model::restore(saved)
            }
        }
    };
}

// The data register.
model!(Pl011, |offset| offset == 0);
// The received character; what interrupts; the modem's lines.
model!(Uart16550, |offset| matches!(offset, 0 | 2 | 6));

/// How few characters wait when more are asked for.
const LOW: usize = SAVED_CHARACTERS / 2;

/// A serial port.
pub struct Uart<M> {
    model: M,
    /// Characters were offered, and not taken.
    refused: bool,
}

impl<M: Model> Service for Uart<M> {
    const NEW: Self = Self { model: M::NEW, refused: false };

    fn attach(&mut self, Attach { kept, .. }: Attach) -> Answer {
        if let Some(saved) = record::read().filter(|_| kept) {
            self.model = M::restore(saved);
        }
        // Whether characters were refused is forgotten.
        let answer = self.answer(0);
        Answer { lines: answer.lines | ROOM, ..answer }
    }

    #[inline(always)] // The way of each access.
    fn event(&mut self, event: Event) -> Answer {
        match event {
            Event::Read { offset, size, .. } => {
                let value = self.model.read(offset, size as u8);
                if M::read_changes(offset) { self.changed(value) } else { self.answer(value) }
            }
            Event::Write { offset, size, value, .. } => self.write(offset, size as u8, value),
            Event::Input { typed, .. } => self.input(&typed),
            _ => self.answer(0),
        }
    }
}

impl<M: Model> Uart<M> {
    #[inline(never)] // As below.
    fn write(&mut self, offset: u64, size: u8, value: u64) -> Answer {
        let sent = self.model.write(offset, size, value);
        let answer = self.changed(0);
        match sent {
            Some(byte) => Answer { count: 1, words: [byte.into(), 0], ..answer },
            None => answer,
        }
    }

    #[inline(never)] // It would take registers from the way of reads.
    fn input(&mut self, typed: &Characters) -> Answer {
        let room = SAVED_CHARACTERS.saturating_sub(self.model.waiting());
        let mut taken = 0;
        for byte in typed.iter().take(room) {
            self.model.receive(byte);
            taken += 1;
        }
        // More may wait than was offered at once.
        self.refused = taken < typed.count || self.model.waiting() == SAVED_CHARACTERS;
        record::write(self.model.save());
        self.answer(taken)
    }

    #[inline(never)] // As above.
    fn changed(&mut self, value: u64) -> Answer {
        record::write(self.model.save());
        let mut answer = self.answer(value);
        if self.refused && self.model.waiting() <= LOW {
            self.refused = false;
            answer.lines |= ROOM;
        }
        answer
    }

    #[inline]
    fn answer(&self, value: u64) -> Answer {
        Answer { value, lines: self.model.interrupt().into(), ..Answer::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &[u8]) -> Event {
        let mut word = [0; 8];
        word[..text.len()].copy_from_slice(text);
        let typed = Characters { count: text.len() as u64, words: [u64::from_le_bytes(word), 0] };
        Event::Input { device: 0, typed, position: 0, size: 0 }
    }

    fn read(offset: u64) -> Event {
        Event::Read { device: 0, offset, size: 4 }
    }

    fn write(offset: u64, value: u64) -> Event {
        Event::Write { device: 0, offset, size: 4, value }
    }

    /// One test, because all programs of a process have the same kept words.
    #[test]
    fn a_serial_port_survives_a_crash() {
        let mut uart = Uart::<Pl011>::NEW;
        assert_eq!(uart.attach(Attach::default()).lines, ROOM);
        let sent = uart.event(write(0, b'a'.into()));
        assert_eq!((sent.count, sent.words), (1, [u64::from(b'a'), 0]));
        // FIFOs on, the receive time-out's interrupt on.
        uart.event(write(0x2c, 0x70));
        uart.event(write(0x38, 0x40));
        assert_eq!(uart.event(typed(b"12345678")).value, 8);
        let full = uart.event(typed(b"abcdefgh"));
        assert_eq!((full.value, full.lines), (8, 1));
        assert_eq!(uart.event(typed(b"no")).value, 0);
        assert_eq!(uart.event(read(0)).value, b'1'.into());
        assert_eq!(uart.event(read(0x24)).lines, 1);

        let mut after = Uart::<Pl011>::NEW;
        assert_eq!(
            after.attach(Attach { kept: true, ..Attach::default() }).lines,
            1 | ROOM,
            "its interrupt stands, and it may have refused characters"
        );
        assert_eq!(after.event(typed(b"X!")).value, 1);
        for (index, expected) in b"2345678abcdefgh".iter().enumerate() {
            let answer = after.event(read(0));
            assert_eq!(answer.value, (*expected).into());
            assert_eq!(answer.lines & ROOM != 0, index == 7, "asked for once, when half is free");
        }
        assert_eq!(after.event(read(0)), Answer { value: b'X'.into(), ..Answer::default() });

        let mut new = Uart::<Pl011>::NEW;
        new.attach(Attach::default());
        assert_eq!(new.event(read(0x38)).value, 0, "a new life begins from the reset state");

        let mut pc = Uart::<Uart16550>::NEW;
        pc.event(write(7, 0x5a));
        assert_eq!(pc.event(read(7)).value, 0x5a);
        assert_eq!(pc.event(typed(b"q")).value, 1);
        let mut after = Uart::<Uart16550>::NEW;
        after.attach(Attach { kept: true, ..Attach::default() });
        assert_eq!((after.event(read(7)).value, after.event(read(0)).value), (0x5a, b'q'.into()));
    }
}
