// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's device that a service drives: its registers, a copy of its configuration space, and memory that both reach.
//!
//! While a service has crashed and has not begun anew, its device reaches no memory and does not interrupt.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use alloc::vec::Vec;

use turnstile_service::abi::{self, Event, Kind};

use super::places::DEVICE;
use super::{Space, Window};
use crate::memory::Error;

/// How often a program crashes on its device until it goes without.
const TRIES: u32 = 2;

/// A device.
#[derive(Debug)]
pub struct Device {
    /// Its parts: registers, by the numbers of their BARs, the copy of the configuration space, memory.
    parts: Vec<(u64, Window)>,
    /// What the configuration says of it, for the program.
    settings: [u64; 2],
    /// How often the program has crashed when it was told of it.
    failures: AtomicU32,
    /// Its interrupt stays masked until the next alarm is handled.
    rests: AtomicBool,
}

impl Device {
    /// Makes one of these BARs, a page with its configuration space, and memory, of which the configuration says this. The device reaches the
    /// memory at the window's guest address.
    pub fn new(bars: &[(u8, Window)], configuration: Window, memory: Window, settings: [u64; 2]) -> Self {
        let mut parts: Vec<_> = bars.iter().map(|(bar, window)| (u64::from(*bar), *window)).collect();
        // The program begins when it knows of the memory.
        parts.extend([(abi::DEVICE_CONFIGURATION, configuration), (abi::DEVICE_MEMORY, memory)]);
        Self { parts, settings, failures: AtomicU32::new(0), rests: AtomicBool::new(false) }
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

    /// Returns the events by which a program gets to know it. The last one says that it reaches memory.
    pub(super) fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let parts = self.parts.iter().map(|(part, window)| {
            let Window { guest, size, address, .. } = *window;
            Event::new(Kind::Device, [*part, size, address, guest, 0])
        });
        let [first, second] = self.settings;
        parts.chain([Event::new(Kind::Device, [abi::DEVICE_READY, first, second, 0, 0])])
    }

    /// The program has crashed when it was told of it.
    pub(super) fn failed(&self) {
        // Relaxed, here and below: inside the gate.
        self.failures.fetch_add(1, Ordering::Relaxed);
    }

    /// Its interrupt stays masked until the next alarm is handled, or does not.
    pub(super) fn rest(&self, rests: bool) {
        self.rests.store(rests, Ordering::Relaxed);
    }

    /// Says whether its interrupt is masked until now, when an alarm is handled.
    pub(super) fn has_rested(&self) -> bool {
        self.rests.swap(false, Ordering::Relaxed)
    }

    /// A program that has never run has not failed.
    pub(super) fn forgive(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// Says whether the program goes without it: a device on which it crashes again and again would take the service from its members.
    pub(super) fn is_given_up(&self) -> bool {
        self.failures.load(Ordering::Relaxed) >= TRIES
    }
}
