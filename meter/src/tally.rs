// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Operations by class, added up over the blocks of a visit.

use std::collections::BTreeMap;

use rustc_hash::FxHashSet;

use crate::block::Block;
use crate::classify::{COUNT, Class};
use crate::footprint::{Data, Footprint, Touch, lines};

/// A block that was entered, and how many of its instructions were executed: all, unless it was left early.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// The block.
    pub block: &'static Block,
    /// Executed instructions.
    pub executed: u32,
}

/// Accesses to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DeviceAccess {
    /// The device's number.
    pub device: u32,
    /// Whether it is written.
    pub write: bool,
    /// Whether it is an interrupt controller.
    pub irqchip: bool,
}

/// How often what was done.
#[derive(Clone, Debug)]
pub struct Tally {
    /// By class.
    pub classes: [u64; COUNT],
    /// By the number of the access to a system register.
    pub accesses: BTreeMap<u32, u64>,
    /// By device.
    pub devices: BTreeMap<DeviceAccess, u64>,
    /// The lines and pages that were touched, if they are wanted.
    pub footprint: Option<Footprint>,
    lines: FxHashSet<u64>,
    data: Data,
}

impl Default for Tally {
    fn default() -> Self {
        Tally {
            classes: [0; COUNT],
            accesses: BTreeMap::new(),
            devices: BTreeMap::new(),
            footprint: None,
            lines: FxHashSet::default(),
            data: Data::default(),
        }
    }
}

impl Tally {
    /// How often the class was there.
    pub fn get(&self, class: Class) -> u64 {
        self.classes.get(class as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, class: Class, count: u64) {
        if let Some(sum) = self.classes.get_mut(class as usize) {
            *sum += count;
        }
    }

    /// Adds what was executed of a block.
    pub fn step(&mut self, step: Step) {
        for instruction in step.block.instructions.iter().take(step.executed as usize) {
            self.add(Class::Instructions, 1);
            if step.block.level == 0 {
                self.add(Class::InServices, 1);
            }
            for class in instruction.classes.iter() {
                self.add(class, 1);
            }
            if let Some(access) = instruction.access {
                *self.accesses.entry(access).or_default() += 1;
            }
            for line in lines(instruction.pc, instruction.bytes.len() as u64) {
                if self.lines.insert(line) {
                    self.add(Class::Lines, 1);
                }
            }
        }
    }

    /// Adds exceptions that were taken.
    pub fn exceptions(&mut self, count: u64) {
        self.add(Class::ExceptionEntries, count);
    }

    /// Adds an access to a device.
    pub fn device(&mut self, access: DeviceAccess) {
        let class = match (access.irqchip, access.write) {
            (true, false) => Class::IrqchipReads,
            (true, true) => Class::IrqchipWrites,
            (false, false) => Class::MmioReads,
            (false, true) => Class::MmioWrites,
        };
        self.add(class, 1);
        *self.devices.entry(access).or_default() += 1;
    }

    /// Adds an access to memory.
    pub fn touch(&mut self, touch: Touch) {
        self.data.add(touch);
    }

    /// Counts what was touched, if that is wanted, and forgets what it was, when nothing will be added any more.
    pub fn close(&mut self, footprint: bool) {
        self.footprint = footprint.then(|| self.data.footprint(&self.lines));
        self.lines = FxHashSet::default();
        self.data = Data::default();
    }
}
