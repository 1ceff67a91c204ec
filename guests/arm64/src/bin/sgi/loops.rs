// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The measured loops, for either interrupt controller: one access sends, one acknowledges, one ends.

use core::arch::asm;

use turnstile_guests::gic::{self, Version, offset, v2};
use turnstile_guests::measured_loop;

/// The instructions of one interrupt controller: they send what is in the register `$value`, acknowledge into x9
/// and end what is in x9. x10 is the address of GICD_SGIR, and x11 that of the GICv2's CPU interface.
macro_rules! loops {
    ($version:ident, $value:tt, $send:literal, $acknowledge:literal, $end:literal) => {
        mod $version {
            use super::*;

            pub fn send(loops: &Loops, iterations: u64, expected: u64, receivers: u64, answers: *mut u64) {
                measured_loop!(iterations, [
                        "add {e}, {e}, {r}",
                        $send,
                        "2:",
                        "ldar x9, [{a}]",
                        "cmp x9, {e}",
                        "b.eq 3f",
                        "yield",
                        "b 2b",
                        "3:",
                    ], e = inout(reg) expected => _, r = in(reg) receivers, a = in(reg) answers,
                    in($value) loops.value, in("x10") loops.sgir, in("x11") loops.interface, out("x9") _,);
            }

            pub fn hand_over<const FACILITIES: u64>(loops: &Loops, rounds: u64) {
                measured_loop!(rounds, [
                        $send,
                        "2:",
                        $acknowledge,
                        "cmp w9, #0x3ff",
                        "b.ne 3f",
                        "wfi",
                        "b 2b",
                        "3:",
                        $end,
                        // A vector register, and a key. The two hints are PACIA1716 and AUTIA1716, NOPs where there are no keys.
                        ".if {facilities}",
                        ".arch_extension fp",
                        "fmov d0, x9",
                        ".arch_extension nofp",
                        "hint #8",
                        "hint #12",
                        ".endif",
                    ], in($value) loops.value, in("x10") loops.sgir, in("x11") loops.interface,
                    facilities = const FACILITIES, out("x9") _, inout("x16") 0_u64 => _, inout("x17") 0_u64 => _,);
            }

            pub fn receive(loops: &Loops, wfi: bool, answers: *mut u64) -> ! {
                // SAFETY: `answers` is an atomic that receivers add to; acknowledging and ending interrupts
                // changes no memory.
                unsafe {
                    asm!(
                        "2:",
                        $acknowledge,
                        "cmp w9, #0x3ff",
                        "b.ne 4f",
                        "cbz x13, 3f",
                        "wfi",
                        "b 2b",
                        "3:",
                        "yield",
                        "b 2b",
                        "4:",
                        $end,
                        "5:",
                        "ldaxr x9, [x14]",
                        "add x9, x9, #1",
                        "stlxr w12, x9, [x14]",
                        "cbnz w12, 5b",
                        "b 2b",
                        // Named, because x9 and x12 are used, and code that does not return cannot say so.
                        in("x13") u64::from(wfi),
                        in("x14") answers,
                        in("x10") loops.sgir,
                        in("x11") loops.interface,
                        options(nostack, noreturn),
                    );
                }
            }
        }
    };
}

// ICC_SGI1R_EL1, ICC_IAR1_EL1, ICC_EOIR1_EL1.
loops!(gicv3, "x12", "msr S3_0_C12_C11_5, x12", "mrs x9, S3_0_C12_C12_0", "msr S3_0_C12_C12_1, x9");
loops!(gicv3_x20, "x20", "msr S3_0_C12_C11_5, x20", "mrs x9, S3_0_C12_C12_0", "msr S3_0_C12_C12_1, x9");
// GICD_SGIR, GICC_IAR, GICC_EOIR. What is read there names the sender, as what ends it has to.
loops!(gicv2, "x12", "str w12, [x10]", "ldr w9, [x11, #0xc]", "str w9, [x11, #0x10]");
loops!(gicv2_x20, "x20", "str w20, [x10]", "ldr w9, [x11, #0xc]", "str w9, [x11, #0x10]");

/// Calls a function of the loops for this machine's interrupt controller and for the register.
macro_rules! choose {
    ($loops:ident, $($call:tt)*) => {
        match ($loops.version, $loops.x20) {
            (Version::Gicv2, false) => gicv2::$($call)*,
            (Version::Gicv2, true) => gicv2_x20::$($call)*,
            (Version::Gicv3, false) => gicv3::$($call)*,
            (Version::Gicv3, true) => gicv3_x20::$($call)*,
        }
    };
}

/// What the loops need in registers.
pub struct Loops {
    version: Version,
    /// Whether what is sent is in x20, not in one of the registers that a call may change.
    x20: bool,
    value: u64,
    sgir: u64,
    interface: u64,
}

impl Loops {
    /// Loops that send this value; see [`gic::send_sgi`].
    pub fn new(value: u64, x20: bool) -> Loops {
        let version = gic::version();
        let interface = if version == Version::Gicv2 { v2::interface() } else { 0 };
        Loops { version, x20, value, sgir: gic::distributor() + offset::SGIR, interface }
    }

    /// Sends, and waits until the word of answers has grown by one for each receiver.
    pub fn send(&self, iterations: u64, expected: u64, receivers: u64, answers: *mut u64) {
        choose!(self, send(self, iterations, expected, receivers, answers))
    }

    /// The loop of [`Loops::send`] without sending.
    pub fn empty(&self, iterations: u64, expected: u64, receivers: u64, answers: *mut u64) {
        measured_loop!(iterations, [
                "add {e}, {e}, {r}",
                "nop",
                "2:",
                "ldar x9, [{a}]",
                "cmp x9, #0",
                "b.ne 3f",
                "yield",
                "b 2b",
                "3:",
            ], e = inout(reg) expected => _, r = in(reg) receivers, a = in(reg) answers, out("x9") _,);
    }

    /// Sends, waits by WFI to be sent to, and ends that; uses FP registers and keys each time if there are to be `FACILITIES`
    /// (1, else 0).
    #[inline(never)]
    pub fn hand_over<const FACILITIES: u64>(&self, rounds: u64) {
        choose!(self, hand_over::<FACILITIES>(self, rounds))
    }

    /// The loop of [`Loops::hand_over`] without sending, acknowledging and ending.
    pub fn nothing(&self, rounds: u64) {
        measured_loop!(rounds, [
                "nop",
                "2:",
                "mov x9, {value}",
                "cmp w9, #0x3ff",
                "b.ne 3f",
                "wfi",
                "b 2b",
                "3:",
                "nop",
            ], value = in(reg) self.value, out("x9") _,);
    }

    /// Takes SGIs for ever: after each the word of answers grows by one.
    pub fn receive(&self, wfi: bool, answers: *mut u64) -> ! {
        choose!(self, receive(self, wfi, answers))
    }
}
