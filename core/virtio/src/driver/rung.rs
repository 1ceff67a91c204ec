// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A queue with its notification, as a driver of a PCI device has it.

use super::bus::Bus;
use super::pci::{Bell, Device, Failure};
use super::ring::Ring;
use crate::ring::Options;
use crate::violation::Violation;

/// A ring of up to `N` buffers, and where the device is notified of it.
#[derive(Debug)]
pub struct Rung<const N: usize> {
    /// The ring.
    pub ring: Ring<N>,
    bell: Option<Bell>,
}

impl<const N: usize> Rung<N> {
    /// A ring that is nowhere.
    pub const NEW: Self = Self { ring: Ring::NEW, bell: None };

    /// Makes queue `number` an empty ring at `at`, with no more than `most` descriptors and no more than the device takes. Returns how many it has.
    pub fn begin<B: Bus, E: From<Failure> + From<Violation>>(
        &mut self,
        bus: &B,
        device: &Device,
        (number, at, most): (u16, u64, u16),
        options: Options,
    ) -> Result<u16, E> {
        let size = device.size(bus.function(), number, most)?;
        let layout = Ring::<N>::layout(bus.memory(), size, at)?;
        self.ring.begin(bus.memory(), layout, options)?;
        self.bell = Some(device.set_up(bus.function(), number, &layout)?);
        Ok(size)
    }

    /// Shows the device what was added, and notifies it if it wants that.
    pub fn flush<B: Bus>(&mut self, bus: &B, device: &Device) -> Result<(), Violation> {
        if self.ring.publish(bus.memory())?
            && let Some(bell) = self.bell
        {
            device.notify(bus.function(), bell);
        }
        Ok(())
    }
}
