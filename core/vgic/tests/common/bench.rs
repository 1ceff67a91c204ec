// SPDX-License-Identifier: Apache-2.0 OR MIT
//! One vCPU on its CPU, with its accesses counted.

use turnstile_vgic::Outcome;

use super::hardware::Accesses;
use super::machine::Machine;

/// No access at all.
pub const NOTHING: Accesses = Accesses {
    reads: 0,
    writes: 0,
    clears: 0,
    elrsr: 0,
    eisr: 0,
    eoi_count: 0,
    maintenance: 0,
    vmcr: 0,
    lines: 0,
    deactivations: 0,
};
/// One list register written.
pub const ONE_WRITE: Accesses = Accesses { writes: 1, ..NOTHING };

/// A vCPU with everything enabled, alone.
pub struct Bench(pub Machine);

impl Bench {
    pub fn new(list_registers: usize) -> Self {
        let machine = Machine::new(&[0], list_registers);
        machine.with(0, |gic, cx| {
            gic.dist_write(cx, 0, 4, 3);
            for block in [0x104, 0x108] {
                gic.dist_write(cx, block, 4, 0xffff_ffff);
            }
            gic.redist_write(cx, 0, 0x1_0100, 4, 0xffff_ffff);
        });
        machine.drain();
        let bench = Self(machine);
        bench.take();
        bench
    }

    pub fn take(&self) -> Accesses {
        self.0.cpus[0].borrow_mut().hw.take_accesses()
    }

    pub fn sgi(&self, intid: u32) -> Outcome {
        self.0.with(0, |gic, cx| gic.inject_sgi(cx.vif, intid))
    }

    /// The timer's physical interrupt fires.
    pub fn timer(&self) -> Outcome {
        self.0.with(0, |gic, cx| {
            assert!(cx.vif.physical.insert(26));
            cx.vif.set_line(26, true);
            gic.inject_ppi_hw(cx.vif, 27, 26)
        })
    }

    pub fn settle(&self) {
        self.0.with(0, |gic, cx| gic.settle(cx));
    }

    pub fn acknowledge(&self) -> u32 {
        self.0.cpus[0].borrow_mut().hw.acknowledge().unwrap()
    }

    pub fn end(&self, intid: u32) {
        self.0.cpus[0].borrow_mut().hw.end_of_interrupt(intid);
    }

    pub fn handle(&self) -> u32 {
        let intid = self.acknowledge();
        self.end(intid);
        intid
    }
}
