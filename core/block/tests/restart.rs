// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A device that is killed at any step, and started anew.

mod common;

use std::sync::atomic::AtomicU32;

use common::{Answer, Bytes, Oracle, SECTORS, request, rules};
use turnstile_block::disk::{Disk, DiskFor};
use turnstile_block::overlay::{Kept, Overlay};
use turnstile_block::queue::{Queue, Rest};
use turnstile_block::ram::RamDisk;
use turnstile_block::request::Budget;
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_virtio::config::BlockRequest;
use turnstile_virtio::ring::Options;

const OPTIONS: Options = Options { indirect: true, event_idx: true };

/// Serves until nothing is left or the device is cut off. Returns whether it wanted an interrupt.
fn serve<D: DiskFor<Ram>>(queue: &mut Queue<16>, ram: &Ram, disk: &mut D, random: &mut Random) -> bool {
    let mut interrupt = false;
    loop {
        let mut budget = Budget(1 + random.below(4000) as u32);
        match queue.serve(ram, disk, &rules(), &mut budget) {
            Ok(served) => {
                interrupt |= served.interrupt;
                if served.rest == Rest::Idle {
                    return interrupt;
                }
            }
            Err(fault) => {
                assert!(ram.fuse.is_blown(), "only a device that was cut off fails: {fault}");
                return false;
            }
        }
        if ram.fuse.is_blown() {
            return false;
        }
    }
}

/// Whoever is killed at step `step` and started anew has done everything, once or again.
fn killed_at<D: DiskFor<Ram>>(
    step: u64,
    fuse: &Fuse,
    mut disk: impl FnMut() -> D,
    oracle: &mut Oracle,
) -> bool {
    let random = &mut Random(0x6469_736b_0001);
    let ram = Ram::new(0x10_0000, fuse.clone());
    fuse.mend();
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
    let mut answers = Vec::new();
    for _ in 0..6 {
        let request = request(random);
        if guest.ask(&ram, &request).is_some() {
            answers.push(oracle.answer(&request));
        }
    }
    let mut first = Queue::new(guest.ring.layout, OPTIONS);
    let mut life = disk();
    fuse.arm(step);
    let told = serve(&mut first, &ram, &mut life, random);
    let blown = fuse.is_blown();
    drop((first, life));
    fuse.mend();
    if blown {
        let mut second = Queue::resume(&ram, guest.ring.layout, OPTIONS).unwrap();
        assert!(serve(&mut second, &ram, &mut disk(), random), "the driver is told in any case");
    } else {
        assert!(told);
    }
    let replies = guest.take(&ram);
    assert_eq!(replies.len(), answers.len(), "step {step}");
    for (reply, Answer { bytes, written }) in replies.iter().zip(&answers) {
        assert_eq!((&reply.bytes, reply.written), (bytes, *written), "step {step}, request {}", reply.number);
    }
    blown
}

#[test]
fn a_device_that_is_killed_at_any_step_loses_nothing() {
    let original = Random(7).bytes(512 * SECTORS as usize);
    let mut steps = 0;
    loop {
        let fuse = Fuse::default();
        let mut oracle = Oracle { disk: original.clone(), read_only: false };
        let cell = std::cell::RefCell::new(original.clone());
        let blown = {
            // Each life maps the same bytes.
            let mut bytes = cell.borrow_mut();
            let shared = std::cell::RefCell::new(&mut **bytes);
            let disk = || Shared(&shared, fuse.clone());
            killed_at(steps, &fuse, disk, &mut oracle)
        };
        assert!(cell.into_inner() == oracle.disk, "step {steps}");
        if !blown {
            break;
        }
        steps += 1;
    }
    assert!(steps > 100, "the device was killed at {steps} steps");
}

/// A disk in RAM that each life of the device makes anew.
struct Shared<'a, 'b>(&'a std::cell::RefCell<&'b mut [u8]>, Fuse);

impl Shared<'_, '_> {
    fn with<T>(&self, act: impl FnOnce(&mut RamDisk<Bytes<'_>>) -> T) -> T {
        let mut bytes = self.0.borrow_mut();
        act(&mut RamDisk::new(Bytes(&mut bytes, self.1.clone())))
    }
}

impl Disk for Shared<'_, '_> {
    fn sectors(&self) -> u64 {
        SECTORS
    }
    fn flush(&mut self) -> Result<(), turnstile_block::disk::Failure> {
        self.with(|disk| disk.flush())
    }
    fn discard(&mut self, at: u64, length: u64) -> Result<(), turnstile_block::disk::Failure> {
        self.with(|disk| disk.discard(at, length))
    }
    fn zero(&mut self, at: u64, length: u64, may: bool) -> Result<(), turnstile_block::disk::Failure> {
        self.with(|disk| disk.zero(at, length, may))
    }
}

impl<M: turnstile_virtio::memory::Memory> DiskFor<M> for Shared<'_, '_> {
    fn read(
        &mut self,
        at: u64,
        memory: &M,
        to: turnstile_virtio::device::Span,
    ) -> Result<(), turnstile_block::disk::Failure> {
        self.with(|disk| disk.read(at, memory, to))
    }
    fn write(
        &mut self,
        at: u64,
        memory: &M,
        from: turnstile_virtio::device::Span,
    ) -> Result<(), turnstile_block::disk::Failure> {
        self.with(|disk| disk.write(at, memory, from))
    }
}

/// A read that was done and not yet shown is not done again behind the write that follows it.
#[test]
fn a_request_is_never_done_again_behind_a_later_one() {
    let mut steps = 0;
    loop {
        let fuse = Fuse::default();
        let ram = Ram::new(0x10_0000, fuse.clone());
        let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
        let mut bytes = vec![1; 512 * SECTORS as usize];
        let shared = std::cell::RefCell::new(&mut bytes[..]);
        for turn in 2..5u8 {
            let read = BlockRequest { kind: BlockRequest::IN, sector: 5 }.to_bytes().to_vec();
            let write = BlockRequest { kind: BlockRequest::OUT, sector: 5 }.to_bytes().to_vec();
            let write = [write, vec![turn; 512]].concat();
            let cut = |readable: Vec<u8>, writable| Request {
                readable_cuts: vec![readable.len() as u32],
                readable,
                writable,
                indirect: true,
            };
            assert!(guest.ask(&ram, &cut(read, vec![512, 1])).is_some());
            assert!(guest.ask(&ram, &cut(write, vec![1])).is_some());
        }
        fuse.arm(steps);
        let mut queue: Queue<16> = Queue::new(guest.ring.layout, OPTIONS);
        let _ = queue.serve(&ram, &mut Shared(&shared, fuse.clone()), &rules(), &mut Budget(1 << 20));
        let blown = fuse.is_blown();
        fuse.mend();
        let mut queue: Queue<16> = Queue::resume(&ram, guest.ring.layout, OPTIONS).unwrap();
        let served = queue.serve(&ram, &mut Shared(&shared, fuse.clone()), &rules(), &mut Budget(1 << 20));
        assert!(served.unwrap().interrupt);
        for (reply, turn) in guest.take(&ram).iter().step_by(2).zip(1u8..) {
            assert_eq!(reply.bytes[0], turn, "step {steps}");
        }
        if !blown {
            break;
        }
        steps += 1;
    }
}

/// Under load, and again and again; on an overlay, whose map and store are all that is kept.
#[test]
fn a_device_that_is_killed_again_and_again_loses_nothing() {
    let random = &mut Random(0x6f76_6572);
    let fuse = Fuse::default();
    let ram = Ram::new(0x20_0000, fuse.clone());
    let mut guest = Guest::new(&ram, Ram::BASE, 64, OPTIONS, 0x3000);
    let image = random.bytes(512 * 40 + 100);
    let mut oracle = Oracle { disk: image.clone(), read_only: false };
    oracle.disk.resize(512 * SECTORS as usize, 0);
    let clusters = SECTORS as usize / 8;
    let map: Vec<_> = (0..clusters).map(|_| AtomicU32::new(0)).collect();
    let owners: Vec<_> = (0..clusters).map(|_| AtomicU32::new(0)).collect();
    let kept = Kept { map: &map, owners: &owners };
    let mut store = vec![0x55; 4096 * clusters];
    let mut expected = std::collections::VecDeque::new();
    let (mut lives, mut done) = (0, 0);
    while done < 3000 {
        lives += 1;
        let store = Bytes(&mut store, fuse.clone());
        fuse.mend();
        let mut disk = Overlay::new(&image[..], store, kept, SECTORS).unwrap();
        let mut queue = match lives {
            1 => Queue::new(guest.ring.layout, OPTIONS),
            _ => Queue::resume(&ram, guest.ring.layout, OPTIONS).unwrap(),
        };
        let mut left = random.below(1500);
        loop {
            fuse.mend();
            for _ in 0..random.below(4) {
                let mut request = request(random);
                // This disk discards to zero, which the specification allows and the other reading does not know.
                if request.readable[0] == 11 {
                    request.readable[0] = 13;
                }
                if guest.ask(&ram, &request).is_some() {
                    expected.push_back(oracle.answer(&request));
                }
            }
            for reply in guest.take(&ram) {
                let answer = expected.pop_front().unwrap();
                assert_eq!((reply.bytes, reply.written), (answer.bytes, answer.written), "{}", reply.number);
                done += 1;
            }
            fuse.arm(left);
            serve(&mut queue, &ram, &mut disk, random);
            if fuse.is_blown() {
                break;
            }
            left -= fuse.steps();
        }
    }
    assert!(lives > 50, "{lives}");
}
