// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What holds on all CPUs of a machine: a vCPU may run on each of them, and is in one run loop.

use super::{Cpu, Decision, Exit, Offer};

/// What is done on a machine, and told to its guests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Together {
    /// What at least one CPU needs.
    needed: Exit,
    /// What all of them can do.
    possible: Exit,
    /// Whether one of them needs IBPB between vCPUs.
    between: bool,
    /// The hypervisor's SPEC_CTRL.
    pub spec_ctrl: u64,
    /// What guests are told.
    pub offer: Offer,
}

impl Together {
    /// No CPU.
    pub const NOBODY: Self = Self {
        needed: Exit::NOTHING,
        possible: Exit { barrier: true, fill: true, clear: true, switch: true },
        between: false,
        spec_ctrl: !0,
        offer: Offer::BEST,
    };

    /// Adds a CPU.
    #[must_use = "it does not change"]
    pub fn and(self, cpu: &Cpu, decision: &Decision) -> Self {
        let Exit { barrier, fill, clear, switch } = decision.exit;
        Self {
            needed: Exit {
                barrier: self.needed.barrier || barrier,
                fill: self.needed.fill || fill,
                clear: self.needed.clear || clear,
                switch: self.needed.switch || switch,
            },
            possible: Exit {
                barrier: self.possible.barrier && cpu.has_barrier(),
                switch: self.possible.switch && switch,
                ..self.possible
            },
            between: self.between || decision.switch_barrier,
            spec_ctrl: self.spec_ctrl & decision.once.spec_ctrl,
            offer: self.offer.on_both(Offer::of(cpu, decision)),
        }
    }

    /// What each exit does: what one CPU needs, if all can.
    pub const fn exit(&self) -> Exit {
        Exit {
            barrier: self.needed.barrier && self.possible.barrier,
            fill: self.needed.fill,
            clear: self.needed.clear,
            switch: self.needed.switch && self.possible.switch,
        }
    }

    /// Whether IBPB comes between vCPUs: where one CPU needs it, all can, and exits do not do it.
    pub const fn between(&self) -> bool {
        self.between && self.possible.barrier && !self.exit().barrier
    }

    /// Whether every CPU gets what it needs. Not so if one lacks what another one needs, as with different microcode.
    pub const fn is_enough(&self) -> bool {
        self.possible.barrier || !self.needed.barrier && !self.between
    }
}
