// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways for a guest to die, each by name.

use core::arch::asm;

use crate::platform::platform;
use crate::psci::{self, function};
use crate::timer::{self, Timer};
use crate::{cpu, mmio, options, println, smp};

/// The names that [`die`] knows.
pub const WAYS: [&str; 12] = [
    "undef-loop",
    "pc-outside",
    "vectors-outside",
    "exception",
    "panic",
    "wfi",
    "spin",
    "off",
    "reset",
    "reset2",
    "cpu-off",
    "stack",
];

/// Arms what can ring on this machine, for interrupts that nobody takes: the clock's alarm, and both timers of each CPU. The
/// other CPUs spin, or are off if this one will be. Returns whether they do.
pub fn arm_timers() -> bool {
    if let Some(rtc) = platform().rtc {
        mmio::write32(rtc.base + 0x04, mmio::read32(rtc.base) + 1);
        mmio::write32(rtc.base + 0x10, 1);
    }
    arm_own();
    smp::start_others(|_| {
        arm_own();
        while options::get("how") != Some("cpu-off") {
            cpu::relax();
        }
    })
}

/// Arms both timers of this CPU.
fn arm_own() {
    for timer in [Timer::Virtual, Timer::Physical] {
        timer.set_compare(timer.now() + 1000);
        timer.set_control(timer::ENABLE);
    }
}

/// Returns an address behind the last byte of memory, with a gap.
pub fn outside() -> u64 {
    platform().end_of_memory() + (2 << 20)
}

/// Dies in the way of this name; an unknown name is printed and ends in SYSTEM_OFF.
pub fn die(how: &str) -> ! {
    println!("@crash how={how}");
    cpu::mask_irq();
    match how {
        "undef-loop" => undefined_loop(),
        "pc-outside" => {
            // SAFETY: nothing of this program is relied on afterwards.
            unsafe { asm!("br {}", in(reg) outside(), options(noreturn)) }
        }
        "vectors-outside" => {
            // SAFETY: as above: the exception's vector is outside the memory, and so is that of the next.
            unsafe { asm!("msr vbar_el1, {}", "isb", "udf #0", in(reg) outside(), options(noreturn)) }
        }
        "exception" => {
            // SAFETY: as above.
            unsafe { asm!("udf #0", options(noreturn)) }
        }
        "panic" => panic!("asked for by how=panic"),
        "wfi" => loop {
            cpu::wfi();
        },
        "spin" => loop {
            cpu::relax();
        },
        "off" => psci::system_off(),
        "reset" => psci::system_reset(),
        "reset2" => {
            psci::call(function::SYSTEM_RESET2, [0; 3]);
        }
        "cpu-off" => {
            psci::call(function::CPU_OFF, [0; 3]);
        }
        "stack" => {
            // SAFETY: as above: every exception faults while it stores its frame, and again in that vector.
            unsafe {
                asm!("msr spsel, #1", "mov sp, {}", "udf #0", in(reg) outside(), options(noreturn));
            }
        }
        _ => println!("@error how={how} is none of {WAYS:?}"),
    }
    println!("@error still alive after how={how}");
    psci::system_off()
}

/// Executes an UNDEFINED instruction whose vector executes one, for ever, without leaving EL1.
fn undefined_loop() -> ! {
    // SAFETY: nothing of this program is relied on afterwards; the vectors are code of this image.
    unsafe {
        asm!(
            "adr x0, 2f",
            "msr vbar_el1, x0",
            "isb",
            "udf #0",
            ".p2align 11",
            "2:",
            ".rept 512",
            "udf #0",
            ".endr",
            options(noreturn),
        )
    }
}
