// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Packets between two virtual machines, in each of which this program runs: `10.0.0.1` begins, and `10.0.0.2` answers. They connect by
//! TCP first, so both are there.

use crate::sys::{self, Address, Error, File, Kind};

/// The port of both.
const PORT: u16 = 7;
const FIRST: Address = Address::new([10, 0, 0, 1], PORT);
const SECOND: Address = Address::new([10, 0, 0, 2], PORT);

/// How often the first one looks for the second one, and how long it waits each time, in nanoseconds.
const TRIES: u64 = 1000;
const PAUSE: u64 = 20_000_000;
/// How long nobody sends before a packet that is to find the other one asleep, in nanoseconds.
const SILENCE: u64 = 3_000_000;
/// The headers of Ethernet, IPv4 and UDP in front of a packet's bytes.
const HEADERS: usize = 14 + 20 + 8;
/// The most bytes of a frame, without a checksum.
const LONGEST: usize = 1514;
/// Bytes of a segment: what 45 packets carry.
const SEGMENT: usize = 45 * 1448;

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It begins.
    First,
    /// It answers.
    Second,
}

/// What both have.
struct Link {
    packets: File,
    stream: File,
}

/// Sends frames of so many bytes to the other one, `window` of them at once, and then takes as many from it. An operation is a window, so
/// both sides do half of them.
pub fn exchange(side: Side, bytes: usize, window: usize, times: u64) -> Result<(), Error> {
    let link = Link::new(side)?;
    let mut memory = [0; LONGEST - HEADERS];
    let frame = memory.get_mut(..bytes.saturating_sub(HEADERS)).ok_or(Error)?;
    (0..times.div_ceil(2)).try_for_each(|_| {
        if side == Side::First {
            (0..window).try_for_each(|_| send(link.packets, frame))?;
        }
        (0..window).try_for_each(|_| take(link.packets, frame))?;
        if side == Side::Second {
            (0..window).try_for_each(|_| send(link.packets, frame))?;
        }
        Ok(())
    })
}

/// The first one sleeps, and then sends a frame, unless it is to be silent. The other one sleeps until one comes, and does not answer.
pub fn rarely(side: Side, bytes: usize, silent: bool, times: u64) -> Result<(), Error> {
    let link = Link::new(side)?;
    let mut memory = [0; LONGEST - HEADERS];
    let frame = memory.get_mut(..bytes.saturating_sub(HEADERS)).ok_or(Error)?;
    for _ in 0..times {
        match side {
            Side::First => {
                sys::sleep(SILENCE)?;
                if !silent {
                    send(link.packets, frame)?;
                }
            }
            Side::Second if !silent => take(link.packets, frame)?,
            Side::Second => {}
        }
    }
    // Both end together.
    match side {
        Side::First => take_all(link.stream, frame.get_mut(..1).ok_or(Error)?),
        Side::Second if silent => sys::sleep(SILENCE).and_then(|()| send(link.stream, &[0])),
        Side::Second => send(link.stream, &[0]),
    }
}

/// Sends segments of TCP, and takes one from the other for each. An operation is a segment.
pub fn segments(side: Side, times: u64) -> Result<(), Error> {
    let link = Link::new(side)?;
    let mut segment = [0; SEGMENT];
    (0..times.div_ceil(2)).try_for_each(|_| {
        if side == Side::First {
            send(link.stream, &segment)?;
        }
        take_all(link.stream, &mut segment)?;
        if side == Side::Second {
            send(link.stream, &segment)?;
        }
        Ok(())
    })
}

impl Link {
    /// Waits until both are there.
    fn new(side: Side) -> Result<Self, Error> {
        sys::pin(0)?;
        let (own, other) = match side {
            Side::First => (FIRST, SECOND),
            Side::Second => (SECOND, FIRST),
        };
        let packets = sys::socket(Kind::Datagram)?;
        sys::bind(packets, &own)?;
        sys::connect(packets, &other)?;
        let stream = match side {
            Side::First => find(&other)?,
            Side::Second => {
                let door = sys::socket(Kind::Stream)?;
                sys::bind(door, &own)?;
                sys::listen(door)?;
                sys::accept(door)?
            }
        };
        Ok(Link { packets, stream })
    }
}

/// Connects with the other one, which may not be there yet.
fn find(other: &Address) -> Result<File, Error> {
    for _ in 0..TRIES {
        let stream = sys::socket(Kind::Stream)?;
        if sys::connect(stream, other).is_ok() {
            return Ok(stream);
        }
        sys::close(stream)?;
        sys::sleep(PAUSE)?;
    }
    Err(Error)
}

fn send(to: File, bytes: &[u8]) -> Result<(), Error> {
    if sys::write(to, bytes)? == bytes.len() { Ok(()) } else { Err(Error) }
}

/// Takes a packet.
fn take(from: File, frame: &mut [u8]) -> Result<(), Error> {
    if sys::read(from, frame)? == frame.len() { Ok(()) } else { Err(Error) }
}

/// Takes bytes of a stream until there are so many.
fn take_all(from: File, mut bytes: &mut [u8]) -> Result<(), Error> {
    while !bytes.is_empty() {
        match sys::read(from, bytes)? {
            0 => return Err(Error),
            count => bytes = bytes.get_mut(count..).ok_or(Error)?,
        }
    }
    Ok(())
}
