// SPDX-License-Identifier: Apache-2.0 OR MIT
//! VMs on a switch.

#![allow(dead_code, reason = "each test uses its part")]

use std::collections::VecDeque;

use turnstile_net::control::Control;
use turnstile_net::settings::{Accepts, Settings};
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_switch::port::Rules;
use turnstile_switch::relay::{Device, Relay, Rest};
use turnstile_virtio::config::NetworkHeader;
use turnstile_virtio::ring::Options;

pub const VMS: usize = 3;
pub const OPTIONS: Options = Options { indirect: true, event_idx: true };
pub type Net = Relay<VMS, 2, 16>;

/// A VM with a pair of queues.
pub struct Vm {
    pub send: Guest,
    pub receive: Guest,
    pub accepts: Accepts,
    /// How many bytes its receive buffers have.
    pub buffer: u32,
    /// In how many pieces they are at most.
    pub pieces: u64,
    /// What it sends and receives lies in one buffer, without a table.
    pub simple: bool,
    /// Packets on their way: of a merged one, so many buffers are to come.
    partial: (Vec<u8>, u16, Vec<u8>),
    pub got: VecDeque<(NetworkHeader, Vec<u8>)>,
}

pub fn mac(number: usize) -> [u8; 6] {
    [2, 0, 0, 0, 0, number as u8]
}

pub fn memories(fuse: &Fuse) -> [Ram; VMS] {
    [(); VMS].map(|()| Ram::new(0x10_0000, fuse.clone()))
}

impl Vm {
    pub fn new(ram: &Ram, offloads: bool, merge: bool) -> Self {
        // Larger memory is for larger packets.
        let (begin, slot) = (ram.length() as u64 / 4, ram.length() as u64 / 128);
        let send = Guest::new(ram, Ram::BASE, 16, OPTIONS, slot);
        let receive = Guest::new(ram, Ram::BASE + begin, 64, OPTIONS, 0x1000);
        assert!(send.end() <= Ram::BASE + begin && receive.end() <= Ram::BASE + ram.length() as u64);
        let features = Settings { offloads, ..Settings::new([0; 6]) }.features();
        let accepts = Accepts { merge, ..features.into() };
        let buffer = if merge { 1536 } else { 1700 };
        Self {
            send,
            receive,
            accepts,
            buffer,
            pieces: 3,
            simple: false,
            partial: (Vec::new(), 0, Vec::new()),
            got: VecDeque::new(),
        }
    }

    pub fn device(&self) -> Device<2> {
        Device::new(Control::new([0; 6]), self.accepts, 1600)
    }

    /// Offers as many buffers as there is room for, up to `most`.
    pub fn refill(&mut self, ram: &Ram, random: &mut Random, most: u64) {
        for _ in 0..most {
            let writable = if self.simple { vec![self.buffer] } else { random.cut(self.buffer, self.pieces) };
            let request = Request { writable, indirect: !self.simple, ..Request::default() };
            if self.receive.ask(ram, &request).is_none() {
                break;
            }
        }
    }

    /// Sends a packet, if there is room.
    pub fn send(&mut self, ram: &Ram, random: &mut Random, header: NetworkHeader, bytes: &[u8]) -> bool {
        let mut readable = header.to_bytes().to_vec();
        readable.extend(bytes);
        let length = readable.len() as u32;
        let readable_cuts = if self.simple { vec![length] } else { random.cut(length, 6) };
        let indirect = !self.simple && random.below(2) == 0;
        self.send.ask(ram, &Request { readable, readable_cuts, writable: vec![], indirect }).is_some()
    }

    /// Takes what has come. Returns how many packets it had sent are done.
    pub fn take(&mut self, ram: &Ram) -> usize {
        for reply in self.receive.take(ram) {
            let (bytes, left, head) = &mut self.partial;
            let mut now = &reply.bytes[..reply.written as usize];
            if *left == 0 {
                *head = now[..12].to_vec();
                *left = u16::from_le_bytes([now[10], now[11]]);
                assert!(*left == 1 || self.accepts.merge && *left > 1, "{left} buffers");
                now = &now[12..];
            }
            bytes.extend(now);
            *left -= 1;
            assert!(*left == 0 || reply.written == self.buffer, "only the last buffer is not full");
            if *left == 0 {
                let header = NetworkHeader::from_bytes(head[..].try_into().unwrap());
                self.got.push_back((header, std::mem::take(bytes)));
            }
        }
        self.send.take(ram).len()
    }
}

/// Gives a new life of the switch its devices and queues.
pub fn attach(net: &mut Net, vms: &[Vm], memories: &[Ram; VMS], left: bool) {
    for (port, (vm, ram)) in vms.iter().zip(memories).enumerate() {
        net.switch().attach(port, Rules { mac: Some(mac(port)), ..Rules::default() });
        net.set_device(port, Some(vm.device()));
        for (number, guest) in [(0, &vm.receive), (1, &vm.send)] {
            let layout = Some((guest.ring.layout, guest.ring.options));
            assert_eq!(net.set_queue((port, number), ram, layout, left), Ok(true));
        }
    }
}

/// Lets every port send until nothing goes on. Returns the queues whose drivers are interrupted.
pub fn run(net: &mut Net, memories: &[Ram; VMS], now: u64) -> Vec<(usize, usize)> {
    let mut interrupts = Vec::new();
    loop {
        let mut busy = false;
        for port in 0..VMS {
            match net.pump(memories, port, now, 7) {
                Ok(Rest::Spent) => busy = true,
                Ok(_) => {}
                Err(violation) => assert!(memories[port].fuse.is_blown(), "{violation}"),
            }
            net.interrupt(memories, |port, number| interrupts.push((port, number)));
        }
        if !busy || memories[0].fuse.is_blown() {
            return interrupts;
        }
    }
}

/// A packet with a number, for one port or for all.
pub fn packet(random: &mut Random, from: usize, to: Option<usize>, number: u32, length: usize) -> Vec<u8> {
    let mut bytes = [to.map_or([0xff; 6], mac), mac(from), [0x88, 0xb5, 0, 0, 0, 0]].concat();
    bytes.extend(number.to_le_bytes());
    bytes.extend(random.bytes(length));
    bytes
}
