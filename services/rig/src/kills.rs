// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kills of a service after some steps that leave a trace.

use turnstile_rig::{Fuse, Random};

/// When a service is killed.
pub struct Kills {
    fuse: Fuse,
    /// After how many steps it is killed.
    pub left: Option<u64>,
    /// After how many it is killed again, at most.
    pub most: Option<Random>,
    /// How often it was.
    pub deaths: u64,
}

impl Kills {
    /// The service whose steps this fuse counts is killed after so many, once.
    pub const fn new(fuse: Fuse, left: Option<u64>) -> Self {
        Self { fuse, left, most: None, deaths: 0 }
    }

    /// The service is entered.
    pub fn arm(&self) {
        match self.left {
            Some(left) => self.fuse.arm(left),
            None => self.fuse.mend(),
        }
    }

    /// It is left. Returns whether it was killed; then it may be killed again.
    pub fn is_dead(&mut self) -> bool {
        let (blown, steps) = (self.fuse.is_blown(), self.fuse.steps());
        self.fuse.mend();
        self.left = match (&mut self.most, self.left) {
            (Some(random), _) if blown => Some(random.below(3000)),
            (None, _) if blown => None,
            (_, left) => left.map(|left| left - steps),
        };
        self.deaths += u64::from(blown);
        blown
    }
}
