// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The virtual CPU interface in memory, written from the architecture (Arm IHI 0069, chapters 4.8 and 6;
//! Arm IHI 0048, chapter 5): what the guest does through it, which maintenance conditions hold, and how often it is accessed.

use std::collections::BTreeSet;

use turnstile_vgic::{Backing, GroupEnables, ListRegister, LrState, Maintenance, Model, VirtualInterface};

/// Counts accesses by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accesses {
    pub reads: u32,
    pub writes: u32,
    pub clears: u32,
    pub elrsr: u32,
    pub eisr: u32,
    pub eoi_count: u32,
    pub maintenance: u32,
    pub vmcr: u32,
    pub lines: u32,
    pub deactivations: u32,
}

/// A CPU interface as the guest programs it.
#[derive(Clone, Copy, Debug)]
pub struct Interface {
    pub pmr: u8,
    pub bpr: [u8; 2],
    pub enabled: [bool; 2],
    pub eoi_mode: bool,
}

impl Interface {
    pub const OPEN: Self = Self { pmr: 0xff, bpr: [2, 3], enabled: [true, true], eoi_mode: false };

    /// Returns the part of a priority that decides about preemption.
    pub fn group_priority(&self, priority: u8, group1: bool) -> u8 {
        let shift = if group1 { u32::from(self.bpr[1]) } else { u32::from(self.bpr[0]) + 1 };
        (u32::from(priority) >> shift << shift) as u8
    }
}

#[derive(Debug)]
pub struct HardwareModel {
    model: Model,
    pub lrs: Vec<Option<ListRegister>>,
    /// The sender that the guest was told of each SGI; `None` when a write made it active.
    pub told: [Option<u8>; 16],
    /// List registers that were written with a request for maintenance and are now invalid.
    eoi_status: u16,
    eoi_count: u8,
    pub armed: Maintenance,
    pub interface: Interface,
    /// The active priorities: the group priorities of what was acknowledged and not ended.
    pub active_priorities: Vec<u8>,
    pub physical: BTreeSet<u32>,
    /// The lines of physical interrupts that are high.
    pub lines: BTreeSet<u32>,
    pub accesses: Accesses,
}

impl HardwareModel {
    pub fn new(model: Model, list_registers: usize) -> Self {
        Self {
            model,
            told: [None; 16],
            lrs: vec![None; list_registers],
            eoi_status: 0,
            eoi_count: 0,
            armed: Maintenance::NONE,
            interface: Interface::OPEN,
            active_priorities: Vec::new(),
            physical: BTreeSet::new(),
            lines: BTreeSet::new(),
            accesses: Accesses::default(),
        }
    }

    pub fn take_accesses(&mut self) -> Accesses {
        std::mem::take(&mut self.accesses)
    }

    /// Returns the highest-priority pending interrupt of the enabled groups, masked or not.
    pub fn highest_pending(&self) -> Option<ListRegister> {
        self.lrs
            .iter()
            .flatten()
            .filter(|lr| lr.state == LrState::Pending && self.interface.enabled[usize::from(lr.group1)])
            .min_by_key(|lr| lr.priority)
            .copied()
    }

    /// Returns what the CPU is interrupted for now.
    pub fn signaled(&self) -> Option<ListRegister> {
        let running = self.active_priorities.iter().min().copied().map_or(0x100, u32::from);
        self.highest_pending().filter(|lr| {
            lr.priority < self.interface.pmr
                && u32::from(self.interface.group_priority(lr.priority, lr.group1)) < running
        })
    }

    /// Sets the line of a physical interrupt.
    pub fn set_line(&mut self, pintid: u32, high: bool) {
        if high {
            self.lines.insert(pintid)
        } else {
            self.lines.remove(&pintid)
        };
    }

    /// The guest reads IAR: the INTID.
    pub fn acknowledge(&mut self) -> Option<u32> {
        self.acknowledge_with_source().map(|(intid, _)| intid)
    }

    /// The guest reads IAR: the INTID and the sender.
    pub fn acknowledge_with_source(&mut self) -> Option<(u32, u8)> {
        let lr = self.signaled()?;
        self.active_priorities.push(self.interface.group_priority(lr.priority, lr.group1));
        for held in self.lrs.iter_mut().flatten() {
            if held.intid == lr.intid {
                held.state = LrState::Active;
            }
        }
        if let Some(told) = self.told.get_mut(lr.intid as usize) {
            *told = Some(lr.source);
        }
        Some((lr.intid, lr.source))
    }

    /// The guest writes EOIR.
    pub fn end_of_interrupt(&mut self, intid: u32) {
        let highest = self.active_priorities.iter().enumerate().min_by_key(|(_, priority)| **priority);
        let Some((at, _)) = highest else { return };
        self.active_priorities.remove(at);
        if !self.interface.eoi_mode {
            self.deactivate(intid);
        }
    }

    /// The guest writes DIR. Returns false if that traps.
    pub fn deactivate_interrupt(&mut self, intid: u32) -> bool {
        let traps = self.model == Model::Gicv2 || self.armed.trap_dir;
        if !traps {
            self.deactivate(intid);
        }
        !traps
    }

    fn deactivate(&mut self, intid: u32) {
        for (n, held) in self.lrs.iter_mut().enumerate() {
            let Some(lr) = held else { continue };
            if lr.intid != intid || !lr.state.active() {
                continue;
            }
            if let Some(told) = self.told.get(intid as usize) {
                assert!(told.is_none_or(|told| told == lr.source), "SGI {intid} of another sender");
            }
            if lr.state.pending() {
                lr.state = LrState::Pending;
                return;
            }
            match lr.backing {
                Backing::Hardware { pintid } => {
                    assert!(self.physical.remove(&pintid), "not active: {pintid}")
                }
                Backing::Software { eoi_maintenance } => self.eoi_status |= u16::from(eoi_maintenance) << n,
            }
            *held = None;
            return;
        }
        self.eoi_count += 1;
        assert!(self.eoi_count < 32);
    }

    /// Returns whether the maintenance interrupt is asserted.
    pub fn misr(&self) -> bool {
        let pending = |lr: &ListRegister| lr.state == LrState::Pending;
        let [group0, group1] = self.interface.enabled;
        self.eoi_status != 0
            || self.armed.lr_entry_not_present && self.eoi_count != 0
            || self.armed.no_pending && !self.lrs.iter().flatten().any(pending)
            || self.armed.group0_enabled && group0
            || self.armed.group0_disabled && !group0
            || self.armed.group1_enabled && group1
            || self.armed.group1_disabled && !group1
    }

    /// Says whether a vCPU that was put has left nothing that another one could notice before it is loaded.
    pub fn is_empty(&self) -> bool {
        let conditions = Maintenance { trap_dir: false, ..self.armed };
        self.lrs.iter().all(Option::is_none) && self.eoi_status == 0 && conditions == Maintenance::NONE
    }
}

impl VirtualInterface for HardwareModel {
    fn encode(lr: ListRegister) -> u64 {
        let backing = match lr.backing {
            Backing::Software { eoi_maintenance } => u64::from(eoi_maintenance) << 27,
            Backing::Hardware { pintid } => 1 << 28 | u64::from(pintid) << 32,
        };
        let (group, state) = (u64::from(lr.group1) << 24, (lr.state as u64) << 25);
        u64::from(lr.intid)
            | u64::from(lr.source) << 10
            | u64::from(lr.priority) << 16
            | group
            | state
            | backing
    }

    fn write_encoded(&mut self, n: usize, lr: ListRegister, encoded: u64) {
        assert_eq!(encoded, Self::encode(lr), "not what is noted of it");
        self.write_lr(n, lr);
    }

    fn write_if_invalid(&mut self, n: usize, lr: ListRegister, encoded: u64) -> bool {
        // What is noted of the last one comes here as `lr`, and is not evaluated: `encoded` is what is written.
        assert_eq!(encoded, Self::encode(lr), "not what is noted of it");
        let invalid = self.read_lr(n) == LrState::Invalid;
        if invalid {
            self.write_lr(n, lr);
        }
        invalid
    }

    fn read_lr(&mut self, n: usize) -> LrState {
        self.accesses.reads += 1;
        self.lrs[n].map_or(LrState::Invalid, |lr| lr.state)
    }

    fn write_lr(&mut self, n: usize, lr: ListRegister) {
        self.accesses.writes += 1;
        assert_ne!(lr.state, LrState::Invalid);
        assert!(lr.source == 0 || self.model == Model::Gicv2 && lr.intid < 16, "a sender of no SGI");
        assert_eq!(lr.priority & 7, 0, "an unimplemented priority bit");
        if let Backing::Hardware { pintid } = lr.backing {
            assert_ne!(lr.state, LrState::PendingActive, "forbidden with HW = 1");
            assert!(self.physical.contains(&pintid), "backed by an inactive interrupt");
        }
        self.lrs[n] = Some(lr);
        self.eoi_status &= !(1 << n);
    }

    fn clear_lr(&mut self, n: usize) {
        self.accesses.clears += 1;
        self.lrs[n] = None;
        self.eoi_status &= !(1 << n);
    }

    fn empty_lrs(&mut self) -> u16 {
        self.accesses.elrsr += 1;
        let empty = self.lrs.iter().enumerate().filter(|(_, lr)| lr.is_none());
        empty.fold(0, |bits, (n, _)| bits | 1 << n) & !self.eoi_status
    }

    fn eoi_lrs(&mut self) -> u16 {
        self.accesses.eisr += 1;
        self.eoi_status
    }

    fn take_eoi_count(&mut self) -> u8 {
        self.accesses.eoi_count += 1;
        std::mem::take(&mut self.eoi_count)
    }

    fn set_maintenance(&mut self, maintenance: Maintenance) {
        self.accesses.maintenance += 1;
        assert!(!maintenance.trap_dir || self.model == Model::Gicv3, "GICH cannot trap DIR");
        self.armed = maintenance;
        self.eoi_count = 0;
    }

    fn group_enables(&mut self) -> GroupEnables {
        self.accesses.vmcr += 1;
        let [group0, group1] = self.interface.enabled;
        GroupEnables { group0, group1 }
    }

    fn is_asserted(&mut self, pintid: u32) -> bool {
        self.accesses.lines += 1;
        self.lines.contains(&pintid)
    }

    fn deactivate_physical(&mut self, pintid: u32) {
        self.accesses.deactivations += 1;
        assert!(self.physical.remove(&pintid), "not active: {pintid}");
    }
}
