// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One 8259A (Intel 231468).

use super::CASCADE;

/// ICW1: an initialization begins.
const ICW1: u8 = 1 << 4;
const ICW1_ICW4: u8 = 1 << 0;
const ICW1_SINGLE: u8 = 1 << 1;
const ICW1_LEVEL: u8 = 1 << 3;
const ICW4_AUTOMATIC: u8 = 1 << 1;
const ICW4_NESTED: u8 = 1 << 4;
/// OCW3, told from OCW2.
const OCW3: u8 = 1 << 3;
const OCW3_READ_ISR: u8 = 1 << 0;
const OCW3_READ: u8 = 1 << 1;
const OCW3_POLL: u8 = 1 << 2;
const OCW3_SPECIAL_MASK: u8 = 1 << 5;
const OCW3_SET_SPECIAL_MASK: u8 = 1 << 6;

/// What the next write of the data port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    Mask,
    Vector,
    Cascade,
    Icw4,
}

/// One 8259A.
#[derive(Clone, Debug)]
pub(super) struct Chip {
    pub(super) mask: u8,
    /// Requests: edges that were seen, and lines of level that are asserted.
    requests: u8,
    service: u8,
    lines: u8,
    /// Lines that are level-triggered: ELCR.
    pub(super) level: u8,
    /// ICW1.LTIM: all lines are.
    all_level: bool,
    pub(super) base: u8,
    /// The line of the lowest priority.
    lowest: u8,
    expected: Expected,
    single: bool,
    needs_icw4: bool,
    automatic: bool,
    rotates: bool,
    /// Special fully nested mode: a line in service lets itself through again.
    nested: bool,
    special_mask: bool,
    reads_service: bool,
    pub(super) polled: bool,
}

impl Chip {
    pub(super) const fn new() -> Self {
        Self {
            mask: 0,
            requests: 0,
            service: 0,
            lines: 0,
            level: 0,
            all_level: false,
            base: 0,
            lowest: 7,
            expected: Expected::Mask,
            single: false,
            needs_icw4: false,
            automatic: false,
            rotates: false,
            nested: false,
            special_mask: false,
            reads_service: false,
            polled: false,
        }
    }

    /// ICW1 clears the edge sense, the mask, the modes (231468, "Initialization Command Word 1"); the lines are the
    /// devices'.
    pub(super) fn initialize(&mut self, value: u8) {
        *self = Self {
            lines: self.lines,
            level: self.level,
            base: self.base,
            expected: Expected::Vector,
            all_level: value & ICW1_LEVEL != 0,
            single: value & ICW1_SINGLE != 0,
            needs_icw4: value & ICW1_ICW4 != 0,
            ..Self::new()
        };
        self.requests = self.lines & self.triggers();
    }

    /// Lines that are level-triggered.
    pub(super) fn triggers(&self) -> u8 {
        if self.all_level { 0xff } else { self.level }
    }

    /// Says whether a line is neither masked, nor requested, nor in service.
    pub(super) fn awaits(&self, line: u8) -> bool {
        (self.mask | self.requests | self.service) >> line & 1 == 0
    }

    pub(super) fn set_line(&mut self, line: u8, asserted: bool) {
        let bit = 1 << line;
        let was = self.lines & bit != 0;
        if asserted {
            self.lines |= bit;
            if !was || self.triggers() & bit != 0 {
                self.requests |= bit;
            }
        } else {
            // An edge that fell before it was acknowledged is withdrawn as well: the guest finds a spurious interrupt.
            self.lines &= !bit;
            self.requests &= !bit;
        }
    }

    /// Returns a set of lines in the order of their priorities, the highest as bit 0.
    pub(super) fn by_priority(&self, lines: u8) -> u8 {
        lines.rotate_right(u32::from(self.lowest) + 1)
    }

    /// Returns the line of a place in the order of the priorities.
    pub(super) fn line_at(&self, place: u32) -> u8 {
        (place as u8 + self.lowest + 1) & 7
    }

    /// Returns the line that asserts the output.
    pub(super) fn pending(&self) -> Option<u8> {
        let requests = self.by_priority(self.requests & !self.mask);
        if requests == 0 {
            return None;
        }
        let mut service = self.service;
        if self.special_mask {
            // What is masked and in service holds nothing back.
            service &= !self.mask;
        }
        if self.nested {
            service &= !(1 << CASCADE);
        }
        let place = requests.trailing_zeros();
        (place < self.by_priority(service).trailing_zeros().min(8)).then(|| self.line_at(place))
    }

    /// Puts a line into service, as the INTA cycle does.
    pub(super) fn take(&mut self, line: u8) {
        let bit = 1 << line;
        if self.triggers() & bit == 0 {
            self.requests &= !bit;
        }
        if !self.automatic {
            self.service |= bit;
        } else if self.rotates {
            self.lowest = line;
        }
    }

    pub(super) fn end(&mut self, line: Option<u8>, rotates: bool) {
        let highest = || {
            let mut service = self.service;
            if self.special_mask {
                service &= !self.mask;
            }
            let places = self.by_priority(service);
            (places != 0).then(|| self.line_at(places.trailing_zeros()))
        };
        let Some(line) = line.or_else(highest) else { return };
        self.service &= !(1 << line);
        if rotates {
            self.lowest = line;
        }
    }

    /// OCW2: ends of interrupts and rotations.
    pub(super) fn operate(&mut self, value: u8) {
        let line = value & 7;
        match value >> 5 {
            0b000 => self.rotates = false,
            0b001 => self.end(None, false),
            0b011 => self.end(Some(line), false),
            0b100 => self.rotates = true,
            0b101 => self.end(None, true),
            0b110 => self.lowest = line,
            0b111 => self.end(Some(line), true),
            _ => {}
        }
    }

    pub(super) fn write_command(&mut self, value: u8) {
        if value & ICW1 != 0 {
            self.initialize(value);
        } else if value & OCW3 == 0 {
            self.operate(value);
        } else {
            if value & OCW3_READ != 0 {
                self.reads_service = value & OCW3_READ_ISR != 0;
            }
            if value & OCW3_SET_SPECIAL_MASK != 0 {
                self.special_mask = value & OCW3_SPECIAL_MASK != 0;
            }
            self.polled = value & OCW3_POLL != 0;
        }
    }

    pub(super) fn write_data(&mut self, value: u8) {
        let after_cascade = if self.needs_icw4 { Expected::Icw4 } else { Expected::Mask };
        self.expected = match self.expected {
            Expected::Mask => {
                self.mask = value;
                Expected::Mask
            }
            Expected::Vector => {
                self.base = value & 0xf8;
                if self.single { after_cascade } else { Expected::Cascade }
            }
            Expected::Cascade => after_cascade,
            Expected::Icw4 => {
                self.automatic = value & ICW4_AUTOMATIC != 0;
                self.nested = value & ICW4_NESTED != 0;
                Expected::Mask
            }
        };
    }

    /// Answers a poll (231468, "Poll Command"): acknowledges the pending line.
    pub(super) fn poll(&mut self) -> u8 {
        self.polled = false;
        match self.pending() {
            Some(line) => {
                self.take(line);
                0x80 | line
            }
            None => 0,
        }
    }

    pub(super) fn status(&self) -> u8 {
        if self.reads_service { self.service } else { self.requests }
    }
}
