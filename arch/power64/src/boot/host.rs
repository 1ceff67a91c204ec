// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as the hypervisor uses it, and the start of its other CPUs.

use alloc::vec::Vec;
use core::sync::atomic::{AtomicU64, Ordering};

use turnstile_arch_common::{console, println};

use crate::board::{opal, power};
use crate::cpu::{self, PerCpu};
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
}

/// The area of the CPU that is being started: what `turnstile_secondary_entry` looks at.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named by boot.S")]
static turnstile_starting: AtomicU64 = AtomicU64::new(0);

impl Host {
    /// Starts the CPUs with an index below `count`, one after another, and waits for them. Returns how many are running.
    pub fn start_cpus(&self, count: usize) -> usize {
        /// In seconds. Generous: an emulator may run its CPUs in turn.
        const PATIENCE: u64 = 10;
        let count = count.min(self.cpus.len());
        for area in self.cpus.iter().take(count).skip(1) {
            turnstile_starting.store(core::ptr::from_ref(*area) as u64, Ordering::Relaxed);
            cpu::sync();
            let entry = turnstile_secondary_entry as *const () as u64;
            // SAFETY: the entry takes a CPU as skiboot leaves it.
            let started = unsafe { opal::start_cpu(area.pir, entry) };
            if let Err(opal::Error(code)) = started {
                println!(
                    "turnstile: CPU {} ({:#x}) cannot be started (OPAL_START_CPU: {code})",
                    area.index, area.pir
                );
                return area.index;
            }
            let until = time::ticks().saturating_add(PATIENCE * time::frequency());
            while !area.online.load(Ordering::Acquire) {
                if time::ticks() > until {
                    println!("turnstile: CPU {} was started but does not answer", area.index);
                    return area.index;
                }
                cpu::relax();
            }
        }
        count
    }

    /// Kicks the CPUs with an index from 1 to below `count`, which wait for the boot CPU.
    pub fn wake_cpus(&self, count: usize) {
        self.cpus.iter().take(count).skip(1).for_each(|area| cpu::ring(area.kick_token()));
    }

    /// Powers the machine off.
    pub fn power_off(&self) -> ! {
        console::flush();
        power::off();
        cpu::halt()
    }
}
