// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The Arm PrimeCell UART, PL011 (Arm DDI 0183).
//!
//! It sends at once: the transmit FIFO is always empty. It sends and receives whether it is enabled or not, because guests rely
//! on a console that a loader enabled for them. There are no line errors.
//!
//! Interrupts (section 2.8): receive and receive-timeout are set when a byte enters the FIFO, and fall when the
//! FIFO is read below its trigger level, or empty. A FIFO that gets no further byte times out after 32 bit
//! periods; here at once. Transmit is set when a byte has left, not while the FIFO is merely empty. All of them
//! can be cleared by ICR, and then need a new event.

use crate::{Full, Received, truncate};

const DR: u64 = 0x000;
const FR: u64 = 0x018;
const ILPR: u64 = 0x020;
const IBRD: u64 = 0x024;
const FBRD: u64 = 0x028;
const LCR_H: u64 = 0x02c;
const CR: u64 = 0x030;
const IFLS: u64 = 0x034;
const IMSC: u64 = 0x038;
const RIS: u64 = 0x03c;
const MIS: u64 = 0x040;
const ICR: u64 = 0x044;
const DMACR: u64 = 0x048;
const PERIPH_ID: u64 = 0xfe0;

/// UARTPeriphID0-3 and UARTPCellID0-3: part 0x011, designer Arm, revision 1 (the one with FIFOs of 16).
const IDENTIFICATION: [u8; 8] = [0x11, 0x10, 0x14, 0x00, 0x0d, 0xf0, 0x05, 0xb1];

const FR_CTS: u16 = 1 << 0;
const FR_DSR: u16 = 1 << 1;
const FR_DCD: u16 = 1 << 2;
const FR_RXFE: u16 = 1 << 4;
const FR_RXFF: u16 = 1 << 6;
const FR_TXFE: u16 = 1 << 7;
const FR_RI: u16 = 1 << 8;

const LCR_H_FEN: u16 = 1 << 4;
const CR_LBE: u16 = 1 << 7;

const INT_RI: u16 = 1 << 0;
const INT_CTS: u16 = 1 << 1;
const INT_DCD: u16 = 1 << 2;
const INT_DSR: u16 = 1 << 3;
const INT_RX: u16 = 1 << 4;
const INT_TX: u16 = 1 << 5;
const INT_RT: u16 = 1 << 6;

const FIFO: usize = 16;

/// A PL011.
#[derive(Debug)]
pub struct Pl011 {
    pub(crate) received: Received,
    pub(crate) ilpr: u16,
    pub(crate) ibrd: u16,
    pub(crate) fbrd: u16,
    pub(crate) lcr_h: u16,
    pub(crate) cr: u16,
    pub(crate) ifls: u16,
    pub(crate) imsc: u16,
    pub(crate) ris: u16,
    pub(crate) dmacr: u16,
}

impl Default for Pl011 {
    fn default() -> Self {
        Self::new()
    }
}

impl Pl011 {
    /// Makes a PL011 in its reset state.
    pub const fn new() -> Self {
        Self {
            received: Received::new(),
            ilpr: 0,
            ibrd: 0,
            fbrd: 0,
            lcr_h: 0,
            cr: 0x300,
            ifls: 0x12,
            imsc: 0,
            ris: 0,
            dmacr: 0,
        }
    }

    /// Reads `size` bytes at `offset`.
    pub fn read(&mut self, offset: u64, size: u8) -> u64 {
        let value = match offset {
            DR => self.read_data(),
            // RSR: there are no receive errors.
            FR => self.flags(),
            ILPR => self.ilpr,
            IBRD => self.ibrd,
            FBRD => self.fbrd,
            LCR_H => self.lcr_h,
            CR => self.cr,
            IFLS => self.ifls,
            IMSC => self.imsc,
            RIS => self.ris,
            MIS => self.ris & self.imsc,
            DMACR => self.dmacr,
            PERIPH_ID..0x1000 if offset.is_multiple_of(4) => {
                IDENTIFICATION.get((offset - PERIPH_ID) as usize / 4).copied().unwrap_or(0).into()
            }
            _ => 0,
        };
        truncate(value.into(), size)
    }

    /// Writes `size` bytes at `offset`. Returns the byte transmitted, if any.
    pub fn write(&mut self, offset: u64, size: u8, value: u64) -> Option<u8> {
        let value = truncate(value, size) as u16;
        match offset {
            DR => return self.transmit(value as u8),
            ILPR => self.ilpr = value & 0xff,
            IBRD => self.ibrd = value,
            FBRD => self.fbrd = value & 0x3f,
            LCR_H => self.lcr_h = value & 0xff,
            CR => self.write_control(value),
            IFLS => self.ifls = value & 0x3f,
            IMSC => self.imsc = value & 0x7ff,
            ICR => self.ris &= !value,
            DMACR => self.dmacr = value & 7,
            _ => {}
        }
        None
    }

    /// Takes a byte from the line.
    ///
    /// # Errors
    /// [`Full`] if the guest does not read; the byte is not lost if it is offered again.
    pub fn receive(&mut self, byte: u8) -> Result<(), Full> {
        self.received.push(byte)?;
        if self.received.bytes.len() <= self.depth() {
            self.arrived();
        }
        Ok(())
    }

    /// Returns how many received bytes wait for the guest, in the FIFO and before it.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.received.bytes.len()
    }

    /// Returns the level of the combined interrupt line, UARTINTR.
    pub fn interrupt(&self) -> bool {
        self.ris & self.imsc != 0
    }

    fn depth(&self) -> usize {
        if self.lcr_h & LCR_H_FEN != 0 { FIFO } else { 1 }
    }

    /// Returns the level at which the receive interrupt is due (IFLS bits [5:3]; the reserved values as 7/8).
    fn trigger(&self) -> usize {
        if self.lcr_h & LCR_H_FEN == 0 {
            return 1;
        }
        match self.ifls >> 3 & 7 {
            0 => FIFO / 8,
            1 => FIFO / 4,
            2 => FIFO / 2,
            3 => FIFO / 4 * 3,
            _ => FIFO / 8 * 7,
        }
    }

    /// Notes that a byte entered the FIFO, and that none follows at once.
    fn arrived(&mut self) {
        self.ris |= INT_RT;
        if self.received.level(self.depth()) >= self.trigger() {
            self.ris |= INT_RX;
        }
    }

    fn read_data(&mut self) -> u16 {
        let byte = self.received.pop();
        let level = self.received.level(self.depth());
        if level < self.trigger() {
            self.ris &= !INT_RX;
        }
        if level == 0 {
            self.ris &= !INT_RT;
        } else if level == self.depth() {
            // The byte taken made room for one that waited.
            self.arrived();
        }
        byte.unwrap_or(0).into()
    }

    fn transmit(&mut self, byte: u8) -> Option<u8> {
        self.ris |= INT_TX;
        if self.cr & CR_LBE == 0 {
            return Some(byte);
        }
        // A full line loses the byte, as an overrun would.
        let _ = self.receive(byte);
        None
    }

    fn flags(&self) -> u16 {
        let mut flags = FR_TXFE | self.modem();
        let level = self.received.level(self.depth());
        if level == 0 {
            flags |= FR_RXFE;
        }
        if level == self.depth() {
            flags |= FR_RXFF;
        }
        flags
    }

    /// Returns the modem inputs as FR shows them: a peer that is there and ready; in loopback, the outputs.
    fn modem(&self) -> u16 {
        if self.cr & CR_LBE == 0 {
            return FR_CTS | FR_DSR | FR_DCD;
        }
        let output = |bit: u32, flag: u16| if self.cr >> bit & 1 != 0 { flag } else { 0 };
        // DTR, RTS, Out1 and Out2 are CR bits 10 to 13.
        output(10, FR_DSR) | output(11, FR_CTS) | output(12, FR_DCD) | output(13, FR_RI)
    }

    fn write_control(&mut self, value: u16) {
        let before = self.modem();
        // Bits [6:3] are reserved.
        self.cr = value & 0xff87;
        let changed = before ^ self.modem();
        for (flag, interrupt) in [(FR_RI, INT_RI), (FR_CTS, INT_CTS), (FR_DCD, INT_DCD), (FR_DSR, INT_DSR)] {
            if changed & flag != 0 {
                self.ris |= interrupt;
            }
        }
    }
}
