// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The processor's cycle counter for one thread, in the guest, in the kernel and in user space.

use anyhow::{Context, Result};
use perf_event::events::Hardware;
use perf_event::{Builder, Counter};

/// Counts the cycles of the thread that made it.
pub struct Cycles {
    counter: Counter,
    running: bool,
}

impl Cycles {
    /// Prepares the counter.
    ///
    /// # Errors
    /// The machine has none, or `kernel.perf_event_paranoid` does not allow it.
    pub fn new() -> Result<Self> {
        let mut builder = Builder::new(Hardware::CPU_CYCLES);
        let counter = builder.include_kernel().include_hv().observe_self().any_cpu().build();
        let counter = counter.context(
            "the processor's cycles cannot be counted (is there a PMU, and does kernel.perf_event_paranoid allow it?)",
        )?;
        Ok(Cycles { counter, running: false })
    }

    /// Counts from here.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn start(&mut self) -> Result<()> {
        self.counter.reset()?;
        self.counter.enable()?;
        self.running = true;
        Ok(())
    }

    /// Ends counting and returns how many cycles there were, if it was counting.
    ///
    /// # Errors
    /// Those of the kernel.
    pub fn stop(&mut self) -> Result<Option<u64>> {
        if !std::mem::take(&mut self.running) {
            return Ok(None);
        }
        self.counter.disable()?;
        Ok(Some(self.counter.read()?))
    }
}
