// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A drive that does several requests at once, in any order, and a device on it that may be killed at any time.

mod common;

use std::collections::VecDeque;

use common::{Oracle, SECTORS, request, rules};
use turnstile_block::deep::{Queue, Slots};
use turnstile_block::disk::{Failure, Move, SECTOR};
use turnstile_block::queue::Rest;
use turnstile_block::request::Budget;
use turnstile_block::staged::{Command, Drive};
use turnstile_rig::{Fuse, Guest, Ram, Random, Request};
use turnstile_virtio::config::BlockRequest;
use turnstile_virtio::memory::Memory;
use turnstile_virtio::ring::Options;

const OPTIONS: Options = Options { indirect: true, event_idx: true };
const DEPTH: usize = 4;
const BUFFERS: usize = 16;

type Room = Slots<BUFFERS, DEPTH>;

/// A drive whose stages are too short for most requests.
struct Model {
    disk: Vec<u8>,
    stages: Ram,
    /// What it was told, in that order.
    told: Vec<(u16, Command)>,
    /// From here on it refuses everything.
    is_dead: bool,
    /// How many commands it takes at once.
    room: usize,
    flushes: usize,
    /// It moves bytes itself.
    is_direct: bool,
}

impl Model {
    const STAGE: u64 = 1024;

    fn new(disk: Vec<u8>) -> Self {
        let stages = Ram::new(DEPTH * Self::STAGE as usize, Fuse::default());
        Self { disk, stages, told: Vec::new(), is_dead: false, room: DEPTH, flushes: 0, is_direct: false }
    }

    fn range(at: u64, length: u64) -> std::ops::Range<usize> {
        at as usize..(at + length) as usize
    }

    /// Does one of the commands, and returns its tag.
    fn work(&mut self, random: &mut Random) -> Option<u16> {
        let count = self.told.len() as u64;
        let (tag, command) = self.told.remove((count != 0).then(|| random.below(count))? as usize);
        let place = Ram::BASE + u64::from(tag) * Self::STAGE;
        match command {
            Command::Read { at, length } => self.stages.put(place, &self.disk[Self::range(at, length)]),
            Command::Write { at, length } => {
                let bytes = self.stages.get(place, length as usize);
                self.disk[Self::range(at, length)].copy_from_slice(&bytes);
            }
            Command::Flush => self.flushes += 1,
            Command::Discard { .. } => {}
            Command::Zero { at, length, .. } => self.disk[Self::range(at, length)].fill(0),
        }
        Some(tag)
    }
}

impl Drive for Model {
    type Memory = Ram;
    fn sectors(&self) -> u64 {
        self.disk.len() as u64 / SECTOR
    }

    fn stage_bytes(&self) -> u64 {
        Self::STAGE
    }

    fn range_piece(&self) -> u64 {
        1536
    }

    fn stage(&self, tag: u16) -> Result<(&Ram, u64), Failure> {
        Ok((&self.stages, Ram::BASE + u64::from(tag) * Self::STAGE))
    }

    fn submit(&mut self, tag: u16, command: Command) -> Result<bool, Failure> {
        assert!(self.told.iter().all(|(other, _)| *other != tag), "one command for each tag");
        if let Command::Read { length, .. } | Command::Write { length, .. } = command {
            assert!((1..=Self::STAGE).contains(&length), "{length} bytes");
        }
        if self.is_dead {
            return Err(Failure::Io);
        }
        if self.told.len() >= self.room {
            return Err(Failure::Busy);
        }
        if command == Command::Flush && self.told.is_empty() {
            self.flushes += 1;
            return Ok(true);
        }
        self.told.push((tag, command));
        Ok(false)
    }

    fn submit_direct(&mut self, tag: u16, wanted: &Move<'_>) -> Result<Option<u64>, Failure> {
        let Move { at, length, .. } = *wanted;
        if !self.is_direct {
            return Ok(None);
        }
        self.submit(tag, Command::Read { at, length }).map(|_| Some(length))
    }
}

fn serve(
    queue: &mut Queue<DEPTH>,
    ram: &Ram,
    slots: &mut Room,
    drive: &mut Model,
    random: &mut Random,
) -> Rest {
    loop {
        let mut budget = Budget(1 + random.below(4000) as u32);
        let served = queue.serve(ram, slots, drive, &rules(), &mut budget).unwrap();
        if served.rest != Rest::Spent {
            return served.rest;
        }
    }
}

/// The drive does all that it was told, and each request is completed.
fn finish(
    queue: &mut Queue<DEPTH>,
    ram: &Ram,
    slots: &mut Room,
    drive: &mut Model,
    random: &mut Random,
) -> usize {
    let mut commands = 0;
    while serve(queue, ram, slots, drive, random) == Rest::Busy {
        let tag = drive.work(random).expect("who is busy has told the drive something");
        assert!(slots.done(tag, Ok(())));
        commands += 1;
    }
    commands
}

/// As many requests as there are places begin while none is done, and no more.
fn has_all_places(slots: &mut Room, drive: &mut Model, random: &mut Random) {
    has_places(DEPTH, slots, drive, random);
}

/// The same of so many places.
fn has_places(places: usize, slots: &mut Room, drive: &mut Model, random: &mut Random) {
    let ram = Ram::new(0x20_0000, Fuse::default());
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
    for count in 1..=DEPTH + 1 {
        guest.ask(&ram, &ask(BlockRequest::IN, count as u64, Vec::new(), 512)).unwrap();
        assert_eq!(serve(&mut queue, &ram, slots, drive, random), Rest::Busy);
        assert_eq!((drive.told.len(), slots.is_waiting()), (count.min(places), true));
        assert!(drive.told.iter().all(|(tag, _)| usize::from(*tag) < places));
    }
    assert_eq!(finish(&mut queue, &ram, slots, drive, random), DEPTH + 1);
    assert_eq!((guest.take(&ram).len(), slots.is_waiting()), (DEPTH + 1, false));
}

fn ask(kind: u32, sector: u64, sent: Vec<u8>, room: u32) -> Request {
    let readable = [BlockRequest { kind, sector }.to_bytes().to_vec(), sent].concat();
    let cuts = vec![16, readable.len() as u32 - 16];
    Request { readable_cuts: cuts, readable, writable: vec![room, 1], indirect: true }
}

#[test]
fn a_queue_has_no_more_than_its_share() {
    let random = &mut Random(0x7368_6172);
    let mut drive = Model::new(vec![0; (SECTORS * SECTOR) as usize]);
    for share in [1, 2, DEPTH as u16, u32::BITS as u16, u16::MAX] {
        let mut slots = Room::NEW;
        slots.limit(share);
        for _ in 0..2 {
            has_places(DEPTH.min(share.into()), &mut slots, &mut drive, random);
            // Also the queue behind this one.
            slots.forget();
        }
    }
}

/// Requests that touch the same bytes may be done in any order while they are under way together, so each waits for the one before.
#[test]
fn requests_are_done_as_if_one_after_the_other_if_each_waits() {
    let random = &mut Random(0x6465_6570);
    let ram = Ram::new(0x20_0000, Fuse::default());
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
    let mut oracle = Oracle { disk: random.bytes((SECTORS * SECTOR) as usize), read_only: false };
    let mut drive = Model::new(oracle.disk.clone());
    let mut slots = Room::NEW;
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
    for number in 0..3000 {
        let request = request(random);
        guest.ask(&ram, &request).unwrap();
        let answer = oracle.answer(&request);
        while serve(&mut queue, &ram, &mut slots, &mut drive, random) == Rest::Busy {
            let tag = drive.work(random).expect("who is busy has told the drive something");
            assert!(slots.done(tag, Ok(())) && !slots.done(tag, Ok(())));
        }
        let replies = guest.take(&ram);
        assert_eq!(
            (replies.len(), &replies[0].bytes, replies[0].written),
            (1, &answer.bytes, answer.written),
            "{number}"
        );
        assert!(drive.disk == oracle.disk, "{number}");
    }
    assert!(drive.flushes > 100 && !slots.is_waiting());
}

/// Readers of any place, and writers each of a place of its own, all at once; the device is killed again and again, and the drive with it.
#[test]
fn a_device_that_is_killed_loses_nothing_of_what_the_drive_does_at_once() {
    let random = &mut Random(0x6b69_6c6c);
    let ram = Ram::new(0x40_0000, Fuse::default());
    let mut guest = Guest::new(&ram, Ram::BASE, 32, OPTIONS, 0x3000);
    let mut drive = Model::new(vec![0; (SECTORS * SECTOR) as usize]);
    let mut expected: VecDeque<(u64, u8, bool)> = VecDeque::new();
    let mut values = [0; SECTORS as usize / 4];
    let (mut slots, mut lives, mut done, mut most) = (Room::NEW, 1, 0, 0);
    let mut queue: Queue<DEPTH> = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
    while done < 4000 {
        for _ in 0..random.below(6) {
            // Four sectors each: two stages. Nobody else has asked for them.
            let place = random.below(SECTORS / 4);
            if expected.iter().any(|(other, ..)| *other == place) {
                continue;
            }
            let value = &mut values[place as usize];
            let writes = random.below(2) == 0;
            let written = (*value + u8::from(writes)) % 100;
            let request = match writes {
                true => ask(BlockRequest::OUT, place * 4, vec![written; 2048], 0),
                false => ask(BlockRequest::IN, place * 4, Vec::new(), 2048),
            };
            if guest.ask(&ram, &request).is_some() {
                *value = written;
                expected.push_back((place, *value, writes));
            }
        }
        // Now and then it takes fewer than there are requests.
        drive.room = 1 + random.below(DEPTH as u64) as usize;
        serve(&mut queue, &ram, &mut slots, &mut drive, random);
        most = most.max(drive.told.len());
        assert_eq!(slots.is_waiting(), !drive.told.is_empty());
        for _ in 0..random.below(3) {
            if let Some(tag) = drive.work(random) {
                assert!(slots.done(tag, Ok(())));
            }
        }
        if random.below(10) == 0 {
            // What the drive was told is lost, or was done and not told.
            lives += 1;
            drive.told.clear();
            slots = Room::NEW;
            queue = Queue::resume(&ram, guest.ring.layout, OPTIONS, BUFFERS as u32).unwrap();
        }
        for reply in guest.take(&ram) {
            let (place, value, writes) = expected.pop_front().unwrap();
            assert_eq!(reply.bytes.last(), Some(&0), "{place}");
            assert!(writes || reply.bytes[..2048].iter().all(|byte| *byte == value), "{place}: {value}");
            done += 1;
        }
    }
    assert!(lives > 50 && most == DEPTH, "{lives} lives, {most} at once");
}

/// However requests end: their places are free again, and nobody waits for the drive.
#[test]
fn the_place_of_a_request_that_has_ended_is_free() {
    type End = fn(&mut Room, &mut Model, &mut Random);
    let done: End = |slots, drive, random| {
        while let Some(tag) = drive.work(random) {
            assert!(slots.done(tag, Ok(())));
        }
    };
    let failed: End = |slots, drive, _| {
        drive.told.clear();
        slots.fail();
    };
    let begun_anew: End = |slots, drive, _| {
        drive.told.clear();
        *slots = Room::NEW;
    };
    let forgotten: End = |slots, _, _| slots.forget();
    let random = &mut Random(5);
    let ends: [&[End]; 6] = [
        &[done, forgotten],
        &[forgotten, done],
        &[failed, forgotten],
        &[forgotten, failed],
        &[begun_anew],
        &[forgotten, begun_anew],
    ];
    for end in ends {
        let ram = Ram::new(0x20_0000, Fuse::default());
        let mut drive = Model::new(vec![0; (SECTORS * SECTOR) as usize]);
        let mut slots = Room::NEW;
        let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
        let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
        for place in 0..3 {
            guest.ask(&ram, &ask(BlockRequest::OUT, place * 4, vec![1; 2048], 0)).unwrap();
        }
        assert_eq!(serve(&mut queue, &ram, &mut slots, &mut drive, random), Rest::Busy);
        assert_eq!((drive.told.len(), slots.is_waiting()), (3, true));
        end.iter().for_each(|end| end(&mut slots, &mut drive, random));
        assert!(!slots.is_waiting());
        has_all_places(&mut slots, &mut drive, random);
    }
}

/// A drive of which nothing can be had says so, and what it was told before fails.
#[test]
fn requests_to_a_dead_drive_fail() {
    let random = &mut Random(3);
    let ram = Ram::new(0x20_0000, Fuse::default());
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
    let mut drive = Model::new(vec![0; (SECTORS * SECTOR) as usize]);
    let mut slots = Room::NEW;
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
    guest.ask(&ram, &ask(BlockRequest::IN, 0, Vec::new(), 512)).unwrap();
    assert_eq!(serve(&mut queue, &ram, &mut slots, &mut drive, random), Rest::Busy);
    drive.is_dead = true;
    slots.fail();
    guest.ask(&ram, &ask(BlockRequest::OUT, 0, vec![1; 512], 0)).unwrap();
    guest.ask(&ram, &ask(BlockRequest::FLUSH, 0, Vec::new(), 0)).unwrap();
    guest.ask(&ram, &ask(BlockRequest::IN, SECTORS, Vec::new(), 512)).unwrap();
    assert_eq!(serve(&mut queue, &ram, &mut slots, &mut drive, random), Rest::Idle);
    let status: Vec<_> = guest.take(&ram).iter().map(|reply| *reply.bytes.last().unwrap()).collect();
    assert_eq!(status, [BlockRequest::IOERR; 4]);
}

/// What an earlier life of the guest has asked for is not done behind what a later one asks for.
#[test]
fn nothing_begins_while_the_drive_does_what_nobody_waits_for() {
    let random = &mut Random(9);
    let ram = Ram::new(0x20_0000, Fuse::default());
    let mut drive = Model::new(vec![0; (SECTORS * SECTOR) as usize]);
    let mut slots = Room::NEW;
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
    guest.ask(&ram, &ask(BlockRequest::OUT, 0, vec![1; 512], 0)).unwrap();
    assert_eq!(serve(&mut queue, &ram, &mut slots, &mut drive, random), Rest::Busy);

    slots.forget();
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
    guest.ask(&ram, &ask(BlockRequest::OUT, 0, vec![2; 512], 0)).unwrap();
    assert_eq!(serve(&mut queue, &ram, &mut slots, &mut drive, random), Rest::Busy);
    assert_eq!(drive.told.len(), 1, "the one that nobody waits for");
    let tag = drive.work(random).unwrap();
    assert!(slots.done(tag, Ok(())));
    assert_eq!(serve(&mut queue, &ram, &mut slots, &mut drive, random), Rest::Busy);
    let tag = drive.work(random).unwrap();
    assert!(slots.done(tag, Ok(())));
    assert_eq!(serve(&mut queue, &ram, &mut slots, &mut drive, random), Rest::Idle);
    assert_eq!((guest.take(&ram).len(), drive.disk[0]), (1, 2));
}

/// A command that fails fails its request alone, also one whose bytes came in several pieces.
#[test]
fn a_command_that_fails_fails_its_request() {
    let random = &mut Random(11);
    let ram = Ram::new(0x20_0000, Fuse::default());
    let mut drive = Model::new(vec![0; (SECTORS * SECTOR) as usize]);
    let mut slots = Room::NEW;
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
    guest.ask(&ram, &ask(BlockRequest::OUT, 0, vec![1; 2048], 0)).unwrap();
    guest.ask(&ram, &ask(BlockRequest::IN, 8, Vec::new(), 2048)).unwrap();
    let mut fails = true;
    while serve(&mut queue, &ram, &mut slots, &mut drive, random) == Rest::Busy {
        let is_write = |command: &Command| matches!(command, Command::Write { .. });
        let first = drive.told.iter().position(|(_, command)| is_write(command)).filter(|_| fails);
        match first {
            Some(place) => {
                let (tag, _) = drive.told.remove(place);
                assert!(slots.done(tag, Err(Failure::Io)));
                fails = false;
            }
            None => {
                let tag = drive.work(random).unwrap();
                assert!(slots.done(tag, Ok(())));
            }
        }
    }
    let status: Vec<_> = guest.take(&ram).iter().map(|reply| *reply.bytes.last().unwrap()).collect();
    assert_eq!(status, [BlockRequest::IOERR, BlockRequest::OK]);
    assert!(drive.disk.iter().all(|byte| *byte == 0), "nothing of it was written");
}

/// Whatever the ring holds and however it changes under the reader: each call ends, within bounds of its budget.
#[test]
fn hostile_rings_do_no_harm() {
    for seed in 1..300 {
        let random = &mut Random(seed);
        let ram = Ram::new(0x2_0000, Fuse::default());
        let mut drive = Model::new(vec![0; (SECTORS * SECTOR) as usize]);
        let mut slots = Room::NEW;
        let mut guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x2000);
        let layout = guest.ring.layout;
        let mut queue: Queue<DEPTH> = Queue::new(layout, OPTIONS, BUFFERS as u32);
        for round in 0u16..40 {
            if random.below(3) > 0 {
                let mut request = request(random);
                request.readable.truncate(0x1000);
                request.readable_cuts = random.cut(request.readable.len() as u32, 4);
                request.writable.iter_mut().for_each(|length| *length = (*length).min(0x400));
                ram.restless.set(0);
                let _ = guest.ask(&ram, &request);
            }
            if random.below(4) == 0 {
                let index = round.wrapping_add(random.below(9) as u16);
                guest.ring.offer(&ram, round, random.below(9) as u16, index);
            }
            ram.disturb(random, 0x200);
            let served = queue.serve(&ram, &mut slots, &mut drive, &rules(), &mut Budget(10_000));
            assert!(ram.fuse.steps() < 4000, "{} steps", ram.fuse.steps());
            if let Some(tag) = drive.work(random) {
                assert!(slots.done(tag, Ok(())));
            }
            assert_eq!(slots.is_waiting(), !drive.told.is_empty());
            if served.is_err() || random.below(20) == 0 {
                ram.restless.set(0);
                slots.forget();
                assert_eq!(slots.is_waiting(), !drive.told.is_empty());
                guest = Guest::new(&ram, Ram::BASE, 8, OPTIONS, 0x2000);
                queue = Queue::new(layout, OPTIONS, BUFFERS as u32);
            }
        }
        slots.forget();
        while let Some(tag) = drive.work(random) {
            assert!(slots.done(tag, Ok(())));
        }
        has_all_places(&mut slots, &mut drive, random);
        assert!(drive.stages.contains(Ram::BASE, DEPTH as u64 * Model::STAGE));
    }
}

/// A drive that begins anew may find that the part is smaller than when a request came that waits.
#[test]
fn what_is_behind_the_end_by_now_is_not_told_to_a_drive_that_moves_bytes_itself() {
    let random = &mut Random(0x696e_7369);
    let ram = Ram::new(0x20_0000, Fuse::default());
    let mut guest = Guest::new(&ram, Ram::BASE, 16, OPTIONS, 0x3000);
    let mut drive = Model::new(vec![0; 8 * SECTOR as usize]);
    (drive.is_direct, drive.room) = (true, 0);
    let mut slots = Room::NEW;
    let mut queue = Queue::new(guest.ring.layout, OPTIONS, BUFFERS as u32);
    for sector in [3, 7] {
        guest.ask(&ram, &ask(BlockRequest::IN, sector, Vec::new(), 512)).unwrap();
    }
    assert_eq!(serve(&mut queue, &ram, &mut slots, &mut drive, random), Rest::Busy);
    drive.disk.truncate(4 * SECTOR as usize);
    drive.room = DEPTH;
    serve(&mut queue, &ram, &mut slots, &mut drive, random);
    assert_eq!(drive.told, [(0, Command::Read { at: 3 * SECTOR, length: SECTOR })]);
    assert_eq!(finish(&mut queue, &ram, &mut slots, &mut drive, random), 1);
    let statuses: Vec<u8> = guest.take(&ram).iter().map(|reply| reply.bytes[512]).collect();
    assert_eq!(statuses, [0, 1]);
}
