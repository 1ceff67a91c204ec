// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The instant at which a device model is killed.

use std::cell::Cell;
use std::rc::Rc;

/// Counts what a model does with the world, and cuts it off at a given step. Clones are one fuse.
#[derive(Clone, Debug, Default)]
pub struct Fuse(Rc<State>);

#[derive(Debug, Default)]
struct State {
    steps: Cell<u64>,
    /// The step from which nothing has an effect.
    last: Cell<Option<u64>>,
}

impl Fuse {
    /// Cuts off before step `steps` from now, counted from 0.
    pub fn arm(&self, steps: u64) {
        self.0.steps.set(0);
        self.0.last.set(Some(steps));
    }

    /// Lets everything through again, and counts from 0.
    pub fn mend(&self) {
        self.0.steps.set(0);
        self.0.last.set(None);
    }

    /// Whether it has cut something off.
    pub fn is_blown(&self) -> bool {
        self.0.last.get().is_some_and(|last| self.0.steps.get() > last)
    }

    /// How many steps there were.
    pub fn steps(&self) -> u64 {
        self.0.steps.get()
    }

    /// One more step. Returns whether it has an effect.
    pub fn step(&self) -> bool {
        self.0.steps.set(self.0.steps.get() + 1);
        !self.is_blown()
    }
}
