// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the vCPUs of a machine share.

use std::io::Stdout;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;

use crate::arch::Devices;
use crate::console::{Console, Heard};
use crate::cycles::Cycles;
use crate::events::Events;

/// What all vCPUs share.
pub struct Shared {
    /// The devices that the monitor emulates.
    pub devices: Devices,
    pub(super) console: Console<Stdout>,
    pub(super) events: Option<Events>,
}

impl Shared {
    /// Hands a byte to the console, and counts events between the guest's marks.
    fn hear(&mut self, byte: u8) -> Result<Heard> {
        let heard = self.console.put(byte)?;
        if let Some(events) = &mut self.events {
            match heard {
                Heard::MeasuringBegins => events.start()?,
                Heard::MeasuringEnds => events.stop()?,
                Heard::Other => {}
            }
        }
        Ok(heard)
    }
}

/// Takes what the vCPUs share; a thread that panicked with it has ended the process.
pub fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Hands a byte to the console, and counts cycles between the guest's marks.
pub fn hear(byte: u8, shared: &Mutex<Shared>, cycles: Option<&mut Cycles>) -> Result<()> {
    let heard = lock(shared).hear(byte)?;
    let Some(cycles) = cycles else { return Ok(()) };
    match heard {
        Heard::MeasuringBegins => cycles.start(),
        Heard::MeasuringEnds => {
            if let Some(counted) = cycles.stop()? {
                println!("@cycles {counted}");
            }
            Ok(())
        }
        Heard::Other => Ok(()),
    }
}
