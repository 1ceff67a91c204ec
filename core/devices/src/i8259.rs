// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The two cascaded 8259A interrupt controllers of a PC (Intel 231468), with the edge/level registers of its chip sets.
//!
//! The second one is wired to line 2 of the first. Guests read the mask registers most; that is one load.

mod chip;

use chip::Chip;

/// The cascade's line on the first controller.
const CASCADE: u8 = 2;
/// The vector's low bits of an interrupt that went away before it was acknowledged.
const SPURIOUS: u8 = 7;

/// The two 8259As of a PC.
#[derive(Clone, Debug)]
pub struct I8259 {
    chips: [Chip; 2],
}

impl Default for I8259 {
    fn default() -> Self {
        Self::new()
    }
}

impl I8259 {
    /// The edge/level registers' bits that exist: lines 0 to 2, 8 and 13 are edges on every PC.
    const LEVELS: [u8; 2] = [0xf8, 0xde];

    /// Makes both in their reset state.
    pub const fn new() -> Self {
        Self { chips: [Chip::new(), Chip::new()] }
    }

    /// Returns what each mask register reads as; `None` if a read polls.
    pub fn masks(&self) -> [Option<u8>; 2] {
        [0, 1].map(|index: usize| {
            let chip = &self.chips[index];
            (!chip.polled).then_some(chip.mask)
        })
    }

    /// Says whether a port is one of theirs: 0x20, 0x21, 0xa0, 0xa1, 0x4d0, 0x4d1.
    #[inline]
    pub const fn has(port: u16) -> bool {
        matches!(port, 0x20 | 0x21 | 0xa0 | 0xa1 | 0x4d0 | 0x4d1)
    }

    /// Reads a port.
    #[inline] // The light exit of a read.
    pub fn read(&mut self, port: u16) -> u8 {
        match port {
            0x21 | 0xa1 if !self.chip(port).polled => self.chip(port).mask,
            _ => self.read_status(port),
        }
    }

    fn read_status(&mut self, port: u16) -> u8 {
        match port {
            0x4d0 | 0x4d1 => self.chips[usize::from(port & 1)].level,
            _ if self.chip(port).polled => {
                let value = self.chip(port).poll();
                self.cascade();
                value
            }
            _ => self.chip(port).status(),
        }
    }

    /// Writes a port.
    pub fn write(&mut self, port: u16, value: u8) {
        match port {
            0x20 | 0xa0 => self.chip(port).write_command(value),
            0x21 | 0xa1 => self.chip(port).write_data(value),
            0x4d0 | 0x4d1 => {
                let index = usize::from(port & 1);
                self.chips[index].level = value & Self::LEVELS[index];
            }
            _ => return,
        }
        self.cascade();
    }

    /// Sets the level of line 0 to 15. Line 2 is the cascade's.
    pub fn set_line(&mut self, line: u8, asserted: bool) {
        match line {
            CASCADE => return,
            0..8 => self.chips[0].set_line(line, asserted),
            8..16 => self.chips[1].set_line(line - 8, asserted),
            _ => return,
        }
        self.cascade();
    }

    /// Says whether an edge on line 0 would be an interrupt of its own: it is not masked, requested or in service.
    pub fn awaits_timer(&self) -> bool {
        self.chips[0].awaits(0)
    }

    /// Returns the vector that the CPU would get if it acknowledged now; `None` while the output is not asserted.
    pub fn vector(&self) -> Option<u8> {
        let [first, second] = &self.chips;
        match first.pending()? {
            CASCADE => second.pending().map(|line| second.base | line),
            line => Some(first.base | line),
        }
    }

    /// The CPU's INTA cycles: puts the pending interrupt into service and returns its vector. Without one it is the
    /// spurious one of the first controller.
    pub fn acknowledge(&mut self) -> u8 {
        let [first, second] = &mut self.chips;
        let vector = match first.pending() {
            None => first.base | SPURIOUS,
            Some(CASCADE) => {
                first.take(CASCADE);
                match second.pending() {
                    Some(line) => {
                        second.take(line);
                        second.base | line
                    }
                    None => second.base | SPURIOUS,
                }
            }
            Some(line) => {
                first.take(line);
                first.base | line
            }
        };
        self.cascade();
        vector
    }

    /// The same for a CPU that had begun to take this vector when something else became pending: its line goes into
    /// service whatever is pending by now.
    pub fn acknowledge_vector(&mut self, vector: u8) {
        let [first, second] = &mut self.chips;
        if vector & !7 == first.base {
            first.take(vector & 7);
        } else if vector & !7 == second.base {
            first.take(CASCADE);
            second.take(vector & 7);
        }
        self.cascade();
    }

    /// Says whether the next read of a port is a poll, which acknowledges.
    #[inline]
    pub fn is_polled(&self, port: u16) -> bool {
        port & 0x400 == 0 && self.chips[usize::from(port >= 0xa0)].polled
    }

    #[inline]
    fn chip(&mut self, port: u16) -> &mut Chip {
        &mut self.chips[usize::from(port >= 0xa0)]
    }

    /// Carries the second controller's output to the first. It stays asserted while a further interrupt of it is pending:
    /// each acknowledgement pulses it, so that the first one sees an edge.
    fn cascade(&mut self) {
        let asserted = self.chips[1].pending().is_some();
        self.chips[0].set_line(CASCADE, false);
        self.chips[0].set_line(CASCADE, asserted);
    }
}
