// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as the hypervisor uses it, and the start of its other CPUs.

use alloc::vec::Vec;

use spin::Once;
use turnstile_arch_common::startup::{self, Starting};
use turnstile_arch_common::{console, println};

use crate::board::{discover, opal, power};
use crate::cpu::{self, PerCpu};
use crate::irq::Bridge;
use crate::time;

unsafe extern "C" {
    fn turnstile_secondary_entry();
}

/// The machine as the hypervisor uses it.
pub struct Host {
    /// CPUs; the boot CPU first, the others in the order of the device tree.
    pub cpus: Vec<&'static PerCpu>,
    /// The bundle, if the boot loader passed one.
    pub bundle: Option<&'static [u8]>,
    /// The hypervisor's command line.
    pub bootargs: &'static str,
    /// The machine's name.
    pub model: &'static str,
    /// The interrupt of the console, as [`crate::Monitor::interrupt`] names it.
    pub console_intid: Option<u32>,
    /// The machine's device tree.
    pub(super) tree: &'static [u8],
    /// See [`Host::bridges`].
    pub(super) bridges: Once<Vec<Bridge>>,
}

/// The CPUs by their PIRs, each with its area: what `turnstile_secondary_entry` looks itself up in.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named by boot.S")]
static turnstile_starting: Starting = Starting::new();

impl Host {
    /// Starts the CPUs with an index below `count`, all at once, and waits for them. Returns how many are running: those before
    /// the first that does not start.
    pub fn start_cpus(&self, count: usize) -> usize {
        let record = |area: &&'static PerCpu| [area.pir.into(), core::ptr::from_ref(*area) as u64];
        turnstile_starting.fill(0, self.cpus.iter().map(record));
        cpu::sync();
        let count = self.release(count.min(self.cpus.len()));
        let flags = self.cpus.iter().take(count).skip(1).map(|area| (area.index, &area.online));
        startup::running(count, flags, time::ticks, time::frequency())
    }

    /// Lets the CPUs with an index below `count` begin. Returns how many do: those before the first that cannot.
    fn release(&self, count: usize) -> usize {
        let entry = turnstile_secondary_entry as *const () as u64;
        for area in self.cpus.iter().take(count).skip(1) {
            // SAFETY: the entry takes a CPU as skiboot leaves it.
            if let Err(opal::Error(code)) = unsafe { opal::start_cpu(area.pir, entry) } {
                println!(
                    "turnstile: CPU {} ({:#x}) cannot be started (OPAL_START_CPU: {code})",
                    area.index, area.pir
                );
                return area.index;
            }
        }
        count
    }

    /// Kicks the CPUs with an index from 1 to below `count`, which wait for the boot CPU.
    pub fn wake_cpus(&self, count: usize) {
        self.cpus.iter().take(count).skip(1).for_each(|area| cpu::ring(area.kick_token()));
    }

    /// Returns the PCI host bridges, in the order of the device tree. They are looked for when this is first called: most machines
    /// are booted for nobody who wants them.
    pub fn bridges(&'static self) -> &'static [Bridge] {
        self.bridges.call_once(|| {
            discover::parse(self.tree).map_or_else(|_| Vec::new(), |fdt| Bridge::find(fdt, &self.cpus))
        })
    }

    /// Powers the machine off.
    pub fn power_off(&self) -> ! {
        console::flush();
        power::off();
        cpu::halt()
    }
}
