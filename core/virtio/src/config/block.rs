// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Block devices (section 5.2). A sector has 512 bytes, whatever the size of a block.

use super::bytes::{Fields, Reader};
use super::space::{Configuration, SPACE};
use crate::features::Features;

/// The configuration of a block device. Fields without their feature mean nothing to a driver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Block {
    /// Its size in sectors.
    pub capacity: u64,
    /// How many bytes a buffer has at most (SIZE_MAX).
    pub size_max: u32,
    /// How many buffers a request has at most, beside header and status (SEG_MAX).
    pub seg_max: u32,
    /// The size of a block in bytes (BLK_SIZE).
    pub block_size: u32,
    /// A physical block has 2 to this power blocks (TOPOLOGY).
    pub physical_block_exp: u8,
    /// The first block that is aligned to a physical one (TOPOLOGY).
    pub alignment_offset: u8,
    /// The least good size of a request, in blocks (TOPOLOGY).
    pub min_io_size: u16,
    /// The best size of a request, in blocks (TOPOLOGY).
    pub opt_io_size: u32,
    /// Writes may wait in a cache until they are flushed (CONFIG_WCE). The driver may change it.
    pub writeback: bool,
    /// The number of queues (MQ).
    pub queues: u16,
    /// How many sectors a range to discard has at most (DISCARD).
    pub max_discard_sectors: u32,
    /// How many ranges are discarded at once, at most (DISCARD).
    pub max_discard_seg: u32,
    /// What ranges to discard should be aligned to, in sectors (DISCARD).
    pub discard_sector_alignment: u32,
    /// How many sectors a range to fill with zeroes has at most (WRITE_ZEROES).
    pub max_write_zeroes_sectors: u32,
    /// How many ranges are filled at once, at most (WRITE_ZEROES).
    pub max_write_zeroes_seg: u32,
    /// Filling may discard (WRITE_ZEROES).
    pub write_zeroes_may_unmap: bool,
}

impl Block {
    /// `size_max` holds.
    pub const SIZE_MAX: Features = Features::bit(1);
    /// `seg_max` holds.
    pub const SEG_MAX: Features = Features::bit(2);
    /// It cannot be written.
    pub const RO: Features = Features::bit(5);
    /// `block_size` holds.
    pub const BLK_SIZE: Features = Features::bit(6);
    /// It can be flushed.
    pub const FLUSH: Features = Features::bit(9);
    /// The fields about physical blocks hold.
    pub const TOPOLOGY: Features = Features::bit(10);
    /// `writeback` can be written.
    pub const CONFIG_WCE: Features = Features::bit(11);
    /// `queues` holds.
    pub const MQ: Features = Features::bit(12);
    /// It can discard.
    pub const DISCARD: Features = Features::bit(13);
    /// It can fill with zeroes.
    pub const WRITE_ZEROES: Features = Features::bit(14);
    /// Where `writeback` is.
    const WRITEBACK: u64 = 0x20;

    /// Reads a configuration, as its driver sees it.
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut reader = Reader(bytes);
        let (capacity, size_max, seg_max) = (reader.u64(), reader.u32(), reader.u32());
        let _geometry = reader.u32();
        let block_size = reader.u32();
        let (physical_block_exp, alignment_offset) = (reader.u8(), reader.u8());
        let (min_io_size, opt_io_size) = (reader.u16(), reader.u32());
        let (writeback, _unused) = (reader.u8() != 0, reader.u8());
        let queues = reader.u16();
        let (max_discard_sectors, max_discard_seg) = (reader.u32(), reader.u32());
        let discard_sector_alignment = reader.u32();
        let (max_write_zeroes_sectors, max_write_zeroes_seg) = (reader.u32(), reader.u32());
        Self {
            capacity,
            size_max,
            seg_max,
            block_size,
            physical_block_exp,
            alignment_offset,
            min_io_size,
            opt_io_size,
            writeback,
            queues,
            max_discard_sectors,
            max_discard_seg,
            discard_sector_alignment,
            max_write_zeroes_sectors,
            max_write_zeroes_seg,
            write_zeroes_may_unmap: reader.u8() != 0,
        }
    }
}

impl Configuration for Block {
    const LENGTH: usize = 60;

    fn image(&self) -> [u8; SPACE] {
        let geometry = [0; 4];
        let fields = Fields::new().u64(self.capacity).u32(self.size_max).u32(self.seg_max);
        let fields = fields.put(&geometry).u32(self.block_size);
        let fields = fields.u8(self.physical_block_exp).u8(self.alignment_offset);
        let fields = fields.u16(self.min_io_size).u32(self.opt_io_size);
        let fields = fields.u8(self.writeback.into()).u8(0).u16(self.queues);
        let fields = fields.u32(self.max_discard_sectors).u32(self.max_discard_seg);
        let fields = fields.u32(self.discard_sector_alignment);
        let fields = fields.u32(self.max_write_zeroes_sectors).u32(self.max_write_zeroes_seg);
        fields.u8(self.write_zeroes_may_unmap.into()).bytes()
    }

    fn write(&mut self, offset: u64, size: u8, value: u64) -> bool {
        let (hit, on) = (offset == Self::WRITEBACK && size == 1, value & 0xff != 0);
        hit && core::mem::replace(&mut self.writeback, on) != on
    }
}

/// The header of a request (section 5.2.6), which the device reads. Data follow, and a byte that the device writes: the status.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRequest {
    /// What to do.
    pub kind: u32,
    /// The first sector.
    pub sector: u64,
}

impl BlockRequest {
    /// How many bytes it has.
    pub const LENGTH: usize = 16;
    /// Read.
    pub const IN: u32 = 0;
    /// Write.
    pub const OUT: u32 = 1;
    /// Write to the disk what waits in a cache.
    pub const FLUSH: u32 = 4;
    /// Tell the device's name: 20 bytes.
    pub const GET_ID: u32 = 8;
    /// Discard ranges.
    pub const DISCARD: u32 = 11;
    /// Fill ranges with zeroes.
    pub const WRITE_ZEROES: u32 = 13;
    /// A status: it was done.
    pub const OK: u8 = 0;
    /// A status: it failed.
    pub const IOERR: u8 = 1;
    /// A status: the device cannot do such things.
    pub const UNSUPP: u8 = 2;

    /// Reads a header.
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut reader = Reader(bytes);
        let (kind, _) = (reader.u32(), reader.u32());
        Self { kind, sector: reader.u64() }
    }

    /// Takes it from two words.
    #[inline] // On the path of every request.
    pub const fn from_words([first, sector]: [u64; 2]) -> Self {
        Self { kind: first as u32, sector }
    }

    /// Writes a header.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        Fields::new().u32(self.kind).u32(0).u64(self.sector).bytes()
    }
}

/// A range to discard or to fill with zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockRange {
    /// The first sector.
    pub sector: u64,
    /// How many.
    pub sectors: u32,
    /// Bit 0: filling may discard. Other bits are reserved.
    pub flags: u32,
}

impl BlockRange {
    /// How many bytes it has.
    pub const LENGTH: usize = 16;

    /// Reads a range.
    pub fn from_bytes(bytes: &[u8; Self::LENGTH]) -> Self {
        let mut reader = Reader(bytes);
        Self { sector: reader.u64(), sectors: reader.u32(), flags: reader.u32() }
    }

    /// Writes a range.
    pub fn to_bytes(self) -> [u8; Self::LENGTH] {
        Fields::new().u64(self.sector).u32(self.sectors).u32(self.flags).bytes()
    }
}
