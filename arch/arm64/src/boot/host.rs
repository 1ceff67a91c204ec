// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as the hypervisor uses it, and the start of its other CPUs.

use alloc::vec::Vec;
use core::sync::atomic::Ordering;

use turnstile_arch_common::{console, println};
use turnstile_machine::GicVersion;

use super::area::Area;
use crate::board::discover::{self, CpuNode, Release};
use crate::board::{power, psci};
use crate::cpu::{self, PerCpu};
use crate::irq::controller::Controller;
use crate::irq::{self, gicv3};
use crate::memory::host as memory;

unsafe extern "C" {
    fn secondary_entry();
}

/// The machine as the hypervisor uses it.
pub struct Host {
    /// CPUs; the boot CPU first, the others in the order of the device tree.
    pub cpus: Vec<&'static PerCpu>,
    pub(super) nodes: Vec<CpuNode>,
    /// The bundle, if the boot loader passed one.
    pub bundle: Option<&'static [u8]>,
    /// The hypervisor's command line.
    pub bootargs: &'static str,
    /// The machine's name.
    pub model: &'static str,
    /// INTID of the console's interrupt.
    pub console_intid: Option<u32>,
    pub(super) controller: Controller,
}

/// What `secondary_entry` in `boot.S` reads with the MMU off.
#[repr(C, align(64))]
struct SecondaryBoot {
    count: u64,
    root: u64,
    records: [[u64; 2]; discover::MAX_CPUS],
}

/// Written once by the boot CPU before it starts another one.
#[unsafe(no_mangle)]
static mut SECONDARY_BOOT: SecondaryBoot =
    SecondaryBoot { count: 0, root: 0, records: [[0; 2]; discover::MAX_CPUS] };

/// Turns of a waiting loop after which a CPU is taken for dead. Generous: an emulator may run its CPUs in
/// turn.
const PATIENCE: u64 = 2_000_000_000;

impl Host {
    /// Returns the version of the interrupt controller.
    pub fn gic(&self) -> GicVersion {
        if irq::is_gicv2() { GicVersion::V2 } else { GicVersion::V3 }
    }

    /// Returns the page that guests with a GICv2 have as their CPU interface, if there is one.
    pub fn gicv(&self) -> Option<u64> {
        self.controller.gicv().filter(|_| irq::is_gicv2() || gicv3::allows_legacy())
    }

    /// Starts the CPUs with an index below `count`, and waits for them. Returns how many are running.
    ///
    /// CPUs that wait in a spin table are all started: there each event of another CPU wakes them.
    pub fn start_cpus(&self, count: usize) -> usize {
        let spins = self.nodes.iter().any(|node| matches!(node.release, Release::SpinTable(_)));
        let count = if spins { self.cpus.len() } else { count.min(self.cpus.len()) };
        // SAFETY: only the boot CPU runs, and only this function touches the static; CPUs started earlier
        // are past reading it.
        unsafe {
            let boot = &raw mut SECONDARY_BOOT;
            (*boot).count = count as u64;
            (*boot).root = memory::el2_root();
            for (record, area) in (*boot).records.iter_mut().zip(&self.cpus) {
                *record = [area.affinity, *area as *const PerCpu as u64];
            }
            cpu::clean_to_poc(boot as u64, size_of::<SecondaryBoot>() as u64);
        }
        for area in &self.cpus {
            cpu::clean_to_poc(*area as *const PerCpu as u64, size_of::<Area>() as u64);
        }
        let started = self.cpus.iter().zip(&self.nodes).take(count).skip(1);
        for (area, node) in started {
            if let Err(reason) = self.release(node) {
                println!("turnstile: CPU {} does not start: {reason}", area.index);
                return area.index;
            }
            let mut patience = PATIENCE;
            while !area.online.load(Ordering::Acquire) {
                patience -= 1;
                if patience == 0 {
                    println!("turnstile: CPU {} was started but does not answer", area.index);
                    return area.index;
                }
                cpu::relax();
            }
        }
        count
    }

    fn release(&self, node: &CpuNode) -> Result<(), &'static str> {
        let entry = secondary_entry as *const () as u64;
        match node.release {
            Release::Psci => psci::cpu_on(node.affinity, entry).map_err(|_| "PSCI CPU_ON by SMC failed"),
            Release::SpinTable(address) => {
                memory::write_release_address(address, entry)
                    .map_err(|_| "its spin table cannot be mapped")?;
                cpu::sev();
                Ok(())
            }
        }
    }

    /// Kicks the CPUs with an index from 1 to below `count`, which wait for the boot CPU.
    pub fn wake_cpus(&self, count: usize) {
        self.cpus.iter().take(count).skip(1).for_each(|area| irq::kick(area.kick_token()));
    }

    /// Powers the machine off.
    pub fn power_off(&self) -> ! {
        console::flush();
        power::off();
        cpu::halt()
    }
}
