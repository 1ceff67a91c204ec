// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine as the hypervisor uses it, and the start of its other CPUs.

use alloc::vec::Vec;

use dtoolkit::fdt::Fdt;
use spin::Once;
use turnstile_arch_common::startup::{self, Starting};
use turnstile_arch_common::{console, println};
use turnstile_machine::GicVersion;

use super::area::Area;
use super::bridge::Bridge;
use super::iommu::Iommu;
use crate::board::discover::pci::PciNode;
use crate::board::discover::{CpuNode, Release, iommu, pci};
use crate::board::{power, psci};
use crate::cpu::{self, PerCpu};
use crate::irq::controller::Controller;
use crate::irq::{self, gicv3};
use crate::memory::host as memory;
use crate::time;

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
    /// What the firmware says of the machine.
    pub(super) tree: Fdt<'static>,
    pub(super) bridges: Once<Vec<Bridge>>,
    pub(super) iommus: Once<Vec<Iommu>>,
}

/// The CPUs by the affinity fields of their MPIDR_EL1, each with its area, and the root of the EL2 tables. `secondary_entry` in
/// `boot.S` reads it with the MMU off.
#[unsafe(no_mangle)]
static SECONDARY_BOOT: Starting = Starting::new();

impl Host {
    /// Returns the version of the interrupt controller.
    pub fn gic(&self) -> GicVersion {
        if irq::is_gicv2() { GicVersion::V2 } else { GicVersion::V3 }
    }

    /// Returns the page that guests with a GICv2 have as their CPU interface, if there is one.
    pub fn gicv(&self) -> Option<u64> {
        self.controller.gicv().filter(|_| irq::is_gicv2() || gicv3::allows_legacy())
    }

    /// Returns the PCI host bridges, in the order of the device tree. They are looked for, and mapped, when somebody asks.
    pub fn bridges(&'static self) -> &'static [Bridge] {
        self.bridges.call_once(|| {
            let nodes = pci::bridges(self.tree);
            // Before the first of their functions is touched.
            let iommus = self.iommus.call_once(|| self.start_iommus(&nodes));
            nodes
                .into_iter()
                .filter_map(|node| {
                    let configuration = node.configuration;
                    if let Err(error) = memory::map_registers(configuration) {
                        println!("turnstile: the PCI at {:#x} is not used: {error}", configuration.base);
                        return None;
                    }
                    // SAFETY: just mapped, for ever.
                    Some(unsafe { Bridge::new(node, &self.controller, &self.cpus, iommus) })
                })
                .collect()
        })
    }

    /// Starts the IOMMUs that functions of these bridges are behind. One that cannot be used guards nobody.
    fn start_iommus(&'static self, bridges: &[PciNode]) -> Vec<Iommu> {
        let start = |node: iommu::SmmuNode| {
            let base = node.registers.base;
            let streams =
                bridges.iter().map(|bridge| bridge.streams(node.phandle)).max().filter(|end| *end != 0)?;
            if let Err(error) = memory::map_registers(node.registers) {
                println!("turnstile: the IOMMU at {base:#x} is not used: {error}");
                return None;
            }
            // SAFETY: just mapped, for ever; each node is another IOMMU.
            match unsafe { Iommu::start(node, &self.controller, streams) } {
                Ok(iommu) => Some(iommu),
                Err(error) => {
                    println!("turnstile: the IOMMU at {base:#x} is not used: {error}");
                    None
                }
            }
        };
        iommu::smmus(self.tree).into_iter().filter_map(start).collect()
    }

    /// Starts the CPUs with an index below `count`, all at once, and waits for them. Returns how many are running: those before
    /// the first that does not start.
    ///
    /// CPUs that wait in a spin table are all started: there each event of another CPU wakes them.
    pub fn start_cpus(&self, count: usize) -> usize {
        let spins = self.nodes.iter().any(|node| matches!(node.release, Release::SpinTable(_)));
        let count = if spins { self.cpus.len() } else { count.min(self.cpus.len()) };
        let record = |area: &&'static PerCpu| [area.affinity, *area as *const PerCpu as u64];
        SECONDARY_BOOT.fill(memory::el2_root(), self.cpus.iter().map(record));
        // With their MMUs off they read past the caches.
        cpu::clean_to_poc((&raw const SECONDARY_BOOT) as u64, size_of::<Starting>() as u64);
        for area in self.cpus.iter().take(count) {
            cpu::clean_to_poc(*area as *const PerCpu as u64, size_of::<Area>() as u64);
        }
        let count = self.release_all(count);
        let flags = self.cpus.iter().take(count).skip(1).map(|area| (area.index, &area.online));
        startup::running(count, flags, time::ticks, time::frequency())
    }

    /// Lets the CPUs with an index below `count` begin. Returns how many do: those before the first that cannot.
    fn release_all(&self, count: usize) -> usize {
        for (area, node) in self.cpus.iter().zip(&self.nodes).take(count).skip(1) {
            if let Err(reason) = self.release(node) {
                println!("turnstile: CPU {} does not start: {reason}", area.index);
                return area.index;
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
