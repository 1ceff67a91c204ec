// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a CPU has executed since it left the guest.

use crate::block::Block;
use crate::footprint::Touch;
use crate::tally::{DeviceAccess, Step, Tally};

/// Blocks of a visit that are remembered; of a longer one only the sum is kept.
pub const PATH: usize = 1 << 16;

/// A visit under way.
#[derive(Debug, Default)]
pub struct Visit {
    /// Its group.
    pub group: usize,
    /// Executed instructions.
    pub instructions: u64,
    /// Exceptions that were taken.
    pub exceptions: u64,
    /// The blocks, in order.
    pub path: Vec<Step>,
    /// Accesses to devices.
    pub devices: Vec<DeviceAccess>,
    /// Accesses to memory, if a footprint is wanted.
    pub touches: Vec<Touch>,
    /// What is not in `path` any more.
    pub folded: Option<Box<Tally>>,
}

impl Visit {
    /// Begins another one.
    pub fn begin(&mut self, group: usize) {
        self.group = group;
        self.instructions = 0;
        self.exceptions = 1;
        self.path.clear();
        self.devices.clear();
        self.touches.clear();
        self.folded = None;
    }

    /// Adds a block.
    pub fn push(&mut self, block: &'static Block) {
        if self.path.len() == PATH {
            self.fold();
        }
        self.instructions += u64::from(block.len());
        self.path.push(Step { block, executed: block.len() });
    }

    /// Keeps the sum, and forgets the path but for its end.
    pub fn fold(&mut self) {
        let tally = self.folded.get_or_insert_default();
        // The last one may still turn out to be left early.
        let last = self.path.pop();
        self.path.drain(..).for_each(|step| tally.step(step));
        self.devices.drain(..).for_each(|access| tally.device(access));
        self.touches.drain(..).for_each(|touch| tally.touch(touch));
        self.path.extend(last);
    }

    /// Takes back what was not executed of the last block. `executed` is by the index of an instruction of it.
    pub fn cut(&mut self, pc: u64, executed: impl Fn(u32) -> u32) {
        let Some(last) = self.path.last_mut() else { return };
        let Some(count) = last.block.index(pc).map(executed) else { return };
        if count < last.executed {
            self.instructions -= u64::from(last.executed - count);
            last.executed = count;
        }
    }

    /// The sum of the visit.
    pub fn tally(&mut self, footprint: bool) -> Tally {
        let mut tally = self.folded.take().map_or_else(Tally::default, |tally| *tally);
        self.path.iter().for_each(|&step| tally.step(step));
        self.devices.iter().for_each(|&access| tally.device(access));
        self.touches.iter().for_each(|&touch| tally.touch(touch));
        tally.exceptions(self.exceptions);
        tally.close(footprint);
        tally
    }
}
