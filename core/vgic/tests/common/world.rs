// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM: the code under test on modeled hardware, beside the ideal controller. Every step does the same
//! to both; [`World::compare`] demands that the guest cannot tell them apart.

use std::cell::RefCell;
use std::collections::BTreeSet;

use turnstile_vgic::{
    Context, Host, Model, Outcome, RemoteOp, SgiRegister, VcpuGic, Vgic, VgicConfig, VirtualInterface,
};

use super::hardware::{HardwareModel, Interface};
use super::reference::Reference;

/// The PPI of the timer, which is backed by hardware.
pub const TIMER: u32 = 27;
const TIMER_PINTID: u32 = 26;
pub const SPIS: u32 = 64;

const ISENABLER: u32 = 0x100;
const ICENABLER: u32 = 0x180;
const ISPENDR: u32 = 0x200;
const ICPENDR: u32 = 0x280;
const ISACTIVER: u32 = 0x300;
const ICACTIVER: u32 = 0x380;
const IROUTER: u32 = 0x6000;
const SGI_FRAME: u32 = 0x1_0000;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Acknowledge,
    EndOfInterrupt,
    Deactivate { nth: usize, from: usize },
    Enable(u32, bool),
    Pend(u32, bool),
    Activate(u32, bool),
    Priority(u32, u8),
    Group1(u32, bool),
    Edge(u32, bool),
    Route(u32, usize),
    Groups(bool, bool),
    Sgi { intid: u32, to: usize, group1: bool },
    Line(u32, bool),
    Pulse(u32),
    Timer(bool),
    Mask(u8),
    InterfaceGroups(bool, bool),
    EoiMode(bool),
    PutLoad,
    Observe(u32),
    Spurious,
    Synchronize,
}

pub struct Cpu {
    pub gic: VcpuGic,
    pub hw: HardwareModel,
}

/// The other vCPUs, as one of them sees them.
pub struct Machine {
    pub vgic: Vgic,
    pub cpus: Vec<RefCell<Cpu>>,
    pub inboxes: Vec<RefCell<BTreeSet<u32>>>,
}

impl Host for Machine {
    fn post(&self, vcpu: usize, intid: u32) {
        self.inboxes[vcpu].borrow_mut().insert(intid);
    }

    fn remote<V: VirtualInterface>(&self, me: &mut VcpuGic, _: &mut V, vcpu: usize, op: RemoteOp) -> u64 {
        assert_ne!(me.index(), vcpu, "a remote operation on oneself");
        self.with(vcpu, |gic, cx| gic.apply(cx, op))
    }
}

impl Machine {
    pub fn new(mpidrs: &[u64], list_registers: usize) -> Self {
        let model = Model::Gicv3;
        let config = VgicConfig { model, mpidrs, spis: SPIS, priority_bits: 5, group1_at_reset: true };
        let vgic = Vgic::new(&config).unwrap();
        let cpu = |index| {
            let gic = VcpuGic::new(&vgic, index, list_registers);
            RefCell::new(Cpu { gic, hw: HardwareModel::new(list_registers) })
        };
        let machine = Self {
            cpus: (0..mpidrs.len()).map(cpu).collect(),
            inboxes: mpidrs.iter().map(|_| RefCell::default()).collect(),
            vgic,
        };
        for vcpu in 0..mpidrs.len() {
            machine.with(vcpu, |gic, cx| gic.load(cx));
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
        let mut any = false;
        for vcpu in 0..self.cpus.len() {
            let posted = self.inboxes[vcpu].take();
            any |= !posted.is_empty();
            self.with(vcpu, |gic, cx| {
                posted.iter().for_each(|intid| gic.deliver(cx, *intid));
                gic.settle(cx);
            });
        }
        any
    }

    /// Handles maintenance interrupts and posts until there are none. Panics if that never ends.
    pub fn service(&self) {
        for _ in 0..64 {
            let mut any = self.drain();
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

    pub fn write(&self, vcpu: usize, intid: u32, bank: u32, value: u32) {
        self.with(vcpu, |gic, cx| {
            if intid < 32 {
                gic.redist_write(cx, vcpu, SGI_FRAME + bank, 4, value.into());
            } else {
                gic.dist_write(cx, bank + intid / 32 * 4, 4, value.into());
            }
        });
    }

    pub fn read(&self, vcpu: usize, intid: u32, bank: u32) -> bool {
        let value = self.with(vcpu, |gic, cx| {
            if intid < 32 {
                gic.redist_read(cx, vcpu, SGI_FRAME + bank, 4)
            } else {
                gic.dist_read(cx, bank + intid / 32 * 4, 4)
            }
        });
        value >> (intid % 32) & 1 != 0
    }

    /// Changes one bit of a register with a bit per INTID.
    fn write_bit(&self, vcpu: usize, intid: u32, bank: u32, bit: bool) {
        let frame = |gic: &mut VcpuGic, cx: &mut Context<HardwareModel, Self>| {
            let mask = 1u64 << (intid % 32);
            if intid < 32 {
                let old = gic.redist_read(cx, vcpu, SGI_FRAME + bank, 4);
                gic.redist_write(cx, vcpu, SGI_FRAME + bank, 4, if bit { old | mask } else { old & !mask });
            } else {
                let offset = bank + intid / 32 * 4;
                let old = gic.dist_read(cx, offset, 4);
                gic.dist_write(cx, offset, 4, if bit { old | mask } else { old & !mask });
            }
        };
        self.with(vcpu, frame);
    }

    fn write_edge(&self, vcpu: usize, intid: u32, edge: bool) {
        self.with(vcpu, |gic, cx| {
            let mask = 2u64 << (intid % 16 * 2);
            let offset = 0xc00 + intid / 16 * 4;
            if intid < 32 {
                let old = gic.redist_read(cx, vcpu, SGI_FRAME + offset, 4);
                gic.redist_write(
                    cx,
                    vcpu,
                    SGI_FRAME + offset,
                    4,
                    if edge { old | mask } else { old & !mask },
                );
            } else {
                let old = gic.dist_read(cx, offset, 4);
                gic.dist_write(cx, offset, 4, if edge { old | mask } else { old & !mask });
            }
        });
    }
}

pub struct World {
    pub machine: Machine,
    pub reference: Reference,
    /// Per vCPU: what it made active and DIR may deactivate (EOImode 1): acknowledged and ended as far as
    /// the priority goes, or made active by a register.
    dropped: Vec<Vec<u32>>,
}

impl World {
    pub fn new(vcpus: usize, list_registers: usize) -> Self {
        let mpidrs: Vec<u64> = (0..vcpus as u64).collect();
        Self {
            machine: Machine::new(&mpidrs, list_registers),
            reference: Reference::new(vcpus, SPIS as usize),
            dropped: vec![Vec::new(); vcpus],
        }
    }

    fn hw<R>(&self, vcpu: usize, run: impl FnOnce(&mut HardwareModel) -> R) -> R {
        run(&mut self.machine.cpus[vcpu].borrow_mut().hw)
    }

    /// Says whether a vCPU has acknowledged the interrupt and not yet ended it.
    fn is_running(&self, vcpu: usize, intid: u32) -> bool {
        let running = |vcpu: usize| self.reference.running[vcpu].iter().any(|(id, _)| *id == intid);
        if intid < 32 { running(vcpu) } else { (0..self.dropped.len()).any(running) }
    }

    /// Lets the physical timers fire whose line is high and whose interrupt is not active.
    fn fire_timers(&mut self) {
        for vcpu in 0..self.dropped.len() {
            if self.reference.get(vcpu, TIMER).line && self.hw(vcpu, |hw| hw.physical.insert(TIMER_PINTID)) {
                self.machine.with(vcpu, |gic, cx| {
                    if gic.inject_ppi_hw(cx.vif, TIMER, TIMER_PINTID) == Outcome::Slow {
                        gic.settle(cx);
                    }
                });
            }
        }
    }

    /// Handles what the last step left to do, and compares.
    pub fn settle(&mut self) {
        self.machine.service();
        self.fire_timers();
        self.machine.service();
        self.compare();
    }

    /// Does one step on both sides. With `lazy`, maintenance interrupts are still on their way when the
    /// next step comes, unless that is one that the guest does without a trap.
    pub fn step(&mut self, vcpu: usize, op: Op, lazy: bool) {
        match op {
            Op::Acknowledge | Op::EndOfInterrupt | Op::Deactivate { .. } => {
                self.settle();
                self.guest_step(vcpu, op);
            }
            Op::Enable(..) | Op::Pend(..) | Op::Activate(..) => self.register_step(vcpu, op),
            Op::Priority(..) | Op::Group1(..) | Op::Edge(..) | Op::Route(..) => self.config_step(vcpu, op),
            _ => self.other_step(vcpu, op),
        }
        self.machine.drain();
        self.fire_timers();
        if !lazy {
            self.settle();
        }
    }

    fn guest_step(&mut self, vcpu: usize, op: Op) {
        match op {
            Op::Acknowledge => {
                let expected = self.reference.signaled(vcpu);
                let got = self.hw(vcpu, HardwareModel::acknowledge);
                assert_eq!(got.is_some(), !expected.is_empty(), "got {got:?}, expected of {expected:?}");
                if let Some(intid) = got {
                    assert!(expected.contains(&intid), "got {intid}, expected of {expected:?}");
                    self.reference.acknowledge(vcpu, intid);
                }
            }
            Op::EndOfInterrupt => {
                if let Some(intid) = self.reference.end_of_interrupt(vcpu) {
                    self.hw(vcpu, |hw| hw.end_of_interrupt(intid));
                    if self.reference.interfaces[vcpu].eoi_mode {
                        self.dropped[vcpu].push(intid);
                    }
                }
            }
            Op::Deactivate { nth, from } => {
                // An SPI may be deactivated by any vCPU.
                let from = from % self.dropped.len();
                if self.dropped[from].is_empty() || !self.reference.interfaces[vcpu].eoi_mode {
                    return;
                }
                let at = nth % self.dropped[from].len();
                let intid = self.dropped[from][at];
                if vcpu != from && intid < 32 {
                    return;
                }
                self.dropped[from].remove(at);
                self.reference.get(vcpu, intid).active = false;
                if !self.hw(vcpu, |hw| hw.deactivate_interrupt(intid)) {
                    self.machine.with(vcpu, |gic, cx| gic.dir(cx, intid));
                }
            }
            _ => unreachable!(),
        }
    }

    fn register_step(&mut self, vcpu: usize, op: Op) {
        let (bank, intid) = match op {
            Op::Enable(intid, true) => (ISENABLER, intid),
            Op::Enable(intid, false) => (ICENABLER, intid),
            Op::Pend(intid, true) => (ISPENDR, intid),
            Op::Pend(intid, false) => (ICPENDR, intid),
            Op::Activate(intid, true) => (ISACTIVER, intid),
            Op::Activate(intid, false) => (ICACTIVER, intid),
            _ => unreachable!(),
        };
        // The end of an interrupt that is no longer active is unpredictable; so is the active state of
        // one whose acknowledge is undone.
        if bank == ICACTIVER && self.is_running(vcpu, intid) {
            return;
        }
        let interrupt = self.reference.get(vcpu, intid);
        match op {
            Op::Enable(_, on) => interrupt.enabled = on,
            Op::Pend(_, on) => interrupt.latch = on,
            Op::Activate(_, on) => {
                if on && !interrupt.active {
                    // DIR may deactivate it.
                    self.dropped[vcpu].push(intid);
                }
                interrupt.active = on;
            }
            _ => {}
        }
        if bank == ICACTIVER {
            let everywhere = intid >= 32;
            for (cpu, dropped) in self.dropped.iter_mut().enumerate() {
                dropped.retain(|id| *id != intid || cpu != vcpu && !everywhere);
            }
        }
        self.machine.write(vcpu, intid, bank, 1 << (intid % 32));
    }

    fn config_step(&mut self, vcpu: usize, op: Op) {
        let machine = &self.machine;
        match op {
            Op::Priority(intid, priority) => {
                self.reference.get(vcpu, intid).priority = priority & 0xf8;
                machine.with(vcpu, |gic, cx| {
                    if intid < 32 {
                        gic.redist_write(cx, vcpu, SGI_FRAME + 0x400 + intid, 1, priority.into());
                    } else {
                        gic.dist_write(cx, 0x400 + intid, 1, priority.into());
                    }
                });
            }
            Op::Group1(intid, on) => {
                self.reference.get(vcpu, intid).group1 = on;
                machine.write_bit(vcpu, intid, 0x80, on);
            }
            Op::Edge(intid, on) if intid >= 16 && intid != TIMER => {
                self.reference.get(vcpu, intid).edge = on;
                machine.write_edge(vcpu, intid, on);
            }
            Op::Route(intid, target) if intid >= 32 => {
                let exists = target < self.dropped.len();
                self.reference.get(vcpu, intid).target = exists.then_some(target);
                machine.with(vcpu, |gic, cx| gic.dist_write(cx, IROUTER + 8 * intid, 8, target as u64));
            }
            _ => {}
        }
    }

    fn other_step(&mut self, vcpu: usize, op: Op) {
        match op {
            Op::Groups(group0, group1) => {
                self.reference.groups = [group0, group1];
                let value = u64::from(group0) | u64::from(group1) << 1;
                self.machine.with(vcpu, |gic, cx| gic.dist_write(cx, 0, 4, value));
            }
            Op::Sgi { intid, to, group1 } => self.send_sgi(vcpu, intid, to, group1),
            Op::Line(intid, high) if intid >= 16 && intid != TIMER => {
                self.reference.get(vcpu, intid).set_line(high);
                if intid >= 32 {
                    self.machine.vgic.set_spi_line(&self.machine, intid, high);
                } else {
                    self.machine.with(vcpu, |gic, cx| {
                        if gic.set_private_line(cx.vif, intid, high) == Outcome::Slow {
                            gic.settle(cx);
                        }
                    });
                }
            }
            Op::Pulse(intid) if intid >= 32 => {
                self.reference.get(vcpu, intid).latch = true;
                self.machine.vgic.pulse_spi(&self.machine, intid);
            }
            Op::Timer(high) => {
                self.reference.get(vcpu, TIMER).line = high;
                if !high {
                    self.machine.with(vcpu, |gic, cx| {
                        if gic.withdraw_ppi_hw(cx.vif, TIMER) == Outcome::Slow {
                            gic.settle(cx);
                        }
                    });
                }
            }
            Op::Mask(pmr) => self.set_interface(vcpu, |interface| interface.pmr = pmr),
            Op::InterfaceGroups(group0, group1) => {
                self.set_interface(vcpu, |interface| interface.enabled = [group0, group1]);
            }
            Op::EoiMode(on) if self.reference.running[vcpu].is_empty() && self.dropped[vcpu].is_empty() => {
                self.settle();
                self.set_interface(vcpu, |interface| interface.eoi_mode = on);
            }
            Op::PutLoad => {
                self.machine.with(vcpu, |gic, cx| gic.put(cx.vif));
                assert!(self.hw(vcpu, |hw| hw.is_empty()), "something left behind");
                self.machine.with(vcpu, |gic, cx| gic.load(cx));
            }
            Op::Observe(intid) => self.compare_registers_of(vcpu, &[intid]),
            Op::Spurious => self.machine.with(vcpu, |gic, cx| gic.maintenance(cx)),
            Op::Synchronize => self.machine.with(vcpu, |gic, cx| gic.synchronize(cx)),
            _ => {}
        }
    }

    fn set_interface(&mut self, vcpu: usize, set: impl Fn(&mut Interface)) {
        set(&mut self.reference.interfaces[vcpu]);
        self.hw(vcpu, |hw| set(&mut hw.interface));
    }

    fn send_sgi(&mut self, vcpu: usize, intid: u32, to: usize, group1: bool) {
        let register = if group1 { SgiRegister::Sgi1r } else { SgiRegister::Sgi0r };
        let vcpus = self.dropped.len();
        // One above the last is everybody but the sender.
        let value = u64::from(intid) << 24 | if to < vcpus { 1 << to } else { 1 << 40 };
        for target in (0..vcpus).filter(|target| if to < vcpus { *target == to } else { *target != vcpu }) {
            let interrupt = self.reference.get(target, intid);
            interrupt.latch |= interrupt.group1 == group1;
        }
        let (decoded, targets) = self.machine.vgic.sgi_targets(register, value, vcpu);
        assert_eq!(decoded, intid);
        for target in targets {
            if target != vcpu {
                self.machine.post(target, intid);
                continue;
            }
            self.machine.with(vcpu, |gic, cx| {
                if gic.inject_sgi(cx.vif, intid) == Outcome::Slow {
                    gic.settle(cx);
                }
            });
        }
    }

    /// Demands that every vCPU is offered the same interrupt on both sides.
    pub fn compare(&mut self) {
        for vcpu in 0..self.dropped.len() {
            let expected = self.reference.highest_pending(vcpu);
            let got = self.hw(vcpu, |hw| hw.highest_pending());
            let same = match (&expected, &got) {
                (None, None) => true,
                (Some((priority, intids)), Some(lr)) => {
                    lr.priority == *priority && intids.contains(&lr.intid)
                }
                _ => false,
            };
            assert!(same, "vCPU {vcpu}: expected of {expected:?}, got {got:?}");
            let waiting = !self.reference.signaled(vcpu).is_empty();
            let found = self.machine.with(vcpu, |gic, cx| gic.has_pending(cx.vif));
            assert!(found || !waiting, "WFI would sleep");
            let unique: BTreeSet<u32> =
                self.hw(vcpu, |hw| hw.lrs.iter().flatten().map(|lr| lr.intid).collect());
            assert_eq!(unique.len(), self.hw(vcpu, |hw| hw.lrs.iter().flatten().count()), "an INTID twice");
        }
    }

    /// Demands that the pending and active registers read the same on both sides, as `vcpu` sees them.
    pub fn compare_registers(&mut self, vcpu: usize) {
        let all: Vec<u32> = (0..32 + SPIS).collect();
        self.compare_registers_of(vcpu, &all);
    }

    /// Does [`Self::compare_registers`] for some interrupts.
    pub fn compare_registers_of(&mut self, vcpu: usize, intids: &[u32]) {
        for &intid in intids {
            let (pending, active) =
                (self.machine.read(vcpu, intid, ISPENDR), self.machine.read(vcpu, intid, ISACTIVER));
            let expected = self.reference.get(vcpu, intid).clone();
            assert_eq!(active, expected.active, "active state of {intid}");
            // A hardware-backed line that is still high is not seen before the deactivation, and then when
            // the physical interrupt has fired again.
            let fired = !expected.line || self.hw(vcpu, |hw| hw.physical.contains(&TIMER_PINTID));
            if intid != TIMER || !active && fired {
                assert_eq!(pending, expected.pending(), "pending state of {intid}");
            }
        }
    }
}
