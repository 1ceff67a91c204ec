// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The lines of the private interrupts that guests cause themselves. What drives them is in registers that do not trap, so
//! nobody is told when one falls: who has to know looks.

use super::gic::{PPI_PHYSICAL_TIMER, PPI_PMU, PPI_VIRTUAL_TIMER};
use crate::cpu::mode::{Mode, in_mode};
use crate::cpu::regs::{self, guest};

/// A timer's control register: it is on.
pub const ENABLE: u64 = 1 << 0;
/// A timer's control register: its interrupt is masked.
pub const IMASK: u64 = 1 << 1;
/// A timer's control register, read only: its condition holds.
pub const ISTATUS: u64 = 1 << 2;

/// Says whether a timer with this control register has its line high.
pub fn fires(control: u64) -> bool {
    control & (ENABLE | IMASK | ISTATUS) == ENABLE | ISTATUS
}

/// PMCR_EL0.E.
const PMCR_E: u64 = 1 << 0;

/// Says whether the counters of this CPU ask for an interrupt (Arm ARM D13.3.2). Those of a vCPU that is not resident are
/// stopped, and ask for none.
fn counters_interrupt() -> bool {
    regs::PMCR_EL0.read() & PMCR_E != 0 && regs::PMOVSSET_EL0.read() & regs::PMINTENSET_EL1.read() != 0
}

/// Says whether the line of a PPI of this CPU is high.
#[cold]
pub(super) fn is_high(pintid: u32) -> bool {
    in_mode!(is_high_in(pintid))
}

fn is_high_in<M: Mode>(pintid: u32) -> bool {
    match pintid {
        PPI_VIRTUAL_TIMER => fires(guest::CNTV_CTL.read::<M>()),
        PPI_PHYSICAL_TIMER => fires(guest::CNTP_CTL.read::<M>()),
        PPI_PMU => counters_interrupt(),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use turnstile_vgic::VirtualInterface;

    use super::*;
    use crate::cpu::mode::Nvhe;
    use crate::cpu::regs::fakes;
    use crate::irq::{Gic, Gicv2, Gicv3, Gicv3Legacy};

    /// Says whether all controllers find the line of `pintid` as it is.
    fn line(pintid: u32) -> bool {
        let high = is_high(pintid);
        assert_eq!(Gicv3::interface().is_asserted(pintid), high);
        assert_eq!(Gicv2::interface().is_asserted(pintid), high);
        assert_eq!(Gicv3Legacy::interface().is_asserted(pintid), high);
        high
    }

    #[test]
    fn a_timer_has_its_line_high_while_it_is_on_unmasked_and_due() {
        fakes::reset();
        for (vhe, nvhe, pintid) in [
            ("CNTV_CTL_EL02", "CNTV_CTL_EL0", PPI_VIRTUAL_TIMER),
            ("CNTP_CTL_EL02", "CNTP_CTL_EL0", PPI_PHYSICAL_TIMER),
        ] {
            for control in 0..8 {
                fakes::set(vhe, control);
                fakes::set(nvhe, control ^ 4);
                assert_eq!(line(pintid), control == 5);
                assert_eq!(is_high_in::<Nvhe>(pintid), control == 1);
            }
            fakes::set(vhe, 0);
        }
    }

    #[test]
    fn the_counters_have_theirs_high_while_one_that_asks_for_it_has_overflowed() {
        fakes::reset();
        let set = |control, overflows, interrupts| {
            fakes::set("PMCR_EL0", control);
            fakes::set("PMOVSSET_EL0", overflows);
            fakes::set("PMINTENSET_EL1", interrupts);
            line(PPI_PMU)
        };
        assert!(set(1, 6, 4));
        assert!(!set(1, 3, 4));
        assert!(!set(0, 6, 4), "all are off");
    }
}
