// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A trapped PMUv3 (Arm ARM D13): no event counters, one 64-bit cycle counter.
//!
//! Every access of the guest traps; the cycle counter shows the cycles this CPU spent at EL1 and EL0. There
//! is no overflow interrupt: with PMCR_EL0.LC the counter does not overflow in any life of a VM.

use crate::cpu::regs;

/// The registers of a trapped PMU, as the syndrome names them; PMSELR_EL0 is [`Pmu::select`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Register {
    /// PMCR_EL0.
    Control,
    /// PMCNTENSET_EL0.
    EnableSet,
    /// PMCNTENCLR_EL0.
    EnableClear,
    /// PMOVSCLR_EL0, PMOVSSET_EL0, PMINTENSET_EL1, PMINTENCLR_EL1, PMSWINC_EL0 and PMMIR_EL1: nothing overflows.
    Quiet,
    /// PMCCNTR_EL0, also through PMXEVCNTR_EL0 it is not reachable.
    Cycles,
    /// PMCCFILTR_EL0, and PMXEVTYPER_EL0 while PMSELR_EL0 selects it.
    CycleFilter,
    /// PMXEVTYPER_EL0.
    SelectedType,
    /// PMUSERENR_EL0.
    UserEnable,
}

/// PMCR_EL0: LC reads as one (the 32-bit overflow mode is not offered), N = 0.
const CONTROL_FIXED: u64 = 1 << 6;
const CONTROL_ENABLE: u64 = 1 << 0;
const CONTROL_RESET_CYCLES: u64 = 1 << 2;
const CYCLE_BIT: u64 = 1 << 31;
const SELECT_CYCLES: u64 = 31;

/// A vCPU's PMU.
#[derive(Debug, Default)]
pub struct TrappedPmu {
    control: u64,
    enabled: u64,
    select: u64,
    filter: u64,
    user: u64,
    /// The count while stopped; while running, what is added to the hardware's.
    base: u64,
}

impl TrappedPmu {
    fn running(&self) -> bool {
        self.control & CONTROL_ENABLE != 0 && self.enabled & CYCLE_BIT != 0
    }

    fn cycles(&self) -> u64 {
        if self.running() { self.base.wrapping_add(regs::PMCCNTR_EL0.read()) } else { self.base }
    }

    fn change(&mut self, change: impl FnOnce(&mut Self)) {
        let cycles = self.cycles();
        change(self);
        self.set_cycles(cycles);
    }

    fn set_cycles(&mut self, cycles: u64) {
        self.base = if self.running() { cycles.wrapping_sub(regs::PMCCNTR_EL0.read()) } else { cycles };
    }

    /// Shows EL0 its registers, if the guest does so, and goes on counting. The counter runs freely.
    pub fn load(&mut self) {
        // SAFETY: lets the guest's EL0 reach PMU registers, which then trap to EL2 like its EL1's.
        unsafe { regs::PMUSERENR_EL0.write(self.user) };
        if self.running() {
            self.base = self.base.wrapping_sub(regs::PMCCNTR_EL0.read());
        }
    }

    /// Counts no more, until [`Self::load`].
    pub fn put(&mut self) {
        self.base = self.cycles();
    }

    /// Reads PMSELR_EL0.
    #[inline(always)] // One load on the light path.
    pub fn select(&self) -> u64 {
        self.select
    }

    /// Writes PMSELR_EL0.
    #[inline(always)] // One store on the light path.
    pub fn set_select(&mut self, value: u64) {
        self.select = value & 0x1f;
    }

    /// Reads a register.
    pub fn read(&self, register: Register) -> u64 {
        match register {
            Register::Control => self.control | CONTROL_FIXED,
            Register::EnableSet | Register::EnableClear => self.enabled,
            Register::Quiet => 0,
            Register::Cycles => self.cycles(),
            Register::CycleFilter => self.filter,
            Register::SelectedType if self.select == SELECT_CYCLES => self.filter,
            Register::SelectedType => 0,
            Register::UserEnable => self.user,
        }
    }

    /// Writes a register.
    pub fn write(&mut self, register: Register, value: u64) {
        match register {
            Register::Control => {
                self.change(|pmu| pmu.control = value & CONTROL_ENABLE);
                if value & CONTROL_RESET_CYCLES != 0 {
                    self.set_cycles(0);
                }
            }
            Register::EnableSet => self.change(|pmu| pmu.enabled |= value & CYCLE_BIT),
            Register::EnableClear => self.change(|pmu| pmu.enabled &= !(value & CYCLE_BIT)),
            Register::Quiet => {}
            Register::Cycles => self.set_cycles(value),
            Register::CycleFilter => self.filter = value & 0xfc00_0000,
            Register::SelectedType if self.select == SELECT_CYCLES => self.filter = value & 0xfc00_0000,
            Register::SelectedType => {}
            Register::UserEnable => {
                self.user = value & 0xf;
                // SAFETY: lets the guest's EL0 reach PMU registers, which then trap to EL2 like its EL1's.
                unsafe { regs::PMUSERENR_EL0.write(self.user) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes;

    #[test]
    fn cycles_count_only_while_enabled() {
        fakes::reset();
        let mut pmu = TrappedPmu::default();
        fakes::set("PMCCNTR_EL0", 1000);
        assert_eq!(pmu.read(Register::Cycles), 0);
        pmu.write(Register::EnableSet, CYCLE_BIT);
        pmu.write(Register::Control, CONTROL_ENABLE | CONTROL_RESET_CYCLES);
        fakes::set("PMCCNTR_EL0", 1500);
        assert_eq!(pmu.read(Register::Cycles), 500);
        pmu.write(Register::EnableClear, CYCLE_BIT);
        fakes::set("PMCCNTR_EL0", 9999);
        assert_eq!(pmu.read(Register::Cycles), 500);
    }

    #[test]
    fn has_no_event_counters() {
        let mut pmu = TrappedPmu::default();
        pmu.write(Register::Control, !0);
        assert_eq!(pmu.read(Register::Control) >> 11 & 0x1f, 0, "PMCR_EL0.N");
        pmu.write(Register::EnableSet, !0);
        assert_eq!(pmu.read(Register::EnableSet), CYCLE_BIT);
        pmu.set_select(31);
        pmu.write(Register::SelectedType, !0);
        assert_eq!(pmu.read(Register::CycleFilter), 0xfc00_0000);
    }
}
