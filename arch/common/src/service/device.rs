// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's device that a service drives: its registers, a copy of its configuration space, and memory that both reach.
//!
//! While a service has crashed and has not begun anew, its device reaches no memory and does not interrupt.

use alloc::vec::Vec;

use turnstile_service::abi::{self, Event, Kind};

use super::places::DEVICE;
use super::{Space, Window};
use crate::memory::Error;

/// The parts of a device.
#[derive(Clone, Debug)]
pub struct Device {
    /// Registers, by the numbers of their BARs, and the copy of the configuration space.
    parts: Vec<(u64, Window)>,
}

impl Device {
    /// Makes one of these BARs, a page with its configuration space, and memory. The device reaches that at the window's guest address.
    pub fn new(bars: &[(u8, Window)], configuration: Window, memory: Window) -> Self {
        let mut parts: Vec<_> = bars.iter().map(|(bar, window)| (u64::from(*bar), *window)).collect();
        // The program begins when it knows of the memory.
        parts.extend([(abi::DEVICE_CONFIGURATION, configuration), (abi::DEVICE_MEMORY, memory)]);
        Self { parts }
    }

    /// Maps them into the address space of the service that drives it.
    ///
    /// # Safety
    /// Nobody has entered the service. They are the service's alone for ever.
    pub(super) unsafe fn map(&mut self, space: &impl Space) -> Result<(), Error> {
        let mut windows: Vec<_> = self.parts.iter().map(|(_, window)| *window).collect();
        // SAFETY: the caller's promise.
        unsafe { space.attach(DEVICE, &mut windows)? };
        for ((_, part), window) in self.parts.iter_mut().zip(windows) {
            *part = window;
        }
        Ok(())
    }

    /// Returns the events by which a program gets to know it. The last one is that of its memory.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        self.parts.iter().map(|(part, window)| {
            let Window { guest, size, address, .. } = *window;
            Event::new(Kind::Device, [*part, size, address, guest, 0])
        })
    }
}
