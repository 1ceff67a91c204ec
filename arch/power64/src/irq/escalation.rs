// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes for a vCPU that is resident nowhere: the controller keeps it, and has an event of its own for that, the
//! escalation, which it sends to a queue of the hypervisor's on the CPU that the vCPU left first. That wakes the vCPU.
//!
//! Only a vCPU that shares its CPU is ever resident nowhere. All others have no escalation, and their CPUs no queue: nothing
//! here costs them anything.

use core::cell::Cell;
use core::ptr;
use core::sync::atomic::{AtomicU32, Ordering};

use turnstile_arch_common::println;

use super::event;
use super::firmware::{self, Error};
use super::host;
use super::tima::{self, HV_NOTIFIED, HvAcknowledge, HvPriority};
use crate::board::discover::MAX_CPUS;
use crate::cpu::{self, PerCpu};

/// The priority of the hypervisor's queues.
const PRIORITY: u8 = 4;
/// The binary logarithm of the bytes of such a queue.
const SHIFT: u8 = 12;
/// Events that such a queue has room for: each source has at most one on its way.
pub(crate) const EVENTS: usize = (1 << SHIFT) / size_of::<u32>();
/// Nothing is masked.
const OPEN: u8 = 0xff;

/// How many vCPUs can be woken.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// The queues, by the indexes of their CPUs.
static QUEUES: [Queue; MAX_CPUS] = [const { Queue::new() }; MAX_CPUS];

/// How a vCPU is woken.
#[derive(Debug)]
pub(super) enum Escalation {
    /// By those who post to it: its guest's interrupts do not come from the controller.
    None,
    /// The virtual processor has not been put yet.
    New(u64),
    /// By an event of a source.
    Source {
        /// The source's page of management.
        page: u64,
        /// The number that its events have.
        number: usize,
    },
}

impl Escalation {
    /// Before the vCPU leaves its CPU: what comes behind that escalates. `expect` gets the number that its events have.
    pub(super) fn arm(&mut self, expect: impl FnOnce(usize)) {
        if let Self::New(processor) = *self {
            *self = Self::set_up(processor, cpu::this()).unwrap_or_else(|Error(code)| {
                println!("An interrupt may not wake a vCPU that shares its CPU: the firmware says {code}.");
                Self::None
            });
        }
        if let Self::Source { page, number } = *self {
            expect(number);
            event::arm(page);
        }
    }

    /// Lets what comes for a virtual processor that is resident nowhere go to the queue of a CPU: once, before its vCPU leaves
    /// its first CPU.
    #[cold]
    fn set_up(processor: u64, cpu: &PerCpu) -> Result<Self, Error> {
        /// What the firmware says when there are too many: OPAL_RESOURCE.
        const TOO_MANY: Error = Error(-10);
        Queue::of(cpu).place(cpu)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed) as usize;
        if number >= EVENTS - 1 {
            return Err(TOO_MANY);
        }
        let source = firmware::escalation(processor, 0)?;
        let page = firmware::buffer(source)?.management;
        event::off(page);
        firmware::route(source, cpu.pir.into(), PRIORITY, number as u32)?;
        Ok(Self::Source { page, number })
    }
}

/// The queue of a CPU for escalations. Its own CPU alone reads it.
#[derive(Debug)]
struct Queue {
    /// Where it is; zero if it has none.
    address: Cell<u64>,
    /// The next event.
    index: Cell<usize>,
    /// The highest bit of events of the round before, in the lowest bit.
    round: Cell<u32>,
}

// SAFETY: its own CPU alone touches it.
unsafe impl Sync for Queue {}
impl Queue {
    /// Makes that of a CPU that has none.
    const fn new() -> Self {
        Self { address: Cell::new(0), index: Cell::new(0), round: Cell::new(0) }
    }

    /// Returns that of a CPU.
    fn of(cpu: &PerCpu) -> &'static Self {
        &QUEUES[cpu.index % MAX_CPUS]
    }

    /// Places the queue, if that has not been done. On its own CPU.
    fn place(&self, cpu: &PerCpu) -> Result<(), Error> {
        if self.address.get() != 0 {
            return Ok(());
        }
        let address = host::page()?;
        // SAFETY: a page that nobody else has, cleared, for ever.
        unsafe { firmware::place_queue(cpu.pir.into(), PRIORITY, address, SHIFT, false)? };
        self.address.set(address);
        // SAFETY: the hypervisor's own priority: it is interrupted for whatever is in the queue.
        unsafe { HvPriority.store(tima::page(), OPEN) };
        Ok(())
    }

    /// Takes the next event.
    fn next(&self) -> Option<usize> {
        let (address, index) = (self.address.get(), self.index.get());
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

/// Takes the events that have come, if the controller has said so: `wake` gets the number of each.
#[inline(always)] // Part of its one caller: two loads, where no vCPU is woken by events.
pub(crate) fn serve(wake: impl FnMut(usize)) {
    let queue = Queue::of(cpu::this());
    if queue.address.get() != 0 {
        drain(queue, wake);
    }
}

#[inline(never)] // Apart from the waits of those that are not woken by events.
fn drain(queue: &Queue, mut wake: impl FnMut(usize)) {
    if HvAcknowledge.load(tima::page()) & HV_NOTIFIED == 0 {
        return;
    }
    // The event was written before the controller has said so.
    cpu::lwsync();
    while let Some(number) = queue.next() {
        wake(number);
    }
    // SAFETY: the hypervisor's own priority: what has come meanwhile interrupts again.
    unsafe { HvPriority.store(tima::page(), OPEN) };
}
