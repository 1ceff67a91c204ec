// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Device models at the register level.
//!
//! A model is a plain value: reads and writes go in; values, transmitted bytes and the level of the interrupt line come out. It
//! holds no lock and allocates nothing. The caller decides where it is mapped, who hears its interrupt, and by which clock it
//! runs. Every offset and size has an answer: what a device lacks reads as zero and ignores writes.
//!
//! [`Pl011`] and [`Uart16550`] are serial lines, [`Credit`] keeps their senders from sending too much, a [`Stream`] has somebody at its other side, a [`Keyboard`] is that of a console, [`Pl031`] is a clock, [`CfiFlash`] a bank of NOR flash,
//! [`MsiFrame`] makes interrupts of messages.
//!
//! What a PC has: [`I8259`] and [`I8254`], which exits use without leaving their light tier; [`Cmos`], [`AcpiPm`],
//! [`ResetPorts`], [`FwCfg`].
#![no_std]
#![forbid(unsafe_code)]

mod acpi_pm;
pub mod calendar;
pub mod cfi_flash;
mod cmos;
mod credit;
mod fw_cfg;
mod i8254;
mod i8259;
mod keyboard;
mod pl011;
mod pl031;
mod reset;
mod saved;
mod stream;
mod uart16550;
mod v2m;

use heapless::Deque;

pub use acpi_pm::{AcpiPm, PM_TIMER_FREQUENCY, PowerOff};
pub use cfi_flash::CfiFlash;
pub use cmos::Cmos;
pub use credit::Credit;
pub use fw_cfg::FwCfg;
pub use i8254::{I8254, I8254_FREQUENCY};
pub use i8259::I8259;
pub use keyboard::Keyboard;
pub use pl011::Pl011;
pub use pl031::Pl031;
pub use reset::{Reset, ResetPorts};
pub use saved::{SAVED, SAVED_CHARACTERS};
pub use stream::{Offer, Stream, Told};
pub use uart16550::Uart16550;
pub use v2m::MsiFrame;

/// How many received bytes a serial line keeps for its guest.
pub const BACKLOG: usize = 1024;

/// The answer when a serial line can keep no more received bytes: offer the byte again later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

/// Received bytes of a serial line. The guest sees the oldest of them as the device's FIFO; the others are on
/// the wire still, as far as it can tell.
#[derive(Debug)]
struct Received {
    bytes: Deque<u8, BACKLOG>,
}

impl Received {
    const fn new() -> Self {
        Self { bytes: Deque::new() }
    }

    /// Returns how many bytes a FIFO of `depth` holds.
    fn level(&self, depth: usize) -> usize {
        self.bytes.len().min(depth)
    }

    fn push(&mut self, byte: u8) -> Result<(), Full> {
        self.bytes.push_back(byte).map_err(|_| Full)
    }

    fn pop(&mut self) -> Option<u8> {
        self.bytes.pop_front()
    }
}

/// Masks a register's value to the size of an access in bytes.
const fn truncate(value: u64, size: u8) -> u64 {
    match size {
        1 => value & 0xff,
        2 => value & 0xffff,
        4 => value & 0xffff_ffff,
        _ => value,
    }
}
