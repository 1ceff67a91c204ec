// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as the hypervisor uses it, and the start of its other CPUs.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use turnstile_arch_common::{console, println};

use crate::board::power;
use crate::cpu::{self, PerCpu};
use crate::irq::lapic;
use crate::memory;
use crate::time;

/// The machine as the hypervisor uses it.
pub struct Host {
    /// CPUs; the boot CPU first, the others in the order of the firmware's tables.
    pub cpus: Vec<&'static PerCpu>,
    /// The bundle, if the boot loader passed one.
    pub bundle: Option<&'static [u8]>,
    /// The hypervisor's command line.
    pub bootargs: &'static str,
    /// The machine's name.
    pub model: &'static str,
    /// The interrupt of the serial port, as [`crate::Monitor::interrupt`] names it.
    pub console_intid: Option<u32>,
    /// The page where other CPUs start.
    pub(super) trampoline: u64,
}

/// Starts a CPU in real mode at a page below 1 MiB (Intel SDM vol. 3, 9.4.4; APM vol. 2, 16.5).
fn start_other(apic_id: u32, page: u64) {
    /// The 10 ms and 200 us that the Intel SDM asks for are those of the first multiprocessors; no CPU with SVM is so old.
    const PAUSE_MICROSECONDS: u64 = 10;
    lapic::init(apic_id);
    for _ in 0..2 {
        time::spin_microseconds(PAUSE_MICROSECONDS);
        lapic::start_up(apic_id, page);
    }
}

impl Host {
    /// Starts the CPUs with an index below `count`, one after another, and waits for them. Returns how many are running.
    pub fn start_cpus(&self, count: usize) -> usize {
        /// In seconds. Generous: an emulator may run its CPUs in turn.
        const PATIENCE: u64 = 10;
        let count = count.min(self.cpus.len());
        for area in self.cpus.iter().take(count).skip(1) {
            self.prepare(area);
            start_other(area.apic_id, self.trampoline);
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

    /// Writes the page where a CPU starts.
    fn prepare(&self, area: &PerCpu) {
        unsafe extern "C" {
            static turnstile_trampoline: u8;
            static turnstile_trampoline_end: u8;
            static trampoline_root: u8;
            static trampoline_stack_end: u8;
        }
        let start = &raw const turnstile_trampoline;
        let offset = |symbol: *const u8| symbol as u64 - start as u64;
        let word = |symbol| (self.trampoline + offset(symbol)) as *mut u64;
        let size = offset(&raw const turnstile_trampoline_end) as usize;
        // SAFETY: the page is mapped writable and nobody else's; no CPU is starting in it.
        unsafe {
            core::ptr::copy_nonoverlapping(start, self.trampoline as *mut u8, size);
            word(&raw const trampoline_root).write_volatile(memory::root());
            word(&raw const trampoline_stack_end).write_volatile(area.stack_end);
        }
    }

    /// Kicks the CPUs with an index from 1 to below `count`, which wait for the boot CPU.
    pub fn wake_cpus(&self, count: usize) {
        self.cpus.iter().take(count).skip(1).for_each(|area| lapic::kick(area.kick_token()));
    }

    /// Powers the machine off.
    pub fn power_off(&self) -> ! {
        console::flush();
        power::off();
        cpu::halt()
    }
}
