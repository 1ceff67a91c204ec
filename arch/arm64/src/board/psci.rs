// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's firmware: PSCI by SMC (DEN0022).

use core::sync::atomic::{AtomicBool, Ordering};

/// CPU_ON, 64-bit calling convention.
const CPU_ON: u64 = 0xc400_0003;
const SYSTEM_OFF: u64 = 0x8400_0008;
const SYSTEM_RESET: u64 = 0x8400_0009;

/// Whether the device tree names PSCI by SMC. Without EL3 an SMC at EL2 is UNDEFINED.
static PRESENT: AtomicBool = AtomicBool::new(false);

/// Says that the firmware answers SMCs.
pub fn set_present() {
    PRESENT.store(true, Ordering::Relaxed);
}

/// Calls the firmware; NOT_SUPPORTED if there is none.
fn smc(function: u64, x1: u64, x2: u64, x3: u64) -> i64 {
    if !PRESENT.load(Ordering::Relaxed) {
        return -1;
    }
    #[cfg(target_os = "none")]
    {
        let result: u64;
        // SAFETY: SMCCC 1.0: x0-x3 carry results, x4-x17 may be clobbered, memory is the firmware's own.
        unsafe {
            core::arch::asm!(
                "smc #0",
                inout("x0") function => result, inout("x1") x1 => _, inout("x2") x2 => _, inout("x3") x3 => _,
                out("x4") _, out("x5") _, out("x6") _, out("x7") _, out("x8") _, out("x9") _, out("x10") _,
                out("x11") _, out("x12") _, out("x13") _, out("x14") _, out("x15") _, out("x16") _, out("x17") _,
                options(nostack)
            );
        }
        result as i64
    }
    #[cfg(not(target_os = "none"))]
    {
        let _ = (function, x1, x2, x3);
        -1
    }
}

/// Calls a function of the 32-bit convention with one argument; NOT_SUPPORTED if there is no firmware.
pub fn call(function: u32, argument: u32) -> i32 {
    smc(function.into(), argument.into(), 0, 0) as i32
}

/// Starts the CPU with `affinity` at the physical address `entry`.
///
/// # Errors
/// The PSCI error code.
pub fn cpu_on(affinity: u64, entry: u64) -> Result<(), i64> {
    match smc(CPU_ON, affinity, entry, 0) {
        0 => Ok(()),
        error => Err(error),
    }
}

/// Powers the machine off; returns only if the firmware refuses.
pub fn system_off() {
    smc(SYSTEM_OFF, 0, 0, 0);
}

/// Resets the machine; returns only if the firmware refuses.
pub fn system_reset() {
    smc(SYSTEM_RESET, 0, 0, 0);
}
