// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What comes for a vCPU that is resident nowhere: the controller keeps it, and has an event of its own for that, the
//! escalation, which it sends to the [queue](super::queue) of the CPU that the vCPU left first. That wakes the vCPU.
//!
//! Only a vCPU that shares its CPU is ever resident nowhere. All others have no escalation, and their CPUs no queue: nothing
//! here costs them anything.

use core::sync::atomic::{AtomicU32, Ordering};

use turnstile_arch_common::println;

use super::event;
use super::firmware::{self, Error};
use super::queue::{self, PRIORITY};
use crate::cpu::{self, PerCpu};

/// Numbers that the events of vCPUs may have: from 0 up.
pub(crate) const NUMBERS: usize = queue::EVENTS - 1 - queue::DEVICES;

/// How many vCPUs can be woken.
static COUNT: AtomicU32 = AtomicU32::new(0);

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
        queue::place(cpu.index, cpu.pir)?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed) as usize;
        if number >= NUMBERS {
            return Err(TOO_MANY);
        }
        let source = firmware::escalation(processor, 0)?;
        let page = firmware::buffer(source)?.management;
        event::off(page);
        firmware::route(source, cpu.pir.into(), PRIORITY, number as u32)?;
        Ok(Self::Source { page, number })
    }
}
