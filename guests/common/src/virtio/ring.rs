// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The driver's side of queues, by the crate that services use, too.

use core::sync::atomic::{Ordering, fence};

use turnstile_virtio::driver::{Queue, Used};
use turnstile_virtio::memory::{Memory, Outside};
use turnstile_virtio::ring::{Areas, Layout, Options};

use super::{Function, Machine};

/// How far apart queues are in [`Machine::memory`], and where their parts are.
const QUEUE: u64 = 0x2000;
const AVAILABLE: u64 = 0x1000;
const USED: u64 = 0x1800;
/// Bytes of the largest access.
const WORD: usize = 8;

/// What the device has done wrong.
pub type Wrong = &'static str;

/// Memory as the rings need it, which reads and writes 1, 2, 8 or 16 bytes.
#[derive(Clone, Copy)]
pub struct Ram<'a>(pub &'a Machine);

impl Memory for Ram<'_> {
    fn contains(&self, _: u64, _: u64) -> bool {
        true
    }

    fn load(&self, address: u64) -> Result<u16, Outside> {
        let value = (self.0.read)(address, 2) as u16;
        fence(Ordering::Acquire);
        Ok(value)
    }

    fn store(&self, address: u64, value: u16) -> Result<(), Outside> {
        fence(Ordering::Release);
        (self.0.write)(address, 2, value.into());
        Ok(())
    }

    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), Outside> {
        for (at, part) in (address..).step_by(WORD).zip(bytes.chunks_mut(WORD)) {
            let word = (self.0.read)(at, part.len() as u8).to_le_bytes();
            part.iter_mut().zip(word).for_each(|(byte, read)| *byte = read);
        }
        Ok(())
    }

    fn write(&self, address: u64, bytes: &[u8]) -> Result<(), Outside> {
        for (at, part) in (address..).step_by(WORD).zip(bytes.chunks(WORD)) {
            let word = part.iter().rev().fold(0, |word, &byte| word << 8 | u64::from(byte));
            (self.0.write)(at, part.len() as u8, word);
        }
        Ok(())
    }

    fn fence(&self) {
        fence(Ordering::SeqCst);
    }
}

/// Where the three areas of a queue are: descriptors, and what driver and device write.
pub fn areas(machine: &Machine, number: u16) -> [u64; 3] {
    [0, AVAILABLE, USED].map(|part| machine.memory + QUEUE * u64::from(number) + part)
}

/// A queue of `N` descriptors, at most 128, and where it is rung.
pub struct Ring<'a, const N: usize> {
    /// The memory in which it is.
    pub ram: Ram<'a>,
    /// The queue.
    pub queue: Queue<N>,
    /// Its number.
    pub number: u16,
    doorbell: u64,
    /// The bytes of what is written there.
    bell: u8,
}

impl<'a, const N: usize> Ring<'a, N> {
    /// Makes a queue, and enables it.
    pub fn new(function: &Function<'a>, number: u16, vector: u16, options: Options) -> Option<Self> {
        const { assert!(16 * N as u64 <= AVAILABLE && 6 + 2 * N as u64 <= USED - AVAILABLE) };
        const { assert!(6 + 8 * N as u64 <= QUEUE - USED) };
        let ram = Ram(function.machine);
        let areas = areas(function.machine, number);
        let [descriptors, driver, device] = areas;
        let layout = Layout::new(&ram, N as u16, Areas { descriptors, driver, device }).ok()?;
        let queue = Queue::new(&ram, layout, options).ok()?;
        let doorbell = function.enable(number, N as u16, vector, areas);
        Some(Self { ram, queue, number, doorbell, bell: function.bell() })
    }

    /// Shows the device what was offered, and rings if it wants that.
    pub fn show(&mut self) -> Result<(), Wrong> {
        if self.queue.publish(&self.ram).map_err(|_| "the ring of what is offered")? {
            (self.ram.0.write)(self.doorbell, self.bell, self.number.into());
        }
        Ok(())
    }

    /// Takes back what the device has done.
    pub fn take(&mut self) -> Result<Option<Used>, Wrong> {
        self.queue.take(&self.ram).map_err(|_| "the ring of what is done")
    }

    /// Asks for an interrupt of what is done next; says whether something is there already.
    pub fn arm(&mut self) -> Result<bool, Wrong> {
        self.queue.arm(&self.ram).map_err(|_| "the ring of what is done")
    }
}
