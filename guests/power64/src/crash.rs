// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways for a guest to die, each by name.

use core::arch::asm;

use crate::platform::platform;
use crate::{cpu, exception, options, power, println, smp, timer};

/// The names that [`die`] knows.
pub const WAYS: [&str; 12] = [
    "exception",
    "panic",
    "fetch-outside",
    "load-outside",
    "stack",
    "vectors",
    "halt",
    "spin",
    "give-up",
    "off",
    "reset",
    "cpu-off",
];

/// Arms what can ring on this machine, for interrupts that nobody takes: the decrementer of each CPU. The other CPUs spin, or
/// are stopped if this one will be. Returns whether they do.
pub fn arm_timers() -> bool {
    arm_own();
    smp::start_others(|_| {
        arm_own();
        while options::get("how") != Some("cpu-off") {
            cpu::relax();
        }
        smp::stop()
    })
}

/// Arms the decrementer of this CPU.
fn arm_own() {
    timer::arm(timer::now() + 1000);
}

/// Returns an address behind the last byte of memory, with a gap, that nothing answers at.
pub fn outside() -> u64 {
    platform().end_of_memory().next_multiple_of(1 << 30) + (1 << 30)
}

/// Dies in the way of this name; an unknown name is printed and ends in power-off.
pub fn die(how: &str) -> ! {
    println!("@crash how={how}");
    cpu::mask();
    match how {
        // SAFETY: here and below, nothing of this program is relied on afterwards.
        "exception" => unsafe { asm!("trap", options(noreturn)) },
        "panic" => panic!("asked for by how=panic"),
        // SAFETY: as above.
        "fetch-outside" => unsafe { asm!("mtctr {}", "bctr", in(reg) outside(), options(noreturn)) },
        // SAFETY: as above.
        "load-outside" => unsafe {
            asm!("ld 3, 0({})", "trap", in(reg_nonzero) outside(), options(noreturn))
        },
        // The record that exceptions are entered by is where nothing is.
        // SAFETY: as above.
        "stack" => unsafe { asm!("mtspr 273, {}", "trap", in(reg) outside(), options(noreturn)) },
        "vectors" => {
            // The handler of invalid instructions begins with one, for ever.
            exception::write_instruction(exception::vector::PROGRAM, 0);
            // SAFETY: as above.
            unsafe { asm!("trap", options(noreturn)) }
        }
        "halt" => power::halt(),
        "spin" => loop {
            cpu::relax();
        },
        "give-up" => power::give_up(),
        "off" => power::off(),
        "reset" => power::reset(),
        "cpu-off" => smp::stop(),
        _ => println!("@error how={how} is none of {WAYS:?}"),
    }
    println!("@error still alive after how={how}");
    power::off()
}
