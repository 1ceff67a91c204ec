// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks that say anything: nothing panics, no call takes longer than it should, and only tags that are under way are finished.

mod common;

use std::cell::{Cell, RefCell};

use common::{MILLISECOND, Model, buffer, ram};
use turnstile_drive::any::AnyDrive;
use turnstile_drive::drive::{Drive, Failure, Geometry, MOST_BYTES};
use turnstile_drive::nvme::Nvme as NvmeDriver;
use turnstile_drive::virtio::Virtio;
use turnstile_rig::{Disk, Nvme, Order, Ram, Random, Shape, Slot, disk_settings};
use turnstile_virtio::driver::Bus;
use turnstile_virtio::driver::pci::Function;
use turnstile_virtio::features::Features;

/// How many registers a call reads and writes at most: virtio's reset reads its status for so long.
const MOST_ACCESSES: u32 = 5_000;

/// A model whose registers read as anything now and then, and that writes to memory what it should not.
struct Liar<'a, D> {
    slot: Slot<'a, D>,
    ram: &'a Ram,
    random: RefCell<Random>,
    accesses: Cell<u32>,
    /// Of so many reads, four are lies.
    lies: u64,
}

impl<D: Model> Function for Liar<'_, D> {
    fn configuration(&self, offset: u16, size: u8) -> u32 {
        self.accesses.update(|count| count + 1);
        self.slot.configuration(offset, size)
    }

    fn length(&self, bar: u8) -> u64 {
        self.slot.length(bar)
    }

    fn read(&self, bar: u8, offset: u64, size: u8) -> u32 {
        self.accesses.update(|count| count + 1);
        let truth = self.slot.read(bar, offset, size);
        let mut random = self.random.borrow_mut();
        match random.below(self.lies) {
            0 => u32::MAX,
            1 => random.any() as u32,
            2 => truth ^ 1 << random.below(32),
            3 => random.below(4) as u32,
            _ => truth,
        }
    }

    fn write(&self, bar: u8, offset: u64, size: u8, value: u32) {
        self.accesses.update(|count| count + 1);
        self.slot.write(bar, offset, size, value);
        let mut random = self.random.borrow_mut();
        if random.below(self.lies) < 4 {
            let at = Ram::BASE + random.below(0x500) * 16;
            let words = [random.below(4) as u32, 0, 0x1_0000, 0x1_0000 + random.below(9) as u32];
            self.ram.put(at, &words.map(u32::to_le_bytes).concat());
        }
    }
}

impl<D: Model> Bus for Liar<'_, D> {
    type Function = Self;
    type Memory = Ram;

    fn function(&self) -> &Self {
        self
    }

    fn memory(&self) -> &Ram {
        self.ram
    }

    fn time(&self) -> u64 {
        0
    }
}

/// Gives commands of all kinds; returns the tags.
fn give<D: Drive, B: Bus>(driver: &mut D, bus: &B, random: &mut Random, geometry: &Geometry) -> Vec<u16> {
    let block = geometry.block / 512;
    let mut tags = Vec::new();
    for _ in 0..random.below(12) {
        let (tag, sector) = (random.below(40) as u16, random.below(geometry.sectors));
        let (sectors, length) = (block * random.below(9) as u32, geometry.block * random.below(65) as u32);
        let given = match random.below(6) {
            0 => driver.flush(bus, tag),
            1 => driver.discard(bus, tag, sector, sectors),
            2 => driver.zero(bus, tag, sector, sectors, true),
            3 => driver.write(bus, tag, sector, buffer::<D>(tag), length),
            _ => driver.read(bus, tag, sector, buffer::<D>(tag), length),
        };
        if given.is_ok() {
            assert!(tag < geometry.depth.max(D::DEPTH) && !tags.contains(&tag));
            tags.push(tag);
        }
    }
    tags
}

/// Takes what is finished, all of it under way.
fn take<D: Drive, B: Bus>(driver: &mut D, bus: &B, mut tags: Vec<u16>) -> Result<(), Failure> {
    driver.ring(bus)?;
    driver.interrupted(bus)?;
    while let Some((tag, _)) = driver.finished(bus)? {
        let at = tags.iter().position(|&given| given == tag).expect("it was under way");
        tags.remove(at);
    }
    driver.arm(bus)?;
    driver.check(bus)
}

/// Drives a liar for a while. Returns whether it got ready.
fn drive<D: Drive, M: Model>(model: &M, ram: &Ram, seed: u64) -> bool {
    let lies = 4 << (seed % 8);
    let bus =
        Liar { slot: model.at(ram), ram, random: RefCell::new(Random(seed)), accesses: Cell::new(0), lies };
    let bounded = || assert!(bus.accesses.replace(0) <= MOST_ACCESSES);
    let mut random = Random(seed);
    let mut driver = D::NEW;
    let _ = D::reset(&bus);
    bounded();
    let mut ready = None;
    if driver.begin(&bus, Ram::BASE).is_ok() {
        bounded();
        for now in 0..60 {
            match driver.proceed(&bus, now * 200 * MILLISECOND) {
                Ok(None) => {}
                Ok(geometry) => ready = geometry,
                Err(_) => break,
            }
            bounded();
            if let Some(geometry) = &ready {
                let tags = give(&mut driver, &bus, &mut random, geometry);
                ram.restless.set(random.any() | 1);
                let _ = take(&mut driver, &bus, tags);
                ram.restless.set(0);
                bounded();
                break;
            }
        }
    }
    driver.stop(&bus);
    bounded();
    ready.is_some()
}

#[test]
fn liars_are_borne() {
    let order = Order::default();
    let (ram, nvme) = (ram::<AnyDrive>(), Nvme::new(Shape::default(), 64));
    let disk = Disk::new((disk_settings(), 64, 128), Features::empty(), true, &order, |_| {});
    let mut ready = [0, 0];
    for seed in 1..3000 {
        ready[0] += u32::from(drive::<AnyDrive, _>(&disk, &ram, seed));
        ready[1] += u32::from(drive::<AnyDrive, _>(&nvme, &ram, seed));
    }
    assert!(ready.iter().all(|count| (300..2500).contains(count)), "{ready:?}");
}

/// A controller most of whose answers are right.
#[test]
fn half_truths_of_nvme_are_borne() {
    let mut random = Random(0x77);
    let (mut begun, mut refused) = (0, 0);
    for _ in 0..1500 {
        let (nvme, ram) = (Nvme::new(Shape::default(), 512), ram::<NvmeDriver>());
        let bus = nvme.on(&ram);
        for _ in 0..random.below(4) {
            let structure = random.below(3) as u8;
            let at = [0, 24, 64, 128, 512][random.below(5) as usize] + random.below(20) as u16;
            nvme.identified.borrow_mut().insert((structure, at), random.any() as u8);
        }
        if random.below(8) == 0 {
            nvme.stuck.borrow_mut().insert(random.below(9) * 4, random.any() as u32);
        }
        if random.below(8) == 0 {
            nvme.statuses.borrow_mut().insert((random.below(2) as u16, random.below(10) as u8), 0x4002);
        }
        let mut driver = NvmeDriver::NEW;
        let mut start = || -> Result<Option<Geometry>, Failure> {
            driver.begin(&bus, Ram::BASE)?;
            let mut calls = (0..80).map(|call| driver.proceed(&bus, call * 500 * MILLISECOND));
            calls.find(|result| *result != Ok(None)).unwrap_or(Ok(None))
        };
        let Ok(Some(geometry)) = start() else {
            refused += 1;
            continue;
        };
        begun += 1;
        assert!(geometry.sectors != 0 && geometry.sectors < 1 << 55 && geometry.depth <= 32);
        assert!(geometry.block.is_power_of_two() && (512..=4096).contains(&geometry.block));
        assert!(geometry.most_bytes >= geometry.block && geometry.most_bytes <= MOST_BYTES);
        nvme.holds.set(true);
        let _ = lied_to(&mut driver, &bus, &ram, &mut random, &geometry);
        driver.stop(&bus);
    }
    assert!(begun > 300 && refused > 100, "{begun} {refused}");
}

/// The queues' memory changes as if the controller had written anything.
fn lied_to(
    driver: &mut NvmeDriver,
    bus: &Slot<'_, Nvme>,
    ram: &Ram,
    random: &mut Random,
    geometry: &Geometry,
) -> Result<(), Failure> {
    let tags = give(driver, bus, random, geometry);
    ram.disturb(random, NvmeDriver::BYTES);
    // Completions of any kind, most of them of this queue and of tags that there are.
    for entry in 0..random.below(70) {
        let queue = u32::from(random.below(9) != 0) << 16;
        let fourth =
            random.below(34) as u32 | u32::from(random.below(9) != 0) << 16 | (random.any() as u32) << 31;
        let words = [0, 0, queue, fourth].map(u32::to_le_bytes).concat();
        ram.put(Ram::BASE + 0x3000 + 16 * entry, &words);
    }
    let taken = take(driver, bus, tags);
    ram.restless.set(0);
    taken
}

#[test]
fn any_memory_of_virtio_is_borne() {
    let mut random = Random(0x815);
    for round in 0..1500 {
        let (order, ram) = (Order::default(), ram::<Virtio>());
        let without = if round % 2 == 0 { Features::empty() } else { Features::INDIRECT_DESC };
        let disk = Disk::new((disk_settings(), 512, 128), without, true, &order, |_| {});
        let bus = disk.on(&ram);
        let (mut driver, geometry) = common::start::<Virtio, _>(&bus).unwrap();
        disk.holds.set(true);
        let tags = give(&mut driver, &bus, &mut random, &geometry);
        ram.disturb(&mut random, Virtio::BYTES);
        let size = if round % 2 == 0 { 32 } else { 128 };
        let used = (Ram::BASE + 16 * size + 6 + 2 * size).next_multiple_of(4);
        ram.put(used + 2, &(random.below(12) as u16).to_le_bytes());
        for entry in 0..12 {
            ram.put(used + 4 + 8 * entry, &(random.below(36) as u32).to_le_bytes());
            ram.put(used + 8 + 8 * entry, &(random.below(2) as u32).to_le_bytes());
        }
        let _ = take(&mut driver, &bus, tags);
        ram.restless.set(0);
    }
}

#[test]
fn any_configuration_space_is_borne() {
    let mut random = Random(0x4711);
    let (mut begun, mut refused) = (0, 0);
    let ram = ram::<AnyDrive>();
    for _ in 0..3000 {
        let order = Order::default();
        let msix = random.below(2) == 0;
        let disk = Disk::new((disk_settings(), 512, 128), Features::empty(), msix, &order, |_| {});
        for _ in 0..1 + random.below(6) {
            let at = if random.below(4) == 0 { 0x34 } else { 0x40 + random.below(0xc0) as u16 };
            let byte = if random.below(2) == 0 { random.any() as u8 } else { random.below(8) as u8 * 0x10 };
            disk.patches.borrow_mut().insert(at, byte);
        }
        match common::start::<AnyDrive, _>(&disk.on(&ram)) {
            Ok(_) => begun += 1,
            Err(_) => refused += 1,
        }
        assert_eq!(disk.strays.get(), 0, "{:x?}", disk.patches.borrow());
    }
    assert!(begun > 300 && refused > 300, "{begun} {refused}");
}
