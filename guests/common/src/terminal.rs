// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that measures what it costs to write a line to a virtio console. `row=` on the command line names the row.
//!
//! The driver does as Linux: one buffer for what is written at once, one doorbell, and then it looks at the used ring until the buffer is there. It asks
//! for no interrupt.

use core::fmt::Write;

use turnstile_virtio::config::{CONSOLE, Console};
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::{Buffer, Options};

use crate::virtio::ring::{Ring, Wrong};
use crate::virtio::{Function, Machine, NO_VECTOR, PATIENCE};
use crate::{clock, row};

/// Bytes of memory that the guest needs for its queue and a line.
pub const MEMORY: u64 = 0x5000;

/// What Linux accepts.
const FEATURES: Features = Features::VERSION_1
    .union(Features::INDIRECT_DESC)
    .union(Features::EVENT_IDX)
    .union(Features::RING_RESET)
    .union(Console::SIZE)
    .union(Console::MULTIPORT);

/// The queue of what is written, and its descriptors, as many as the device offers.
const TRANSMIT: u16 = 1;
const SIZE: usize = 64;
/// Where the line is in [`Machine::memory`], behind the queues.
const LINE: u64 = 0x4000;
/// Its bytes: the last one ends it.
const LENGTH: u64 = 64;

const _: () = assert!(LINE + LENGTH <= MEMORY);

/// Measures the row.
pub fn run(console: &mut impl Write, machine: &Machine) {
    row::run(console, |_, row| row::measure(row, Terminal::start(machine)?).map(drop));
}

/// A console.
struct Terminal<'a> {
    ring: Ring<'a, SIZE>,
    line: Buffer,
}

impl<'a> Terminal<'a> {
    fn start(machine: &'a Machine) -> Result<Self, Wrong> {
        let function = Function::find(machine, CONSOLE).ok_or("there is no virtio console")?;
        if !function.reset() {
            return Err("the console does not reset");
        }
        let agreed = function.agree(FEATURES.bits()).ok_or("the console does not agree")?;
        let options = Options::from(Features::from_bits_retain(agreed));
        let ring =
            Ring::new(&function, TRANSMIT, NO_VECTOR, options).ok_or("the console has no queue to write")?;
        if !function.ready() {
            return Err("the console does not start");
        }
        let address = machine.memory + LINE;
        for at in 0..LENGTH {
            let last = at + 1 == LENGTH;
            (machine.write)(address + at, 1, if last { b'\n' } else { b'.' }.into());
        }
        Ok(Self { ring, line: Buffer { address, length: LENGTH as u32, writable: false } })
    }
}

impl row::Driver for Terminal<'_> {
    /// Writes the line, and looks at the ring until the device is done with it.
    fn operate(&mut self) -> Result<(), Wrong> {
        let Ring { queue, ram, .. } = &mut self.ring;
        queue.add(ram, &[self.line]).map_err(|_| "the ring is full")?;
        self.ring.show()?;
        let mut used = self.ring.take();
        if used == Ok(None) {
            clock::wait(PATIENCE, || {
                used = self.ring.take();
                used != Ok(None)
            });
        }
        used?.map(drop).ok_or("a line is not written")
    }
}

#[cfg(test)]
mod tests {
    use turnstile_virtio::config::BALLOON;

    use super::*;
    use crate::row::Driver as _;
    use crate::virtio::silent;

    #[test]
    fn a_console_that_is_not_there_or_does_nothing_is_an_error() {
        let (machine, turn) = silent::machine(CONSOLE);
        assert_eq!(Terminal::start(&machine).unwrap().operate(), Err("a line is not written"));
        drop(turn);
        let (machine, _turn) = silent::machine(BALLOON);
        assert_eq!(Terminal::start(&machine).err(), Some("there is no virtio console"));
    }
}
