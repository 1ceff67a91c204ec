// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings of a hostile driver or device, and memory that changes under the reader.

mod common;

use common::ring::{Everywhere, INDIRECT, LENGTH, Ring, SIZE};
use common::{BASE, Ram, Random, areas};
use proptest::prelude::*;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Areas, Buffer, Layout, Options};
use turnstile_virtio::violation::Violation;
use turnstile_virtio::{device, driver};

#[test]
fn rings_that_break_rules_are_named() {
    let mut ring = Ring::new(INDIRECT);
    assert!(ring.queue.pop(&ring.ram).unwrap().is_none());
    ring.offer(0, 0, 9);
    let jump = Violation::AvailableJump { next: 0, found: 9 };
    assert_eq!(ring.queue.pop(&ring.ram).unwrap_err(), jump);
    assert_eq!(ring.queue.arm(&ring.ram), Err(jump));
    ring.offer(0, 0, u16::MAX);
    assert!(ring.queue.pop(&ring.ram).is_err(), "backwards is a jump, too");
    ring.offer(0, 8, 1);
    assert_eq!(ring.queue.pop(&ring.ram).unwrap_err(), Violation::Head(8));
    // The same head again and again: the device never holds more chains than there are descriptors.
    ring.offer(0, 0, 8);
    let tokens: Vec<_> = (0..8).map(|_| ring.queue.pop(&ring.ram).unwrap().unwrap().finish()).collect();
    ring.offer(0, 0, 9);
    assert_eq!(ring.queue.pop(&ring.ram).unwrap_err(), Violation::TooMany);
    tokens.into_iter().for_each(|token| ring.queue.complete(&ring.ram, token, 0).unwrap());
    assert!(ring.queue.pop(&ring.ram).is_ok());
}

#[test]
fn devices_that_break_rules_are_named() {
    let ram = Ram::new(LENGTH);
    let (areas, heap) = areas(SIZE);
    let layout = Layout::new(&ram, SIZE, areas).unwrap();
    let mut queue: driver::Queue<8> = driver::Queue::new(&ram, layout, INDIRECT).unwrap();
    let buffer = |length, writable| Buffer { address: heap, length, writable };
    let used = |entry: u64, id: u32, length: u32, index: u16| {
        ram.put(areas.device + 4 + 8 * entry, &id.to_le_bytes());
        ram.put(areas.device + 8 + 8 * entry, &length.to_le_bytes());
        ram.put(areas.device + 2, &index.to_le_bytes());
    };
    used(0, 0, 0, 1);
    assert_eq!(queue.take(&ram), Err(Violation::UsedJump { next: 0, found: 1 }), "the device has nothing");
    used(0, 0, 0, 0);
    let id = queue.add(&ram, &[buffer(5, false), buffer(10, true)]).unwrap();
    assert_eq!(queue.publish(&ram), Ok(true));
    used(0, 0, 0, 2);
    assert_eq!(queue.take(&ram), Err(Violation::UsedJump { next: 0, found: 2 }));
    assert_eq!(queue.arm(&ram), Err(Violation::UsedJump { next: 0, found: 2 }));
    for wrong in [u32::from(id) + 1, 8, 1 << 16, u32::MAX] {
        used(0, wrong, 0, 1);
        assert_eq!(queue.take(&ram), Err(Violation::UsedId(wrong)), "second descriptors of chains, too");
    }
    used(0, id.into(), 11, 1);
    assert_eq!(queue.take(&ram), Err(Violation::UsedLength(11)));
    used(0, id.into(), 10, 1);
    assert_eq!(queue.take(&ram), Ok(Some(driver::Used { id, written: 10 })));
    assert_eq!(queue.free(), 8);
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let ram = Ram::new(LENGTH);
    let (areas, _) = areas(SIZE);
    let new = |size, areas| Layout::new(&ram, size, areas).unwrap_err();
    for size in [0, 3, 0xffff, 0x8001] {
        assert_eq!(new(size, areas), Violation::Size(size));
    }
    for (wrong, at) in [
        (Areas { descriptors: BASE + 8, ..areas }, BASE + 8),
        (Areas { driver: areas.driver + 1, ..areas }, areas.driver + 1),
        (Areas { device: areas.device + 2, ..areas }, areas.device + 2),
    ] {
        assert_eq!(new(SIZE, wrong), Violation::Alignment(at));
    }
    let end = BASE + LENGTH as u64;
    for at in [0, end - 16, u64::MAX - 15] {
        assert_eq!(new(SIZE, Areas { descriptors: at, ..areas }), Violation::Outside(at));
        assert_eq!(new(SIZE, Areas { driver: at & !1, ..areas }), Violation::Outside(at & !1));
        assert_eq!(new(SIZE, Areas { device: at & !3, ..areas }), Violation::Outside(at & !3));
    }
    let everywhere = Everywhere(Ram::new(16));
    let last = Areas { descriptors: u64::MAX - 127, ..areas };
    assert!(Layout::new(&everywhere, SIZE, last).is_err(), "an area ends below the end of addresses");
    assert!(Layout::new(&ram, 1 << 15, Areas { descriptors: BASE, driver: BASE, device: BASE }).is_ok());
}

proptest! {
    /// Memory that changes under the reader: both sides stay within bounds, and what they return is memory.
    #[test]
    fn memory_that_changes_under_the_reader_does_no_harm(seed in 1u64.., indirect: bool, event_idx: bool) {
        let ram = Ram::new(0x4000);
        let (areas, heap) = areas(SIZE);
        let options = Options { indirect, event_idx };
        let layout = Layout::new(&ram, SIZE, areas).unwrap();
        let mut driver: driver::Queue<8> = driver::Queue::new(&ram, layout, options).unwrap();
        let mut device = device::Queue::new(layout, options, 32);
        let mut random = Random(seed);
        ram.restless.set(random.next());
        let mut tokens = Vec::new();
        for _ in 0..200 {
            match random.below(8) {
                0 | 1 => {
                    let length = random.below(64) as u32;
                    let buffers = [Buffer { address: heap, length, writable: false }, Buffer { address: heap, length, writable: true }];
                    let _ = match random.below(2) {
                        0 => driver.add(&ram, &buffers),
                        _ => driver.add_indirect(&ram, heap.next_multiple_of(16), &buffers),
                    };
                    let _ = driver.publish(&ram);
                }
                2..5 => {
                    if let Ok(Some(mut chain)) = device.pop(&ram) {
                        let mut steps = 0;
                        while let Ok(Some(buffer)) = chain.next(&ram) {
                            prop_assert!(ram.contains(buffer.address, buffer.length.into()));
                            steps += 1;
                        }
                        prop_assert!(steps <= 32);
                        tokens.push(chain.finish());
                    }
                    prop_assert!(device.in_flight() <= SIZE && usize::from(device.in_flight()) == tokens.len());
                }
                5 => {
                    if let Some(token) = tokens.pop() {
                        device.complete(&ram, token, random.next() as u32).unwrap();
                        let _ = device.publish(&ram);
                    }
                }
                6 => {
                    let before = driver.in_flight();
                    if let Ok(Some(used)) = driver.take(&ram) {
                        prop_assert!(used.id < SIZE && used.written < 64);
                        prop_assert_eq!(driver.in_flight(), before - 1);
                    }
                }
                _ => {
                    let _ = (device.arm(&ram), driver.arm(&ram), device.suppress(&ram), driver.suppress(&ram));
                }
            }
            prop_assert!(driver.in_flight() <= SIZE && driver.free() <= SIZE);
        }
    }
}
