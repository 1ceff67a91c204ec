// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Queues that a device has left at any instant, and chains that it gives back.

mod common;

use std::collections::VecDeque;

use common::{Ram, Random, areas};
use turnstile_virtio::device::{Place, Queue, Segments, Span};
use turnstile_virtio::driver;
use turnstile_virtio::ring::{Buffer, Layout, Options};
use turnstile_virtio::violation::Violation;

const SIZE: u16 = 8;

/// A device that completes in order, gives chains back and is made anew at any time, over indexes that wrap: each chain is completed, in
/// order; what was shown is not done again.
#[test]
fn a_queue_goes_on_where_it_was_left() {
    for event_idx in [false, true] {
        let random = &mut Random(0x7265_7375_6d65);
        let ram = Ram::new(0x4000);
        let (areas, heap) = areas(SIZE);
        let (layout, options) =
            (Layout::new(&ram, SIZE, areas).unwrap(), Options { indirect: true, event_idx });
        let mut driver: driver::Queue<8> = driver::Queue::new(&ram, layout, options).unwrap();
        let mut device = Queue::new(layout, options, 4);
        let mut waiting = VecDeque::new();
        let (mut tokens, mut taken, mut lengths) = (VecDeque::new(), 0u32, 1u32);
        while taken < 70_000 {
            match random.below(8) {
                0 | 1 => {
                    let buffer = Buffer { address: heap, length: lengths % 1000, writable: true };
                    if let Ok(id) = driver.add(&ram, &[buffer]) {
                        waiting.push_back((id, buffer.length));
                        lengths += 1;
                    }
                    driver.publish(&ram).unwrap();
                }
                2 | 3 => {
                    if let Some(mut chain) = device.pop(&ram).unwrap() {
                        let length = chain.next(&ram).unwrap().unwrap().length;
                        tokens.push_back((chain.finish(), length));
                    }
                }
                4 => {
                    if let Some((token, length)) = tokens.pop_front() {
                        device.complete(&ram, token, length).unwrap();
                    }
                }
                5 => drop(device.publish(&ram).unwrap()),
                6 => {
                    let count = random.below(tokens.len() as u64 + 1);
                    (0..count).for_each(|_| device.put_back(tokens.pop_back().unwrap().0));
                    assert_eq!(usize::from(device.in_flight()), tokens.len());
                }
                _ if random.below(4) == 0 => {
                    tokens.clear();
                    device = Queue::resume(&ram, layout, options, 4).unwrap();
                }
                _ => {
                    while let Some(used) = driver.take(&ram).unwrap() {
                        let (id, length) = waiting.pop_front().unwrap();
                        assert_eq!((used.id, used.written), (id, length), "in order");
                        taken += 1;
                    }
                }
            }
        }
    }
}

#[test]
fn chains_are_gathered_and_gone_through() {
    let ram = Ram::new(0x4000);
    let (areas, heap) = areas(SIZE);
    let (layout, options) = (Layout::new(&ram, SIZE, areas).unwrap(), Options::default());
    let mut driver: driver::Queue<8> = driver::Queue::new(&ram, layout, options).unwrap();
    let buffer = |at, length, writable| Buffer { address: heap + at, length, writable };
    let buffers = [
        buffer(0, 3, false),
        buffer(5, 0, false),
        buffer(10, 4, false),
        buffer(20, 2, true),
        buffer(30, 5, true),
    ];
    driver.add(&ram, &buffers).unwrap();
    driver.publish(&ram).unwrap();
    ram.put(heap, b"abc_______defg");
    let mut device = Queue::new(layout, options, 8);
    let mut chain = device.pop(&ram).unwrap().unwrap();
    let mut segments = Segments::<4>::new();
    segments.gather(&ram, &mut chain).unwrap();
    assert_eq!((segments.readable_bytes(), segments.writable_bytes()), (7, 7));
    assert_eq!(
        segments.readable(),
        [Span { address: heap, length: 3 }, Span { address: heap + 10, length: 4 }]
    );
    let (mut place, mut bytes) = (Place::START, [0; 9]);
    place.skip(segments.readable(), 2);
    assert_eq!(place.take(segments.readable(), 9), Some(Span { address: heap + 2, length: 1 }));
    assert_eq!(place.read(&ram, segments.readable(), &mut bytes), Ok(4));
    assert_eq!((&bytes[..4], place.take(segments.readable(), 1)), (&b"defg"[..], None));
    let mut place = Place::START;
    place.skip(segments.writable(), 1);
    assert_eq!(place.write(&ram, segments.writable(), b"12345678"), Ok(6));
    assert_eq!((ram.get(heap + 20), ram.get(heap + 30)), ([0, b'1'], *b"23456"));
    device.put_back(chain.finish());
    let mut chain = device.pop(&ram).unwrap().unwrap();
    assert_eq!(Segments::<3>::new().gather(&ram, &mut chain), Err(Violation::Long));
    device.complete(&ram, chain.finish(), 0).unwrap();
}
