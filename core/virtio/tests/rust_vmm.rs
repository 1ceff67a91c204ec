// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side against another project's device: rust-vmm's `virtio-queue`, on which Firecracker and Cloud Hypervisor run.

mod common;

use std::collections::VecDeque;
use std::sync::atomic::Ordering;

use common::{BASE, Random, areas};
use turnstile_virtio::driver;
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::ring::{Areas, Buffer, Layout, Options};
use virtio_queue::{Queue, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

const SIZE: u16 = 16;

/// The same memory for both sides.
struct Shared(GuestMemoryMmap);

impl Memory for Shared {
    fn contains(&self, address: u64, length: u64) -> bool {
        self.0.check_range(GuestAddress(address), length as usize, Permissions::ReadWrite)
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        let value = self.0.load::<u16>(GuestAddress(address), Ordering::Acquire);
        value.map(u16::from_le).map_err(|_| Outside { address })
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        let stored = self.0.store(value.to_le(), GuestAddress(address), Ordering::Release);
        stored.map_err(|_| Outside { address })
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        self.0.read_slice(bytes, GuestAddress(address)).map_err(|_| Outside { address })
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        self.0.write_slice(bytes, GuestAddress(address)).map_err(|_| Outside { address })
    }

    fn fence(&self) {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

fn device(areas: Areas, event_idx: bool) -> Queue {
    let mut queue = Queue::new(SIZE).unwrap();
    queue.set_size(SIZE);
    let halves = |address: u64| (Some(address as u32), Some((address >> 32) as u32));
    let (low, high) = halves(areas.descriptors);
    queue.set_desc_table_address(low, high);
    let (low, high) = halves(areas.driver);
    queue.set_avail_ring_address(low, high);
    let (low, high) = halves(areas.device);
    queue.set_used_ring_address(low, high);
    queue.set_event_idx(event_idx);
    queue.set_ready(true);
    queue
}

/// Chains go there and back, more often than indexes have values; whoever waits is told.
#[test]
fn another_device_understands_the_driver() {
    for event_idx in [false, true] {
        let memory = Shared(GuestMemoryMmap::from_ranges(&[(GuestAddress(BASE), 0x10000)]).unwrap());
        let (areas, heap) = areas(SIZE);
        let heap = heap.next_multiple_of(16);
        let options = Options { indirect: true, event_idx };
        let layout = Layout::new(&memory, SIZE, areas).unwrap();
        let mut driver: driver::Queue<16> = driver::Queue::new(&memory, layout, options).unwrap();
        let mut queue = device(areas, event_idx);
        assert!(queue.is_valid(&memory.0));
        let mut random = Random(0x7275_7374_2d76_6d6d);
        let (mut offered, mut with_device, mut returned) = (VecDeque::new(), Vec::new(), VecDeque::new());
        let mut taken = 0;
        // Each side sleeps once it has asked to be told.
        let (mut device_sleeps, mut driver_sleeps) = (false, false);
        let mut tables: Vec<u64> = (0..64).map(|table| heap + 0x80 * table).collect();
        while taken < 70_000 {
            if !driver_sleeps && random.below(2) == 0 {
                let count = 1 + random.below(5) as usize;
                let readable = random.below(6) as usize;
                let buffer = |index| Buffer {
                    address: heap + 0x4000 + 64 * index as u64,
                    length: 64,
                    writable: index >= readable,
                };
                let buffers: Vec<Buffer> = (0..count).map(buffer).collect();
                let table = tables.pop().filter(|_| random.below(2) == 0);
                let added = match table {
                    Some(table) => driver.add_indirect(&memory, table, &buffers),
                    None => driver.add(&memory, &buffers),
                };
                match added {
                    Ok(id) => offered.push_back((id, buffers, table)),
                    Err(refusal) => {
                        assert_eq!(refusal, driver::Refusal::Full);
                        tables.extend(table);
                    }
                }
                if tables.is_empty() {
                    tables = (0..64).map(|table| heap + 0x80 * table).collect();
                    tables.retain(|table| {
                        let busy = |entry: &(u16, Vec<Buffer>, Option<u64>)| entry.2 == Some(*table);
                        !offered.iter().any(busy) && !with_device.iter().any(busy)
                    });
                }
                if driver.publish(&memory).unwrap() {
                    device_sleeps = false;
                }
            }
            if !device_sleeps {
                match queue.pop_descriptor_chain(&memory.0) {
                    Some(chain) => {
                        let (id, buffers, table) = offered.pop_front().expect("nothing that was not offered");
                        assert_eq!(chain.head_index(), id);
                        let seen: Vec<_> = chain
                            .map(|part| Buffer {
                                address: part.addr().0,
                                length: part.len(),
                                writable: part.is_write_only(),
                            })
                            .collect();
                        assert_eq!(seen, buffers);
                        with_device.push((id, buffers, table));
                    }
                    None if with_device.is_empty() => {
                        device_sleeps = !queue.enable_notification(&memory.0).unwrap();
                    }
                    None => {}
                }
                if !with_device.is_empty() && random.below(2) == 0 {
                    let (id, buffers, _) =
                        with_device.remove(random.below(with_device.len() as u64) as usize);
                    let room: u32 =
                        buffers.iter().filter(|buffer| buffer.writable).map(|buffer| buffer.length).sum();
                    queue.add_used(&memory.0, id, room).unwrap();
                    returned.push_back(driver::Used { id, written: room });
                    if queue.needs_notification(&memory.0).unwrap() {
                        driver_sleeps = false;
                    }
                }
            }
            if !driver_sleeps {
                let used = driver.take(&memory).unwrap();
                assert_eq!(used, returned.pop_front());
                taken += u32::from(used.is_some());
                if used.is_none() && driver.free() == 0 {
                    driver_sleeps = !driver.arm(&memory).unwrap();
                }
            }
            assert!(!device_sleeps || !driver_sleeps, "both sleep: somebody was not told");
        }
    }
}
