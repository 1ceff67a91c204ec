// SPDX-License-Identifier: Apache-2.0 OR MIT
//! An ideal interrupt controller: every interrupt is in the distributor at all times, and the CPU
//! interface sees all of them. Written from the state machine of Arm IHI 0069, section 4.1.2; it
//! knows nothing of list registers and shares no code with what it judges.

use super::hardware::Interface;

#[derive(Clone, Debug, Default)]
pub struct Interrupt {
    pub enabled: bool,
    pub group1: bool,
    pub edge: bool,
    pub line: bool,
    pub latch: bool,
    pub active: bool,
    pub priority: u8,
    /// The vCPU it goes to; `None` if its route names nobody.
    pub target: Option<usize>,
}

impl Interrupt {
    pub fn pending(&self) -> bool {
        self.latch || self.line && !self.edge
    }

    pub fn set_line(&mut self, high: bool) {
        self.latch |= self.edge && high && !self.line;
        self.line = high;
    }
}

#[derive(Clone, Debug)]
pub struct Reference {
    pub groups: [bool; 2],
    private: Vec<Vec<Interrupt>>,
    shared: Vec<Interrupt>,
    pub interfaces: Vec<Interface>,
    /// Per vCPU: what was acknowledged and not ended, with its group priority.
    pub running: Vec<Vec<(u32, u8)>>,
}

impl Reference {
    pub fn new(vcpus: usize, spis: usize) -> Self {
        let private = |vcpu| {
            (0..32)
                .map(|intid| Interrupt {
                    edge: intid < 16,
                    group1: true,
                    target: Some(vcpu),
                    ..Interrupt::default()
                })
                .collect()
        };
        Self {
            groups: [false; 2],
            private: (0..vcpus).map(private).collect(),
            shared: vec![Interrupt { group1: true, target: Some(0), ..Interrupt::default() }; spis],
            interfaces: vec![Interface::OPEN; vcpus],
            running: vec![Vec::new(); vcpus],
        }
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

    /// The guest acknowledges one of [`Self::signaled`].
    pub fn acknowledge(&mut self, vcpu: usize, intid: u32) {
        let interface = self.interfaces[vcpu];
        let interrupt = self.get(vcpu, intid);
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
