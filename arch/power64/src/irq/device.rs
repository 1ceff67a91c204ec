// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Interrupts of the machine's devices that services drive: messages, whose sources send their events to the
//! [queue](super::queue) of a CPU.
//!
//! A source whose P is set sends nothing, and keeps in Q that something has come. It sets P itself when it sends an event. So an
//! interrupt is masked while P is set, and is when the hypervisor is told of it.

use core::sync::atomic::{AtomicUsize, Ordering};

use spin::Once;

use super::event;
use super::firmware::{self, Buffer, Error};
use super::queue::{self, DEVICES, EVENTS, PRIORITY};

/// The sources, by the numbers of their events less [`EVENTS`].
static SOURCES: [Once<Buffer>; DEVICES] = [const { Once::new() }; DEVICES];
/// How many of them there are.
static COUNT: AtomicUsize = AtomicUsize::new(0);

/// What the firmware says when there are too many, or one cannot be what it is to be: OPAL_RESOURCE.
const UNSUITABLE: Error = Error(-10);

/// Sends a source's events to the CPU with an index and a number in the machine. Returns the number that they have. It is masked.
///
/// # Errors
/// What the firmware says.
pub(super) fn connect(source: u32, index: usize, pir: u32) -> Result<u32, Error> {
    queue::place(index, pir)?;
    let buffer = firmware::buffer(source)?;
    // Without triggers what has come while it was masked could not be sent.
    if buffer.trigger == 0 {
        return Err(UNSUITABLE);
    }
    event::off(buffer.management);
    let slot = COUNT.fetch_add(1, Ordering::Relaxed);
    let number = (EVENTS + slot) as u32;
    let place = SOURCES.get(slot).ok_or(UNSUITABLE)?;
    firmware::route(source, pir.into(), PRIORITY, number)?;
    event::hold(place.call_once(|| buffer).management);
    Ok(number)
}

/// Masks or unmasks a source by the number of its events.
pub(super) fn mask(number: u32, masked: bool) {
    let slot = (number as usize).wrapping_sub(EVENTS);
    let Some(source) = SOURCES.get(slot).and_then(Once::get) else { return };
    if !masked {
        if event::release(source.management) {
            event::trigger(source.trigger);
        }
    } else if !event::is_held(source.management) {
        event::hold(source.management);
    }
}
