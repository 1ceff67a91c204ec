// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the controller has for the hypervisor itself: on each CPU that needs it, a queue of events, which it announces by the
//! hypervisor virtualization interrupt. The events are escalations, and interrupts of devices that services drive.
//!
//! A CPU for which nothing comes has no queue: nothing here costs it anything.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU64, Ordering};

use spin::Mutex;

use super::firmware::{self, Error};
use super::host;
use super::tima::{self, HV_NOTIFIED, HvAcknowledge, HvPriority};
use crate::board::discover::MAX_CPUS;
use crate::cpu;

/// The priority of the queues.
pub(super) const PRIORITY: u8 = 4;
/// The binary logarithm of the bytes of a queue.
const SHIFT: u8 = 12;
/// Events that a queue has room for: each source has at most one on its way.
pub(crate) const EVENTS: usize = (1 << SHIFT) / size_of::<u32>();
/// The most devices whose interrupts are events; their numbers begin at [`EVENTS`].
pub(crate) const DEVICES: usize = 16;
/// Nothing is masked.
const OPEN: u8 = 0xff;

/// The queues, by the indexes of their CPUs.
static QUEUES: [Queue; MAX_CPUS] = [const { Queue::new() }; MAX_CPUS];
/// Held by who places a queue.
static PLACING: Mutex<()> = Mutex::new(());

/// The queue of a CPU. Its own CPU alone reads it.
#[derive(Debug)]
struct Queue {
    /// Where it is; zero if there is none.
    address: AtomicU64,
    /// The next event.
    index: Cell<usize>,
    /// The highest bit of events of the round before, in the lowest bit.
    round: Cell<u32>,
}

// SAFETY: its own CPU alone touches what is not atomic.
unsafe impl Sync for Queue {}
impl Queue {
    /// Makes that of a CPU that has none.
    const fn new() -> Self {
        Self { address: AtomicU64::new(0), index: Cell::new(0), round: Cell::new(0) }
    }

    /// Returns that of the CPU with an index.
    #[inline(always)] // An address computation.
    fn of(index: usize) -> &'static Self {
        &QUEUES[index % MAX_CPUS]
    }

    /// Returns where it is. Relaxed: what is read there, at an address that depends on this, was cleared before.
    #[inline(always)] // One load.
    fn address(&self) -> u64 {
        self.address.load(Ordering::Relaxed)
    }

    /// Takes the next event.
    fn next(&self) -> Option<usize> {
        let (address, index) = (self.address(), self.index.get());
        // SAFETY: inside the queue, which is this CPU's to read. Volatile: the controller writes it.
        let event = u32::from_be(unsafe { ptr::read_volatile((address as *const u32).add(index)) });
        if event >> 31 == self.round.get() {
            return None;
        }
        self.index.set((index + 1) % EVENTS);
        if self.index.get() == 0 {
            self.round.set(self.round.get() ^ 1);
        }
        Some((event & !(1 << 31)) as usize)
    }
}

/// Lets the controller interrupt this CPU for whatever is in its queue, once it has one. Before that nothing is sent to it.
pub fn start_cpu() {
    // SAFETY: the hypervisor's own priority.
    unsafe { HvPriority.store(tima::page(), OPEN) };
}

/// Places the queue of the CPU with an index and a number in the machine, if that has not been done. On any CPU.
///
/// # Errors
/// What the firmware says.
pub(super) fn place(index: usize, pir: u32) -> Result<(), Error> {
    let _placing = PLACING.lock();
    let queue = Queue::of(index);
    if queue.address() != 0 {
        return Ok(());
    }
    let address = host::page()?;
    // SAFETY: a page that nobody else has, cleared, for ever.
    unsafe { firmware::place_queue(pir.into(), PRIORITY, address, SHIFT, false)? };
    // Release: the page is cleared before it is found.
    queue.address.store(address, Ordering::Release);
    Ok(())
}

/// Takes the events that have come, if the controller has said so: `take` gets the number of each.
#[inline(always)] // Part of its one caller: two loads, where there is no queue.
pub(crate) fn serve(take: impl FnMut(usize)) {
    let queue = Queue::of(cpu::this().index);
    if queue.address() != 0 {
        drain(queue, take);
    }
}

#[inline(never)] // Apart from the waits of those for which no events come.
fn drain(queue: &Queue, mut take: impl FnMut(usize)) {
    if HvAcknowledge.load(tima::page()) & HV_NOTIFIED == 0 {
        return;
    }
    // The event was written before the controller has said so.
    cpu::lwsync();
    while let Some(number) = queue.next() {
        take(number);
    }
    // SAFETY: the hypervisor's own priority: what has come meanwhile interrupts again.
    unsafe { HvPriority.store(tima::page(), OPEN) };
}

#[cfg(test)]
mod tests {
    use std::vec::Vec;

    use super::*;
    use crate::cpu::regs::fakes;

    #[test]
    fn events_are_taken_in_the_order_in_which_they_came() {
        // No test runs on that.
        const CPU: usize = 9;
        fakes::reset();
        place(CPU, 0x24).unwrap();
        let queue = Queue::of(CPU);
        let address = queue.address();
        place(CPU, 0x24).unwrap();
        assert_eq!(queue.address(), address, "it has one");
        let put = |index: usize, event: u32| {
            // SAFETY: inside the queue, which nobody else has.
            unsafe { ptr::write_volatile((address as *mut u32).add(index), event.to_be()) };
        };
        let take = || {
            let mut taken = Vec::new();
            drain(queue, |number| taken.push(number));
            taken
        };
        put(0, 1 << 31 | 3);
        assert_eq!(take(), [], "before the controller has said so");
        fakes::set("HvAcknowledge", u64::from(1u16 << 15 | u16::from(PRIORITY)));
        put(1, 1 << 31 | 5);
        assert_eq!(take(), [3, 5]);
        assert_eq!(fakes::get("HvPriority"), OPEN.into(), "it interrupts again");
        for index in 2..EVENTS {
            put(index, 1 << 31 | index as u32);
        }
        assert_eq!(take().len(), EVENTS - 2);
        assert_eq!(take(), [], "what is there was taken");
        put(0, 7);
        assert_eq!(take(), [7], "of the next round");
    }
}
