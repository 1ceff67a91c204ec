// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Chains that are taken one behind the other and go back together, and what is copied between spans.

mod common;

use std::collections::VecDeque;

use common::ring::{INDIRECT, Ring};
use common::{Ram, Random, areas};
use turnstile_virtio::device::{Place, Queue, Run, Span};
use turnstile_virtio::driver;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::{Buffer, Layout, Options};
use turnstile_virtio::transfer::pieces;
use turnstile_virtio::violation::Violation;

const SIZE: u16 = 8;

/// Runs of any length over indexes that wrap: the chains of one that is completed come to the driver together and in order, those of one that
/// is dropped are the next ones again.
#[test]
fn chains_of_a_run_go_back_together_or_stay() {
    for event_idx in [false, true] {
        let random = &mut Random(0x7275_6e73);
        let ram = Ram::new(0x4000);
        let (areas, heap) = areas(SIZE);
        let (layout, options) =
            (Layout::new(&ram, SIZE, areas).unwrap(), Options { indirect: true, event_idx });
        let mut driver: driver::Queue<8> = driver::Queue::new(&ram, layout, options).unwrap();
        let mut device = Queue::new(layout, options, 4);
        let (mut offered, mut taken, mut lengths) = (VecDeque::new(), 0u32, 1u32);
        while taken < 70_000 {
            for _ in 0..random.below(4) {
                let buffer = Buffer { address: heap, length: lengths % 1000, writable: true };
                let buffers = [buffer; 2];
                let count = 1 + random.below(2) as usize;
                if let Ok(id) = driver.add(&ram, &buffers[..count]) {
                    offered.push_back((id, buffer.length, count));
                    lengths += 1;
                }
            }
            driver.publish(&ram).unwrap();
            let before = device.in_flight();
            let (most, mut used) = (random.below(10) as usize, 0);
            let mut run = Run::new(&mut device, most as u16);
            while let Some((head, descriptor)) = run.pop(&ram).unwrap() {
                let (_, length, count) = offered[used];
                match descriptor.only() {
                    Some(buffer) => assert_eq!((buffer.length, count), (length, 1)),
                    None => {
                        let mut chain = run.chain::<Ram>(head);
                        let first = chain.next(&ram).unwrap().unwrap();
                        assert_eq!((first.length, count), (length, 2));
                        let _ = chain.finish();
                    }
                }
                run.give_back(&ram, head, length).unwrap();
                used += 1;
            }
            assert_eq!(used, most.min(offered.len()), "all that there are, or may be");
            assert_eq!((usize::from(run.count()), run.is_full()), (used, used == most));
            if random.below(2) == 0 {
                run.complete(&ram).unwrap();
                for _ in 0..used {
                    let (id, written, _) = offered.pop_front().unwrap();
                    assert_eq!(
                        driver.take(&ram),
                        Ok(Some(driver::Used { id, written })),
                        "together, in order"
                    );
                    taken += 1;
                }
                let _ = device.publish(&ram).unwrap();
            }
            assert_eq!((driver.take(&ram), device.in_flight()), (Ok(None), before));
        }
    }
}

#[test]
fn runs_of_drivers_that_break_rules_end() {
    let mut ring = Ring::new(INDIRECT);
    ring.direct(0, 5, 0, 0);
    assert!(Run::new(&mut ring.queue, 9).pop(&ring.ram).unwrap().is_none());
    ring.offer(0, 0, 9);
    let violation = Violation::AvailableJump { next: 0, found: 9 };
    assert_eq!(Run::new(&mut ring.queue, 9).pop(&ring.ram).unwrap_err(), violation);
    ring.offer(0, 8, 1);
    assert_eq!(Run::new(&mut ring.queue, 9).pop(&ring.ram).unwrap_err(), Violation::Head(8));
    // One chain is in flight, and eight more are there.
    ring.offer(0, 0, 1);
    let token = ring.queue.pop(&ring.ram).unwrap().unwrap().finish();
    ring.offer(1, 0, 9);
    let mut run = Run::new(&mut ring.queue, 9);
    (0..7).for_each(|_| assert!(matches!(run.pop(&ring.ram), Ok(Some(_)))));
    assert_eq!(run.pop(&ring.ram).unwrap_err(), Violation::TooMany);
    // What the driver shows meanwhile belongs to the run, too.
    ring.queue.put_back(token);
    ring.offer(0, 0, 1);
    let mut queue = Queue::new(layout(&ring), INDIRECT, 4);
    let mut run = Run::new(&mut queue, 9);
    assert!(run.pop(&ring.ram).unwrap().is_some() && run.pop(&ring.ram).unwrap().is_none());
    ring.ram.store(ring.areas.driver + 2, 10).unwrap();
    assert_eq!(run.pop(&ring.ram).unwrap_err(), Violation::AvailableJump { next: 1, found: 10 });
    ring.ram.store(ring.areas.driver + 2, 2).unwrap();
    assert!(run.pop(&ring.ram).unwrap().is_some());
}

fn layout(ring: &Ring) -> Layout {
    Layout::new(&ring.ram, SIZE, ring.areas).unwrap()
}

/// However both sides are cut: each byte goes where it belongs, once, in pieces that lie in one span of both sides.
#[test]
fn spans_are_copied_to_spans() {
    let random = &mut Random(0x7370_616e);
    for _ in 0..2000 {
        let [from, to] = [0x1000, 0x9000].map(|at| cut(random, at));
        let places = [&from, &to].map(|spans| {
            let (mut place, all) = (Place::START, bytes(spans).len() as u64);
            place.skip(spans, random.below(all + 1));
            place
        });
        let [left, room] = [(&from, places[0]), (&to, places[1])].map(|(spans, mut place)| {
            let mut rest = Vec::new();
            while let Some(Span { address, length }) = place.take(spans, 1) {
                (0..length).for_each(|at| rest.push(address + u64::from(at)));
            }
            rest
        });
        let length = random.below(left.len() as u64 + 20) as u32;
        let (mut found, mut copied) = (Vec::new(), Vec::new());
        let find = |span: Span| {
            found.push(span);
            Ok::<_, ()>(span)
        };
        pieces((&from, places[0]), (&to, places[1]), length, find, |span, offset, length, target| {
            assert!(length != 0 && offset + length <= span.length);
            assert!(to.iter().any(|to| {
                to.address <= target && target + u64::from(length) <= to.address + u64::from(to.length)
            }));
            let address = span.address + u64::from(offset);
            (0..u64::from(length)).for_each(|at| copied.push((address + at, target + at)));
            Ok(())
        })
        .unwrap();
        let count = left.len().min(room.len()).min(length as usize);
        let expected: Vec<_> = left.into_iter().zip(room).take(length as usize).collect();
        assert_eq!((copied.len(), &copied), (count, &expected));
        assert!(bytes(&found).len() <= length as usize, "no more is looked for than is copied");
    }
    let span = [Span { address: 0, length: 4 }];
    let result = pieces((&span, Place::START), (&span, Place::START), 4, Ok, |_, _, _, _| Err(5));
    assert_eq!(result, Err(5));
}

/// Spans one behind the other, with a byte between them.
fn cut(random: &mut Random, mut at: u64) -> Vec<Span> {
    let mut spans = Vec::new();
    for _ in 0..random.below(6) {
        let length = 1 + random.below(9) as u32;
        spans.push(Span { address: at, length });
        at += u64::from(length) + 1;
    }
    spans
}

fn bytes(spans: &[Span]) -> Vec<u64> {
    spans.iter().flat_map(|span| (0..u64::from(span.length)).map(|at| span.address + at)).collect()
}
