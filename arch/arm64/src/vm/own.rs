// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Physical interrupts that are the hypervisor's own, and CPUs that have nothing but those.

use super::monitor::{Monitor, monitor};
use crate::cpu;
use crate::irq::{Acknowledged, Gic, PPI_HYPERVISOR_TIMER, SGI_KICK, SGI_RESCHEDULE, SPURIOUS, in_gic};
use crate::time;

/// Handles an acknowledged interrupt that is the hypervisor's own.
pub fn own<G: Gic>(monitor: &dyn Monitor, acknowledged: Acknowledged) {
    match G::intid(acknowledged) {
        SPURIOUS.. => return,
        SGI_KICK | SGI_RESCHEDULE => {}
        PPI_HYPERVISOR_TIMER => {
            if time::end_deadlines() {
                monitor.deadline();
            }
        }
        intid => monitor.interrupt(intid),
    }
    G::deactivate(acknowledged);
}

/// Serves physical interrupts on a CPU to which no vCPU is pinned, for ever.
pub fn idle() -> ! {
    loop {
        wait_for_interrupt();
    }
}

/// Waits until this CPU is interrupted or kicked, and handles that.
pub fn wait_for_interrupt() {
    cpu::wfi();
    take_interrupt();
}

/// Handles what has interrupted or kicked this CPU, if anything has.
pub fn take_interrupt() {
    fn serve<G: Gic>() {
        own::<G>(monitor(), G::acknowledge());
    }
    in_gic!(serve());
    // Whoever kicked did so to make the caller read memory, which is not ordered behind the acknowledge.
    cpu::isb();
}
