// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An ideal interrupt controller: every interrupt is in the distributor at all times, and the CPU
//! interface sees all of them. Written from the state machine of Arm IHI 0069, section 4.1.2, and Arm IHI
//! 0048, section 3.2.4; it knows nothing of list registers and shares no code with what it judges.

use turnstile_vgic::Model;

use super::hardware::Interface;

#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    pub enabled: bool,
    pub group1: bool,
    pub edge: bool,
    pub line: bool,
    pub latch: bool,
    /// The vCPUs that have sent it: an SGI of a GICv2.
    pub senders: u8,
    pub active: bool,
    pub priority: u8,
    /// The vCPU it goes to; `None` if its route names nobody.
    pub target: Option<usize>,
    /// The vCPUs it may go to: an SPI of a GICv2.
    pub targets: u8,
}

impl Interrupt {
    pub fn pending(&self) -> bool {
        self.latch || self.senders != 0 || self.line && !self.edge
    }

    pub fn set_line(&mut self, high: bool) {
        self.latch |= self.edge && high && !self.line;
        self.line = high;
    }
}

#[derive(Clone, Debug)]
pub struct Reference {
    model: Model,
    pub groups: [bool; 2],
    private: Vec<Vec<Interrupt>>,
    shared: Vec<Interrupt>,
    pub interfaces: Vec<Interface>,
    /// Per vCPU: what was acknowledged and not ended, with its group priority.
    pub running: Vec<Vec<(u32, u8)>>,
    pub on: Vec<bool>,
}

impl Reference {
    pub fn new(model: Model, vcpus: usize, spis: usize) -> Self {
        let gicv2 = model == Model::Gicv2;
        // A GICv2 with one vCPU has nothing to choose.
        let targets = u8::from(vcpus == 1);
        let target = (!gicv2 || vcpus == 1).then_some(0);
        let shared = Interrupt { group1: !gicv2, target, targets, ..Interrupt::default() };
        let mut reference = Self {
            model,
            groups: [false; 2],
            private: vec![Vec::new(); vcpus],
            shared: vec![shared; spis],
            interfaces: vec![Interface::OPEN; vcpus],
            running: vec![Vec::new(); vcpus],
            on: vec![true; vcpus],
        };
        (0..vcpus).for_each(|vcpu| reference.reset_private(vcpu));
        reference
    }

    /// Resets what is one vCPU's own.
    fn reset_private(&mut self, vcpu: usize) {
        let gicv2 = self.model == Model::Gicv2;
        let interrupt = |intid| Interrupt {
            enabled: gicv2 && intid < 16,
            edge: intid < 16,
            group1: !gicv2,
            target: Some(vcpu),
            ..Interrupt::default()
        };
        self.private[vcpu] = (0..32).map(interrupt).collect();
        self.interfaces[vcpu] = Interface::OPEN;
    }

    /// The vCPU goes off. What is sent to it from now on waits for it.
    pub fn power_off(&mut self, vcpu: usize) {
        self.on[vcpu] = false;
        self.running[vcpu].clear();
        for interrupt in &mut self.private[vcpu] {
            (interrupt.latch, interrupt.senders, interrupt.line) = (false, 0, false);
        }
        self.retarget();
    }

    /// The vCPU comes on.
    pub fn power_on(&mut self, vcpu: usize) {
        self.on[vcpu] = true;
        let waiting = std::mem::take(&mut self.private[vcpu]);
        self.reset_private(vcpu);
        for (interrupt, waiting) in self.private[vcpu].iter_mut().zip(waiting) {
            (interrupt.latch, interrupt.senders) = (waiting.latch, waiting.senders);
        }
        self.retarget();
    }

    /// With GICv2 an SPI goes to the first of its targets that is on.
    fn retarget(&mut self) {
        if self.model == Model::Gicv2 {
            for interrupt in &mut self.shared {
                interrupt.target =
                    (0..self.on.len()).find(|n| self.on[*n] && interrupt.targets >> n & 1 != 0);
            }
        }
    }

    /// Routes an SPI: to one vCPU, or with GICv2 to a set of them.
    pub fn route(&mut self, intid: u32, to: usize) {
        let vcpus = self.on.len();
        let interrupt = self.get(0, intid);
        interrupt.target = (to < vcpus).then_some(to);
        interrupt.targets = if vcpus > 1 { to as u8 & ((1u32 << vcpus) - 1) as u8 } else { 1 };
        self.retarget();
    }

    pub fn get(&mut self, vcpu: usize, intid: u32) -> &mut Interrupt {
        if intid < 32 {
            &mut self.private[vcpu][intid as usize]
        } else {
            &mut self.shared[intid as usize - 32]
        }
    }

    /// Returns the pending interrupts of the highest priority, and that priority.
    pub fn highest_pending(&self, vcpu: usize) -> Option<(u8, Vec<u32>)> {
        let all = (0..).zip(&self.private[vcpu]).chain((32..).zip(&self.shared));
        let candidates: Vec<(u32, &Interrupt)> = all
            .filter(|(_, i)| i.target == Some(vcpu) && i.pending() && !i.active && i.enabled)
            .filter(|(_, i)| {
                let group = usize::from(i.group1);
                self.groups[group] && self.interfaces[vcpu].enabled[group]
            })
            .collect();
        let best = candidates.iter().map(|(_, i)| i.priority).min()?;
        Some((best, candidates.iter().filter(|(_, i)| i.priority == best).map(|(id, _)| *id).collect()))
    }

    /// Returns those of [`Self::highest_pending`] that the CPU is interrupted for now.
    pub fn signaled(&self, vcpu: usize) -> Vec<u32> {
        let Some((priority, mut intids)) = self.highest_pending(vcpu) else { return Vec::new() };
        let interface = &self.interfaces[vcpu];
        let running = self.running[vcpu].iter().map(|(_, priority)| u32::from(*priority)).min();
        intids.retain(|intid| {
            let group1 = if *intid < 32 {
                self.private[vcpu][*intid as usize].group1
            } else {
                self.shared[*intid as usize - 32].group1
            };
            priority < interface.pmr
                && u32::from(interface.group_priority(priority, group1)) < running.unwrap_or(0x100)
        });
        intids
    }

    /// The guest acknowledges one of [`Self::signaled`], which with GICv2 may be one of several senders' SGIs.
    pub fn acknowledge(&mut self, vcpu: usize, intid: u32, source: u8) {
        let interface = self.interfaces[vcpu];
        let sourced = self.model == Model::Gicv2 && intid < 16;
        let interrupt = self.get(vcpu, intid);
        assert_eq!(interrupt.senders >> source & 1 != 0, sourced, "SGI {intid} from {source}");
        interrupt.senders &= !(1 << source);
        interrupt.latch = false;
        interrupt.active = true;
        let priority = interface.group_priority(interrupt.priority, interrupt.group1);
        self.running[vcpu].push((intid, priority));
    }

    /// The guest ends the interrupt it acknowledged last. Returns it.
    pub fn end_of_interrupt(&mut self, vcpu: usize) -> Option<u32> {
        let (intid, _) = self.running[vcpu].pop()?;
        if !self.interfaces[vcpu].eoi_mode {
            self.get(vcpu, intid).active = false;
        }
        Some(intid)
    }
}
