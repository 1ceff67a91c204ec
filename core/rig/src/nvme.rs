// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A disk of the machine: an NVM Express controller (NVM Express 1.4), as its driver reaches it, with faults.
//!
//! | file | what |
//! |---|---|
//! | `shape` | what it says of itself |
//! | `queues` | submission and completion queues |
//! | `controller` | what it consists of |
//! | `identify` | how it says what it is |
//! | `work` | what commands do |
//! | `finish` | how commands are finished |

mod controller;
mod finish;
mod identify;
mod queues;
mod shape;
mod work;

use std::ops::Deref;

use crate::ram::Ram;
use crate::random::Random;
use crate::slot::{Behind, Face, Slot};
pub use controller::Nvme;
use queues::{Command, Queues};
pub use shape::Shape;

/// Registers (section 3.1).
const CAP: u64 = 0x00;
const VS: u64 = 0x08;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;

impl Nvme {
    /// Whether it takes commands.
    pub fn runs(&self) -> bool {
        self.registers.borrow().ready
    }

    /// Whether its pin is high.
    pub fn is_high(&self) -> bool {
        !self.shape.msix && self.queues.borrow().line
    }

    /// Its pin is as it should be again.
    pub fn mend_pin(&self) {
        self.keeps_pin.set(false);
        self.has_kept.set(false);
        let mut queues = self.queues.borrow_mut();
        queues.line = queues.completions.values().any(|queue| queue.interrupts && queue.head != queue.tail);
    }

    /// It cannot go on: Controller Fatal Status.
    pub fn fail(&self) {
        self.registers.borrow_mut().fatal = true;
    }

    /// Does what its driver wants, though it holds it; in the order of the driver.
    pub fn run(&self, ram: &Ram) {
        while let Some(command) = self.next(0) {
            self.finish(ram, command);
        }
    }

    /// Does up to so many commands, in any order.
    pub fn run_some(&self, ram: &Ram, random: &mut Random, count: usize) {
        for _ in 0..count {
            let waiting = self.queues.borrow().fetched.len() as u64;
            let Some(command) = self.next(random.below(waiting.max(1)) as usize) else { return };
            self.finish(ram, command);
        }
    }

    /// Forgets the first command that it has not done.
    pub fn lose(&self) {
        self.next(0);
    }

    /// A command that was fetched.
    fn next(&self, at: usize) -> Option<Command> {
        let fetched = &mut self.queues.borrow_mut().fetched;
        (at < fetched.len()).then(|| fetched.remove(at))
    }

    /// Does a command, and says so.
    fn finish(&self, ram: &Ram, command: Command) {
        let status = self.execute(ram, &command);
        self.complete(ram, &command, status);
    }

    /// The controller's registers, while it reaches this memory.
    pub const fn on<'a>(&'a self, ram: &'a Ram) -> Slot<'a, Self> {
        Slot { device: self, ram }
    }

    /// The status is read: time passes.
    fn status(&self, ram: &Ram) -> u32 {
        let turns = {
            let mut registers = self.registers.borrow_mut();
            match &mut registers.turning {
                Some(0) => true,
                Some(left) => {
                    *left = if *left == u32::MAX { *left } else { *left - 1 };
                    false
                }
                None => false,
            }
        };
        if turns {
            self.turn(ram);
        }
        let registers = self.registers.borrow();
        u32::from(registers.ready) | u32::from(registers.fatal) << 1
    }

    /// RDY becomes as CC.EN.
    fn turn(&self, ram: &Ram) {
        let mut registers = self.registers.borrow_mut();
        registers.turning = None;
        registers.ready = registers.configuration & 1 != 0;
        let attributes = registers.attributes;
        if registers.ready {
            let sizes = [attributes & 0xfff, attributes >> 16 & 0xfff].map(|last| last as u16 + 1);
            self.queues.borrow_mut().begin(sizes, [registers.submission, registers.completion]);
        } else {
            // What it did before its reset may end with it, but not later.
            self.queues.borrow_mut().linger(ram);
            let is_high = self.queues.borrow().line;
            self.has_kept.update(|has| has || self.keeps_pin.get() && is_high);
            *self.queues.borrow_mut() = Queues { line: self.has_kept.get(), ..Queues::default() };
        }
    }

    /// CC is written (section 3.1.5).
    fn configure(&self, ram: &Ram, value: u32) {
        let mut registers = self.registers.borrow_mut();
        let (before, now) = (registers.configuration & 1, value & 1);
        registers.configuration = value;
        if before != now {
            // The other way is not to be gone before RDY is as CC.EN was; others than the sizes of queues' entries are zero.
            let is_early = registers.ready != (before != 0) && !registers.fatal;
            let is_wrong = now != 0 && value != 0x46_0001;
            self.face.blame(is_early && self.slowness.get() != u32::MAX || is_wrong);
            registers.fatal = false;
            registers.turning = Some(self.slowness.get());
        }
        drop(registers);
        if self.slowness.get() == 0 && before != now {
            self.turn(ram);
        }
    }

    /// A register of the admin queues is written, which is to be done while the controller is disabled.
    fn place(&self, at: u64, value: u32) {
        let mut registers = self.registers.borrow_mut();
        self.face.blame(registers.configuration & 1 != 0 || registers.ready);
        let half = |wide: &mut u64, upper: bool| {
            let shift = if upper { 32 } else { 0 };
            *wide = *wide & !(0xffff_ffff << shift) | u64::from(value) << shift;
        };
        match at {
            AQA => registers.attributes = value,
            ASQ | 0x2c => half(&mut registers.submission, at != ASQ),
            _ => half(&mut registers.completion, at != ACQ),
        }
    }

    /// A doorbell is written.
    fn rung(&self, ram: &Ram, at: u64, value: u32) {
        let stride = 4 << self.shape.stride;
        let (number, is_head) = ((at / stride / 2) as u16, !(at / stride).is_multiple_of(2));
        let is_sound = self.runs()
            && at.is_multiple_of(stride)
            && match is_head {
                true => self.queues.borrow_mut().free(number, value),
                false => self.queues.borrow_mut().fetch(ram, number, value),
            };
        self.face.blame(!is_sound);
        if is_head {
            self.settle(ram);
            return;
        }
        self.face.notified.update(|count| count + u32::from(number != 0));
        if number == 0 || !self.holds.get() {
            self.run(ram);
        }
    }
}

impl Deref for Nvme {
    type Target = Face;

    fn deref(&self) -> &Face {
        &self.face
    }
}

impl Behind for Nvme {
    const BAR: u8 = 0;

    fn face(&self) -> &Face {
        &self.face
    }

    fn read(&self, ram: &Ram, _: u8, offset: u64, size: u8) -> u32 {
        self.face.blame(size != 4);
        let registers = self.registers.borrow();
        match offset {
            CAP => self.shape.capabilities() as u32,
            4 => (self.shape.capabilities() >> 32) as u32,
            VS => self.shape.version,
            CC => registers.configuration,
            AQA => registers.attributes,
            CSTS => {
                drop(registers);
                self.status(ram)
            }
            _ => 0,
        }
    }

    fn write(&self, ram: &Ram, _: u8, offset: u64, size: u8, value: u32) {
        self.face.blame(size != 4);
        match offset {
            CC => self.configure(ram, value),
            AQA | ASQ | 0x2c | ACQ | 0x34 => self.place(offset, value),
            DOORBELLS.. => self.rung(ram, offset - DOORBELLS, value),
            _ => self.face.blame(true),
        }
    }
}
