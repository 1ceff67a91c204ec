// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings whose driver is a test.

use super::{Ram, areas};
use turnstile_virtio::device;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Areas, Buffer, Layout, Options};
use turnstile_virtio::violation::Violation;

pub const SIZE: u16 = 8;
pub const LENGTH: usize = 0x20_0000;
pub const INDIRECT: Options = Options { indirect: true, event_idx: false };

/// A ring whose driver is this test: it writes bytes where the specification has fields.
pub struct Ring {
    pub ram: Ram,
    pub areas: Areas,
    pub heap: u64,
    pub queue: device::Queue,
}

impl Ring {
    pub fn new(options: Options) -> Self {
        let ram = Ram::new(LENGTH);
        let (areas, heap) = areas(SIZE);
        let layout = Layout::new(&ram, SIZE, areas).unwrap();
        Self {
            queue: device::Queue::new(layout, options, 1 << 10),
            ram,
            areas,
            heap: heap.next_multiple_of(16),
        }
    }

    pub fn describe(&self, table: u64, index: u64, address: u64, length: u32, flags: u16, next: u16) {
        let at = table + 16 * index;
        self.ram.put(at, &address.to_le_bytes());
        self.ram.put(at + 8, &length.to_le_bytes());
        self.ram.put(at + 12, &flags.to_le_bytes());
        self.ram.put(at + 14, &next.to_le_bytes());
    }

    pub fn direct(&self, index: u64, length: u32, flags: u16, next: u16) {
        self.describe(self.areas.descriptors, index, self.heap, length, flags, next);
    }

    pub fn offer(&self, entry: u16, head: u16, index: u16) {
        self.ram.put(self.areas.driver + 4 + 2 * u64::from(entry), &head.to_le_bytes());
        self.ram.put(self.areas.driver + 2, &index.to_le_bytes());
    }

    /// All buffers of the next chain.
    pub fn all(&mut self) -> Result<Vec<Buffer>, Violation> {
        let mut chain = self.queue.pop(&self.ram)?.expect("there is a chain");
        let mut buffers = Vec::new();
        let result = loop {
            match chain.next(&self.ram) {
                Ok(Some(buffer)) => buffers.push(buffer),
                Ok(None) => break Ok(buffers),
                Err(violation) => break Err(violation),
            }
        };
        assert_eq!(chain.next(&self.ram), Ok(None), "behind the end or an error is nothing");
        // Taken as one that has one buffer, it says the same; in a run, too, where nobody has looked whether it is memory.
        self.queue.put_back(chain.finish());
        let mut run = device::Run::new(&mut self.queue, 1);
        let (_, descriptor) = run.pop(&self.ram)?.expect("it was given back");
        if let Some(buffer) = descriptor.only() {
            let is_memory = self.ram.contains(buffer.address, buffer.length.into());
            let outside = Violation::Outside(buffer.address);
            assert_eq!(result, if is_memory { Ok(vec![buffer]) } else { Err(outside) });
        }
        assert_eq!(descriptor.only_written(), descriptor.only().filter(|buffer| buffer.writable));
        let token = match self.queue.pop_one(&self.ram) {
            Ok(one) => match one.expect("it was given back") {
                device::One::Buffer(token, buffer) => {
                    assert_eq!(result, Ok(vec![buffer]));
                    token
                }
                device::One::Not(token) => token,
            },
            Err(violation) => {
                assert_eq!(result, Err(violation));
                return result;
            }
        };
        self.queue.complete(&self.ram, token, 0).unwrap();
        result
    }

    pub fn only(mut self) -> Result<Vec<Buffer>, Violation> {
        self.offer(0, 0, 1);
        self.all()
    }
}

/// Memory that says that it is everywhere: for lengths that no test's memory has.
pub struct Everywhere(pub Ram);

impl Memory for Everywhere {
    fn contains(&self, _: u64, _: u64) -> bool {
        true
    }

    fn load(&self, address: u64) -> Result<u16, turnstile_virtio::memory::Outside> {
        self.0.load(address)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), turnstile_virtio::memory::Outside> {
        self.0.store(address, value)
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), turnstile_virtio::memory::Outside> {
        self.0.read(address, bytes)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), turnstile_virtio::memory::Outside> {
        self.0.write(address, bytes)
    }

    fn fence(&self) {}
}
