// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The 16550A UART, registers of one byte (National Semiconductor PC16550D, section 8).
//!
//! It sends at once: the transmitter is always empty. There are no line errors. The hardware reports the character time-out
//! after four characters' time; the model does at once.

use crate::{Full, Received};

const IER_RECEIVED: u8 = 1 << 0;
const IER_TRANSMITTER_EMPTY: u8 = 1 << 1;
const IER_MODEM_STATUS: u8 = 1 << 3;

const IIR_NONE: u8 = 0b0001;
const IIR_RECEIVED: u8 = 0b0100;
const IIR_TIMEOUT: u8 = 0b1100;
const IIR_TRANSMITTER_EMPTY: u8 = 0b0010;
const IIR_MODEM_STATUS: u8 = 0b0000;
const IIR_FIFOS: u8 = 0b1100_0000;

const FCR_ENABLE: u8 = 1 << 0;
const FCR_CLEAR_RECEIVER: u8 = 1 << 1;

const LCR_DLAB: u8 = 1 << 7;
const MCR_LOOP: u8 = 1 << 4;

const LSR_DATA_READY: u8 = 1 << 0;
const LSR_TRANSMITTER_EMPTY: u8 = 0b0110_0000;

/// MSR bits [3:0]: what changed since MSR was read.
const MSR_CHANGES: u8 = 0x0f;
const MSR_TRAILING_RING: u8 = 1 << 2;
const MSR_RING: u8 = 1 << 6;
/// CTS, DSR and DCD: a peer that is there and ready.
const MSR_READY: u8 = 0b1011_0000;

const FIFO: usize = 16;

/// A 16550A.
#[derive(Debug)]
pub struct Uart16550 {
    pub(crate) received: Received,
    /// The transmitter became empty, and nobody was told.
    pub(crate) transmitted: bool,
    pub(crate) ier: u8,
    pub(crate) fcr: u8,
    pub(crate) lcr: u8,
    pub(crate) mcr: u8,
    pub(crate) msr: u8,
    pub(crate) scr: u8,
    pub(crate) divisor: [u8; 2],
}

impl Default for Uart16550 {
    fn default() -> Self {
        Self::new()
    }
}

impl Uart16550 {
    /// Makes a UART in its reset state.
    pub const fn new() -> Self {
        Self {
            received: Received::new(),
            transmitted: false,
            ier: 0,
            fcr: 0,
            lcr: 0,
            mcr: 0,
            msr: MSR_READY,
            scr: 0,
            divisor: [0; 2],
        }
    }

    /// Reads the register at `offset`; an access wider than a byte finds zeros above it.
    pub fn read(&mut self, offset: u64, _size: u8) -> u64 {
        let latch = self.lcr & LCR_DLAB != 0;
        let value = match offset {
            0 if latch => self.divisor[0],
            1 if latch => self.divisor[1],
            0 => self.received.pop().unwrap_or(0),
            1 => self.ier,
            2 => self.read_identification(),
            3 => self.lcr,
            4 => self.mcr,
            5 if self.received.level(FIFO) > 0 => LSR_TRANSMITTER_EMPTY | LSR_DATA_READY,
            5 => LSR_TRANSMITTER_EMPTY,
            6 => self.read_modem_status(),
            7 => self.scr,
            _ => 0,
        };
        value.into()
    }

    /// Writes the lowest byte of `value` to the register at `offset`. Returns the byte transmitted, if any.
    pub fn write(&mut self, offset: u64, _size: u8, value: u64) -> Option<u8> {
        let value = value as u8;
        let latch = self.lcr & LCR_DLAB != 0;
        match offset {
            0 if latch => self.divisor[0] = value,
            1 if latch => self.divisor[1] = value,
            0 => return self.transmit(value),
            1 => self.write_interrupt_enable(value & 0x0f),
            2 => self.write_fifo_control(value),
            3 => self.lcr = value,
            4 => self.write_modem_control(value & 0x1f),
            7 => self.scr = value,
            _ => {}
        }
        None
    }

    /// Takes a byte from the line.
    ///
    /// # Errors
    /// [`Full`] if the guest does not read; the byte is not lost if it is offered again.
    pub fn receive(&mut self, byte: u8) -> Result<(), Full> {
        self.received.push(byte)
    }

    /// Returns how many received bytes wait for the guest, in the FIFO and before it.
    #[inline]
    pub fn waiting(&self) -> usize {
        self.received.bytes.len()
    }

    /// Returns the level of the interrupt line. It does not depend on MCR.OUT2, which gates it on PC boards only.
    pub fn interrupt(&self) -> bool {
        self.identification() != IIR_NONE
    }

    fn has_fifos(&self) -> bool {
        self.fcr & FCR_ENABLE != 0
    }

    /// Returns the highest pending interrupt, in the order of the data sheet's table of identifications.
    fn identification(&self) -> u8 {
        let depth = if self.has_fifos() { FIFO } else { 1 };
        let trigger = match (self.has_fifos(), self.fcr >> 6) {
            (false, _) | (true, 0) => 1,
            (true, 1) => 4,
            (true, 2) => 8,
            (true, _) => 14,
        };
        let level = self.received.level(depth);
        if self.ier & IER_RECEIVED != 0 && level >= trigger {
            IIR_RECEIVED
        } else if self.ier & IER_RECEIVED != 0 && level > 0 {
            IIR_TIMEOUT
        } else if self.ier & IER_TRANSMITTER_EMPTY != 0 && self.transmitted {
            IIR_TRANSMITTER_EMPTY
        } else if self.ier & IER_MODEM_STATUS != 0 && self.msr & MSR_CHANGES != 0 {
            IIR_MODEM_STATUS
        } else {
            IIR_NONE
        }
    }

    /// Reads IIR, which acknowledges the transmitter interrupt if that is what it reports.
    fn read_identification(&mut self) -> u8 {
        let identification = self.identification();
        if identification == IIR_TRANSMITTER_EMPTY {
            self.transmitted = false;
        }
        if self.has_fifos() { identification | IIR_FIFOS } else { identification }
    }

    /// Reads MSR, which acknowledges the changes it reports.
    fn read_modem_status(&mut self) -> u8 {
        let status = self.msr;
        self.msr &= !MSR_CHANGES;
        status
    }

    fn transmit(&mut self, byte: u8) -> Option<u8> {
        self.transmitted = true;
        if self.mcr & MCR_LOOP == 0 {
            return Some(byte);
        }
        // A full line loses the byte, as an overrun would.
        let _ = self.receive(byte);
        None
    }

    fn write_interrupt_enable(&mut self, value: u8) {
        if value & !self.ier & IER_TRANSMITTER_EMPTY != 0 {
            // Enabling it while the transmitter is empty, which it always is, reports that at once.
            self.transmitted = true;
        }
        self.ier = value;
    }

    fn write_fifo_control(&mut self, value: u8) {
        let toggled = (value ^ self.fcr) & FCR_ENABLE != 0;
        if toggled || value & FCR_CLEAR_RECEIVER != 0 {
            // What is in the FIFO is lost; what is on the wire is not.
            for _ in 0..if self.has_fifos() { FIFO } else { 1 } {
                self.received.pop();
            }
        }
        // With the FIFOs off, the other bits cannot be set.
        self.fcr = if value & FCR_ENABLE != 0 { value & 0xc9 } else { 0 };
    }

    fn write_modem_control(&mut self, value: u8) {
        self.mcr = value;
        let lines = if value & MCR_LOOP == 0 {
            MSR_READY
        } else {
            // RTS to CTS, DTR to DSR, OUT1 to RI, OUT2 to DCD.
            (value >> 1 & 1) << 4 | (value & 1) << 5 | (value >> 2 & 1) << 6 | (value >> 3 & 1) << 7
        };
        let changed = lines ^ self.msr;
        // Of the ring indicator only the trailing edge counts.
        let ring = if changed & MSR_RING != 0 && lines & MSR_RING == 0 { MSR_TRAILING_RING } else { 0 };
        self.msr = lines | self.msr & MSR_CHANGES | changed >> 4 & MSR_CHANGES & !MSR_TRAILING_RING | ring;
    }
}
