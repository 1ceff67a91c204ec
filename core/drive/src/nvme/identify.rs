// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a controller says of itself and of its namespaces (NVM Express 1.4, section 5.15).

use turnstile_virtio::memory::{Memory, Outside};

use crate::drive::{Failure, Geometry, MOST_BYTES, PAGE, SECTOR};

/// Commands that a controller may have (ONCS).
const DATASET_MANAGEMENT: u16 = 1 << 2;
const WRITE_ZEROES: u16 = 1 << 3;
/// How many blocks a command names at most, but those with ranges.
const MOST_BLOCKS: u32 = 1 << 16;
/// No disk is larger, in sectors.
const LARGEST: u64 = 1 << 55;
/// Sizes of blocks, as powers of two.
const SMALLEST_BLOCK: u8 = SECTOR.ilog2() as u8;
const LARGEST_BLOCK: u8 = PAGE.ilog2() as u8;

/// Reads a field, once.
fn field<M: Memory, const N: usize>(memory: &M, at: u64) -> Result<[u8; N], Outside> {
    let mut bytes = [0; N];
    memory.read(at, &mut bytes)?;
    Ok(bytes)
}

fn u8_at<M: Memory>(memory: &M, at: u64) -> Result<u8, Outside> {
    field(memory, at).map(u8::from_le_bytes)
}

fn u16_at<M: Memory>(memory: &M, at: u64) -> Result<u16, Outside> {
    field(memory, at).map(u16::from_le_bytes)
}

/// A controller.
#[derive(Clone, Copy, Debug)]
pub(super) struct Controller {
    /// How many bytes a command moves at most (MDTS); none if it does not say.
    most_bytes: Option<u32>,
    discards: bool,
    zeroes: bool,
    cache: bool,
}

impl Controller {
    /// Before it is known.
    pub(super) const NONE: Self = Self { most_bytes: None, discards: false, zeroes: false, cache: false };

    /// Reads what it says at an address (CNS 01h).
    pub(super) fn read<M: Memory>(memory: &M, at: u64) -> Result<Self, Failure> {
        let (commands, completions) = (u8_at(memory, at + 512)?, u8_at(memory, at + 513)?);
        // SQES and CQES: the smallest size and the largest, as powers of two.
        let takes = |sizes: u8, size: u8| (sizes & 0xf..=sizes >> 4).contains(&size);
        if !takes(commands, 6) || !takes(completions, 4) {
            return Err(Failure::Queues);
        }
        // A limit that is too large to say is none.
        let most_bytes = match u8_at(memory, at + 77)? {
            0 => None,
            power => 1u32.checked_shl(power.into()).and_then(|pages| pages.checked_mul(PAGE as u32)),
        };
        let optional = u16_at(memory, at + 520)?;
        let discards = optional & DATASET_MANAGEMENT != 0;
        let zeroes = optional & WRITE_ZEROES != 0;
        let cache = u8_at(memory, at + 525)? & 1 != 0;
        Ok(Self { most_bytes, discards, zeroes, cache })
    }

    /// Says what the disk is that consists of a namespace.
    pub(super) fn geometry(&self, namespace: &Namespace, depth: u16) -> Geometry {
        let Namespace { sectors, block, writable, granularity, .. } = *namespace;
        let of_block = block / SECTOR;
        let most_bytes = self.most_bytes.unwrap_or(u32::MAX);
        // The limit is of what is moved, which zeroes are not; but there are controllers that mean them, too.
        let most_zeroed = (most_bytes / block).min(MOST_BLOCKS) * of_block;
        Geometry {
            sectors,
            block,
            depth,
            most_bytes: most_bytes.min(MOST_BYTES),
            writable,
            cache: self.cache,
            most_discarded: if self.discards && writable { u32::MAX / of_block * of_block } else { 0 },
            discard_alignment: granularity.saturating_mul(of_block),
            most_zeroed: if self.zeroes && writable { most_zeroed } else { 0 },
        }
    }
}

/// A namespace that can be used.
#[derive(Clone, Copy, Debug)]
pub(super) struct Namespace {
    /// Its number.
    pub(super) number: u32,
    /// Its size in sectors.
    sectors: u64,
    /// The size of a block in bytes.
    pub(super) block: u32,
    writable: bool,
    /// What is discarded should be whole multiples of so many blocks.
    granularity: u32,
    /// A block that is given up, by Write Zeroes, reads as zeroes.
    pub(super) discards_to_zero: bool,
}

impl Namespace {
    /// Before it is known.
    pub(super) const NONE: Self = Self {
        number: 0,
        sectors: 0,
        block: SECTOR,
        writable: false,
        granularity: 1,
        discards_to_zero: false,
    };

    /// Reads what the controller says of it at an address (CNS 00h). `None` if it cannot be used: its blocks have metadata, protection or a size
    /// that is not from 512 to 4096 bytes, or there are none.
    pub(super) fn read<M: Memory>(memory: &M, at: u64, number: u32) -> Result<Option<Self>, Failure> {
        let blocks = field(memory, at).map(u64::from_le_bytes)?;
        let (formats, format) = (u8_at(memory, at + 25)?, u8_at(memory, at + 26)?);
        // FLBAS: the upper bits count where there are more than 16 formats.
        let upper = if formats > 15 { format >> 5 & 3 } else { 0 };
        let format = u64::from(upper << 4 | format & 0xf);
        let [metadata_low, metadata_high, size, _] = field(memory, at + 128 + 4 * format)?;
        let is_protected = u8_at(memory, at + 29)? & 7 != 0;
        let is_plain = metadata_low | metadata_high == 0 && !is_protected;
        if !is_plain || !(SMALLEST_BLOCK..=LARGEST_BLOCK).contains(&size) {
            return Ok(None);
        }
        let block = 1 << size;
        let sectors = blocks.checked_mul(u64::from(block / SECTOR));
        let Some(sectors) = sectors.filter(|sectors| (1..LARGEST).contains(sectors)) else { return Ok(None) };
        // NSFEAT says whether the preferred granularity (NPDG) holds.
        let granularity = match u8_at(memory, at + 24)? & 1 << 4 != 0 {
            true => u32::from(u16_at(memory, at + 68)?) + 1,
            false => 1,
        };
        let writable = u8_at(memory, at + 99)? & 1 == 0;
        // DLFEAT: Write Zeroes can deallocate, and what is deallocated reads as zeroes.
        let discards_to_zero = u8_at(memory, at + 33)? & 0xf == 0b1001;
        Ok(Some(Self { number, sectors, block, writable, granularity, discards_to_zero }))
    }
}

/// Reads the first number of a list of namespaces above `last` (CNS 02h). `None` if there is none.
pub(super) fn next_namespace<M: Memory>(memory: &M, at: u64, last: u32) -> Result<Option<u32>, Failure> {
    match field(memory, at).map(u32::from_le_bytes)? {
        0 => Ok(None),
        number if number > last && number < u32::MAX - 1 => Ok(Some(number)),
        _ => Err(Failure::Blocks),
    }
}
