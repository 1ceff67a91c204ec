// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Self-hosted debug registers. They are the resident guest's; a new life of a vCPU starts without any.

#[cfg(target_os = "none")]
use crate::regs;

#[cfg(target_os = "none")]
macro_rules! clear {
    ($count:expr, $value:literal, $control:literal, $($n:literal)*) => {$(
        if $n < $count {
            // SAFETY: breakpoints and watchpoints of EL1 and EL0; DFR0 says that register $n exists.
            unsafe {
                core::arch::asm!(
                    concat!("msr ", $control, $n, "_el1, xzr"),
                    concat!("msr ", $value, $n, "_el1, xzr"),
                    options(nomem, nostack, preserves_flags)
                );
            }
        }
    )*};
}

/// Clears all breakpoints and watchpoints.
pub fn reset() {
    #[cfg(target_os = "none")]
    {
        let dfr0 = regs::ID_AA64DFR0_EL1.read();
        let breakpoints = (dfr0 >> 12 & 0xf) + 1;
        let watchpoints = (dfr0 >> 20 & 0xf) + 1;
        clear!(breakpoints, "dbgbvr", "dbgbcr", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
        clear!(watchpoints, "dbgwvr", "dbgwcr", 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15);
    }
}
