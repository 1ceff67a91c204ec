// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Breakpoints and watchpoints (Arm ARM D2). All of them are filled and disabled, but for one watchpoint that a test
//! may arm.

use core::arch::asm;

use super::word;
use crate::trap::{self, Trap};
use crate::{read_sysreg, write_sysreg};

/// Calls a macro with each breakpoint's and watchpoint's value and control register, and its number. An address of an
/// instruction has its two lowest bits clear; that of data, its three lowest.
macro_rules! each_point {
    ($do:ident, $breakpoints:expr, $watchpoints:expr) => {
        $do! { $breakpoints, !3, 0, "dbgbvr" "dbgbcr" 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 }
        $do! { $watchpoints, !7, 16, "dbgwvr" "dbgwcr" 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 }
    };
}

/// MDSCR_EL1: KDE and MDE, debug exceptions from EL1.
const ENABLE: u64 = 1 << 13 | 1 << 15;
/// DBGWCR<n>_EL1: E, PAC EL1, loads and stores, eight bytes.
const WATCH: u64 = 1 | 1 << 1 | 3 << 3 | 0xff << 5;
/// Exception class of a watchpoint without a change of exception level.
pub const CLASS_WATCHPOINT: u64 = 0x35;

fn counts() -> (u64, u64) {
    let features = read_sysreg!("id_aa64dfr0_el1");
    ((features >> 12 & 0xf) + 1, (features >> 20 & 0xf) + 1)
}

/// An address in the lower half, so that all its bits are kept.
fn address(seed: u64, register: u64) -> u64 {
    word(seed, register) >> 17
}

/// Fills the registers.
pub fn fill(seed: u64) {
    let (breakpoints, watchpoints) = counts();
    write_sysreg!("oslar_el1", 0);
    write_sysreg!("mdscr_el1", 0);
    macro_rules! write {
        ($count:expr, $mask:expr, $first:literal, $value:literal $control:literal $($n:literal)*) => {$(
            if $n < $count {
                write_point!($value, $control, $n, address(seed, $first + $n) & $mask, 0);
            }
        )*};
    }
    macro_rules! write_point {
        ($stem:literal, $control_stem:literal, $n:literal, $address:expr, $control:expr) => {{
            // SAFETY: breakpoints and watchpoints that exist and are disabled.
            unsafe {
                asm!(
                    concat!("msr ", $control_stem, $n, "_el1, {control}"),
                    concat!("msr ", $stem, $n, "_el1, {address}"),
                    "isb",
                    address = in(reg) $address, control = in(reg) $control as u64, options(nostack),
                );
            }
        }};
    }
    each_point!(write, breakpoints, watchpoints);
}

/// Says whether the registers are as filled.
pub fn holds(seed: u64) -> bool {
    let (breakpoints, watchpoints) = counts();
    let mut same = read_sysreg!("mdscr_el1") == 0 && read_sysreg!("oslsr_el1") & 2 == 0;
    macro_rules! compare {
        ($count:expr, $mask:expr, $first:literal, $value:literal $control:literal $($n:literal)*) => {$(
            if $n < $count {
                let (value, control): (u64, u64);
                // SAFETY: reads registers that exist.
                unsafe {
                    asm!(
                        concat!("mrs {value}, ", $value, $n, "_el1"),
                        concat!("mrs {control}, ", $control, $n, "_el1"),
                        value = out(reg) value, control = out(reg) control, options(nostack),
                    );
                }
                same &= value == address(seed, $first + $n) & $mask && control & 1 == 0;
            }
        )*};
    }
    each_point!(compare, breakpoints, watchpoints);
    same
}

/// Arms watchpoint 0 for the eight bytes at `address`. Debug exceptions are let in.
pub fn watch(address: u64) {
    write_sysreg!("oslar_el1", 0);
    write_sysreg!("dbgwvr0_el1", address);
    write_sysreg!("dbgwcr0_el1", WATCH);
    write_sysreg!("mdscr_el1", ENABLE);
    // SAFETY: debug exceptions are handled by the vectors like others.
    unsafe { asm!("msr daifclr, #8", options(nostack)) };
}

/// Takes the watchpoint away.
pub fn unwatch() {
    write_sysreg!("mdscr_el1", 0);
    write_sysreg!("dbgwcr0_el1", 0);
    write_sysreg!("dbgwvr0_el1", 0);
}

/// Reads the eight bytes at `address`, and returns the watchpoint's exception if there is one.
pub fn touch(address: u64) -> Option<Trap> {
    trap::caught(|| {
        // SAFETY: the caller's own variable; a watchpoint's exception skips the load.
        unsafe { asm!("ldr xzr, [{}]", in(reg) address, options(nostack, readonly)) };
    })
}
