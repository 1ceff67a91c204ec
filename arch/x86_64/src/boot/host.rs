// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as the hypervisor uses it, and the start of its other CPUs.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use spin::Once;
use turnstile_arch_common::startup::{self, Starting};
use turnstile_arch_common::{console, println};
use turnstile_firmware::ivrs::Ivrs;

use super::bridge::Bridge;
use super::iommu::{Iommu, REGISTERS};
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
    /// What the firmware says of IOMMUs.
    pub(super) ivrs: Ivrs,
    /// An I/O APIC that those do not name.
    pub(super) unnamed: Option<u8>,
    /// The host bridge, once somebody has asked for it.
    pub(super) bridge: Once<Option<Bridge>>,
}

/// The CPUs by the identifications of their local APICs, each with the end of its stack's block, and the root of the final
/// tables. `secondary64` in `boot.S` reads it.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals, reason = "named by boot.S")]
static turnstile_starting: Starting = Starting::new();

/// Starts CPUs in real mode at a page below 1 MiB (Intel SDM vol. 3, 9.4.4; APM vol. 2, 16.5).
fn start_all(cpus: &[&'static PerCpu], page: u64) {
    /// The 10 ms and 200 us that the Intel SDM asks for are those of the first multiprocessors; no CPU with SVM is so old.
    const PAUSE_MICROSECONDS: u64 = 10;
    cpus.iter().for_each(|area| lapic::init(area.apic_id));
    for _ in 0..2 {
        time::spin_microseconds(PAUSE_MICROSECONDS);
        let silent = cpus.iter().filter(|area| !area.online.load(Ordering::Relaxed));
        silent.for_each(|area| lapic::start_up(area.apic_id, page));
    }
}

impl Host {
    /// Starts the CPUs with an index below `count`, all at once, and waits for them. Returns how many are running: those before
    /// the first that does not answer.
    pub fn start_cpus(&self, count: usize) -> usize {
        let count = count.min(self.cpus.len());
        let others = self.cpus.get(1..count).unwrap_or(&[]);
        if others.is_empty() {
            return count;
        }
        turnstile_starting
            .fill(memory::root(), others.iter().map(|area| [area.apic_id.into(), area.stack_end]));
        self.place_trampoline();
        start_all(others, self.trampoline);
        let flags = others.iter().map(|area| (area.index, &area.online));
        startup::running(count, flags, time::ticks, time::frequency())
    }

    /// Writes the page where CPUs start.
    fn place_trampoline(&self) {
        unsafe extern "C" {
            static turnstile_trampoline: u8;
            static turnstile_trampoline_end: u8;
        }
        let start = &raw const turnstile_trampoline;
        let size = (&raw const turnstile_trampoline_end) as usize - start as usize;
        // SAFETY: the page is mapped writable and nobody else's; no CPU is starting in it.
        unsafe { core::ptr::copy_nonoverlapping(start, self.trampoline as *mut u8, size) };
    }

    /// Returns the machine's PCI host bridges, which are looked for when this is first asked.
    pub fn bridges(&'static self) -> &'static [Bridge] {
        let find = || Bridge::find(&self.cpus, memory::physical_bits(), self.start_iommus());
        self.bridge.call_once(find).as_slice()
    }

    /// Starts the machine's IOMMUs. If one cannot be used, none guards anybody.
    fn start_iommus(&self) -> Option<Iommu> {
        if self.ivrs.iommus.is_empty() {
            return None;
        }
        if let Some(id) = self.unnamed {
            // An IOMMU lets nobody interrupt whom it does not know: not the serial line, either.
            println!(
                "turnstile: the IOMMU is not used: the firmware's tables do not say what it takes I/O APIC {id} for"
            );
            return None;
        }
        for iommu in &self.ivrs.iommus {
            if let Err(error) = memory::map_registers(iommu.address, REGISTERS) {
                println!("turnstile: the IOMMU at {:#x} is not used: {error}", iommu.address);
                return None;
            }
        }
        // SAFETY: just mapped, for ever.
        unsafe { Iommu::start(self.ivrs.clone()) }
            .inspect_err(|error| println!("turnstile: the IOMMU is not used: {error}"))
            .ok()
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
