// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests of a friendly driver, against a reading of the specification without rings.

mod common;

use common::{Oracle, SECTORS, request, rules};
use proptest::prelude::*;
use turnstile_block::disk::{Disk, DiskFor, Failure};
use turnstile_block::queue::{Queue, Rest};
use turnstile_block::ram::RamDisk;
use turnstile_block::request::Budget;
use turnstile_block::settings::{MAX_RANGE, Settings};
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_virtio::config::{Block, BlockRequest};
use turnstile_virtio::device::Span;
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::Options;

proptest! {
    /// However requests are cut into buffers and whatever the budget: replies, disk, order and interrupts are right.
    #[test]
    fn requests_do_what_the_specification_says(seed in 1u64.., indirect: bool, event_idx: bool, read_only: bool) {
        let random = &mut Random(seed);
        let ram = Ram::new(0x10_0000, Fuse::default());
        let options = Options { indirect, event_idx };
        let mut guest = Guest::new(&ram, Ram::BASE, 32, options, 0x3000);
        let mut oracle = Oracle { disk: random.bytes(512 * SECTORS as usize), read_only };
        let mut bytes = oracle.disk.clone();
        let rules = turnstile_block::settings::Rules { read_only, ..rules() };
        {
            let mut disk = RamDisk::new(&mut bytes[..]);
            let mut queue: Queue<16> = Queue::new(guest.ring.layout, options);
            let mut expected = std::collections::VecDeque::new();
            let (mut asked, mut notify, mut sleeping, mut spent) = (0, false, true, false);
            for _ in 0..200 {
                let mut request = request(random);
                request.indirect &= indirect;
                if random.below(2) == 0 && let Some((number, wanted)) = guest.ask(&ram, &request) {
                    prop_assert_eq!(number, asked);
                    asked += 1;
                    notify |= wanted;
                    expected.push_back(oracle.answer(&request));
                }
                // The device runs if it was notified or has work left.
                if random.below(3) == 0 && (notify || spent || random.below(20) == 0) {
                    notify = false;
                    let most = if random.below(3) == 0 { 100_000 } else { 1 + random.below(3000) as u32 };
                    let before = guest.ring.used(&ram);
                    let served = queue.serve(&ram, &mut disk, &rules, &mut Budget(most)).unwrap();
                    let news = guest.ring.used(&ram) != before;
                    prop_assert!(!served.interrupt || news);
                    prop_assert!(!(sleeping && news && !served.interrupt), "who waits for an interrupt has one");
                    sleeping &= !served.interrupt;
                    spent = served.rest == Rest::Spent;
                }
                if !sleeping {
                    for reply in guest.take(&ram) {
                        let answer = expected.pop_front().unwrap();
                        prop_assert_eq!(&reply.bytes, &answer.bytes);
                        prop_assert_eq!(reply.written, answer.written);
                    }
                    sleeping = !guest.arm(&ram);
                }
            }
            while let Ok(served) = queue.serve(&ram, &mut disk, &rules, &mut Budget(5000))
                && served.rest != Rest::Idle
            {}
            for reply in guest.take(&ram) {
                prop_assert_eq!(reply.bytes, expected.pop_front().unwrap().bytes);
            }
            prop_assert!(expected.is_empty(), "each request is answered");
        }
        prop_assert!(bytes == oracle.disk);
    }
}

/// A disk that counts, and is busy for some calls.
#[derive(Default)]
struct Slow {
    busy: u32,
    calls: Vec<(&'static str, u64, u64)>,
}

impl Slow {
    fn call(&mut self, what: &'static str, at: u64, length: u64) -> Result<(), Failure> {
        if self.busy > 0 {
            self.busy -= 1;
            return Err(Failure::Busy);
        }
        self.calls.push((what, at, length));
        if at == 512 * 77 { Err(Failure::Io) } else { Ok(()) }
    }
}

impl Disk for Slow {
    fn sectors(&self) -> u64 {
        1 << 40
    }
    fn flush(&mut self) -> Result<(), Failure> {
        self.call("flush", 0, 0)
    }
    fn discard(&mut self, at: u64, length: u64) -> Result<(), Failure> {
        self.call("discard", at, length)
    }
    fn zero(&mut self, at: u64, length: u64, may_discard: bool) -> Result<(), Failure> {
        self.call(if may_discard { "unmap" } else { "zero" }, at, length)
    }
}

impl DiskFor<Ram> for Slow {
    fn read(&mut self, at: u64, _: &Ram, to: Span) -> Result<(), Failure> {
        self.call("read", at, to.length.into())
    }
    fn write(&mut self, at: u64, _: &Ram, from: Span) -> Result<(), Failure> {
        self.call("write", at, from.length.into())
    }
}

fn simple(kind: u32, sector: u64, sent: &[u8], room: u32) -> Request {
    let mut readable = BlockRequest { kind, sector }.to_bytes().to_vec();
    readable.extend(sent);
    Request { readable_cuts: vec![16, sent.len() as u32], readable, writable: vec![room, 1], indirect: false }
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    turnstile_virtio::config::BlockRange { sector, sectors, flags }.to_bytes().to_vec()
}

/// Serves one request with a disk and rules; returns status and `written`.
fn once(
    disk: &mut Slow,
    rules: &turnstile_block::settings::Rules,
    request: &Request,
    budget: u32,
) -> (u8, u32, u32) {
    let ram = Ram::new(0x10_0000, Fuse::default());
    let mut guest = Guest::new(&ram, Ram::BASE, 8, Options::default(), 0x4000);
    guest.ask(&ram, request).unwrap();
    let mut queue: Queue<16> = Queue::new(guest.ring.layout, Options::default());
    let mut turns = 0;
    loop {
        turns += 1;
        let served = queue.serve(&ram, disk, rules, &mut Budget(budget)).unwrap();
        if served.rest == Rest::Idle {
            break;
        }
        assert!(!served.interrupt);
    }
    let reply = guest.take(&ram).remove(0);
    (*reply.bytes.last().unwrap(), reply.written, turns)
}

#[test]
fn busy_disks_are_asked_again() {
    let mut disk = Slow { busy: 3, ..Slow::default() };
    assert_eq!(once(&mut disk, &rules(), &simple(BlockRequest::IN, 5, &[], 1024), 1 << 20), (0, 1025, 4));
    assert_eq!(disk.calls, [("read", 5 * 512, 1024)]);
}

#[test]
fn failures_of_the_disk_are_statuses() {
    let mut disk = Slow::default();
    assert_eq!(once(&mut disk, &rules(), &simple(BlockRequest::IN, 77, &[], 512), 1 << 20), (1, 0, 1));
    assert_eq!(once(&mut disk, &rules(), &simple(BlockRequest::OUT, 77, &[0; 512], 0), 1 << 20), (1, 1, 1));
}

#[test]
fn large_ranges_are_done_in_turns() {
    let mut disk = Slow::default();
    let request = simple(BlockRequest::WRITE_ZEROES, 0, &range(8, MAX_RANGE, 1), 0);
    let (status, _, turns) = once(&mut disk, &rules(), &request, 1 << 20);
    assert_eq!(status, 0);
    assert!((1024..1100).contains(&turns), "a MiB at a time: {turns}");
    assert_eq!(disk.calls.iter().map(|call| call.2).sum::<u64>(), 1 << 30);
    let too_long = simple(BlockRequest::WRITE_ZEROES, 0, &range(8, MAX_RANGE + 1, 0), 0);
    assert_eq!(once(&mut disk, &rules(), &too_long, 1 << 20).0, 1);
}

#[test]
fn without_a_cache_writes_are_flushed() {
    let settings = Settings::new("x");
    let offered = settings.features();
    let through = [
        settings.rules(offered, false),
        settings.rules(Features::VERSION_1, true),
        settings.rules(offered - Block::FLUSH - Block::CONFIG_WCE, true),
    ];
    for rules in through {
        let mut disk = Slow::default();
        once(&mut disk, &rules, &simple(BlockRequest::OUT, 1, &[0; 512], 0), 1 << 20);
        once(&mut disk, &rules, &simple(BlockRequest::WRITE_ZEROES, 0, &range(8, 1, 0), 0), 1 << 20);
        let calls: Vec<_> = disk.calls.iter().map(|call| call.0).collect();
        assert_eq!(calls, ["write", "flush", "zero", "flush"]);
    }
    for rules in [settings.rules(offered, true), settings.rules(offered - Block::CONFIG_WCE, false)] {
        let mut disk = Slow::default();
        once(&mut disk, &rules, &simple(BlockRequest::OUT, 1, &[0; 512], 0), 1 << 20);
        assert_eq!(disk.calls.len(), 1);
        once(&mut disk, &rules, &simple(BlockRequest::FLUSH, 0, &[], 0), 1 << 20);
        assert_eq!(disk.calls[1].0, "flush");
    }
}

#[test]
fn what_is_announced_is_what_is_done() {
    let settings = Settings {
        queues: 4,
        segment_bytes: 4096,
        block_size: 4096,
        ..Settings::new("a name of more than twenty bytes")
    };
    let config = settings.configuration(1003);
    assert_eq!((config.capacity, config.queues, config.seg_max, config.size_max), (1000, 4, 126, 4096));
    assert_eq!(&settings.id, b"a name of more than ");
    let all =
        Block::MQ | Block::SIZE_MAX | Block::FLUSH | Block::DISCARD | Block::WRITE_ZEROES | Block::CONFIG_WCE;
    assert!(settings.features().contains(all));
    let read_only = Settings { read_only: true, ..settings };
    let writing = Block::FLUSH | Block::DISCARD | Block::WRITE_ZEROES | Block::CONFIG_WCE;
    assert!(read_only.features().contains(Block::RO) && !read_only.features().intersects(writing));
    let keeps = Settings { discard_alignment: 0, ..settings };
    assert!(!keeps.features().intersects(Block::DISCARD));
    assert_eq!(keeps.configuration(8).max_discard_sectors, 0);
    let mut disk = Slow::default();
    let rules = keeps.rules(keeps.features(), true);
    assert_eq!(once(&mut disk, &rules, &simple(BlockRequest::DISCARD, 0, &range(0, 1, 0), 0), 1 << 20).0, 2);
    once(&mut disk, &rules, &simple(BlockRequest::WRITE_ZEROES, 0, &range(0, 1, 1), 0), 1 << 20);
    assert_eq!(disk.calls, [("zero", 0, 512)], "it may discard, but the disk does not");
}
