// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A VM beside the ideal controller. Every step does the same to both; [`World::compare`] demands that the
//! guest cannot tell them apart.

use turnstile_vgic::{Model, Outcome};

use super::hardware::HardwareModel;
use super::machine::{Machine, SPIS};
use super::reference::Reference;

/// The PPI of the timer, which is backed by hardware.
pub const TIMER: u32 = 27;
pub(super) const TIMER_PINTID: u32 = 26;

const ISENABLER: u32 = 0x100;
const ICENABLER: u32 = 0x180;
const ISPENDR: u32 = 0x200;
const ICPENDR: u32 = 0x280;
const ISACTIVER: u32 = 0x300;
const ICACTIVER: u32 = 0x380;
const ITARGETSR: u32 = 0x800;
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
    /// A device that the vCPU's own CPU serves raises a line and lowers it.
    Message(u32),
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
    pub(super) dropped: Vec<Vec<u32>>,
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

    pub(super) fn is_gicv2(&self) -> bool {
        self.machine.vgic.model() == Model::Gicv2
    }

    /// Returns the vCPUs that are off.
    pub(super) fn off(&self) -> Vec<usize> {
        (0..self.dropped.len()).filter(|vcpu| !self.reference.on[*vcpu]).collect()
    }

    pub(super) fn hw<R>(&self, vcpu: usize, run: impl FnOnce(&mut HardwareModel) -> R) -> R {
        run(&mut self.machine.cpus[vcpu].borrow_mut().hw)
    }

    /// Says whether a vCPU has acknowledged the interrupt and not yet ended it.
    pub(super) fn is_running(&self, vcpu: usize, intid: u32) -> bool {
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
}
