// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Checksums and segments for receivers that do not take the offloads: what the sender's network card would do.

use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::device::{Place, Queue, Span};
use turnstile_virtio::memory::Memory;
use turnstile_virtio::rings::Rings;
use turnstile_virtio::violation::Violation;

use crate::checksum::Sum;
use crate::frame::{Frame, Gso};
use crate::packet::Open;
use crate::packet::{FRONT, Packet};
use crate::receive::{Broken, Delivery, Room};
use crate::transfer::Transfer;

/// The flags of TCP that belong to the first packet of a segment: CWR.
const FIRST_ONLY: u8 = 0x80;
/// And to the last: FIN and PSH.
const LAST_ONLY: u8 = 0x09;

/// Delivers a packet whose checksum is open, or that is a segment, as complete packets. If buffers run out within a segment, what was
/// delivered stays, and the rest is lost.
#[inline(never)] // Not on the path of most packets.
pub fn deliver<M: Transfer, R: Rings<M>, const N: usize, const T: usize>(
    room: &mut Room<T>,
    (queue, to): (&mut Queue<R>, &M),
    merge: bool,
    from: &M,
    frame: &mut Frame<N>,
) -> Result<Delivery, Broken> {
    // Who closes the checksum has its field in the head.
    frame.extend(from).map_err(Broken::Sender)?;
    let frame = &*frame;
    let (spans, place) = frame.rest();
    let Some(gso) = frame.gso() else {
        let Some(open) = frame.open() else { return Ok(Delivery::Done) };
        let rest = frame.length() - frame.head().len() as u32;
        let mut front = [0; FRONT];
        let front_length = fill(&mut front, frame.head().iter());
        // The field holds the sum of the pseudo header.
        if !close(behind(&mut front, front_length), open, Sum::default(), from, spans, place, rest)? {
            return Ok(Delivery::TooLong);
        }
        let front = &mut front;
        let packet = Packet { header: NetworkHeader::PLAIN, front, front_length, spans, place, rest };
        return room.deliver_apart((queue, to), merge, from, packet);
    };
    let mut payload = Payload::new(frame, gso);
    let all = frame.length() - gso.payload as u32;
    let mut at = 0;
    loop {
        let length = gso.size.min(all - at);
        // Of the payload, what was read with the headers comes from there.
        let near = payload.near.get(..(length as usize).min(payload.near.len())).unwrap_or_default();
        let headers = frame.head().get(..gso.payload).unwrap_or_default();
        let mut front = [0; FRONT];
        let front_length = fill(&mut front, headers.iter().chain(near));
        let bytes = behind(&mut front, front_length);
        let rest = length - near.len() as u32;
        number(bytes, &gso, at, length, at + length == all);
        let open = Open { start: gso.tcp, offset: 16 };
        let pseudo = pseudo_header(bytes, &gso, length);
        let place = payload.place;
        if !close(bytes, open, pseudo, from, spans, place, rest)? {
            return Ok(Delivery::TooLong);
        }
        let front = &mut front;
        let packet = Packet { header: NetworkHeader::PLAIN, front, front_length, spans, place, rest };
        let delivery = room.deliver_apart((queue, to), merge, from, packet)?;
        if delivery != Delivery::Done {
            // The sender keeps the segment only if nothing of it has gone.
            return Ok(if at == 0 { delivery } else { Delivery::Done });
        }
        payload.behind(spans, near.len(), rest);
        at += length;
        if at >= all {
            return Ok(Delivery::Done);
        }
    }
}

/// Puts first bytes behind the room for a header. Returns the length of both.
fn fill<'a>(front: &mut [u8; FRONT], bytes: impl Iterator<Item = &'a u8>) -> usize {
    let mut end = NetworkHeader::LENGTH;
    for (to, from) in front.iter_mut().skip(NetworkHeader::LENGTH).zip(bytes) {
        *to = *from;
        end += 1;
    }
    end
}

/// The bytes behind the room for a header.
fn behind(front: &mut [u8; FRONT], length: usize) -> &mut [u8] {
    front.get_mut(NetworkHeader::LENGTH..length).unwrap_or_default()
}

/// Where the payload of a segment goes on.
struct Payload<'a> {
    /// What of it is in the head.
    near: &'a [u8],
    /// The rest.
    place: Place,
}

impl<'a> Payload<'a> {
    fn new<const N: usize>(frame: &'a Frame<N>, gso: Gso) -> Self {
        Self { near: frame.head().get(gso.payload..).unwrap_or_default(), place: frame.rest().1 }
    }

    fn behind(&mut self, spans: &[Span], near: usize, rest: u32) {
        self.near = self.near.get(near..).unwrap_or_default();
        self.place.skip(spans, rest.into());
    }
}

/// Closes a checksum: that of the head from `start`, and of `rest` bytes. False if the field is not within the head.
fn close<M: Memory>(
    head: &mut [u8],
    open: Open,
    mut sum: Sum,
    from: &M,
    spans: &[Span],
    mut place: Place,
    rest: u32,
) -> Result<bool, Broken> {
    sum.add(head.get(open.start..).unwrap_or_default());
    // Headers that are longer than the head lie partly in the rest.
    place.skip(spans, open.start.saturating_sub(head.len()) as u64);
    let mut left = rest.saturating_sub(open.start.saturating_sub(head.len()) as u32);
    let mut buffer = [0; 256];
    while left != 0 {
        let bytes = buffer.get_mut(..left.min(256) as usize).unwrap_or_default();
        let done = place.read(from, spans, bytes).map_err(Broken::Sender)?;
        sum.add(bytes);
        if done == 0 {
            return Err(Broken::Sender(Violation::Bytes));
        }
        left -= done as u32;
    }
    let at = open.start + open.offset;
    let Some(field) = head.get_mut(at..at + 2) else { return Ok(false) };
    // Zero would mean that UDP has no checksum.
    let sum = match sum.finish() {
        0 => 0xffff,
        sum => sum,
    };
    field.copy_from_slice(&sum.to_be_bytes());
    Ok(true)
}

/// Writes what differs from packet to packet of a segment: lengths, the identification of IPv4, the sequence number and the flags of TCP.
fn number(head: &mut [u8], gso: &Gso, at: u32, length: u32, is_last: bool) {
    let whole = (gso.payload as u32 + length) as u16;
    let ip = gso.ip as u16;
    if gso.is_v6 {
        put(head, gso.ip + 4, whole.wrapping_sub(ip + 40).to_be_bytes());
    } else {
        put(head, gso.ip + 2, whole.wrapping_sub(ip).to_be_bytes());
        let id = u16::from_be_bytes(get(head, gso.ip + 4));
        put(head, gso.ip + 4, id.wrapping_add((at / gso.size) as u16).to_be_bytes());
        put(head, gso.ip + 10, [0; 2]);
        let mut sum = Sum::default();
        sum.add(head.get(gso.ip..gso.tcp).unwrap_or_default());
        put(head, gso.ip + 10, sum.finish().to_be_bytes());
    }
    let sequence = u32::from_be_bytes(get(head, gso.tcp + 4));
    put(head, gso.tcp + 4, sequence.wrapping_add(at).to_be_bytes());
    let [mut flags] = get(head, gso.tcp + 13);
    flags &= if at == 0 { !0 } else { !FIRST_ONLY };
    flags &= if is_last { !0 } else { !LAST_ONLY };
    put(head, gso.tcp + 13, [flags]);
    put(head, gso.tcp + 16, [0; 2]);
}

/// The sum of the pseudo header (RFC 9293, section 3.1; RFC 8200, section 8.1).
fn pseudo_header(head: &[u8], gso: &Gso, length: u32) -> Sum {
    let (addresses, size) = if gso.is_v6 { (gso.ip + 8, 32) } else { (gso.ip + 12, 8) };
    let mut sum = Sum::default();
    sum.add(head.get(addresses..addresses + size).unwrap_or_default());
    sum.add_word(6);
    sum.add_word((gso.payload - gso.tcp) as u16 + length as u16);
    sum
}

fn get<const L: usize>(bytes: &[u8], at: usize) -> [u8; L] {
    bytes.get(at..).and_then(|rest| rest.first_chunk()).copied().unwrap_or([0; L])
}

fn put<const L: usize>(bytes: &mut [u8], at: usize, value: [u8; L]) {
    if let Some(field) = bytes.get_mut(at..at + L) {
        field.copy_from_slice(&value);
    }
}
