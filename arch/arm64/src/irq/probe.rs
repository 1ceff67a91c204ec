// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What of a GICv2 can only be found out by trying.

use super::gic::{Acknowledged, CpuInterface, Gic, PPI_HYPERVISOR_TIMER};
use super::gicv2::{self, Gicv2};
use crate::cpu::regs::gicv2::{GICH_LR, GICH_VMCR, GICV_EOIR, GICV_IAR};
use crate::cpu::{self, regs};
use crate::irq::gich::Gich;

/// GICH_VMCR: Group 0 enabled, every priority let through.
const VMCR_OPEN: u32 = 1 | 0x1f << 27;
/// GICH_LR<n>: backed by hardware, pending.
const LR_HW_PENDING: u32 = 1 << 31 | 1 << 28;
/// Reads of GICC_IAR in which an interrupt shows up that is asserted.
const PATIENCE: u32 = 1000;

/// Says whether a level-sensitive physical interrupt that is still asserted becomes pending again when a guest
/// deactivates it through its list register, as the architecture has it (IHI 0048, 3.2.4 and 5.2). Emulators that do
/// not look at their inputs then would lose a timer that fires again before its interrupt has ended.
///
/// Tries it with the EL2 timer, playing the guest. On the boot CPU, whose interrupts are masked, before its first guest.
pub(super) fn deactivation_resamples(distributor: gicv2::Distributor) -> bool {
    // SAFETY: the hypervisor's own timer, which nobody uses yet; it is asserted at once.
    unsafe {
        regs::CNTHP_CVAL_EL2.write(0);
        regs::CNTHP_CTL_EL2.write(1);
    }
    cpu::isb();
    let comes_again = shows_up().is_some() && {
        GICH_VMCR.write(VMCR_OPEN);
        GICH_LR.write(0, LR_HW_PENDING | PPI_HYPERVISOR_TIMER << 10 | PPI_HYPERVISOR_TIMER);
        cpu::dsb_sy();
        GICV_EOIR.write(GICV_IAR.read());
        cpu::dsb_sy();
        shows_up().map(Gicv2::deactivate).is_some()
    };
    // SAFETY: as above; the line falls.
    unsafe { regs::CNTHP_CTL_EL2.write(0) };
    cpu::isb();
    // However the attempt ended, nothing of it stays.
    distributor.deactivate_private(PPI_HYPERVISOR_TIMER);
    Gich::start_cpu();
    comes_again
}

/// Acknowledges the EL2 timer's interrupt, if it is pending.
fn shows_up() -> Option<Acknowledged> {
    (0..PATIENCE).map(|_| Gicv2::acknowledge()).find(|found| Gicv2::intid(*found) == PPI_HYPERVISOR_TIMER)
}
