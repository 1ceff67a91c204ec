// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The guest that measures what it costs to give memory back: it reports free blocks of 2 MiB by a virtio balloon. `row=` on the command line names the
//! row, and `blocks=` says how many blocks a report has (1).
//!
//! It writes to each block first, since a guest has nothing to give back that it never touched. Where it does so it says in a line `@apart`: visits from there are no part of the
//! operation. The driver does as Linux: a report is one chain, behind an indirect table if it has several blocks, and is done when its interrupt has come. What
//! comes back is filled with zeroes, which is checked.

use core::fmt::Write;

use turnstile_virtio::config::{BALLOON, Balloon as Configuration};
use turnstile_virtio::features::Features;
use turnstile_virtio::ring::{Buffer, DESCRIPTOR, Options};

use crate::virtio::ring::{Ring, Wrong};
use crate::virtio::{Function, Machine, PATIENCE};
use crate::{clock, options, row};

/// Bytes of memory that the guest needs for the queue and its table.
pub const MEMORY: u64 = 0x7000;

/// What Linux accepts, which does not poison pages if it is not told to.
const FEATURES: Features = Features::VERSION_1
    .union(Features::INDIRECT_DESC)
    .union(Features::EVENT_IDX)
    .union(Features::RING_RESET)
    .union(Configuration::MUST_TELL_HOST)
    .union(Configuration::DEFLATE_ON_OOM)
    .union(Configuration::PAGE_REPORTING);

/// The queue of reports, and its descriptors, as many as the device offers.
const REPORTS: u16 = 2;
const SIZE: usize = 32;
/// Where the table is in [`Machine::memory`], behind the queues.
const TABLE: u64 = 0x6000;
/// Bytes of a block, and where those are that are given back: what lies below, a hypervisor has touched itself when it loaded the guest.
const BLOCK: u64 = 2 << 20;
const BEHIND: u64 = 16 << 20;
/// What is written to a block behind its first word.
const MARK: u64 = 0x6669_6c6c_6564_2121;

const _: () = assert!(TABLE + SIZE as u64 * DESCRIPTOR <= MEMORY);

/// Measures the row.
pub fn run(console: &mut impl Write, machine: &Machine) {
    row::run(console, |console, row| {
        let balloon = Balloon::start(machine, options::number("blocks", 1).clamp(1, SIZE as u64))?;
        let _ = writeln!(console, "@apart pc={:#x}", machine.touch as usize);
        row::measure(row, balloon).map(drop)
    });
}

/// A balloon.
struct Balloon<'a> {
    machine: &'a Machine,
    function: Function<'a>,
    ring: Ring<'a, SIZE>,
    /// Where the first block is, and how many there are.
    first: u64,
    blocks: u64,
    /// The interrupts that were seen.
    interrupts: u32,
}

impl<'a> Balloon<'a> {
    fn start(machine: &'a Machine, blocks: u64) -> Result<Self, Wrong> {
        let function = Function::find(machine, BALLOON).ok_or("there is no balloon")?;
        if !function.reset() {
            return Err("the balloon does not reset");
        }
        let agreed =
            Features::from_bits_retain(function.agree(FEATURES.bits()).ok_or("the balloon does not agree")?);
        if !agreed.contains(Configuration::PAGE_REPORTING) {
            return Err("the balloon takes no reports of free memory");
        }
        let ring = Ring::new(&function, REPORTS, 0, Options::from(agreed))
            .ok_or("the balloon has no queue of reports")?;
        if !function.ready() {
            return Err("the balloon does not start");
        }
        let first = (machine.memory + MEMORY + options::number("from", BEHIND)).next_multiple_of(BLOCK);
        let interrupts = (machine.interrupts)();
        Ok(Self { machine, function, ring, first, blocks, interrupts })
    }

    /// The address of each block. Between them are others, since free blocks are anywhere.
    fn addresses(&self) -> impl Iterator<Item = u64> + use<> {
        let first = self.first;
        (0..self.blocks).map(move |block| first + 2 * BLOCK * block)
    }

    /// Writes to all blocks, which are filled with zeroes.
    fn fill(&self) -> Result<(), Wrong> {
        for block in self.addresses() {
            (self.machine.touch)(block);
            let marks = [block + 8, block + BLOCK - 8];
            if marks.map(|at| (self.machine.read)(at, 8)) != [0, 0] {
                return Err("a block that was given back is not filled with zeroes");
            }
            marks.into_iter().for_each(|at| (self.machine.write)(at, 8, MARK));
        }
        Ok(())
    }

    /// Reports all of them, and waits until they are gone.
    fn report(&mut self) -> Result<(), Wrong> {
        let mut buffers = [Buffer { address: 0, length: BLOCK as u32, writable: true }; SIZE];
        for (buffer, address) in buffers.iter_mut().zip(self.addresses()) {
            buffer.address = address;
        }
        let buffers = buffers.get(..self.blocks as usize).unwrap_or_default();
        let Ring { queue, ram, .. } = &mut self.ring;
        let offered = match buffers {
            [_] => queue.add(ram, buffers),
            _ => queue.add_indirect(ram, self.machine.memory + TABLE, buffers),
        };
        offered.map_err(|_| "the ring is full")?;
        self.ring.show()?;
        let count = self.machine.interrupts;
        if !clock::wait(PATIENCE, || count() != self.interrupts) {
            return Err("a report is not done");
        }
        self.interrupts = count();
        self.function.acknowledge();
        let is_done = self.ring.take()?.is_some();
        if self.ring.arm()? || !is_done {
            return Err("an interrupt is not that of the report");
        }
        Ok(())
    }
}

impl row::Driver for Balloon<'_> {
    /// Reports blocks, which it fills before.
    fn operate(&mut self) -> Result<(), Wrong> {
        self.fill()?;
        self.report()
    }
}

#[cfg(test)]
mod tests {
    use turnstile_virtio::config::CONSOLE;

    use super::*;
    use crate::virtio::silent;

    #[test]
    fn a_balloon_that_is_not_there_or_does_nothing_is_an_error() {
        let (machine, turn) = silent::machine(BALLOON);
        let mut balloon = Balloon::start(&machine, 2).unwrap();
        assert_eq!(balloon.fill(), Ok(()));
        assert_eq!(balloon.fill(), Err("a block that was given back is not filled with zeroes"));
        assert_eq!(balloon.report(), Err("a report is not done"));
        drop(turn);
        let (machine, _turn) = silent::machine(CONSOLE);
        assert_eq!(Balloon::start(&machine, 1).err(), Some("there is no balloon"));
    }
}
