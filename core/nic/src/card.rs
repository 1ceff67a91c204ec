// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What all cards have in common.
//!
//! Buffers have numbers, and are the card's from when they are offered or sent until they are received or were sent. Each begins with
//! [`HEADROOM`] bytes that are no part of the packet: the header of virtio. Cards that have none leave it alone.

use core::fmt;

pub use turnstile_virtio::driver::Bus;
use turnstile_virtio::driver::Refusal;
use turnstile_virtio::driver::pci;
use turnstile_virtio::memory::Outside;
use turnstile_virtio::violation::Violation;

/// How many bytes there are in a buffer before its packet.
pub const HEADROOM: u32 = 12;

/// Why a card cannot be used, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// There is no card, or no driver for it.
    Unknown,
    /// It cannot be begun, or says that it cannot go on.
    Transport(pci::Failure),
    /// It has broken a rule of its queues.
    Violation(Violation),
    /// It has too few registers.
    Registers,
    /// It refuses to receive packets for other addresses than its own.
    Filters,
    /// The driver has asked for what does not fit: its caller's memory is too small, or it has offered too much.
    Memory,
}

impl Failure {
    /// Says it in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Unknown => "there is no driver for it",
            Self::Transport(failure) => failure.text(),
            Self::Registers => "it has too few registers",
            Self::Violation(_) => "it has broken a rule of its queues",
            Self::Filters => "it receives packets for its own address alone",
            Self::Memory => "its memory is too small",
        }
    }
}

impl From<pci::Failure> for Failure {
    fn from(failure: pci::Failure) -> Self {
        Self::Transport(failure)
    }
}

impl From<Violation> for Failure {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

impl From<Refusal> for Failure {
    fn from(_: Refusal) -> Self {
        Self::Memory
    }
}

impl From<Outside> for Failure {
    fn from(_: Outside) -> Self {
        Self::Memory
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Violation(violation) => violation.fmt(f),
            failure => f.write_str(failure.text()),
        }
    }
}

impl core::error::Error for Failure {}

/// A network card that receives all packets and sends whole ones: without open checksums, without segments.
pub trait Card: Sized {
    /// How many bytes of memory it needs for itself, at a multiple of 4096.
    const BYTES: u64;

    /// A driver without a card.
    const NEW: Self;

    /// Resets the card, whatever it does: it touches no memory then. Registers are all that it needs.
    fn reset<B: Bus>(bus: &B) -> Result<(), Failure>;

    /// Resets the card, whatever it does, and begins. `at` is where its memory begins. Behind an error there is no card, and it is reset, if that can
    /// be.
    fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure>;

    /// Goes on with what takes longer than an event may. Returns when it is to be asked again; `None` if the card is ready, or if there is none.
    /// Buffers may be offered and sent before. Behind an error there is no card.
    fn settle<B: Bus>(&mut self, bus: &B) -> Result<Option<u64>, Failure>;

    /// Its address, if it has said one.
    fn mac(&self) -> Option<[u8; 6]>;

    /// How many more buffers can be offered.
    fn room_to_receive(&self) -> u16;

    /// Offers a buffer of `length` bytes for a packet.
    fn offer<B: Bus>(&mut self, bus: &B, number: u16, address: u64, length: u32) -> Result<(), Failure>;

    /// Takes the next buffer with a packet: its number, and its length with [`HEADROOM`]. What is shorter than that is no
    /// packet: the card has returned the buffer without a whole one. `None` if there is none now.
    fn receive<B: Bus>(&mut self, bus: &B) -> Result<Option<(u16, u32)>, Failure>;

    /// How many more buffers can be sent.
    fn room_to_send(&self) -> u16;

    /// Sends a buffer of `length` bytes, with [`HEADROOM`].
    fn send<B: Bus>(&mut self, bus: &B, number: u16, address: u64, length: u32) -> Result<(), Failure>;

    /// Takes the number of the next buffer that was sent. `None` if there is none now.
    fn sent<B: Bus>(&mut self, bus: &B) -> Result<Option<u16>, Failure>;

    /// Tells the card of what was offered and sent since the last call.
    fn flush<B: Bus>(&mut self, bus: &B) -> Result<(), Failure>;

    /// Asks for an interrupt when the next packet is received, and, if `sent`, when the next buffer was sent. Returns whether there is one
    /// already, for which no interrupt may come: then take it, and ask again.
    fn arm<B: Bus>(&mut self, bus: &B, sent: bool) -> Result<bool, Failure>;

    /// The card has interrupted: sees to it that it does so again, and to what is the driver's own.
    fn interrupted<B: Bus>(&mut self, bus: &B) -> Result<(), Failure>;

    /// An interrupt has brought nothing: says whether the card goes on.
    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure>;

    /// Resets the card: all buffers are the caller's again, and there is no card.
    fn stop<B: Bus>(&mut self, bus: &B);
}
