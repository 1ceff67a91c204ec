// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Network cards of the machine: PCI functions that the services of networks drive.

use core::fmt;

use crate::arch::boot::Bridge;
use crate::arch::pci::{Claims, Class, Function, Refusal};
use crate::arch::service::{Device, Window};
use crate::machine;

/// A copy of a card's configuration space, and behind it memory that the card shares with the program that drives it. Blocks of this many bytes
/// are mapped with large pages.
const BLOCK: u64 = 2 << 20;
/// What of it is the copy's: a page.
const COPY: u64 = 4096;

/// A card that a service has.
pub type Card = Function<Bridge>;

/// Why a network cannot have its card.
#[derive(Debug)]
pub enum Error {
    /// There is no memory for both.
    Memory(machine::Error),
    /// The machine's PCI.
    Pci(Refusal),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("its network card cannot be used: ")?;
        match self {
            Self::Memory(error) => error.fmt(f),
            Self::Pci(refusal) => refusal.fmt(f),
        }
    }
}

/// Gives the card with this number, which is to interrupt the CPU of this index. Returns what its program is to have of it, too.
///
/// # Errors
/// When the machine has no such card, or no memory for it.
#[inline(never)] // What it needs of the stack is given back.
pub fn claim(claims: &mut Claims<Bridge>, number: usize, cpu: usize) -> Result<(Card, Device), Error> {
    let card = claims.claim(Class::ETHERNET, number, cpu).map_err(Error::Pci)?;
    let copy = machine::storage(BLOCK, &card.configuration).map_err(Error::Memory)?;
    let host = copy + COPY;
    let guest = card.reach(host).map_err(Error::Pci)?;
    let memory = Window { guest, host, size: BLOCK - COPY, ..Window::default() };
    let configuration = Window { host: copy, size: COPY, read_only: true, ..Window::default() };
    let device = Device::new(&card.bars, configuration, memory);
    Ok((card, device))
}
