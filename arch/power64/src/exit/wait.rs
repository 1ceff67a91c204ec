// SPDX-License-Identifier: Apache-2.0 OR MIT
//! vCPUs that do not run.

use crate::cpu;
use crate::vcpu::Vcpu;

/// Runs `vcpu` on this CPU, for ever.
pub fn run(_: &'static Vcpu) -> ! {
    cpu::halt()
}

/// Serves physical interrupts on a CPU to which no vCPU is pinned, for ever.
pub fn idle() -> ! {
    loop {
        wait_for_interrupt();
    }
}

/// Waits until this CPU is interrupted or kicked, and handles that.
pub fn wait_for_interrupt() {
    cpu::relax();
}
