// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Registers (section 6.3), and what of the features this driver needs.

use super::platform::{Error, Platform};

const IDR0: u32 = 0x00;
const IDR1: u32 = 0x04;
const IDR5: u32 = 0x14;
pub(super) const CR0: Acknowledged = Acknowledged { name: "CR0", offset: 0x20 };
pub(super) const CR1: u32 = 0x28;
pub(super) const CR2: u32 = 0x2c;
pub(super) const GBPA: Acknowledged = Acknowledged { name: "GBPA", offset: 0x44 };
pub(super) const IRQ_CTRL: Acknowledged = Acknowledged { name: "IRQ_CTRL", offset: 0x50 };
pub(super) const GERROR: u32 = 0x60;
pub(super) const GERRORN: u32 = 0x64;
pub(super) const STRTAB_BASE: u32 = 0x80;
pub(super) const STRTAB_BASE_CFG: u32 = 0x88;
pub(super) const CMDQ_BASE: u32 = 0x90;
pub(super) const CMDQ_PROD: u32 = 0x98;
pub(super) const CMDQ_CONS: u32 = 0x9c;
pub(super) const EVENTQ_BASE: u32 = 0xa0;
pub(super) const EVENTQ_IRQ_CFG0: u32 = 0xb0;
pub(super) const EVENTQ_PROD: u32 = 0x1_00a8;
pub(super) const EVENTQ_CONS: u32 = 0x1_00ac;

pub(super) const CR0_ENABLE: u32 = 1 << 0;
pub(super) const CR0_EVENTS: u32 = 1 << 2;
pub(super) const CR0_COMMANDS: u32 = 1 << 3;
pub(super) const CR0_CHECK_TRANSLATED: u32 = 1 << 4;
/// Tables and queues are Write-Back, Inner Shareable.
pub(super) const CR1_WRITE_BACK: u32 = 0b11 << 10 | 0b01 << 8 | 0b01 << 6 | 0b11 << 4 | 0b01 << 2 | 0b01;
/// No broadcast of a CPU's reaches its TLBs: numbers of virtual machines are its own.
pub(super) const CR2_PRIVATE_TLB: u32 = 1 << 2;
pub(super) const GBPA_ABORT: u32 = 1 << 20;
pub(super) const GBPA_UPDATE: u32 = 1 << 31;
pub(super) const IRQ_EVENTS: u32 = 1 << 2;
/// The command queue has stopped at an error.
pub(super) const GERROR_COMMANDS: u32 = 1 << 0;

/// How often a register is read until something has to have happened: each read takes a good part of a microsecond.
pub(super) const POLLS: u32 = 1 << 20;

/// A register that another one, behind it, repeats when it is taken.
pub(super) struct Acknowledged {
    pub name: &'static str,
    pub offset: u32,
}

impl Acknowledged {
    /// Writes it, and waits until that is taken.
    pub fn set(&self, platform: &mut impl Platform, value: u32) -> Result<(), Error> {
        platform.set32(self.offset, value);
        wait(platform, self.name, |platform| platform.get32(self.offset + 4) == value)
    }
}

/// What an SMMU can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Features {
    /// Bits of addresses, on both sides of stage 2.
    pub address_bits: u32,
    /// The same as S2PS has it.
    pub output_size: u64,
    /// Bits of a stream's number.
    pub stream_bits: u32,
    /// Whether a stream table can have two levels.
    pub two_levels: bool,
    /// The most entries of both queues, as logarithms.
    pub queues: [u32; 2],
    /// Whether it knows translations of hypervisors, and has to forget them.
    pub has_el2: bool,
    /// Whether devices can say that an address is translated.
    pub has_ats: bool,
}

impl Features {
    /// Reads them.
    pub fn read(platform: &impl Platform) -> Result<Self, Error> {
        let [idr0, idr1, idr5] = [IDR0, IDR1, IDR5].map(|offset| platform.get32(offset));
        let field = |register: u32, shift: u32, bits: u32| register >> shift & ((1 << bits) - 1);
        let is = |register: u32, bit: u32| register >> bit & 1 != 0;
        let needed = [
            (is(idr0, 0), "stage 2"),
            (is(idr0, 3), "tables of 64 bits"),
            (is(idr0, 4), "coherent access to its tables"),
            (field(idr0, 24, 2) != 0b10, "way to end what faults at once"),
            (field(idr0, 21, 2) != 0b11, "little-endian tables"),
            (!is(idr1, 29) && !is(idr1, 30), "tables and queues that can be placed"),
            (is(idr5, 4), "pages of 4 KiB"),
        ];
        if let Some((_, what)) = needed.into_iter().find(|(there, _)| !there) {
            return Err(Error::Feature(what));
        }
        let output_size = field(idr5, 0, 3).min(5);
        let sizes = [32, 36, 40, 42, 44, 48];
        let address_bits = sizes.get(output_size as usize).copied().ok_or(Error::Feature("address size"))?;
        Ok(Self {
            address_bits,
            output_size: output_size.into(),
            stream_bits: field(idr1, 0, 6).min(32),
            two_levels: field(idr0, 27, 2) == 0b01,
            queues: [field(idr1, 21, 5), field(idr1, 16, 5)],
            has_el2: is(idr0, 9),
            has_ats: is(idr0, 10),
        })
    }
}

/// Waits until something has happened; reads of registers take their time.
pub(super) fn wait<P: Platform>(
    platform: &P,
    what: &'static str,
    mut is_done: impl FnMut(&P) -> bool,
) -> Result<(), Error> {
    if (0..POLLS).any(|_| is_done(platform)) { Ok(()) } else { Err(Error::Stuck(what)) }
}
