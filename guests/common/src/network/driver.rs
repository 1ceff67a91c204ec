// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of a virtio network device (virtio 1.2, section 5.1), with the features and the settings of Linux: offloads, buffers
//! that can be merged, EVENT_IDX, a vector for what is received. It asks for no interrupt of what it has sent.

use turnstile_virtio::config::{Network, NetworkHeader};
use turnstile_virtio::driver::Used;
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::Options;

use super::buffers::{BUFFER, END as MEMORY_END, PAYLOAD, RECEIVE, ROOM, Ring, SEND, SIZE, buffer, offer};
use super::pairs;
use super::segment::{self, Came, IPV4};
use crate::virtio::ring::{Ram, Wrong};
use crate::virtio::{Function, NO_VECTOR, PATIENCE};
use crate::{clock, options};

/// A network device.
pub const DEVICE: u16 = 0x1041;
/// What packets are: somebody is here; one of those that are counted; the end of them; something to keep in mind; the answer to both: how
/// many have come, and what was kept in mind before.
pub const HELLO: u16 = 1;
pub const DATA: u16 = 2;
pub const END: u16 = 3;
pub const MARK: u16 = 4;
pub const COUNT: u16 = 5;
/// The number of the last end of all.
pub const LAST: u64 = 1;
/// Bytes of a header.
const HEADER: u64 = NetworkHeader::LENGTH as u64;
/// Where it says how many buffers a packet takes.
const COUNT_AT: u64 = 10;
/// The bits of an address.
pub const ADDRESS: u64 = (1 << 48) - 1;
/// Bytes of the shortest packet.
pub const SHORTEST: u64 = 64;
/// A type of packets that everybody may use: the first for local experiments.
const TYPE: u16 = 0x88b5;
/// Where in a packet it is said what it is.
const SAID: u64 = 14;
/// How long nothing may come, in microseconds.
pub const SILENCE: u64 = 10 * PATIENCE;

const _: () = assert!(PAYLOAD + segment::PAYLOAD <= MEMORY_END, "a segment is in memory");

/// What Linux accepts.
pub const FEATURES: Features = Features::VERSION_1
    .union(Features::INDIRECT_DESC)
    .union(Features::EVENT_IDX)
    .union(Network::CSUM)
    .union(Network::GUEST_CSUM)
    .union(Network::MAC)
    .union(Network::GUEST_TSO4)
    .union(Network::GUEST_TSO6)
    .union(Network::GUEST_ECN)
    .union(Network::HOST_TSO4)
    .union(Network::HOST_TSO6)
    .union(Network::HOST_ECN)
    .union(Network::MRG_RXBUF)
    .union(Network::STATUS)
    .union(Network::CTRL_VQ)
    .union(Network::CTRL_RX)
    .union(Network::CTRL_VLAN)
    .union(Network::GUEST_ANNOUNCE);

/// A packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// To whom it goes, the first byte in the lowest bits, as in all addresses here.
    pub to: u64,
    /// From whom it comes.
    pub from: u64,
    /// What it is.
    pub kind: u16,
    /// What it says.
    pub number: u64,
    /// Its bytes: of one that is sent at least [`SHORTEST`].
    pub bytes: u64,
}

/// A network device.
pub struct Device<'a> {
    /// Its address.
    pub mac: u64,
    receive: Ring<'a>,
    send: Ring<'a>,
    /// The second queue that receives, if there are two pairs. All is sent by the first pair.
    also: Option<Ring<'a>>,
    /// Bytes of the buffers for what is received.
    room: u64,
    /// Whether the CPU sleeps until something comes, however long that takes.
    pub sleeps: bool,
    /// The next buffer to send. The device returns them in their order.
    next: u16,
    /// The interrupts that were seen.
    interrupts: u32,
}

impl<'a> Device<'a> {
    /// Begins to use the function. `None` if it does not agree.
    pub fn start(function: &Function<'a>) -> Option<Self> {
        if !function.reset() {
            return None;
        }
        let has_pairs = options::get("pairs").is_some();
        let features = if has_pairs { FEATURES | Network::MQ } else { FEATURES };
        let agreed = Features::from_bits_retain(function.agree(features.bits())?);
        if has_pairs && !agreed.contains(Network::MQ) {
            return None;
        }
        let options = Options::from(agreed);
        let mac = function.config(0, 4) | function.config(4, 2) << 32;
        let mut receive = Ring::new(function, RECEIVE, 0, options)?;
        let send = Ring::new(function, SEND, NO_VECTOR, options)?;
        let room = if options::get("segments").is_some() { segment::ROOM } else { BUFFER };
        for index in 0..SIZE.min((ROOM / room) as u16) {
            let address = buffer(&receive, index, room);
            offer(&mut receive, address, room).ok()?;
        }
        let pairs = if has_pairs { Some(pairs::enable(function, options)?) } else { None };
        let (sleeps, interrupts) = (options::get("sleep").is_some(), (function.machine.interrupts)());
        let ready = function.ready() && receive.show().is_ok();
        let also = match pairs {
            Some((mut also, commands)) if ready => {
                pairs::use_both(commands)?;
                also.show().ok()?;
                Some(also)
            }
            _ => None,
        };
        ready.then_some(Self { mac, receive, send, also, room, sleeps, next: 0, interrupts })
    }

    /// Whether it has two pairs of queues.
    pub const fn has_pairs(&self) -> bool {
        self.also.is_some()
    }

    /// Puts a packet into the ring; waits for room if it is full.
    pub fn put(&mut self, packet: Packet) -> Result<(), Wrong> {
        self.make_room(1)?;
        let Packet { to, from, kind, number, bytes } = packet;
        let address = buffer(&self.send, self.next, BUFFER);
        let (at, write) = (address + HEADER, self.send.ram.0.write);
        write(at, 8, to | from << 48);
        write(at + 8, 4, from >> 16);
        let said = at
            + match &self.also {
                Some(_) => pairs::begin(&self.send.ram, address),
                None => {
                    write(at + 12, 2, TYPE.to_be().into());
                    SAID
                }
            };
        write(said, 2, kind.into());
        write(said + 2, 8, number);
        offer(&mut self.send, address, HEADER + bytes)?;
        self.next = (self.next + 1) % SIZE;
        Ok(())
    }

    /// Puts a [segment](segment) into the ring, whose address and number are those of the packet; waits for the one before.
    pub fn put_segment(&mut self, packet: Packet) -> Result<(), Wrong> {
        self.make_room(SIZE)?;
        let Packet { to, from, number, .. } = packet;
        let ram = self.send.ram;
        // No other packet's.
        let head = buffer(&self.send, SIZE - 1, BUFFER);
        let buffers = segment::write(&ram, [head, ram.0.memory + PAYLOAD], [to, from, number])?;
        let table = head + BUFFER / 2;
        self.send.queue.add_indirect(&ram, table, &buffers).map_err(|_| "no descriptor is free")?;
        Ok(())
    }

    /// Waits until so many descriptors for packets to send are free.
    fn make_room(&mut self, descriptors: u16) -> Result<(), Wrong> {
        while self.send.take()?.is_some() {}
        while self.send.queue.free() < descriptors {
            self.send.show()?;
            let (queue, mut taken) = (&mut self.send, Ok(None));
            clock::wait(SILENCE, || {
                taken = queue.take();
                taken != Ok(None)
            });
            taken?.ok_or("what was sent is not taken")?;
        }
        Ok(())
    }

    /// Sends what was put.
    pub fn send(&mut self) -> Result<(), Wrong> {
        self.send.show()
    }

    /// Waits for a packet for so many microseconds. Its buffer is offered again.
    pub fn wait(&mut self, microseconds: u64) -> Result<Option<Packet>, Wrong> {
        loop {
            if let Some(packet) = self.take()? {
                return Ok(Some(packet));
            }
            let has_come = self.receive.arm()?;
            if self.also.as_mut().map_or(Ok(false), |also| also.arm())? || has_come {
                continue;
            }
            let (count, sleep) = (self.receive.ram.0.interrupts, self.receive.ram.0.sleep);
            while self.sleeps && count() == self.interrupts {
                sleep(self.interrupts);
            }
            if !clock::wait(microseconds, || count() != self.interrupts) {
                return Ok(None);
            }
            self.interrupts = count();
        }
    }

    fn take(&mut self) -> Result<Option<Packet>, Wrong> {
        let Some(Used { id: index, written }) = self.receive.take()? else { return self.take_also() };
        let address = buffer(&self.receive, index, self.room);
        let (at, read) = (address + HEADER, self.receive.ram.0.read);
        let is_ip = read(at + 12, 2) as u16 == IPV4.to_be();
        if is_ip && self.also.is_none() {
            return self.take_segment(index, written.into()).map(Some);
        }
        let said = if is_ip { pairs::SAID } else { SAID };
        let packet = packet(&self.receive.ram, (address, said), written);
        offer_again(&mut self.receive, index, self.room)?;
        self.receive.show()?;
        Ok(Some(packet))
    }

    /// Takes what has come by the second pair, if there is one.
    fn take_also(&mut self) -> Result<Option<Packet>, Wrong> {
        let Some(also) = &mut self.also else { return Ok(None) };
        let Some(Used { id: index, written }) = also.take()? else { return Ok(None) };
        let packet = packet(&also.ram, (buffer(also, index, BUFFER), pairs::SAID), written);
        offer_again(also, index, BUFFER)?;
        also.show()?;
        Ok(Some(packet))
    }

    /// Takes the other buffers of a segment, and checks it.
    fn take_segment(&mut self, index: u16, written: u64) -> Result<Packet, Wrong> {
        let ram = self.receive.ram;
        let first = buffer(&self.receive, index, self.room);
        let (at, read) = (first + HEADER, ram.0.read);
        let mut came = Came::default();
        came.add(first, written)?;
        // None of them is shown before all are read.
        offer_again(&mut self.receive, index, self.room)?;
        for _ in 1..read(first + COUNT_AT, 2) {
            let Used { id: index, written } = self.receive.take()?.ok_or("a segment is not whole")?;
            came.add(buffer(&self.receive, index, self.room), written.into())?;
            offer_again(&mut self.receive, index, self.room)?;
        }
        let number = u32::from_be(read(first + segment::SEQUENCE, 4) as u32).into();
        let (to, from) = (read(at, 8) & ADDRESS, read(at + 6, 8) & ADDRESS);
        came.check(&ram, [to, from, number])?;
        self.receive.show()?;
        Ok(Packet { to, from, kind: DATA, number, bytes: came.bytes - HEADER })
    }
}

/// Reads a packet that has come, says so many bytes behind its beginning what it is, and took so many bytes of its buffer.
fn packet(ram: &Ram<'_>, (address, said): (u64, u64), written: u32) -> Packet {
    let (at, read) = (address + HEADER, ram.0.read);
    let first = read(at, 8);
    Packet {
        to: first & ADDRESS,
        from: first >> 48 | read(at + 8, 4) << 16,
        kind: read(at + said, 2) as u16,
        number: read(at + said + 2, 8),
        bytes: u64::from(written).saturating_sub(HEADER),
    }
}

/// Offers a buffer for what is received again, by the descriptor that it had.
fn offer_again(ring: &mut Ring<'_>, index: u16, room: u64) -> Result<(), Wrong> {
    let address = buffer(ring, index, room);
    // What was taken last is free first.
    match offer(ring, address, room)? {
        same if same == index => Ok(()),
        _ => Err("another descriptor was free"),
    }
}
