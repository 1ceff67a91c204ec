// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What a CPU does while no guest runs on it: it stops, and serves what it is interrupted for.

use turnstile_vm::attention::Reasons;

use super::{interrupts, switch};
use crate::board::uart;
use crate::cpu;
use crate::cpu::regs::PSSCR;
#[cfg(not(target_os = "none"))]
use crate::cpu::regs::fakes;
use crate::time;
use crate::vm::Vcpu;
use crate::vm::monitor::{Monitor, monitor};

/// Stops this CPU until anything is pending here: an interrupt of the resident vCPU's, the hypervisor's decrementer, a kick, an
/// event of the controller's. Kicks are taken back: what they are about is to be looked at behind this. Says whether a deadline of the
/// hypervisor's has come.
#[inline(always)] // Its callers are few, and this is the way of every wait.
pub(crate) fn wait() -> bool {
    /// PSSCR but for what the CPU itself says there (Power ISA 3.0B Book III, 3.2.2.1: PLS).
    const SET: u64 = u64::MAX >> 4;
    // The level at which the CPU stops is the guest's, too.
    let level = PSSCR.read() & SET;
    if level == 0 { stop() } else { stop_at_zero(level) }
}

/// As [`wait`], at the shallowest level, which loses nothing, where the guest has set another one.
#[cold]
fn stop_at_zero(level: u64) -> bool {
    // SAFETY: nothing is lost, and the guest finds what it has set.
    unsafe { PSSCR.write(0) };
    let due = stop();
    // SAFETY: as above; the hypervisor executes STOP nowhere else.
    unsafe { PSSCR.write(level) };
    due
}

/// As [`wait`]; PSSCR is 0.
#[inline(always)] // Of every wait; elsewhere it is cold.
fn stop() -> bool {
    let due = time::stop(|| {
        #[cfg(target_os = "none")]
        // SAFETY: with MSR.EE=0 and PSSCR.EC=0 the CPU goes on behind STOP when any interrupt is pending, also one that it would
        // not take (Power ISA 3.0B Book III, 3.3.2). Memory may have changed then.
        unsafe {
            core::arch::asm!("ptesync", "stop", "isync", options(nostack, preserves_flags));
        }
        #[cfg(not(target_os = "none"))]
        fakes::write("STOP", 0);
    });
    cpu::clear_doorbell();
    due
}

/// Serves what this CPU was interrupted for while nobody ran: a deadline that is `due`. A doorbell says no more than that there
/// is something to look at.
pub(crate) fn serve(due: bool, vcpu: Option<&'static Vcpu>, monitor: &dyn Monitor) {
    if due {
        decrementer(vcpu, monitor);
    }
    interrupts::serve();
}

/// Serves the hypervisor decrementer.
#[inline(never)] // Apart from waits that end before.
pub(crate) fn decrementer(vcpu: Option<&'static Vcpu>, monitor: &dyn Monitor) {
    let look = || {
        uart::let_firmware_work();
        monitor.interrupt(uart::INTERRUPT);
    };
    if time::end_deadlines(look) {
        monitor.deadline();
    }
    if let Some(vcpu) = vcpu
        && vcpu.thread.is_some()
    {
        vcpu.attention.raise(Reasons::RESCHEDULE);
    }
}

/// Waits until this CPU is interrupted or kicked, and handles that.
pub fn wait_for_interrupt() {
    // Nobody's decrementer would end each wait once it is negative.
    switch::quiet();
    let due = wait();
    serve(due, None, monitor());
}
