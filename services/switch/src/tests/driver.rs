// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's system: enables the function where firmware has placed it, and drives the device, as the specifications say.

use turnstile_rig::{Guest, Ram, Reply, Request};
use turnstile_virtio::config::{Network, NetworkHeader};
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::Options;

use super::host::{DOORBELL, ECAM, FIRMWARE, Host, MEMORY, VMS, mac};

/// What Linux accepts of such a device.
pub const ACCEPTED: Features = Features::VERSION_1
    .union(Features::INDIRECT_DESC)
    .union(Features::EVENT_IDX)
    .union(Features::RING_RESET)
    .union(Network::MAC)
    .union(Network::STATUS)
    .union(Network::MRG_RXBUF)
    .union(Network::CTRL_VQ)
    .union(Network::CTRL_RX)
    .union(Network::CTRL_VLAN)
    .union(Network::CSUM)
    .union(Network::GUEST_CSUM)
    .union(Network::HOST_TSO4)
    .union(Network::GUEST_TSO4);
const OPTIONS: Options = Options { indirect: true, event_idx: true };
/// Descriptors of a queue.
const SIZE: u16 = 16;
/// Bytes of the buffers of a packet that is received, of one that is sent, or of a command.
const SLOTS: [u64; 3] = [0x1000, 0x2000, 0x1000];
/// Bytes of a receive buffer.
pub const BUFFER: u32 = 1536;

/// Where structures are: in the BARs in the order of their sizes.
pub const COMMON: u64 = FIRMWARE;
pub const CONFIG: u64 = FIRMWARE + 0x2000;
const NOTIFY: u64 = FIRMWARE + 0x3000;
const TABLE: u64 = FIRMWARE + 0x4000;
/// Registers of the common structure.
pub const STATUS: u64 = COMMON + 0x14;

pub struct Driver {
    pub member: usize,
    pub queues: Vec<Guest>,
    /// Packets that have come.
    pub got: Vec<Vec<u8>>,
    /// Packets that were sent and are done.
    pub sent: usize,
    /// Whether commands were done.
    pub done: Vec<bool>,
    /// A packet on its way, and how many buffers of it are to come.
    partial: (Vec<u8>, u16),
    slots: [u64; 3],
    size: u16,
    /// Pairs of queues that it sets up.
    pub pairs: usize,
    /// Of each queue, how many packets have come by it.
    pub came: Vec<usize>,
}

impl Driver {
    /// Enables the function.
    pub fn new(host: &mut Host, member: usize) -> Self {
        assert_eq!(host.read(member, ECAM, 4), 0x1041_1af4);
        host.write(member, ECAM + 4, 2, 6);
        let mut capability = host.read(member, ECAM + 0x34, 1);
        while host.read(member, ECAM + capability, 1) != 0x11 {
            capability = host.read(member, ECAM + capability + 1, 1);
        }
        let control = ECAM + capability + 2;
        host.write(member, control, 2, 0xc000);
        // Vector n is data 0x50 + n.
        for vector in 0..10 {
            for (at, word) in [(0, DOORBELL), (4, 0), (8, 0x50 + vector), (12, 0)] {
                host.write(member, TABLE + 16 * vector + at, 4, word);
            }
        }
        host.write(member, control, 2, 0x8000);
        Self {
            member,
            queues: vec![],
            got: vec![],
            sent: 0,
            done: vec![],
            partial: Default::default(),
            slots: SLOTS,
            size: SIZE,
            pairs: 1,
            came: vec![],
        }
    }

    /// Makes it work with several pairs, with few buffers each.
    pub fn running_pairs(host: &mut Host, member: usize, pairs: usize) -> Self {
        let mut driver = Self::new(host, member);
        (driver.pairs, driver.size) = (pairs, 8);
        driver.slots = [0x1000; 3];
        assert!(driver.start(host, ACCEPTED | Network::MQ));
        driver.refill(host, 8);
        driver
    }

    /// The same, and makes it work with as many buffers as there may be.
    pub fn running(host: &mut Host, member: usize) -> Self {
        let mut driver = Self::new(host, member);
        assert!(driver.start(host, ACCEPTED));
        driver.refill(host, 16);
        driver
    }

    /// The same, with large buffers for what is sent.
    pub fn running_with(host: &mut Host, member: usize, slot: u64) -> Self {
        let mut driver = Self::new(host, member);
        driver.slots[1] = slot;
        driver.size = 4;
        assert!(driver.start(host, ACCEPTED));
        driver
    }

    /// Drivers of all members.
    pub fn all(host: &mut Host) -> [Self; VMS] {
        std::array::from_fn(|member| Self::running(host, member))
    }

    fn ram<'a>(&self, host: &'a Host) -> &'a Ram {
        &host.board.rams[self.member]
    }

    /// Resets the device and makes it work; false if it does not take the features.
    pub fn start(&mut self, host: &mut Host, accepted: Features) -> bool {
        let member = self.member;
        host.write(member, STATUS, 1, 0);
        self.queues.clear();
        self.partial = Default::default();
        for status in [1, 3] {
            host.write(member, STATUS, 1, status);
        }
        for select in [0, 1] {
            host.write(member, COMMON + 8, 4, select);
            host.write(member, COMMON + 0xc, 4, accepted.word(select as u32).into());
        }
        host.write(member, STATUS, 1, 11);
        if host.read(member, STATUS, 1) != 11 {
            return false;
        }
        host.write(member, COMMON + 0x10, 2, 0);
        let mut at = Ram::BASE;
        let [receive, send, commands] = self.slots;
        let slots = [[receive, send].repeat(self.pairs), vec![commands]].concat();
        self.came = vec![0; slots.len()];
        for (number, slot) in (0..).zip(slots) {
            let guest = Guest::new(self.ram(host), at, self.size, OPTIONS, slot);
            at = guest.end();
            self.enable(host, number, &guest);
            self.queues.push(guest);
        }
        assert!(at <= Ram::BASE + MEMORY as u64);
        host.write(member, STATUS, 1, 15);
        true
    }

    fn enable(&self, host: &mut Host, number: u64, guest: &Guest) {
        let areas = guest.ring.layout.areas();
        let mut write = |at, size, value| host.write(self.member, COMMON + at, size, value);
        write(0x16, 2, number);
        write(0x18, 2, self.size.into());
        write(0x1a, 2, number + 1);
        for (at, address) in [(0x20, areas.descriptors), (0x28, areas.driver), (0x30, areas.device)] {
            write(at, 4, address & 0xffff_ffff);
            write(at + 4, 4, address >> 32);
        }
        write(0x1c, 2, 1);
    }

    /// Offers a request, and rings if the device wants it. False if there is no room.
    fn ask(&mut self, host: &mut Host, number: usize, request: &Request) -> bool {
        let Some((_, notify)) = self.queues[number].ask(&host.board.rams[self.member], request) else {
            return false;
        };
        if notify {
            self.ring(host, number);
        }
        true
    }

    pub fn ring(&self, host: &mut Host, number: usize) {
        // Places are shared.
        host.write(self.member, NOTIFY + 4 * (number as u64 % 4), 2, number as u64);
    }

    /// Offers up to so many buffers.
    pub fn refill(&mut self, host: &mut Host, most: usize) {
        let request = Request { writable: vec![BUFFER], indirect: true, ..Request::default() };
        for number in (0..2 * self.pairs).step_by(2) {
            (0..most).all(|_| self.ask(host, number, &request));
        }
    }

    /// Sends a packet.
    pub fn send(&mut self, host: &mut Host, packet: &[u8]) -> bool {
        self.send_by(host, 0, packet)
    }

    /// The same, by a pair of queues.
    pub fn send_by(&mut self, host: &mut Host, pair: usize, packet: &[u8]) -> bool {
        let header = NetworkHeader::default().to_bytes();
        let readable = [&header, packet].concat();
        let readable_cuts = vec![header.len() as u32, packet.len() as u32];
        self.ask(host, 2 * pair + 1, &Request { readable, readable_cuts, writable: vec![], indirect: true })
    }

    /// Gives a command.
    pub fn command(&mut self, host: &mut Host, class: u8, command: u8, data: &[u8]) {
        let readable = [&[class, command], data].concat();
        let readable_cuts = vec![2, data.len() as u32];
        let request = Request { readable, readable_cuts, writable: vec![1], indirect: false };
        assert!(self.ask(host, 2 * self.pairs, &request));
    }

    /// Handles interrupts: what was returned by the queues that they name. It looks nowhere else.
    pub fn interrupts(&mut self, host: &mut Host) {
        let vectors = std::mem::take(&mut host.board.messages.borrow_mut()[self.member]);
        assert!(!vectors.contains(&0x50), "the device needs no reset");
        let commands = 2 * self.pairs;
        for number in (0..=commands).filter(|number| vectors.contains(&(0x51 + *number as u32))) {
            loop {
                let ram = &host.board.rams[self.member];
                let guest = &mut self.queues[number];
                let replies = guest.take(ram);
                let more = guest.arm(ram);
                for reply in replies {
                    match number {
                        _ if number == commands => self.done.push(reply.bytes == [0]),
                        _ if number % 2 == 0 => self.receive(&reply, number),
                        _ => self.sent += 1,
                    }
                }
                if !more {
                    break;
                }
            }
        }
    }

    fn receive(&mut self, reply: &Reply, number: usize) {
        let (bytes, left) = &mut self.partial;
        let mut now = &reply.bytes[..reply.written as usize];
        if *left == 0 {
            *left = u16::from_le_bytes([now[10], now[11]]);
            now = &now[12..];
        }
        bytes.extend(now);
        *left -= 1;
        if *left == 0 {
            self.got.push(std::mem::take(bytes));
            self.came[number] += 1;
        }
    }
}

/// Lets all go on until nothing is to be done at once. Each driver offers its buffers again.
pub fn run(host: &mut Host, drivers: &mut [Driver]) {
    loop {
        let again = host.interrupt() | host.alarm();
        let mut idle = true;
        for driver in &mut *drivers {
            idle &= host.board.messages.borrow()[driver.member].is_empty();
            driver.interrupts(host);
            driver.refill(host, 16);
        }
        if idle && !again && !host.again {
            return;
        }
    }
}

/// A packet with a number, for one member or for all.
pub fn packet(from: usize, to: Option<usize>, number: u32, length: usize) -> Vec<u8> {
    let mut bytes = [to.map_or([0xff; 6], mac), mac(from)].concat();
    bytes.extend([0x88, 0xb5]);
    bytes.extend(number.to_le_bytes());
    bytes.extend((0..length).map(|at| (at as u32 * 7 + number) as u8));
    bytes
}
