// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Ways for a guest to die, each by name.

use core::arch::asm;

use turnstile_guests_common::stack::Stack;

use crate::platform::platform;
use crate::{cpu, exception, mmu, port, power, println};

/// The names that [`die`] knows.
pub const WAYS: [&str; 12] = [
    "exception",
    "panic",
    "triple-fault",
    "pc-outside",
    "stack",
    "tables",
    "halt",
    "spin",
    "fault-loop",
    "off",
    "reset",
    "debug-exit",
];

/// Returns an address behind the last byte of memory, with a gap, that nothing answers at.
pub fn outside() -> u64 {
    platform().end_of_memory().next_multiple_of(mmu::WINDOW_SIZE) + mmu::WINDOW_SIZE
}

/// Dies in the way of this name; an unknown name is printed and ends in power-off.
pub fn die(how: &str) -> ! {
    println!("@crash how={how}");
    cpu::mask();
    match how {
        // SAFETY: here and below, nothing of this program is relied on afterwards.
        "exception" => unsafe { asm!("ud2", options(noreturn)) },
        "panic" => panic!("asked for by how=panic"),
        "triple-fault" => power::triple_fault(),
        "pc-outside" => {
            // Without gates: the fault of the fetch, or of what is fetched, has no handler.
            exception::load_from(0, 0);
            // SAFETY: as above.
            unsafe { asm!("jmp {}", in(reg) outside(), options(noreturn)) }
        }
        "stack" => {
            exception::load_from(0, 0);
            // SAFETY: as above.
            unsafe { asm!("mov rsp, {}", "call 2f", "2:", "ud2", in(reg) 1_u64 << 62, options(noreturn)) }
        }
        "tables" => {
            // SAFETY: as above: not even the next instruction can be fetched.
            unsafe { asm!("mov cr3, {}", "ud2", in(reg) outside(), options(noreturn)) }
        }
        "halt" => power::halt(),
        "spin" => loop {
            cpu::relax();
        },
        "fault-loop" => fault_loop(),
        "off" => power::off(),
        "reset" => power::reset(),
        "debug-exit" => port::write8(power::DEBUG_EXIT, 0x2a),
        _ => println!("@error how={how} is none of {WAYS:?}"),
    }
    println!("@error still alive after how={how}");
    power::off()
}

/// Executes an invalid instruction whose handler executes it again, for ever.
fn fault_loop() -> ! {
    exception::set_gate(6, invalid as *const () as u64);
    invalid()
}

extern "C" fn invalid() -> ! {
    // The stack is given back, so that it never ends.
    // SAFETY: as above.
    unsafe {
        asm!("lea rsp, [{stack} + {size}]", "ud2", stack = sym STACK, size = const 4096, options(noreturn))
    }
}

/// The stack of `invalid`.
static STACK: Stack<4096> = Stack::new();
