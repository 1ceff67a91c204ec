// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver of a virtio network device (virtio 1.2, section 5.1), with the features and the settings of Linux: offloads, buffers
//! that can be merged, EVENT_IDX, a vector for what is received. It asks for no interrupt of what it has sent.

use turnstile_virtio::config::{Network, NetworkHeader};
use turnstile_virtio::driver::Used;
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::{Buffer, Options};

use crate::clock;
use crate::virtio::ring::{self, Wrong};
use crate::virtio::{Function, NO_VECTOR, PATIENCE};

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
/// Descriptors of each queue.
pub const SIZE: u16 = 128;
/// The queues.
const RECEIVE: u16 = 0;
const SEND: u16 = 1;
/// Where the buffers of a queue are in [`Machine::memory`](crate::virtio::Machine::memory): a descriptor has one.
const BUFFERS: u64 = 0x1_0000;
const ROOM: u64 = 0x3_8000;
/// Bytes of a buffer: Linux takes those of 1536 bytes for packets of the usual size.
const BUFFER: u64 = 1536;
/// Bytes of a header.
const HEADER: u64 = NetworkHeader::LENGTH as u64;
/// The bits of an address.
pub const ADDRESS: u64 = (1 << 48) - 1;
/// Bytes of the shortest packet.
pub const SHORTEST: u64 = 64;
/// A type of packets that everybody may use: the first for local experiments.
const TYPE: u16 = 0x88b5;
/// How long nothing may come, in microseconds.
pub const SILENCE: u64 = 10 * PATIENCE;

const _: () =
    assert!(BUFFER * SIZE as u64 <= ROOM && BUFFERS + 2 * ROOM <= 0x8_0000, "buffers are in memory");

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

/// Where a buffer of a queue is.
fn buffer(ring: &Ring<'_>, index: u16) -> u64 {
    ring.ram.0.memory + BUFFERS + ROOM * u64::from(ring.number) + BUFFER * u64::from(index)
}

/// Offers so many bytes of a buffer. Returns its descriptor.
fn offer(ring: &mut Ring<'_>, index: u16, length: u64) -> Result<u16, Wrong> {
    let (address, writable) = (buffer(ring, index), ring.number == RECEIVE);
    let buffer = Buffer { address, length: length as u32, writable };
    ring.queue.add(&ring.ram, &[buffer]).map_err(|_| "no descriptor is free")
}

type Ring<'a> = ring::Ring<'a, { SIZE as usize }>;

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
        let options = Options::from(Features::from_bits_retain(function.agree(FEATURES.bits())?));
        let mac = function.config(0, 4) | function.config(4, 2) << 32;
        let mut receive = Ring::new(function, RECEIVE, 0, options)?;
        let send = Ring::new(function, SEND, NO_VECTOR, options)?;
        (0..SIZE).try_for_each(|index| offer(&mut receive, index, BUFFER).map(drop)).ok()?;
        let interrupts = (function.machine.interrupts)();
        let mut device = Self { mac, receive, send, next: 0, interrupts };
        let ready = function.ready() && device.receive.show().is_ok();
        ready.then_some(device)
    }

    /// Puts a packet into the ring; waits for room if it is full.
    pub fn put(&mut self, packet: Packet) -> Result<(), Wrong> {
        while self.send.take()?.is_some() {}
        if self.send.queue.free() == 0 {
            self.send.show()?;
            let queue = &mut self.send;
            if !clock::wait(SILENCE, || !matches!(queue.take(), Ok(None))) {
                return Err("what was sent is not taken");
            }
        }
        let Packet { to, from, kind, number, bytes } = packet;
        let (at, write) = (buffer(&self.send, self.next) + HEADER, self.send.ram.0.write);
        write(at, 8, to | from << 48);
        write(at + 8, 4, from >> 16);
        write(at + 12, 2, TYPE.to_be().into());
        write(at + 14, 2, kind.into());
        write(at + 16, 8, number);
        offer(&mut self.send, self.next, HEADER + bytes)?;
        self.next = (self.next + 1) % SIZE;
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
            if self.receive.arm()? {
                continue;
            }
            let count = self.receive.ram.0.interrupts;
            if !clock::wait(microseconds, || count() != self.interrupts) {
                return Ok(None);
            }
            self.interrupts = count();
        }
    }

    fn take(&mut self) -> Result<Option<Packet>, Wrong> {
        let Some(Used { id: index, written }) = self.receive.take()? else { return Ok(None) };
        let (at, read) = (buffer(&self.receive, index) + HEADER, self.receive.ram.0.read);
        let first = read(at, 8);
        let packet = Packet {
            to: first & ADDRESS,
            from: first >> 48 | read(at + 8, 4) << 16,
            kind: read(at + 14, 2) as u16,
            number: read(at + 16, 8),
            bytes: u64::from(written).saturating_sub(HEADER),
        };
        // What was taken last is free first.
        if offer(&mut self.receive, index, BUFFER)? != index {
            return Err("another descriptor was free");
        }
        self.receive.show()?;
        Ok(Some(packet))
    }
}
