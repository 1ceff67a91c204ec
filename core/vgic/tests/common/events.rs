// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What happens in a world that is neither the guest's interface nor a register of one interrupt's state: SGIs,
//! lines, timers, masks, and vCPUs that leave and come back.

use turnstile_vgic::{Host, Outcome, SgiRegister};

use super::hardware::Interface;
use super::machine::SPIS;
use super::world::{Op, TIMER, TIMER_PINTID, World};

const SGIR: u32 = 0xf00;
const CPENDSGIR: u32 = 0xf10;
const SPENDSGIR: u32 = 0xf20;

impl World {
    pub(super) fn other_step(&mut self, vcpu: usize, op: Op) {
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
            Op::Message(intid) if intid >= 32 => {
                let interrupt = self.reference.get(vcpu, intid);
                if !interrupt.line {
                    interrupt.set_line(true);
                    interrupt.set_line(false);
                }
                let presented = self.machine.with(vcpu, |gic, cx| gic.present_edge(cx, intid));
                if !presented {
                    self.machine.vgic.edge_spi(&self.machine, intid);
                }
            }
            Op::Timer(high) => {
                self.reference.get(vcpu, TIMER).line = high;
                // Nobody hears of it: what the guest sees next has to ask.
                self.hw(vcpu, |hw| hw.set_line(TIMER_PINTID, high));
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
        assert_eq!(SgiRegister::intid(value), intid);
        let targets: Vec<usize> = match SgiRegister::is_broadcast(value) {
            true => self.machine.vgic.sgi_broadcast(register, value, vcpu).collect(),
            false => self.machine.vgic.sgi_targets(register, value).collect(),
        };
        for target in targets {
            if target != vcpu {
                self.machine.post(target, intid);
                continue;
            }
            self.machine.with(vcpu, |gic, cx| {
                if !(group1 && gic.present_group1_sgi(cx.vif, intid))
                    && gic.inject_sgi(cx.vif, intid) == Outcome::Slow
                {
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
                if !gic.present_sgi_from(cx.vif, intid, vcpu)
                    && gic.inject_sgi_from(cx.vif, intid, vcpu) == Outcome::Slow
                {
                    gic.settle(cx);
                }
            });
        }
    }

    /// A vCPU goes off or comes on. Not the last one, and not while an SPI is active, of which it is nobody's
    /// promise where that ends.
    pub(super) fn power_step(&mut self, vcpu: usize, on: bool) {
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
            self.hw(vcpu, |hw| hw.lines.clear());
            self.dropped[vcpu].clear();
            self.machine.with(vcpu, |gic, cx| gic.power_off(cx));
        }
    }
}
