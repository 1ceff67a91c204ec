// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A large segment of TCP over IPv4, as Linux's TCP sends it by a device that cuts segments (virtio 1.2, section 5.1.6.2): one packet with the
//! payload of 45, whose checksum nobody computes. Its sequence number is its number among the segments. The payload says where each
//! of its words belongs, and some words say to which segment.

use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::Buffer;

use crate::virtio::ring::{Ram, Wrong};

/// IPv4 (EtherType).
pub const IPV4: u16 = 0x0800;
/// Bytes of the payload: as many of a packet each as fit into a segment.
pub const PAYLOAD: u64 = 45 * SIZE;
/// Bytes of the device's header and of those of Ethernet, IPv4, and TCP with its time stamps.
pub const HEADERS: usize = TCP + 32;
/// Bytes of the buffers of a receiver: pages, as Linux has them while large packets come.
pub const ROOM: u64 = 4096;
/// The most buffers that a segment takes.
pub const MOST: usize = (HEADERS as u64 + PAYLOAD).div_ceil(ROOM) as usize;

/// Payload of a packet on a wire, with time stamps.
const SIZE: u64 = 1448;
/// Where headers begin: Ethernet, IPv4, TCP.
const ETHERNET: usize = NetworkHeader::LENGTH;
const IP: usize = ETHERNET + 14;
const TCP: usize = IP + 20;
/// Where the checksum of TCP is in its header.
const CHECKSUM: usize = 16;
/// Where the sequence number is in the packet.
pub const SEQUENCE: u64 = (TCP + 4) as u64;
/// Bytes of a word of the payload.
const WORD: u64 = 8;
/// The payload is sent in pieces of so many bytes.
const PIECE: u64 = 0x8000;
/// Each of so many words says to which segment it belongs.
const STAMPED: u64 = 128;
/// Each of so many segments is read as a whole, and wiped.
const WHOLE: u64 = 256;

const _: () = assert!(PAYLOAD.is_multiple_of(WORD) && PAYLOAD <= 2 * PIECE);

/// Returns the headers, and something more to have whole words.
fn headers(to: u64, from: u64, number: u64, buffers: u16) -> [u8; HEADERS.next_multiple_of(8)] {
    let device = NetworkHeader {
        // Its checksum is not complete; TCP over IPv4.
        flags: 1,
        gso_type: 1,
        header_length: (HEADERS - ETHERNET) as u16,
        gso_size: SIZE as u16,
        checksum_start: (TCP - ETHERNET) as u16,
        checksum_offset: CHECKSUM as u16,
        buffers,
    };
    let length = (HEADERS - IP) as u16 + PAYLOAD as u16;
    let mut all = [0; HEADERS.next_multiple_of(8)];
    let mut put = |at: usize, bytes: &[u8]| {
        all.iter_mut().skip(at).zip(bytes).for_each(|(to, byte)| *to = *byte);
    };
    put(0, &device.to_bytes());
    put(ETHERNET, &to.to_le_bytes());
    put(ETHERNET + 6, &from.to_le_bytes());
    put(ETHERNET + 12, &IPV4.to_be_bytes());
    // Version and length, not to be cut, 64 hops, TCP, 10.0.0.1 to 10.0.0.2, with its checksum.
    let words = [0x4500, length, 0, 0x4000, 0x4006, 0, 0x0a00, 1, 0x0a00, 2];
    for (at, word) in (IP..).step_by(2).zip(words) {
        put(at, &word.to_be_bytes());
    }
    put(IP + 10, &(!sum(&words)).to_be_bytes());
    // Ports, sequence number, that of what is acknowledged, length and ACK, window.
    put(TCP, &[0x9c, 0x40, 0x14, 0x51]);
    put(TCP + 4, &(number as u32).to_be_bytes());
    put(TCP + 12, &[0x80, 0x10, 0x01, 0xf6]);
    // What the checksum begins with: addresses, protocol, length.
    put(TCP + CHECKSUM, &sum(&[0x0a00, 1, 0x0a00, 2, 6, length - 20]).to_be_bytes());
    // Two bytes of nothing, and time stamps.
    put(TCP + 20, &[1, 1, 8, 10]);
    all
}

/// The sum in ones' complement.
fn sum(words: &[u16]) -> u16 {
    words.iter().fold(0, |sum, word| {
        let (sum, carry) = sum.overflowing_add(*word);
        sum + u16::from(carry)
    })
}

/// A word of the payload.
fn word(index: u64, number: u64) -> u64 {
    let place = (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    if index.is_multiple_of(STAMPED) { place ^ number } else { place }
}

/// Writes a segment: headers, and a payload of [`PAYLOAD`] bytes that a segment was written to before, unless it is the first one. Returns its
/// buffers.
pub fn write(ram: &Ram<'_>, at: [u64; 2], [to, from, number]: [u64; 3]) -> Result<[Buffer; 3], Wrong> {
    let [head, payload] = at;
    ram.write(head, &headers(to, from, number, 0)).map_err(|_| "memory")?;
    let step = if number == 0 { 1 } else { STAMPED };
    for index in (0..PAYLOAD / WORD).step_by(step as usize) {
        (ram.0.write)(payload + WORD * index, WORD as u8, word(index, number));
    }
    let buffer = |address, length| Buffer { address, length: length as u32, writable: false };
    Ok([buffer(head, HEADERS as u64), buffer(payload, PIECE), buffer(payload + PIECE, PAYLOAD - PIECE)])
}

/// A segment as it has come: its buffers, and how much is in them.
#[derive(Default)]
pub struct Came {
    /// Where each of them is.
    pub buffers: [u64; MOST],
    /// How many there are.
    pub count: usize,
    /// The bytes in all of them.
    pub bytes: u64,
}

impl Came {
    /// Takes note of a buffer and the bytes in it. All but the last are full.
    pub fn add(&mut self, buffer: u64, bytes: u64) -> Result<(), Wrong> {
        let place = self.buffers.get_mut(self.count).ok_or("a segment has too many buffers")?;
        if self.bytes != self.count as u64 * ROOM {
            return Err("a buffer in a segment is not full");
        }
        *place = buffer;
        self.count += 1;
        self.bytes += bytes;
        Ok(())
    }

    /// Checks that it is whole, and right.
    pub fn check(&self, ram: &Ram<'_>, [to, from, number]: [u64; 3]) -> Result<(), Wrong> {
        if self.bytes != HEADERS as u64 + PAYLOAD {
            return Err("a segment has another length");
        }
        let [first, ..] = self.buffers;
        let mut found = [0; HEADERS.next_multiple_of(8)];
        ram.read(first, &mut found).map_err(|_| "memory")?;
        let expected = headers(to, from, number, self.count as u16);
        if found.iter().zip(&expected).take(HEADERS).any(|(found, expected)| found != expected) {
            return Err("the headers of a segment are others");
        }
        let is_whole = number.is_multiple_of(WHOLE);
        let step = if is_whole { 1 } else { STAMPED };
        for index in (0..PAYLOAD / WORD).step_by(step as usize) {
            if self.word(ram, index) != word(index, number) {
                return Err("the payload of a segment is another");
            }
        }
        if is_whole {
            let words = self
                .buffers
                .iter()
                .take(self.count)
                .flat_map(|buffer| (*buffer..buffer + ROOM).step_by(WORD as usize));
            words.for_each(|at| (ram.0.write)(at, WORD as u8, 0));
        }
        Ok(())
    }

    /// Reads a word of the payload, which may lie in two buffers.
    fn word(&self, ram: &Ram<'_>, index: u64) -> u64 {
        let at = HEADERS as u64 + WORD * index;
        let place = |at: u64| self.buffers.get((at / ROOM) as usize).map_or(0, |buffer| buffer + at % ROOM);
        if at % ROOM <= ROOM - WORD {
            return (ram.0.read)(place(at), WORD as u8);
        }
        (at..at + WORD).rev().fold(0, |word, at| word << 8 | (ram.0.read)(place(at), 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_those_of_a_segment() {
        let all = headers(0x0605_0403_0201, 0x0c0b_0a09_0807, 0x1234, 17);
        let device = NetworkHeader::from_bytes(all.first_chunk().unwrap());
        assert_eq!(
            (device.gso_type, device.gso_size, device.header_length, device.buffers),
            (1, 1448, 66, 17)
        );
        assert_eq!((device.flags, device.checksum_start, device.checksum_offset), (1, 34, 16));
        assert_eq!(all[ETHERNET..IP], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 8, 0]);
        let words: [u16; 10] =
            core::array::from_fn(|at| u16::from_be_bytes([all[IP + 2 * at], all[IP + 2 * at + 1]]));
        assert_eq!((words[1], sum(&words)), (20 + 32 + 45 * 1448, 0xffff));
        assert_eq!(all[SEQUENCE as usize..SEQUENCE as usize + 4], [0, 0, 0x12, 0x34]);
        assert_eq!(all[TCP + 12] >> 4, 8);
    }
}
