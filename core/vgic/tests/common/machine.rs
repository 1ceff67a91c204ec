// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM: the code under test on modeled hardware.

use std::cell::RefCell;
use std::collections::BTreeSet;

use turnstile_vgic::{Context, Host, Model, RemoteOp, VcpuGic, Vgic, VgicConfig, VirtualInterface};

use super::hardware::HardwareModel;

pub const SPIS: u32 = 64;

/// Where a GICv3 has the registers of private interrupts: in the second frame of the redistributor.
const SGI_FRAME: u32 = 0x1_0000;

pub struct Cpu {
    pub gic: VcpuGic,
    pub hw: HardwareModel,
}

/// The other vCPUs, as one of them sees them.
pub struct Machine {
    pub vgic: Vgic,
    pub cpus: Vec<RefCell<Cpu>>,
    pub inboxes: Vec<RefCell<BTreeSet<u32>>>,
    /// The vCPUs that are in a CPU.
    pub resident: RefCell<BTreeSet<usize>>,
}

impl Host for Machine {
    fn post(&self, vcpu: usize, intid: u32) {
        self.inboxes[vcpu].borrow_mut().insert(intid);
    }

    fn is_resident(&self, vcpu: usize) -> bool {
        self.resident.borrow().contains(&vcpu)
    }

    fn remote<V: VirtualInterface>(&self, me: &mut VcpuGic, _: &mut V, vcpu: usize, op: RemoteOp) -> u64 {
        assert_ne!(me.index(), vcpu, "a remote operation on oneself");
        self.with(vcpu, |gic, cx| gic.apply(cx, op))
    }
}

impl Machine {
    /// Builds a GICv3.
    pub fn new(mpidrs: &[u64], list_registers: usize) -> Self {
        Self::of(Model::Gicv3, mpidrs, list_registers)
    }

    /// Builds a GICv2 of so many vCPUs.
    pub fn gicv2(vcpus: u64, list_registers: usize) -> Self {
        Self::of(Model::Gicv2, &(0..vcpus).collect::<Vec<u64>>(), list_registers)
    }

    pub fn of(model: Model, mpidrs: &[u64], list_registers: usize) -> Self {
        let config = VgicConfig { model, mpidrs, spis: SPIS, priority_bits: 5, group1_at_reset: true };
        let vgic = Vgic::new(&config).unwrap();
        let cpu = |index| {
            let gic = VcpuGic::new(&vgic, index, list_registers, HardwareModel::encode);
            RefCell::new(Cpu { gic, hw: HardwareModel::new(model, list_registers) })
        };
        let machine = Self {
            cpus: (0..mpidrs.len()).map(cpu).collect(),
            inboxes: mpidrs.iter().map(|_| RefCell::default()).collect(),
            resident: RefCell::new((0..mpidrs.len()).collect()),
            vgic,
        };
        for vcpu in 0..mpidrs.len() {
            machine.with(vcpu, |gic, cx| {
                gic.power_on(cx);
                gic.load(cx);
            });
        }
        machine
    }

    /// Runs something on one vCPU's physical CPU.
    pub fn with<R>(
        &self,
        vcpu: usize,
        run: impl FnOnce(&mut VcpuGic, &mut Context<HardwareModel, Self>) -> R,
    ) -> R {
        let mut cpu = self.cpus[vcpu].borrow_mut();
        let Cpu { gic, hw } = &mut *cpu;
        run(gic, &mut Context { vgic: &self.vgic, vif: hw, host: self })
    }

    /// Delivers everything posted. Returns whether there was something.
    pub fn drain(&self) -> bool {
        self.drain_but(&[])
    }

    /// Delivers everything posted but what is for vCPUs that are off.
    pub fn drain_but(&self, off: &[usize]) -> bool {
        let mut any = false;
        for vcpu in (0..self.cpus.len()).filter(|vcpu| !off.contains(vcpu)) {
            let posted = self.inboxes[vcpu].take();
            any |= !posted.is_empty();
            self.with(vcpu, |gic, cx| {
                posted.iter().for_each(|intid| deliver(gic, cx, *intid));
                gic.settle(cx);
            });
        }
        any
    }

    /// Handles maintenance interrupts and posts until there are none. Panics if that never ends.
    pub fn service(&self) {
        self.service_but(&[]);
    }

    /// Does [`Self::service`] without delivering posts to vCPUs that are off.
    pub fn service_but(&self, off: &[usize]) {
        for _ in 0..64 {
            let mut any = self.drain_but(off);
            for vcpu in 0..self.cpus.len() {
                if self.cpus[vcpu].borrow().hw.misr() {
                    any = true;
                    self.with(vcpu, |gic, cx| gic.maintenance(cx));
                }
            }
            if !any {
                return;
            }
        }
        panic!("a maintenance storm");
    }

    /// Writes a register, of the vCPU's own if it is of INTIDs below 32. `offset` is that of the distributor.
    pub fn write_register(&self, vcpu: usize, intid: u32, offset: u32, size: u8, value: u64) {
        self.with(vcpu, |gic, cx| {
            if intid < 32 && cx.vgic.model() == Model::Gicv3 {
                gic.redist_write(cx, vcpu, SGI_FRAME + offset, size, value);
            } else {
                gic.dist_write(cx, offset, size, value);
            }
        });
    }

    /// Reads a register, as [`Self::write_register`] writes it.
    pub fn read_register(&self, vcpu: usize, intid: u32, offset: u32, size: u8) -> u64 {
        self.with(vcpu, |gic, cx| {
            if intid < 32 && cx.vgic.model() == Model::Gicv3 {
                gic.redist_read(cx, vcpu, SGI_FRAME + offset, size)
            } else {
                gic.dist_read(cx, offset, size)
            }
        })
    }

    /// Writes the word of an interrupt in a bank with one bit per INTID.
    pub fn write(&self, vcpu: usize, intid: u32, bank: u32, value: u32) {
        self.write_register(vcpu, intid, bank + intid / 32 * 4, 4, value.into());
    }

    /// Reads the bit of an interrupt in a bank with one bit per INTID.
    pub fn read(&self, vcpu: usize, intid: u32, bank: u32) -> bool {
        self.read_register(vcpu, intid, bank + intid / 32 * 4, 4) >> (intid % 32) & 1 != 0
    }

    /// Changes one bit of a register with a bit per INTID.
    pub fn write_bit(&self, vcpu: usize, intid: u32, bank: u32, bit: bool) {
        let offset = bank + intid / 32 * 4;
        let old = self.read_register(vcpu, intid, offset, 4);
        let mask = 1u64 << (intid % 32);
        self.write_register(vcpu, intid, offset, 4, if bit { old | mask } else { old & !mask });
    }

    pub fn write_edge(&self, vcpu: usize, intid: u32, edge: bool) {
        let offset = 0xc00 + intid / 16 * 4;
        let old = self.read_register(vcpu, intid, offset, 4);
        let mask = 2u64 << (intid % 16 * 2);
        self.write_register(vcpu, intid, offset, 4, if edge { old | mask } else { old & !mask });
    }
}

/// Delivers what was posted, as exits do: an SGI that comes again is presented, if that is possible.
fn deliver(gic: &mut VcpuGic, cx: &mut Context<HardwareModel, Machine>, intid: u32) {
    let presented = match cx.vgic.model() {
        _ if intid >= 16 => false,
        Model::Gicv3 => gic.present_posted_sgi(cx.vif, 1 << intid),
        Model::Gicv2 => gic.present_sent_sgi(cx.vgic, cx.vif, intid),
    };
    if !presented {
        gic.deliver(cx, intid);
    }
}
