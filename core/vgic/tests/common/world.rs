// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM beside the ideal controller. Every step does the same to both; [`World::compare`] demands that the
//! guest cannot tell them apart.

use std::collections::BTreeSet;

use turnstile_vgic::{Host, Model, Outcome, SgiRegister};

use super::hardware::{HardwareModel, Interface};
use super::machine::{Machine, SPIS};
use super::reference::Reference;

/// The PPI of the timer, which is backed by hardware.
pub const TIMER: u32 = 27;
const TIMER_PINTID: u32 = 26;

const ISENABLER: u32 = 0x100;
const ICENABLER: u32 = 0x180;
const ISPENDR: u32 = 0x200;
const ICPENDR: u32 = 0x280;
const ISACTIVER: u32 = 0x300;
const ICACTIVER: u32 = 0x380;
const ITARGETSR: u32 = 0x800;
const SGIR: u32 = 0xf00;
const CPENDSGIR: u32 = 0xf10;
const SPENDSGIR: u32 = 0xf20;
const IROUTER: u32 = 0x6000;

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    Acknowledge,
    EndOfInterrupt,
    Deactivate {
        nth: usize,
        from: usize,
    },
    Enable(u32, bool),
    Pend(u32, bool),
    Activate(u32, bool),
    Priority(u32, u8),
    Group1(u32, bool),
    Edge(u32, bool),
    Route(u32, usize),
    Groups(bool, bool),
    Sgi {
        intid: u32,
        to: usize,
        group1: bool,
    },
    /// Writes `GICD_SPENDSGIR` or `GICD_CPENDSGIR`.
    Senders {
        intid: u32,
        senders: u8,
        pend: bool,
    },
    Line(u32, bool),
    Pulse(u32),
    Timer(bool),
    Mask(u8),
    InterfaceGroups(bool, bool),
    EoiMode(bool),
    PutLoad,
    Power(bool),
    Observe(u32),
    Spurious,
    Synchronize,
}

pub struct World {
    pub machine: Machine,
    pub reference: Reference,
    /// Per vCPU: what it made active and DIR may deactivate (EOImode 1): acknowledged and ended as far as
    /// the priority goes, or made active by a register.
    dropped: Vec<Vec<u32>>,
}

impl World {
    pub fn new(model: Model, vcpus: usize, list_registers: usize) -> Self {
        let mpidrs: Vec<u64> = (0..vcpus as u64).collect();
        Self {
            machine: Machine::of(model, &mpidrs, list_registers),
            reference: Reference::new(model, vcpus, SPIS as usize),
            dropped: vec![Vec::new(); vcpus],
        }
    }

    fn is_gicv2(&self) -> bool {
        self.machine.vgic.model() == Model::Gicv2
    }

    /// Returns the vCPUs that are off.
    fn off(&self) -> Vec<usize> {
        (0..self.dropped.len()).filter(|vcpu| !self.reference.on[*vcpu]).collect()
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
        for vcpu in (0..self.dropped.len()).filter(|vcpu| self.reference.on[*vcpu]).collect::<Vec<usize>>() {
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
        let off = self.off();
        self.machine.service_but(&off);
        self.fire_timers();
        self.machine.service_but(&off);
        self.compare();
    }

    /// Does one step on both sides. With `lazy`, maintenance interrupts are still on their way when the
    /// next step comes, unless that is one that the guest does without a trap.
    pub fn step(&mut self, vcpu: usize, op: Op, lazy: bool) {
        match op {
            Op::Power(on) => self.power_step(vcpu, on),
            // Who is off does nothing.
            _ if !self.reference.on[vcpu] => return,
            Op::Acknowledge | Op::EndOfInterrupt | Op::Deactivate { .. } => {
                self.settle();
                self.guest_step(vcpu, op);
            }
            Op::Enable(..) | Op::Pend(..) | Op::Activate(..) => self.register_step(vcpu, op),
            Op::Priority(..) | Op::Group1(..) | Op::Edge(..) | Op::Route(..) => self.config_step(vcpu, op),
            _ => self.other_step(vcpu, op),
        }
        self.machine.drain_but(&self.off());
        self.fire_timers();
        if !lazy {
            self.settle();
        }
    }

    fn guest_step(&mut self, vcpu: usize, op: Op) {
        match op {
            Op::Acknowledge => {
                let expected = self.reference.signaled(vcpu);
                let got = self.hw(vcpu, HardwareModel::acknowledge_with_source);
                assert_eq!(got.is_some(), !expected.is_empty(), "got {got:?}, expected of {expected:?}");
                if let Some((intid, source)) = got {
                    assert!(expected.contains(&intid), "got {intid}, expected of {expected:?}");
                    self.reference.acknowledge(vcpu, intid, source);
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
                    // A GICv2 guest names the sender too.
                    let source = if self.is_gicv2() && intid < 16 { 5 << 10 } else { 0 };
                    self.machine.with(vcpu, |gic, cx| gic.dir(cx, intid | source));
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
        // GICv2 has other registers for the senders of SGIs.
        let read_only = self.is_gicv2() && intid < 16;
        let interrupt = self.reference.get(vcpu, intid);
        match op {
            Op::Pend(..) if read_only => {}
            Op::Enable(_, on) => interrupt.enabled = on,
            Op::Pend(_, on) => interrupt.latch = on,
            Op::Activate(_, on) => {
                if on && !interrupt.active {
                    // DIR may deactivate it.
                    self.dropped[vcpu].push(intid);
                    if let Some(told) = self.machine.cpus[vcpu].borrow_mut().hw.told.get_mut(intid as usize) {
                        *told = None;
                    }
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
                machine.write_register(vcpu, intid, 0x400 + intid, 1, priority.into());
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
                let (offset, size) =
                    if self.is_gicv2() { (ITARGETSR + intid, 1) } else { (IROUTER + 8 * intid, 8) };
                machine.write_register(vcpu, intid, offset, size, target as u64);
                self.reference.route(intid, target);
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
            Op::Sgi { intid, to, group1 } if self.is_gicv2() => self.send_gicv2_sgi(vcpu, intid, to, group1),
            Op::Sgi { intid, to, group1 } => self.send_sgi(vcpu, intid, to, group1),
            Op::Senders { intid, senders, pend } if self.is_gicv2() => {
                let present = (1u32 << self.dropped.len()) - 1;
                let interrupt = self.reference.get(vcpu, intid);
                if pend {
                    interrupt.senders |= senders & present as u8;
                } else {
                    interrupt.senders &= !senders;
                }
                let bank = if pend { SPENDSGIR } else { CPENDSGIR };
                self.machine.write_register(vcpu, intid, bank + intid, 1, senders.into());
            }
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

    /// Writes `GICD_SGIR`: in the light tier if `light`, else in the full one.
    fn send_gicv2_sgi(&mut self, vcpu: usize, intid: u32, to: usize, light: bool) {
        let vcpus = self.dropped.len();
        let value = intid
            | match to {
                _ if to == vcpu && light => 2 << 24,
                _ if to < vcpus => 1 << (16 + to),
                _ => 1 << 24,
            };
        for target in (0..vcpus).filter(|target| if to < vcpus { *target == to } else { *target != vcpu }) {
            self.reference.get(target, intid).senders |= 1 << vcpu;
        }
        if !light {
            return self.machine.write_register(vcpu, intid, SGIR, 4, value.into());
        }
        let (decoded, targets) = self.machine.vgic.sgir_targets(value, vcpu);
        assert_eq!(decoded, intid);
        for target in targets {
            if target != vcpu {
                self.machine.vgic.post_sgi(&self.machine, target, intid, vcpu);
                continue;
            }
            self.machine.with(vcpu, |gic, cx| {
                if gic.inject_sgi_from(cx.vif, intid, vcpu) == Outcome::Slow {
                    gic.settle(cx);
                }
            });
        }
    }

    /// A vCPU goes off or comes on. Not the last one, and not while an SPI is active, of which it is nobody's
    /// promise where that ends.
    fn power_step(&mut self, vcpu: usize, on: bool) {
        let others = (0..self.dropped.len()).any(|other| other != vcpu && self.reference.on[other]);
        let active = (32..32 + SPIS).any(|intid| self.reference.get(0, intid).active);
        if self.reference.on[vcpu] == on || !on && (!others || active) {
            return;
        }
        self.settle();
        if on {
            self.reference.power_on(vcpu);
            self.hw(vcpu, |hw| {
                hw.active_priorities.clear();
                hw.interface = Interface::OPEN;
            });
            self.machine.with(vcpu, |gic, cx| gic.power_on(cx));
        } else {
            self.reference.power_off(vcpu);
            self.dropped[vcpu].clear();
            self.machine.with(vcpu, |gic, cx| gic.power_off(cx));
        }
    }

    /// Demands that every vCPU is offered the same interrupt on both sides.
    pub fn compare(&mut self) {
        for vcpu in (0..self.dropped.len()).filter(|vcpu| self.reference.on[*vcpu]).collect::<Vec<usize>>() {
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
        if !self.reference.on[vcpu] {
            return;
        }
        for &intid in intids {
            if self.is_gicv2() && intid < 16 {
                let senders = self.machine.read_register(vcpu, intid, SPENDSGIR + intid, 1);
                assert_eq!(senders, self.reference.get(vcpu, intid).senders.into(), "senders of {intid}");
            }
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
