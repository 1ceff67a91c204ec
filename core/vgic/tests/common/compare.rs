// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What both sides of a world must agree on.

use std::collections::BTreeSet;

use super::machine::SPIS;
use super::world::{TIMER, TIMER_PINTID, World};

const ISPENDR: u32 = 0x200;
const ISACTIVER: u32 = 0x300;
const SPENDSGIR: u32 = 0xf20;

impl World {
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
            // A hardware-backed line that is high is not seen before the physical interrupt has fired.
            let fired = !expected.line || self.hw(vcpu, |hw| hw.physical.contains(&TIMER_PINTID));
            if intid != TIMER || fired {
                assert_eq!(pending, expected.pending(), "pending state of {intid}");
            }
        }
    }
}
