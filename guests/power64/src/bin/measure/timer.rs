// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The decrementer: set, and its interrupt taken, which sets it again, far away.

use core::arch::global_asm;

use turnstile_guests_power64::cpu::spr;
use turnstile_guests_power64::exception::{self, vector};
use turnstile_guests_power64::{bench, cpu, measured_loop, mtspr, timer};

/// Microseconds of sleep: more than other hypervisors spend on looking whether something comes.
const LATER: u64 = 1000;

// R27 counts. The loops name R3 as changed.
global_asm!(
    r#"
    .section .text.decrementer, "ax"
    .balign 64
decrementer_taken:
    addi    27, 27, 1
    lis     3, 0x7fff
    mtspr   22, 3
    rfid
    "#
);

unsafe extern "C" {
    fn decrementer_taken();
}

/// Set to the past: the interrupt comes at once, without an exit.
pub fn interrupt() {
    exception::set_handler(vector::DECREMENTER, decrementer_taken);
    cpu::unmask();
    bench::measure(
        "timer-interrupt",
        |n| {
            measured_loop!(n, [
                    "addi 26, 26, 1",
                    "li 3, -1",
                    "mtspr 22, 3",
                    "2:",
                    "cmpld 26, 27",
                    "bne 2b",
                ], inout("r26") 0_u64 => _, inout("r27") 0_u64 => _,)
        },
        |n| measured_loop!(n, ["addi 26, 26, 1", ".rept 8", "nop", ".endr"], inout("r26") 0_u64 => _,),
    );
    finish();
}

/// The CPU waits by H_CEDE, which lets interrupts in.
pub fn sleep() {
    exception::set_handler(vector::DECREMENTER, decrementer_taken);
    cpu::mask();
    bench::measure(
        "sleep-wake",
        |n| {
            measured_loop!(n, [
                    "addi 26, 26, 1",
                    "mtspr 22, 25",
                    "2:",
                    "li 3, 0xe0",
                    "sc 1",
                    "li 3, 2",
                    "mtmsrd 3, 1",
                    "cmpld 26, 27",
                    "bne 2b",
                ], in("r25") timer::ticks(LATER), inout("r26") 0_u64 => _, inout("r27") 0_u64 => _,)
        },
        |n| measured_loop!(n, ["addi 26, 26, 1", "nop"], inout("r26") 0_u64 => _,),
    );
    finish();
}

/// Hands the vector back, with no interrupt due for a while.
fn finish() {
    cpu::mask();
    mtspr!(spr::DEC, 0x7fff_ffff);
    exception::init();
}
