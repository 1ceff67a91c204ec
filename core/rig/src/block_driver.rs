// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A guest's system: finds a PCI function with a virtio block device, or another one, places its BARs, and drives the device, as the
//! specifications say.

use std::ops::Range;

use turnstile_virtio::config::{Block, BlockRequest};
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::Options;

use crate::guest::{Guest, Reply, Request};
use crate::ram::Ram;

/// Where the function's configuration space is.
pub const ECAM: u64 = 0x1_0000;
/// What BARs can decode.
pub const WINDOW: Range<u64> = 0x1000_0000..0x1010_0000;
/// Where messages are interrupts.
pub const DOORBELL: u64 = 0x800_0040;

/// The guest's machine.
pub trait Computer {
    /// The guest reads.
    fn read(&mut self, address: u64, size: u64) -> u64;
    /// The guest writes.
    fn write(&mut self, address: u64, size: u64, value: u64);
    /// Its memory.
    fn ram(&self) -> &Ram;
    /// Takes the messages that have come: their data.
    fn messages(&mut self) -> Vec<u32>;
    /// Time passes: what was to come later comes. False if there is nothing.
    fn wait(&mut self) -> bool;
}

/// What Linux accepts of such a device.
pub const ACCEPTED: Features = Features::VERSION_1
    .union(Features::INDIRECT_DESC)
    .union(Features::EVENT_IDX)
    .union(Features::RING_RESET)
    .union(Block::SEG_MAX)
    .union(Block::BLK_SIZE)
    .union(Block::TOPOLOGY)
    .union(Block::FLUSH)
    .union(Block::CONFIG_WCE)
    .union(Block::MQ)
    .union(Block::DISCARD)
    .union(Block::WRITE_ZEROES);
/// What that means for queues.
pub const OPTIONS: Options = Options { indirect: true, event_idx: true };
/// Bytes of a request's buffers.
const SLOT: u64 = 0x4000;
const SIZE: u16 = 16;

/// A driver of a device with so many queues.
#[derive(Debug)]
pub struct BlockDriver {
    /// The common structure.
    pub common: u64,
    /// Where notifications are.
    pub notify: u64,
    /// The configuration.
    pub config: u64,
    /// The table of MSI-X.
    pub table: u64,
    /// The MSI-X capability.
    pub msix: u64,
    /// All queues have one vector: the device has fewer than queues.
    is_shared: bool,
    /// How many queues it uses.
    count: usize,
    /// How many descriptors the device says that each has at most.
    most: u64,
    /// The queues.
    pub queues: Vec<Guest>,
    /// What was asked of each queue.
    pub asked: Vec<usize>,
}

impl BlockDriver {
    /// Finds the function of a block device, and places its BARs.
    pub fn probe(host: &mut impl Computer, count: usize) -> Self {
        Self::probe_other(host, 0x1042, count, 128)
    }

    /// The same of another device: its PCI number, how many queues it has, and how many descriptors each of them has at most.
    pub fn probe_other(host: &mut impl Computer, device: u64, count: usize, most: u64) -> Self {
        assert_eq!(host.read(ECAM, 4), device << 16 | 0x1af4);
        let command = host.read(ECAM + 4, 2);
        host.write(ECAM + 4, 2, command & !3);
        let mut free = WINDOW.start + 0x2_0000;
        let mut bars = [0; 6];
        for (at, bar) in (ECAM + 0x10..).step_by(4).zip(&mut bars) {
            host.write(at, 4, 0xffff_ffff);
            let size = (!(host.read(at, 4) & !15) as u32).wrapping_add(1);
            if size == 0 {
                continue;
            }
            free = free.next_multiple_of(size.into());
            host.write(at, 4, free);
            *bar = free;
            free += u64::from(size);
        }
        host.write(ECAM + 4, 2, 6);
        let (queues, asked) = (vec![], vec![]);
        let mut driver = Self {
            common: 0,
            notify: 0,
            config: 0,
            table: 0,
            msix: 0,
            is_shared: false,
            count,
            most,
            queues,
            asked,
        };
        let mut at = host.read(ECAM + 0x34, 1);
        while at != 0 {
            let place = ECAM + at;
            if host.read(place, 1) == 0x11 {
                let table = host.read(place + 4, 4);
                (driver.msix, driver.table) = (place, bars[(table & 7) as usize] + (table & !7));
            } else if host.read(place, 1) == 9 {
                let structure = match host.read(place + 3, 1) {
                    1 => &mut driver.common,
                    2 => &mut driver.notify,
                    4 => &mut driver.config,
                    // Software may write anything to the window.
                    _ => &mut 0,
                };
                let bar = host.read(place + 4, 1) as usize;
                *structure = bars.get(bar).copied().unwrap_or(0) + host.read(place + 8, 4);
            }
            at = host.read(place + 1, 1);
        }
        driver
    }

    /// Has messages sent: vector n is data 0x50 + n.
    pub fn enable_messages(&mut self, host: &mut impl Computer) {
        let control = host.read(self.msix + 2, 2);
        host.write(self.msix + 2, 2, control | 0xc000);
        self.is_shared = ((control & 0x7ff) as usize) < self.count;
        for vector in 0..=control & 0x7ff {
            let entry = self.table + 16 * vector;
            for (at, word) in [(0, DOORBELL), (4, 0), (8, 0x50 + vector), (12, 0)] {
                host.write(entry + at, 4, word);
            }
        }
        host.write(self.msix + 2, 2, control | 0x8000);
    }

    /// Resets the device and makes it work; false if it does not take the features.
    pub fn start(&mut self, host: &mut impl Computer, accepted: Features) -> bool {
        host.write(self.common + 0x14, 1, 0);
        assert_eq!(host.read(self.common + 0x14, 1), 0);
        self.queues.clear();
        self.asked.clear();
        for status in [1, 3] {
            host.write(self.common + 0x14, 1, status);
        }
        for select in [0, 1] {
            host.write(self.common + 8, 4, select);
            host.write(self.common + 0xc, 4, accepted.word(select as u32).into());
        }
        host.write(self.common + 0x14, 1, 11);
        if host.read(self.common + 0x14, 1) != 11 {
            return false;
        }
        host.write(self.common + 0x10, 2, 0);
        let mut at = Ram::BASE;
        for number in 0..self.count as u64 {
            let guest = Guest::new(host.ram(), at, SIZE, OPTIONS, SLOT);
            at = guest.end();
            self.enable(host, number, &guest);
            self.queues.push(guest);
            self.asked.push(0);
        }
        host.write(self.common + 0x14, 1, 15);
        true
    }

    /// Tells the device of a queue.
    pub fn enable(&self, host: &mut impl Computer, number: u64, guest: &Guest) {
        let areas = guest.ring.layout.areas();
        host.write(self.common + 0x16, 2, number);
        assert_eq!(host.read(self.common + 0x18, 2), self.most);
        host.write(self.common + 0x18, 2, SIZE.into());
        host.write(self.common + 0x1a, 2, if self.is_shared { 1 } else { number + 1 });
        for (at, address) in [(0x20, areas.descriptors), (0x28, areas.driver), (0x30, areas.device)] {
            host.write(self.common + at, 4, address & 0xffff_ffff);
            host.write(self.common + at + 4, 4, address >> 32);
        }
        host.write(self.common + 0x1c, 2, 1);
    }

    /// Offers a request, and rings if the device wants it. False if there is no room.
    pub fn ask(&mut self, host: &mut impl Computer, number: usize, request: &Request) -> bool {
        let Some((_, notify)) = self.queues[number].ask(host.ram(), request) else { return false };
        self.asked[number] += 1;
        if notify {
            host.write(self.notify + 4 * number as u64, 2, number as u64);
        }
        true
    }

    /// Handles interrupts: what was returned by the queues that they name. It looks nowhere else.
    pub fn interrupts(&mut self, host: &mut impl Computer) -> Vec<(usize, Reply)> {
        let mut replies = Vec::new();
        let mut vectors = host.messages();
        vectors.sort_unstable();
        vectors.dedup();
        for vector in vectors {
            assert_ne!(vector, 0x50, "the device needs no reset");
            let first = vector as usize - 0x51;
            let count = if self.is_shared { self.queues.len() } else { 1 };
            for (number, guest) in self.queues.iter_mut().enumerate().skip(first).take(count) {
                loop {
                    replies.extend(guest.take(host.ram()).into_iter().map(|reply| (number, reply)));
                    if !guest.arm(host.ram()) {
                        break;
                    }
                }
            }
        }
        replies
    }

    /// Waits for everything.
    pub fn finish(&mut self, host: &mut impl Computer) -> Vec<(usize, Reply)> {
        let mut all = self.interrupts(host);
        while host.wait() {
            all.extend(self.interrupts(host));
        }
        for (number, guest) in self.queues.iter().enumerate() {
            assert_eq!(guest.in_flight(), 0, "queue {number} has lost a request or an interrupt");
        }
        all
    }
}

/// A request of this kind with data to send and room for an answer.
pub fn request(kind: u32, sector: u64, data: &[u8], room: u32) -> Request {
    let mut readable = BlockRequest { kind, sector }.to_bytes().to_vec();
    readable.extend(data);
    let cuts = if data.is_empty() { vec![16] } else { vec![16, data.len() as u32] };
    let writable = if room == 0 { vec![1] } else { vec![room, 1] };
    Request { readable, readable_cuts: cuts, writable, indirect: true }
}
