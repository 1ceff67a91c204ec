// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The state of a serial line as words, for whoever keeps it over a restart of the model.

use crate::{Pl011, Received, Uart16550};

/// The number of words.
pub const SAVED: usize = 5;
/// The number of received characters in them. Further ones are not saved.
pub const SAVED_CHARACTERS: usize = 16;

impl Received {
    /// Returns the characters in two words, and how many they are.
    fn save(&self) -> [u64; 3] {
        let mut words = [0; 2];
        for (index, byte) in self.bytes.iter().take(SAVED_CHARACTERS).enumerate() {
            words[index / 8] |= u64::from(*byte) << (index % 8 * 8);
        }
        [words[0], words[1], self.level(SAVED_CHARACTERS) as u64]
    }

    fn restore(words: [u64; 2], count: u64) -> Self {
        let mut received = Self::new();
        let bytes = words.into_iter().flat_map(u64::to_le_bytes);
        for byte in bytes.take(count.min(SAVED_CHARACTERS as u64) as usize) {
            // Sixteen always fit.
            let _ = received.push(byte);
        }
        received
    }
}

impl Pl011 {
    /// Returns its state, with no more than [`SAVED_CHARACTERS`] received characters.
    pub fn save(&self) -> [u64; SAVED] {
        let [first, second, count] = self.received.save();
        [
            pack([self.ilpr, self.ibrd, self.fbrd, self.lcr_h]),
            pack([self.cr, self.ifls, self.imsc, self.ris]),
            pack([self.dmacr, count as u16, 0, 0]),
            first,
            second,
        ]
    }

    /// Makes one that has this state. All words are a state that a guest can bring about.
    pub fn restore(saved: [u64; SAVED]) -> Self {
        let [ilpr, ibrd, fbrd, lcr_h] = unpack(saved[0]);
        let [cr, ifls, imsc, ris] = unpack(saved[1]);
        let [dmacr, count, ..] = unpack(saved[2]);
        Self {
            received: Received::restore([saved[3], saved[4]], count.into()),
            ilpr: ilpr & 0xff,
            ibrd,
            fbrd: fbrd & 0x3f,
            lcr_h: lcr_h & 0xff,
            cr: cr & 0xff87,
            ifls: ifls & 0x3f,
            imsc: imsc & 0x7ff,
            ris: ris & 0x7ff,
            dmacr: dmacr & 7,
        }
    }
}

impl Uart16550 {
    /// Returns its state, with no more than [`SAVED_CHARACTERS`] received characters.
    pub fn save(&self) -> [u64; SAVED] {
        let [first, second, count] = self.received.save();
        let [low, high] = self.divisor;
        let registers = [self.ier, self.fcr, self.lcr, self.mcr, self.msr, self.scr, low, high];
        [u64::from_le_bytes(registers), self.transmitted.into(), count, first, second]
    }

    /// Makes one that has this state. All words are a state that a guest can bring about.
    pub fn restore(saved: [u64; SAVED]) -> Self {
        let [ier, fcr, lcr, mcr, msr, scr, low, high] = saved[0].to_le_bytes();
        Self {
            received: Received::restore([saved[3], saved[4]], saved[2]),
            transmitted: saved[1] & 1 != 0,
            ier: ier & 0x0f,
            fcr: if fcr & 1 != 0 { fcr & 0xc9 } else { 0 },
            lcr,
            mcr: mcr & 0x1f,
            msr,
            scr,
            divisor: [low, high],
        }
    }
}

fn pack(parts: [u16; 4]) -> u64 {
    parts.iter().rev().fold(0, |word, part| word << 16 | u64::from(*part))
}

fn unpack(word: u64) -> [u16; 4] {
    [0, 16, 32, 48].map(|shift| (word >> shift) as u16)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_restored_pl011_behaves_as_before(
            writes in proptest::collection::vec((0_u64..0x50, any::<u64>()), 0..40),
            typed in proptest::collection::vec(any::<u8>(), 0..16),
        ) {
            let mut model = Pl011::new();
            for (offset, value) in writes {
                model.write(offset, 4, value);
            }
            for byte in typed.into_iter().take(SAVED_CHARACTERS - model.waiting().min(SAVED_CHARACTERS)) {
                model.receive(byte).unwrap();
            }
            let mut restored = Pl011::restore(model.save());
            prop_assume!(model.waiting() <= SAVED_CHARACTERS);
            for offset in (0..0x50).chain([0; 20]).chain(0..0x50) {
                prop_assert_eq!(model.read(offset, 4), restored.read(offset, 4));
                prop_assert_eq!(model.interrupt(), restored.interrupt());
            }
        }

        #[test]
        fn a_restored_16550_behaves_as_before(
            writes in proptest::collection::vec((0_u64..8, any::<u64>()), 0..40),
            typed in proptest::collection::vec(any::<u8>(), 0..16),
        ) {
            let mut model = Uart16550::new();
            for (offset, value) in writes {
                model.write(offset, 1, value);
            }
            for byte in typed.into_iter().take(SAVED_CHARACTERS - model.waiting().min(SAVED_CHARACTERS)) {
                model.receive(byte).unwrap();
            }
            let mut restored = Uart16550::restore(model.save());
            prop_assume!(model.waiting() <= SAVED_CHARACTERS);
            for offset in (0..8).chain([0; 20]).chain(0..8) {
                prop_assert_eq!(model.read(offset, 1), restored.read(offset, 1));
                prop_assert_eq!(model.interrupt(), restored.interrupt());
            }
        }

        #[test]
        fn any_words_are_a_state(words in any::<[u64; SAVED]>()) {
            let mut pl011 = Pl011::restore(words);
            let mut uart = Uart16550::restore(words);
            for offset in 0..0x50 {
                pl011.read(offset, 4);
                uart.read(offset, 1);
            }
            prop_assert!(pl011.waiting() <= SAVED_CHARACTERS && uart.waiting() <= SAVED_CHARACTERS);
        }
    }
}
