// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the device announces.

use turnstile_virtio::config::Block;
use turnstile_virtio::features::Features;

use crate::disk::SECTOR;

/// How many sectors one range to discard or to fill with zeroes has at most: 1 GiB.
pub const MAX_RANGE: u32 = 1 << 21;
/// How many ranges one request has at most.
pub const MAX_RANGES: u32 = 32;

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Nothing is written.
    pub read_only: bool,
    /// Its name: ASCII, filled up with zeroes.
    pub id: [u8; 20],
    /// How many buffers a request has at most, beside header and status. Two less than a [`Queue`](crate::queue::Queue) has room for.
    pub segments: u32,
    /// How many bytes the driver should put into a buffer at most; 0 if it does not matter.
    pub segment_bytes: u32,
    /// The size of a block in bytes: a power of two, at least 512.
    pub block_size: u32,
    /// A physical block has 2 to this power blocks.
    pub physical_block_exp: u8,
    /// The best size of a request, in blocks; 0 if it does not matter.
    pub best_blocks: u32,
    /// How many queues.
    pub queues: u16,
    /// What is written may wait in a cache until it is flushed.
    pub cache: bool,
    /// What ranges to discard should be aligned to, in sectors; 0 if the disk does not discard.
    pub discard_alignment: u32,
    /// The disk fills ranges with zeroes.
    pub zeroes: bool,
}

impl Settings {
    /// A disk of RAM with a name, of which what is behind 20 bytes is left out.
    pub fn new(name: &str) -> Self {
        let mut id = [0; 20];
        id.iter_mut().zip(name.bytes()).for_each(|(to, from)| *to = from);
        Self {
            read_only: false,
            id,
            segments: 126,
            segment_bytes: 0,
            block_size: 512,
            physical_block_exp: 3,
            best_blocks: 0,
            queues: 1,
            cache: true,
            discard_alignment: 8,
            zeroes: true,
        }
    }

    /// The features to offer, those of rings included.
    pub fn features(&self) -> Features {
        let mut features = Features::INDIRECT_DESC | Features::EVENT_IDX | Features::RING_RESET;
        features |= Block::SEG_MAX | Block::BLK_SIZE | Block::TOPOLOGY;
        let mut offer = |feature, on| features |= if on { feature } else { Features::empty() };
        offer(Block::SIZE_MAX, self.segment_bytes != 0);
        offer(Block::MQ, self.queues > 1);
        offer(Block::RO, self.read_only);
        offer(Block::FLUSH | Block::CONFIG_WCE, self.cache && !self.read_only);
        offer(Block::DISCARD, self.discard_alignment != 0 && !self.read_only);
        offer(Block::WRITE_ZEROES, self.zeroes && !self.read_only);
        features
    }

    /// The configuration of a disk with so many sectors.
    pub fn configuration(&self, sectors: u64) -> Block {
        let discards = self.discard_alignment != 0;
        let if_discards = |value| if discards { value } else { 0 };
        Block {
            // A disk of whole blocks.
            capacity: sectors - sectors % (u64::from(self.block_size) / SECTOR).max(1),
            size_max: self.segment_bytes,
            seg_max: self.segments,
            block_size: self.block_size,
            physical_block_exp: self.physical_block_exp,
            alignment_offset: 0,
            min_io_size: 1 << self.physical_block_exp.min(15),
            opt_io_size: self.best_blocks,
            writeback: self.cache,
            queues: self.queues,
            max_discard_sectors: if_discards(MAX_RANGE),
            max_discard_seg: if_discards(MAX_RANGES),
            discard_sector_alignment: self.discard_alignment,
            max_write_zeroes_sectors: MAX_RANGE,
            max_write_zeroes_seg: MAX_RANGES,
            write_zeroes_may_unmap: discards,
        }
    }

    /// What holds for requests, once features are agreed on; `writeback` is that of the [configuration](Block::writeback).
    pub fn rules(&self, negotiated: Features, writeback: bool) -> Rules {
        // Section 5.2.6.2: without a way to flush, writes go through; a driver that can turn the cache off has the last word.
        let cached = match negotiated.contains(Block::CONFIG_WCE) {
            true => writeback,
            false => negotiated.contains(Block::FLUSH),
        };
        Rules {
            read_only: self.read_only,
            through: !cached,
            discards: self.discard_alignment != 0,
            id: self.id,
        }
    }
}

/// What holds for requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Nothing is written.
    pub read_only: bool,
    /// Each write is flushed before it is completed.
    pub through: bool,
    /// The disk discards.
    pub discards: bool,
    /// The name of the device.
    pub id: [u8; 20],
}
