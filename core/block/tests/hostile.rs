// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Rings and requests of a hostile driver.

mod common;

use common::{Bytes, SECTORS, request, rules};
use proptest::prelude::*;
use turnstile_block::queue::{Queue, Rest};
use turnstile_block::ram::RamDisk;
use turnstile_block::request::{Budget, Fault};
use turnstile_rig::{Fuse, Guest, Ram, Random, Ring};
use turnstile_virtio::ring::Options;
use turnstile_virtio::violation::Violation;

const OPTIONS: Options = Options { indirect: true, event_idx: false };
const HEAP: u64 = Ram::BASE + 0x10_0000;
const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;

/// Offers the chain at descriptor 0 and serves it.
fn serve(write: impl FnOnce(&Ram, &Ring)) -> Result<(u8, u16), Fault> {
    let ram = Ram::new(0x30_0000, Fuse::default());
    let ring = Ring::new(&ram, Ram::BASE, 8, OPTIONS);
    write(&ram, &ring);
    ring.offer(&ram, 0, 0, 1);
    let mut disk = vec![0; 512 * SECTORS as usize];
    let mut queue: Queue<130> = Queue::new(ring.layout, OPTIONS);
    ram.fuse.mend();
    let served = queue.serve(&ram, &mut RamDisk::new(&mut disk[..]), &rules(), &mut Budget(1 << 20))?;
    assert_eq!(served.rest, Rest::Idle);
    Ok((ram.get(HEAP + 0x1000, 1)[0], ring.used(&ram)))
}

/// A table of descriptors at the ring's own place.
fn table(chain: &[(u64, u32, u16, u16)]) -> Result<(u8, u16), Fault> {
    serve(|ram, ring| {
        for (index, &(address, length, flags, next)) in (0..).zip(chain) {
            Ring::describe(ram, ring.layout.areas().descriptors, index, (address, length), flags, next);
        }
    })
}

#[test]
fn chains_that_break_rules_are_faults() {
    let status = (HEAP + 0x1000, 1, WRITE, 0);
    let ring = |violation| Err(Fault::Ring(violation));
    assert_eq!(table(&[(HEAP, 16, NEXT, 1), status]), Ok((0, 1)), "no bytes are whole sectors");
    assert_eq!(table(&[(HEAP, 15, NEXT, 1), status]), Err(Fault::Header));
    assert_eq!(table(&[status]), Err(Fault::Header));
    assert_eq!(table(&[(HEAP, 16, 0, 0)]), Err(Fault::Status));
    assert_eq!(table(&[(HEAP, 16, NEXT, 1), (HEAP, 0, WRITE, 0)]), Err(Fault::Status));
    assert_eq!(table(&[(HEAP, 8, NEXT, 1), (HEAP, 8, NEXT, 0)]), ring(Violation::Loop));
    assert_eq!(table(&[(HEAP, 16, NEXT, 8)]), ring(Violation::Next(8)));
    assert_eq!(
        table(&[(HEAP, 8, NEXT, 1), (HEAP, 1, NEXT | WRITE, 2), (HEAP, 8, 0, 0)]),
        ring(Violation::Order)
    );
    let end = Ram::BASE + 0x30_0000;
    for outside in [0, end - 15, end, u64::MAX - 3] {
        assert_eq!(table(&[(outside, 16, NEXT, 1), status]), ring(Violation::Outside(outside)));
        assert_eq!(
            table(&[(HEAP, 16, NEXT, 1), (outside, 512, WRITE, 0)]),
            ring(Violation::Outside(outside))
        );
        assert_eq!(table(&[(outside & !15, 32, INDIRECT, 0)]), ring(Violation::Outside(outside & !15)));
    }
    assert_eq!(table(&[(HEAP, u32::MAX, NEXT, 1), status]), ring(Violation::Outside(HEAP)));
}

#[test]
fn indirect_tables_of_two_to_the_sixteen_descriptors_are_bounded() {
    for (length, forward) in [(0, true), (1, true), (0, false)] {
        let result = serve(|ram, ring| {
            let at = HEAP + 0x10_0000;
            for index in 0..1 << 16 {
                let next = if forward { (index as u16).wrapping_add(1) } else { 0 };
                Ring::describe(ram, at, index, (HEAP, length), NEXT, next);
            }
            Ring::describe(ram, ring.layout.areas().descriptors, 0, (at, 1 << 20), INDIRECT, 0);
        });
        assert_eq!(result, Err(Fault::Ring(Violation::Long)));
    }
}

proptest! {
    /// Whatever the ring holds and however it changes under the reader: each call ends, within bounds of its budget.
    #[test]
    fn hostile_rings_do_no_harm(seed in 1u64..) {
        let random = &mut Random(seed);
        let fuse = Fuse::default();
        let ram = Ram::new(0x2_0000, fuse.clone());
        let mut guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x2000);
        let layout = guest.ring.layout;
        let mut bytes = vec![0; 512 * SECTORS as usize];
        let mut disk = RamDisk::new(Bytes(&mut bytes, Fuse::default()));
        let mut queue: Queue<20> = Queue::new(layout, OPTIONS);
        for round in 0u16..40 {
            if random.below(3) > 0 {
                let mut request = request(random);
                request.indirect = random.below(2) == 0;
                request.readable.truncate(0x1000);
                request.readable_cuts = random.cut(request.readable.len() as u32, 4);
                request.writable.iter_mut().for_each(|length| *length = (*length).min(0x400));
                ram.restless.set(0);
                let _ = guest.ask(&ram, &request);
            }
            for _ in 0..random.below(4) {
                let at = random.below(0x200);
                ram.put(Ram::BASE + at, &[random.any() as u8]);
            }
            if random.below(4) == 0 {
                guest.ring.offer(&ram, round, random.below(9) as u16, round.wrapping_add(random.below(9) as u16));
            }
            ram.restless.set(if random.below(2) == 0 { 0 } else { random.any() | 1 });
            fuse.mend();
            let result = queue.serve(&ram, &mut disk, &rules(), &mut Budget(10_000));
            // A request costs 512, and reads at most 42 descriptors: whatever the guest does, this is all.
            prop_assert!(fuse.steps() < 20 * 60 + 10_000 / 64 + 100, "{} steps", fuse.steps());
            if result.is_err() {
                ram.restless.set(0);
                guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x2000);
                queue = Queue::new(layout, OPTIONS);
            } else if random.below(10) == 0 {
                // Killed and started anew in the middle of it.
                queue = Queue::resume(&ram, layout, OPTIONS).unwrap();
            }
            if queue.serve(&ram, &mut disk, &rules(), &mut Budget(0)).is_err() {
                ram.restless.set(0);
                guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x2000);
                queue = Queue::new(layout, OPTIONS);
            }
        }
    }
}

#[test]
fn a_request_of_4_kib_costs_a_few_accesses() {
    let ram = Ram::new(0x10_0000, Fuse::default());
    let options = Options { indirect: true, event_idx: true };
    let mut guest = Guest::new(&ram, Ram::BASE, 32, options, 0x2000);
    let mut bytes = vec![0; 512 * SECTORS as usize];
    let mut disk = RamDisk::new(&mut bytes[..]);
    let mut queue: Queue<128> = Queue::new(guest.ring.layout, options);
    let mut ask = |count: u64| {
        let header = turnstile_virtio::config::BlockRequest { kind: 0, sector: 8 }.to_bytes().to_vec();
        let request = turnstile_rig::Request {
            readable: header,
            readable_cuts: vec![16],
            writable: vec![4096, 1],
            indirect: true,
        };
        (0..count).for_each(|_| assert!(guest.ask(&ram, &request).is_some()));
        ram.fuse.mend();
        let served = queue.serve(&ram, &mut disk, &rules(), &mut Budget(1 << 20)).unwrap();
        assert!(served.interrupt);
        let steps = ram.fuse.steps();
        assert_eq!(guest.take(&ram).len() as u64, count);
        assert!(!guest.arm(&ram));
        steps
    };
    // Available index and entry; four descriptors; header; data; status; used entry and index; the driver's wish; the index again, and
    // the device's wish with the index once more.
    assert_eq!(ask(1), 15);
    // All but the wishes for each.
    assert_eq!(ask(16), 16 * 10 + 5);
}
