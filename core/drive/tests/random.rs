// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Random commands against plain bytes, on disks of both kinds, finished in any order.

mod common;

use common::{Model, buffer, ram, sound, start};
use turnstile_block::settings::Settings;
use turnstile_drive::any::AnyDrive;
use turnstile_drive::drive::{Drive, Geometry, Outcome, Refusal, SECTOR};
use turnstile_drive::nvme::Nvme as NvmeDriver;
use turnstile_drive::virtio::Virtio;
use turnstile_rig::{Disk, Nvme, Order, Ram, Random, Shape, Slot, disk_settings};
use turnstile_virtio::features::Features;

const SECTORS: u64 = 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    Write,
    Flush,
    Discard,
    Zero,
}

/// A command under way.
#[derive(Clone, Debug)]
struct Command {
    kind: Kind,
    begin: u64,
    end: u64,
}

/// A driver, and what it should find on its disk.
struct Run<'a, D, M> {
    driver: D,
    bus: Slot<'a, M>,
    model: &'a M,
    ram: &'a Ram,
    geometry: Geometry,
    random: Random,
    expected: Vec<u8>,
    under_way: Vec<Option<Command>>,
    finished: u32,
}

impl<'a, D: Drive, M: Model> Run<'a, D, M> {
    fn new(model: &'a M, ram: &'a Ram, seed: u64) -> Self {
        model.hold();
        let mut random = Random(seed);
        let expected = random.bytes((SECTORS * 512) as usize);
        model.platter().bytes.borrow_mut().copy_from_slice(&expected);
        let (driver, geometry) = start::<D, _>(&model.at(ram)).unwrap();
        let under_way = vec![None; D::DEPTH.into()];
        Self { driver, bus: model.at(ram), model, ram, geometry, random, expected, under_way, finished: 0 }
    }

    fn bytes(&mut self, begin: u64, end: u64) -> &mut [u8] {
        &mut self.expected[begin as usize * 512..end as usize * 512]
    }

    /// Gives a command that meets no other one, nor more than it could.
    fn give(&mut self) {
        let tag = self.random.below(u64::from(D::DEPTH)) as u16;
        let block = u64::from(self.geometry.block / SECTOR);
        let kind = match self.random.below(12) {
            0 => Kind::Flush,
            1 => Kind::Discard,
            2 => Kind::Zero,
            3..7 => Kind::Write,
            _ => Kind::Read,
        };
        let begin = self.random.below(SECTORS / block) * block;
        let longest = u64::from(self.geometry.most_bytes / SECTOR) / block;
        let some = if self.random.below(2) == 0 { longest } else { longest.min(8) };
        let end = (begin + (1 + self.random.below(some)) * block).min(SECTORS);
        let meets =
            |command: &Command| command.kind != Kind::Flush && command.begin < end && begin < command.end;
        if kind != Kind::Flush && self.under_way.iter().flatten().any(meets) {
            return;
        }
        let result = self.submit(tag, kind, begin, (end - begin) as u32);
        let count = self.under_way.iter().flatten().count();
        match self.under_way[usize::from(tag)] {
            Some(_) => assert_eq!(result, Err(Refusal::Tag)),
            None if count == self.geometry.depth.into() => assert_eq!(result, Err(Refusal::Full)),
            None => {
                assert_eq!(result, Ok(()));
                self.under_way[usize::from(tag)] = Some(Command { kind, begin, end });
            }
        }
    }

    fn submit(&mut self, tag: u16, kind: Kind, sector: u64, sectors: u32) -> Result<(), Refusal> {
        let (driver, bus, address) = (&mut self.driver, &self.bus, buffer::<D>(tag));
        let length = sectors * SECTOR;
        match kind {
            Kind::Read => driver.read(bus, tag, sector, address, length),
            Kind::Flush => driver.flush(bus, tag),
            Kind::Discard => driver.discard(bus, tag, sector, sectors),
            Kind::Zero => driver.zero(bus, tag, sector, sectors, self.random.below(2) == 0),
            Kind::Write => {
                if self.under_way[usize::from(tag)].is_none() {
                    self.ram.put(address, &self.random.bytes(length as usize));
                }
                driver.write(bus, tag, sector, address, length)
            }
        }
    }

    /// Takes what is finished.
    fn take(&mut self) {
        while let Some((tag, outcome)) = self.driver.finished(&self.bus).unwrap() {
            self.check(tag, outcome);
        }
    }

    fn check(&mut self, tag: u16, outcome: Outcome) {
        let Command { kind, begin, end } = self.under_way[usize::from(tag)].take().expect("it was under way");
        assert_eq!(outcome, Ok(()));
        self.finished += 1;
        let length = ((end - begin) * 512) as usize;
        match kind {
            Kind::Read => {
                let read = self.ram.get(buffer::<D>(tag), length);
                assert!(read == self.bytes(begin, end), "{begin} to {end}");
            }
            Kind::Write => {
                let written = self.ram.get(buffer::<D>(tag), length);
                self.bytes(begin, end).copy_from_slice(&written);
            }
            Kind::Zero => self.bytes(begin, end).fill(0),
            Kind::Discard => self.bytes(begin, end).fill(0xff),
            Kind::Flush => {}
        }
    }

    /// The device does something; if it finishes a command while the driver waits, it interrupts.
    fn work(&mut self) {
        let armed = !self.driver.arm(&self.bus).unwrap();
        let before = self.model.face().interrupts.get();
        self.model.work(self.ram, &mut self.random);
        if armed && self.driver.arm(&self.bus).unwrap() {
            assert!(self.model.face().interrupts.get() > before, "the driver waits for it");
        }
        self.driver.interrupted(&self.bus).unwrap();
    }

    fn go(mut self, steps: u32) {
        for _ in 0..steps {
            match self.random.below(10) {
                0..6 => self.give(),
                6 => self.driver.ring(&self.bus).unwrap(),
                7 => self.take(),
                _ => self.work(),
            }
        }
        self.driver.ring(&self.bus).unwrap();
        self.model.work_all(self.ram);
        self.take();
        assert!(self.under_way.iter().all(Option::is_none) && self.finished > 40, "{}", self.finished);
        assert!(*self.model.platter().bytes.borrow() == self.expected);
        assert!(self.model.platter().flushes.get() > 0);
        sound(self.model.face());
        self.driver.stop(&self.bus);
    }
}

#[test]
fn virtio_keeps_what_was_written() {
    let (all, none) = (disk_settings(), Features::empty());
    let large = Settings { block_size: 4096, segment_bytes: 20_000, ..all };
    let plain = Features::INDIRECT_DESC.union(Features::EVENT_IDX);
    let kinds =
        [(all, 128, none, true), (all, 256, plain, false), (large, 16, none, false), (all, 8, plain, true)];
    for (seed, (settings, most, without, msix)) in (1..).zip(kinds) {
        for seed in [seed, seed + 100, seed + 200] {
            let order = Order::random(seed);
            let disk = Disk::new((settings, SECTORS, most), without, msix, &order, |_| {});
            Run::<Virtio, _>::new(&disk, &ram::<Virtio>(), seed).go(1000);
        }
    }
}

#[test]
fn nvme_keeps_what_was_written() {
    let all = Shape::default();
    let kinds = [
        all.clone(),
        Shape { msix: false, most: 0, ..all.clone() },
        Shape { block: 12, most: 2, stride: 3, ..all.clone() },
        Shape { entries: 3, deallocation: 0, ..all.clone() },
        Shape { entries: 33, namespace: 5, others: vec![2, 9], ..all },
    ];
    for (seed, shape) in (1..).zip(kinds) {
        for seed in [seed, seed + 100, seed + 200] {
            let nvme = Nvme::new(shape.clone(), SECTORS);
            Run::<NvmeDriver, _>::new(&nvme, &ram::<NvmeDriver>(), seed).go(1000);
        }
    }
}

#[test]
fn either_kind_is_recognised() {
    let (order, ram) = (Order::random(3), ram::<AnyDrive>());
    let disk = Disk::new((disk_settings(), SECTORS, 128), Features::empty(), true, &order, |_| {});
    let run = Run::<AnyDrive, _>::new(&disk, &ram, 7);
    assert!(matches!(run.driver, AnyDrive::Virtio(_)));
    run.go(300);
    let nvme = Nvme::new(Shape::default(), SECTORS);
    let run = Run::<AnyDrive, _>::new(&nvme, &ram, 8);
    assert!(matches!(run.driver, AnyDrive::Nvme(_)));
    run.go(300);
}
