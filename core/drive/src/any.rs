// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of either kind. Which one is decided when it begins, and each call leads straight there.

use turnstile_virtio::driver::Bus;
use turnstile_virtio::driver::pci::Function;

use crate::drive::{Direction, Drive, Failure, Geometry, Outcome, Refusal, Segment};
use crate::nvme::{self, Nvme};
use crate::tags::TAGS;
use crate::virtio::{self, Virtio};

/// A disk of either kind.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it lies in its service's own memory, and there is no heap")]
pub enum AnyDrive {
    /// None has begun.
    None,
    /// One of virtio.
    Virtio(Virtio),
    /// One of NVM Express.
    Nvme(Nvme),
}

/// The driver that a function needs; none if there is no driver for it.
fn choose<B: Bus>(bus: &B) -> AnyDrive {
    let function = bus.function();
    match (function.configuration(0, 4), function.configuration(nvme::REVISION, 4) >> 8) {
        (virtio::MODERN | virtio::TRANSITIONAL, _) => AnyDrive::Virtio(Virtio::NEW),
        (_, nvme::CLASS) => AnyDrive::Nvme(Nvme::NEW),
        _ => AnyDrive::None,
    }
}

/// Calls the driver; `none` is the answer without one.
macro_rules! lead {
    ($drive:expr, $driver:ident => $call:expr, $none:expr) => {
        match $drive {
            AnyDrive::None => $none,
            AnyDrive::Virtio($driver) => $call,
            AnyDrive::Nvme($driver) => $call,
        }
    };
}

impl Drive for AnyDrive {
    const BYTES: u64 = if Virtio::BYTES > Nvme::BYTES { Virtio::BYTES } else { Nvme::BYTES };
    const NEW: Self = Self::None;
    const DEPTH: u16 = TAGS;

    fn reset<B: Bus>(bus: &B) -> Result<bool, Failure> {
        match choose(bus) {
            Self::None => Err(Failure::Unknown),
            Self::Virtio(_) => Virtio::reset(bus),
            Self::Nvme(_) => Nvme::reset(bus),
        }
    }

    fn begin<B: Bus>(&mut self, bus: &B, at: u64) -> Result<(), Failure> {
        *self = choose(bus);
        lead!(self, driver => driver.begin(bus, at), Err(Failure::Unknown))
    }

    fn proceed<B: Bus>(&mut self, bus: &B, now: u64) -> Result<Option<Geometry>, Failure> {
        lead!(self, driver => driver.proceed(bus, now), Err(Failure::Unknown))
    }

    fn read<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        address: u64,
        length: u32,
    ) -> Result<(), Refusal> {
        lead!(self, driver => driver.read(bus, tag, sector, address, length), Err(Refusal::Unsupported))
    }

    fn write<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        address: u64,
        length: u32,
    ) -> Result<(), Refusal> {
        lead!(self, driver => driver.write(bus, tag, sector, address, length), Err(Refusal::Unsupported))
    }

    fn scatter<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        direction: Direction,
        sector: u64,
        segments: &[Segment],
    ) -> Result<(), Refusal> {
        lead!(
            self,
            driver => driver.scatter(bus, tag, direction, sector, segments),
            Err(Refusal::Unsupported)
        )
    }

    fn flush<B: Bus>(&mut self, bus: &B, tag: u16) -> Result<(), Refusal> {
        lead!(self, driver => driver.flush(bus, tag), Err(Refusal::Unsupported))
    }

    fn discard<B: Bus>(&mut self, bus: &B, tag: u16, sector: u64, sectors: u32) -> Result<(), Refusal> {
        lead!(self, driver => driver.discard(bus, tag, sector, sectors), Err(Refusal::Unsupported))
    }

    fn zero<B: Bus>(
        &mut self,
        bus: &B,
        tag: u16,
        sector: u64,
        sectors: u32,
        may_discard: bool,
    ) -> Result<(), Refusal> {
        lead!(self, driver => driver.zero(bus, tag, sector, sectors, may_discard), Err(Refusal::Unsupported))
    }

    fn ring<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        lead!(self, driver => driver.ring(bus), Err(Failure::Unknown))
    }

    fn finished<B: Bus>(&mut self, bus: &B) -> Result<Option<(u16, Outcome)>, Failure> {
        lead!(self, driver => driver.finished(bus), Err(Failure::Unknown))
    }

    fn arm<B: Bus>(&mut self, bus: &B) -> Result<bool, Failure> {
        lead!(self, driver => driver.arm(bus), Err(Failure::Unknown))
    }

    fn interrupted<B: Bus>(&mut self, bus: &B) -> Result<(), Failure> {
        lead!(self, driver => driver.interrupted(bus), Err(Failure::Unknown))
    }

    fn check<B: Bus>(&self, bus: &B) -> Result<(), Failure> {
        lead!(self, driver => driver.check(bus), Err(Failure::Unknown))
    }

    fn stop<B: Bus>(&mut self, bus: &B) {
        lead!(self, driver => driver.stop(bus), ());
        *self = Self::None;
    }
}
