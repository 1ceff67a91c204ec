// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Disks of both kinds, and what is done with each.

#![allow(dead_code, reason = "each test uses its part")]

use turnstile_drive::drive::{Drive, Failure, Geometry, MOST_BYTES, Outcome};
use turnstile_rig::{Behind, Disk, Face, Fuse, Nvme, Platter, Ram, Random, Slot};
use turnstile_virtio::driver::Bus;

/// A model of a disk.
pub trait Model: Behind + Sized {
    /// Its registers.
    fn at<'a>(&'a self, ram: &'a Ram) -> Slot<'a, Self>;
    /// What is on it.
    fn platter(&self) -> &Platter;
    /// It keeps what it is to do.
    fn hold(&self);
    /// It does something of it, in any order.
    fn work(&self, ram: &Ram, random: &mut Random);
    /// It does all of it.
    fn work_all(&self, ram: &Ram);
}

impl Model for Disk<'_> {
    fn at<'a>(&'a self, ram: &'a Ram) -> Slot<'a, Self> {
        self.on(ram)
    }

    fn platter(&self) -> &Platter {
        &self.platter
    }

    fn hold(&self) {
        self.holds.set(true);
    }

    fn work(&self, ram: &Ram, random: &mut Random) {
        self.run(ram, 1 + random.below(20_000) as u32);
    }

    fn work_all(&self, ram: &Ram) {
        self.run_all(ram);
    }
}

impl Model for Nvme {
    fn at<'a>(&'a self, ram: &'a Ram) -> Slot<'a, Self> {
        self.on(ram)
    }

    fn platter(&self) -> &Platter {
        &self.platter
    }

    fn hold(&self) {
        self.holds.set(true);
    }

    fn work(&self, ram: &Ram, random: &mut Random) {
        let count = random.below(5) as usize;
        self.run_some(ram, random, count);
    }

    fn work_all(&self, ram: &Ram) {
        self.run(ram);
    }
}

/// How often a driver is called until it is ready: a model takes no time but what a test gives it.
const CALLS: u64 = 40;
/// A millisecond.
pub const MILLISECOND: u64 = 1_000_000;

/// Memory for a driver, and a buffer for each of its tags.
pub fn ram<D: Drive>() -> Ram {
    Ram::new(
        (D::BYTES.next_multiple_of(4096) + u64::from(D::DEPTH) * u64::from(MOST_BYTES)) as usize,
        Fuse::default(),
    )
}

/// The buffer of a tag.
pub fn buffer<D: Drive>(tag: u16) -> u64 {
    Ram::BASE + D::BYTES.next_multiple_of(4096) + u64::from(tag) * u64::from(MOST_BYTES)
}

/// Begins, and waits until the disk is ready.
pub fn start<D: Drive, B: Bus>(bus: &B) -> Result<(D, Geometry), Failure> {
    let mut driver = D::NEW;
    driver.begin(bus, Ram::BASE)?;
    for call in 0..CALLS {
        if let Some(geometry) = driver.proceed(bus, call * MILLISECOND)? {
            return Ok((driver, geometry));
        }
    }
    panic!("it does not get ready");
}

/// What became of the only command under way, which is finished.
pub fn outcome<D: Drive, B: Bus>(driver: &mut D, bus: &B) -> Result<(u16, Outcome), Failure> {
    driver.ring(bus)?;
    let finished = driver.finished(bus)?.expect("it is finished");
    assert_eq!(driver.finished(bus), Ok(None));
    Ok(finished)
}

/// Nothing was done that a driver should not do.
pub fn sound(face: &Face) {
    assert_eq!(face.strays.get(), 0, "the driver breaks rules");
}
