// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupt messages: what goes over the bus between APICs (APM vol. 2, 16.5).

/// The destination that means every vCPU.
pub const BROADCAST: u32 = u32::MAX;

/// How a message is delivered: the message type of the ICR, of an LVT entry or of a redirection entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// 000: to all that are named.
    Fixed,
    /// 001: to one of those that are named.
    LowestPriority,
    /// 010: a system management interrupt. There is no SMM: it has no effect.
    Smi,
    /// 100: a non-maskable interrupt.
    Nmi,
    /// 101.
    Init,
    /// 110: start at the page that the vector names. Reserved where a device sends.
    Startup,
    /// 111: as the 8259's INTR pin does.
    External,
    /// 011.
    Reserved,
}

impl Delivery {
    /// Decodes bits 10:8 of a register.
    #[inline]
    pub const fn of(register: u32) -> Self {
        match register >> 8 & 7 {
            0 => Self::Fixed,
            1 => Self::LowestPriority,
            2 => Self::Smi,
            4 => Self::Nmi,
            5 => Self::Init,
            6 => Self::Startup,
            7 => Self::External,
            _ => Self::Reserved,
        }
    }
}

/// What reaches a vCPU beside interrupts by vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// A non-maskable interrupt.
    Nmi,
    /// INIT: reset, then wait for a start-up.
    Init,
    /// Start at this page number, if it waits for that.
    Startup(u8),
}

/// A message on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// The vector; of a start-up the page number.
    pub vector: u8,
    /// How it is delivered.
    pub delivery: Delivery,
    /// Whether the destination is logical.
    pub logical: bool,
    /// Who is meant; [`BROADCAST`] for all.
    pub destination: u32,
    /// Whether its end has to be told to the board: of all level-triggered ones to the I/O APIC.
    pub level: bool,
}
