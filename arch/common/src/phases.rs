// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the hypervisor's start takes, by phases: ticks of the machine's counter, on the boot CPU.

use core::sync::atomic::{AtomicU64, Ordering};

/// A part of the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// From the first instruction: what machine this is.
    Early,
    /// The memory map, the hypervisor's own tables, the areas of CPUs.
    Memory,
    /// The interrupt controller, and clocks.
    Interrupts,
    /// The bundle's digest and its bounds.
    Bundle,
    /// The other CPUs come up.
    Cpus,
    /// VMs are built.
    Vms,
}

impl Phase {
    /// All of them, with their names.
    pub const ALL: [(Phase, &'static str); 6] = [
        (Phase::Early, "early"),
        (Phase::Memory, "memory"),
        (Phase::Interrupts, "interrupt controller"),
        (Phase::Bundle, "bundle"),
        (Phase::Cpus, "CPUs"),
        (Phase::Vms, "VMs"),
    ];
}

/// The times of a start.
#[derive(Debug)]
pub struct Times {
    begin: AtomicU64,
    last: AtomicU64,
    spent: [AtomicU64; Phase::ALL.len()],
}

/// Those of this one.
pub static TIMES: Times = Times::new();

impl Times {
    /// Makes those of a start that has not begun.
    pub const fn new() -> Self {
        let spent = [const { AtomicU64::new(0) }; Phase::ALL.len()];
        Self { begin: AtomicU64::new(0), last: AtomicU64::new(0), spent }
    }

    /// The start has begun when the counter showed `ticks`. On the boot CPU, as everything here: so all is relaxed.
    pub fn begin(&self, ticks: u64) {
        self.begin.store(ticks, Ordering::Relaxed);
        self.last.store(ticks, Ordering::Relaxed);
    }

    /// What was done since the last call belongs to a phase.
    pub fn end(&self, phase: Phase, ticks: u64) {
        let last = self.last.swap(ticks, Ordering::Relaxed);
        if let Some(spent) = self.spent.get(phase as usize) {
            spent.fetch_add(ticks.wrapping_sub(last), Ordering::Relaxed);
        }
    }

    /// Returns what the counter showed when the start began.
    pub fn begun(&self) -> u64 {
        self.begin.load(Ordering::Relaxed)
    }

    /// Returns the ticks of a phase.
    pub fn of(&self, phase: Phase) -> u64 {
        self.spent.get(phase as usize).map_or(0, |spent| spent.load(Ordering::Relaxed))
    }
}

impl Default for Times {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_add_up_in_whatever_order_they_come() {
        let times = Times::new();
        times.begin(100);
        times.end(Phase::Early, 110);
        times.end(Phase::Interrupts, 130);
        times.end(Phase::Memory, 131);
        times.end(Phase::Interrupts, 135);
        assert_eq!(times.begun(), 100);
        assert_eq!(Phase::ALL.map(|(phase, _)| times.of(phase)), [10, 1, 24, 0, 0, 0]);
    }
}
