// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which machine QEMU is, and how its CPUs run: the arguments that say so.

use std::ffi::OsString;

use turnstile_machine::GicVersion;

use super::Boot;
use crate::config::Board;

impl Boot {
    /// Whether QEMU has to run the machine's CPUs in turn: a PC's FXRSTOR, XRSTOR, FRSTOR, FLDENV and FNINIT, on any CPU, write the
    /// first CPU's hidden flags (`cpu_clear_ignne` of QEMU's target/i386) with neither lock nor atomic operation. On threads of their
    /// own they undo what the first CPU's VMRUN or #VMEXIT has just changed there, nested paging and GIF among it. Who asks for an
    /// accelerator in `extra` gets that.
    pub(super) fn needs_one_thread(&self) -> bool {
        let is_pc = matches!(self.board, Board::Q35 | Board::Pc | Board::Microvm);
        let is_chosen = |argument: &OsString| argument == "-accel" || argument == "--accel";
        is_pc && self.virtualization && self.cpus > 1 && !self.extra.iter().any(is_chosen)
    }

    /// The arguments that say what machine it is.
    pub(super) fn machine(&self) -> Vec<String> {
        match self.board {
            Board::Virt => {
                let el2 = if self.virtualization { "on" } else { "off" };
                let gic = match self.gic {
                    GicVersion::V2 => 2,
                    GicVersion::V3 => 3,
                };
                let iommu = if self.iommu { ",iommu=smmuv3" } else { "" };
                // A random seed in the device tree would make runs differ.
                let machine =
                    format!("virt,virtualization={el2},gic-version={gic},dtb-randomness=off{iommu}");
                let (cpus, memory) = (self.cpus.to_string(), format!("{}M", self.memory >> 20));
                ["-machine", &machine, "-cpu", &self.cpu, "-smp", &cpus, "-m", &memory]
                    .map(str::to_owned)
                    .to_vec()
            }
            Board::Q35 | Board::Pc | Board::Microvm => self.pc(),
            Board::Powernv9 | Board::Powernv10 => self.powernv(),
            // Nothing about it can be chosen.
            Board::Rpi4 => ["-machine", "raspi4b"].map(str::to_owned).to_vec(),
        }
    }

    /// The arguments that say what machine with OPAL it is. CPUs are cores of one thread. The service processor is what
    /// switches the machine off.
    fn powernv(&self) -> Vec<String> {
        let (cpus, memory) = (self.cpus.to_string(), format!("{}M", self.memory >> 20));
        if !self.virtualization {
            let cpu = if self.board == Board::Powernv10 { "power10" } else { "power9" };
            // Its own firmware, not SLOF, which takes billions of instructions.
            let machine = "pseries,x-vof=on,ic-mode=xive";
            return ["-machine", machine, "-cpu", cpu, "-smp", &cpus, "-m", &memory]
                .map(str::to_owned)
                .to_vec();
        }
        let machine = ["-machine", self.board.name(), "-smp", &cpus, "-m", &memory];
        let processor = ["-device", "ipmi-bmc-sim,id=bmc", "-device", "isa-ipmi-bt,bmc=bmc,irq=10"];
        machine.into_iter().chain(processor).map(str::to_owned).collect()
    }

    /// The arguments that say what PC it is.
    fn pc(&self) -> Vec<String> {
        let (cpus, memory) = (self.cpus.to_string(), format!("{}M", self.memory >> 20));
        let cpu = match self.virtualization {
            true => self.cpu.clone(),
            false => format!("{},-svm", self.cpu),
        };
        ["-machine", self.board.name(), "-cpu", &cpu, "-smp", &cpus, "-m", &memory]
            .map(str::to_owned)
            .to_vec()
    }
}
