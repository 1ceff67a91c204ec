// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A reading of section 5.2.6 without rings, and a disk that can be cut off.

#![allow(dead_code, reason = "each test uses its part")]

use turnstile_block::ram::{Image, Store};
use turnstile_block::settings::{Rules, Settings};
use turnstile_rig::{Fuse, Random, Request};

pub const SECTORS: u64 = 64;

pub fn rules() -> Rules {
    let settings = Settings::new("a disk");
    settings.rules(settings.features(), true)
}

/// Bytes of a service's own, which keep what they hold when it is killed.
pub struct Bytes<'a>(pub &'a mut [u8], pub Fuse);

impl Image for Bytes<'_> {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    fn piece(&self, at: u64, most: u64) -> Option<&[u8]> {
        // Pieces end at odd places.
        let end = (at + most).min(self.length()).min((at + 1).next_multiple_of(1000));
        self.0.get(at as usize..end as usize).filter(|piece| !piece.is_empty() && self.1.step())
    }
}

impl Store for Bytes<'_> {
    fn piece_mut(&mut self, at: u64, most: u64) -> Option<&mut [u8]> {
        let end = (at + most).min(self.length()).min((at + 1).next_multiple_of(1000));
        let alive = self.1.step();
        self.0.get_mut(at as usize..end as usize).filter(|piece| !piece.is_empty() && alive)
    }
}

/// What a request must lead to.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// All bytes that the device may write.
    pub bytes: Vec<u8>,
    pub written: u32,
}

/// The device, as one function from bytes to bytes.
pub struct Oracle {
    pub disk: Vec<u8>,
    pub read_only: bool,
}

impl Oracle {
    pub fn answer(&mut self, request: &Request) -> Answer {
        let room: u32 = request.writable.iter().sum();
        let mut bytes = vec![0xee; room as usize];
        let (header, data) = request.readable.split_at(16);
        let kind = u32::from_le_bytes(header[..4].try_into().unwrap());
        let sector = u64::from_le_bytes(header[8..].try_into().unwrap());
        let (body, status) = bytes.split_at_mut(room as usize - 1);
        let (code, written) = match kind {
            0 => match self.bytes(sector, body.len()) {
                Some(source) => {
                    body.copy_from_slice(source);
                    (0, body.len())
                }
                None => (1, 0),
            },
            4 => (0, 0),
            8 => {
                let mut name = [0; 20];
                name[..6].copy_from_slice(b"a disk");
                let length = body.len().min(20);
                body[..length].copy_from_slice(&name[..length]);
                (0, length)
            }
            1 | 11 | 13 if self.read_only => (1, 0),
            1 => match self.bytes(sector, data.len()) {
                Some(target) => {
                    target.copy_from_slice(data);
                    (0, 0)
                }
                None => (1, 0),
            },
            11 | 13 => (self.ranges(data, kind == 13), 0),
            _ => (2, 0),
        };
        status[0] = code;
        let written = written as u32 + u32::from(written + 1 == room as usize);
        Answer { bytes, written }
    }

    fn bytes(&mut self, sector: u64, length: usize) -> Option<&mut [u8]> {
        let begin = usize::try_from(u128::from(sector) * 512).ok()?;
        let end = begin.checked_add(length)?;
        if length.is_multiple_of(512) { self.disk.get_mut(begin..end) } else { None }
    }

    fn ranges(&mut self, data: &[u8], zero: bool) -> u8 {
        if data.is_empty() || !data.len().is_multiple_of(16) || data.len() / 16 > 32 {
            return 1;
        }
        for range in data.chunks(16) {
            let sector = u64::from_le_bytes(range[..8].try_into().unwrap());
            let [count, flags] = [8, 12].map(|at| u32::from_le_bytes(range[at..at + 4].try_into().unwrap()));
            if flags > u32::from(zero) {
                return 2;
            }
            // The tests' disks discard in RAM, which keeps what is there.
            match self.bytes(sector, 512 * count as usize) {
                Some(bytes) if zero => bytes.fill(0),
                Some(_) => {}
                None => return 1,
            }
        }
        0
    }
}

/// Any request, most of which make sense.
pub fn request(random: &mut Random) -> Request {
    let kind = [0, 0, 0, 1, 1, 1, 4, 8, 11, 13, 13, 99][random.below(12) as usize];
    let sector = match random.below(16) {
        0 => u64::MAX - random.below(3),
        1 => 1 << 55,
        _ => random.below(SECTORS + 2),
    };
    let sectors = random.below(12) as u32;
    let odd = if random.below(12) == 0 { 7 } else { 0 };
    let (sent, room) = match kind {
        0 => (0, 512 * sectors + odd),
        1 => (512 * sectors + odd, 0),
        8 => (0, [20, 20, 3, 30][random.below(4) as usize]),
        11 | 13 => (16 * (1 + random.below(3) as u32) + odd, 0),
        _ => (0, odd),
    };
    let mut readable = Vec::new();
    readable.extend(u32::to_le_bytes(kind));
    readable.extend([0; 4]);
    readable.extend(sector.to_le_bytes());
    if matches!(kind, 11 | 13) {
        let mut ranges = Vec::new();
        while ranges.len() < sent as usize {
            ranges.extend((random.below(SECTORS)).to_le_bytes());
            ranges.extend((random.below(20) as u32).to_le_bytes());
            ranges.extend([(random.below(2) + 2 * u64::from(random.below(30) == 0)) as u8, 0, 0, 0]);
        }
        readable.extend(&ranges[..sent as usize]);
    } else {
        readable.extend(random.bytes(sent as usize));
    }
    let mut writable = random.cut(room + 1, 4);
    if random.below(2) == 0 {
        writable = vec![room, 1];
    }
    Request { readable_cuts: random.cut(16 + sent, 4), readable, writable, indirect: random.below(2) == 0 }
}
