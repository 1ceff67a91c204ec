// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Drivers of a queue.

use turnstile_virtio::driver;
use turnstile_virtio::ring::{Areas, Buffer, Layout, Options};

use crate::ram::Ram;

/// What a driver asks for: bytes that the device reads, cut into buffers, and buffers that it writes.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// What the device reads.
    pub readable: Vec<u8>,
    /// How that is cut.
    pub readable_cuts: Vec<u32>,
    /// The lengths of the buffers that it writes.
    pub writable: Vec<u32>,
    /// Whether the descriptors are in a table of their own.
    pub indirect: bool,
}

/// A request that the device has returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    /// Which request it was, counted from 0.
    pub number: usize,
    /// How many bytes the device says that it wrote.
    pub written: u32,
    /// All bytes that it may have written.
    pub bytes: Vec<u8>,
}

/// A queue's place in memory.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    /// Checked.
    pub layout: Layout,
    /// What was negotiated.
    pub options: Options,
    /// The first address behind it, aligned to a page.
    pub end: u64,
}

impl Ring {
    /// Puts a queue at an address.
    pub fn new(ram: &Ram, at: u64, size: u16, options: Options) -> Self {
        let [descriptors, driver, device_length] = Areas::lengths(size);
        let driver_area = at + descriptors;
        let device = (driver_area + driver).next_multiple_of(4);
        let areas = Areas { descriptors: at, driver: driver_area, device };
        let layout = Layout::new(ram, size, areas).expect("the queue is in memory");
        Self { layout, options, end: (device + device_length).next_multiple_of(0x1000) }
    }

    /// Writes a descriptor of a table.
    pub fn describe(ram: &Ram, table: u64, index: u64, buffer: (u64, u32), flags: u16, next: u16) {
        let at = table + 16 * index;
        ram.put(at, &buffer.0.to_le_bytes());
        ram.put(at + 8, &buffer.1.to_le_bytes());
        ram.put(at + 12, &flags.to_le_bytes());
        ram.put(at + 14, &next.to_le_bytes());
    }

    /// Writes an entry of the available ring, and its index.
    pub fn offer(&self, ram: &Ram, entry: u16, head: u16, index: u16) {
        let areas = self.layout.areas();
        ram.put(areas.driver + 4 + 2 * u64::from(entry % self.layout.size()), &head.to_le_bytes());
        ram.put(areas.driver + 2, &index.to_le_bytes());
    }

    /// The device's index.
    pub fn used(&self, ram: &Ram) -> u16 {
        let bytes = ram.get(self.layout.areas().device + 2, 2);
        u16::from_le_bytes([bytes[0], bytes[1]])
    }
}

/// A friendly driver: it keeps rules, and remembers what it has asked for.
#[derive(Debug)]
pub struct Guest {
    /// Its queue.
    pub ring: Ring,
    queue: driver::Queue<256>,
    /// Where its buffers are; each request has a slot, and a page more for its table.
    heap: u64,
    slot: u64,
    /// By head: the number of the request and its writable buffers.
    waiting: Vec<Option<(usize, Vec<Buffer>)>>,
    free_slots: Vec<u64>,
    slots: Vec<Option<u64>>,
    count: usize,
}

impl Guest {
    /// Makes a driver of a queue, whose requests have up to `slot` bytes, a multiple of a page.
    pub fn new(ram: &Ram, at: u64, size: u16, options: Options, slot: u64) -> Self {
        let ring = Ring::new(ram, at, size, options);
        let queue = driver::Queue::new(ram, ring.layout, options).expect("the queue is in memory");
        let free_slots = (0..u64::from(size)).rev().collect();
        Self {
            ring,
            queue,
            heap: ring.end,
            slot: slot + 0x1000,
            waiting: vec![None; size.into()],
            free_slots,
            slots: vec![None; size.into()],
            count: 0,
        }
    }

    /// The first address behind its queue and buffers.
    pub fn end(&self) -> u64 {
        self.heap + self.slot * u64::from(self.ring.layout.size())
    }

    /// Offers a request and shows it to the device. Returns its number and whether the device wants a notification; `None` if there is
    /// no room now.
    pub fn ask(&mut self, ram: &Ram, request: &Request) -> Option<(usize, bool)> {
        let slot = self.free_slots.pop()?;
        let base = self.heap + slot * self.slot;
        let (table, mut at) = (base, base + 0x1000);
        let mut buffers = Vec::new();
        ram.put(at, &request.readable);
        for &length in &request.readable_cuts {
            buffers.push(Buffer { address: at, length, writable: false });
            at += u64::from(length);
        }
        let mut writable = Vec::new();
        for &length in &request.writable {
            writable.push(Buffer { address: at, length, writable: true });
            at += u64::from(length);
        }
        assert!(at <= base + self.slot, "the request fits its slot");
        for buffer in &writable {
            ram.put(buffer.address, &vec![0xee; buffer.length as usize]);
        }
        buffers.extend(&writable);
        let added = match request.indirect {
            true => self.queue.add_indirect(ram, table, &buffers),
            false => self.queue.add(ram, &buffers),
        };
        let id = match added {
            Ok(id) => id,
            Err(driver::Refusal::Full) => {
                self.free_slots.push(slot);
                return None;
            }
            Err(other) => panic!("{other}"),
        };
        self.waiting[usize::from(id)] = Some((self.count, writable));
        self.slots[usize::from(id)] = Some(slot);
        self.count += 1;
        let notify = self.queue.publish(ram).expect("the device keeps rules");
        Some((self.count - 1, notify))
    }

    /// Takes all that the device has returned.
    pub fn take(&mut self, ram: &Ram) -> Vec<Reply> {
        let mut replies = Vec::new();
        while let Some(used) = self.queue.take(ram).expect("the device keeps rules") {
            let id = usize::from(used.id);
            let (number, buffers) = self.waiting[id].take().expect("the driver waits for it");
            self.free_slots.extend(self.slots[id].take());
            let bytes = |buffer: &Buffer| ram.get(buffer.address, buffer.length as usize);
            let bytes = buffers.iter().flat_map(bytes).collect();
            replies.push(Reply { number, written: used.written, bytes });
        }
        replies
    }

    /// Asks for an interrupt; returns whether there is something already.
    pub fn arm(&mut self, ram: &Ram) -> bool {
        self.queue.arm(ram).expect("the device keeps rules")
    }

    /// How many requests the device has.
    pub fn in_flight(&self) -> u16 {
        self.queue.in_flight()
    }
}
