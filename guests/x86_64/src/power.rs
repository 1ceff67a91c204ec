// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Power-off and reset.

use crate::platform::platform;
use crate::{cpu, port, pv_eoi};

/// The port of `isa-debug-exit`.
pub const DEBUG_EXIT: u16 = 0xf4;

/// Switches the machine off: ACPI's S5, or where there is no ACPI, the ports that monitors of virtual machines use.
pub fn off() -> ! {
    cpu::mask();
    let acpi = &platform().acpi;
    if let (Some(s5), 1..) = (acpi.s5, acpi.pm1a_control) {
        // SLP_TYP and SLP_EN.
        port::write16(acpi.pm1a_control, s5 << 10 | 1 << 13);
    }
    port::write8(DEBUG_EXIT, 0);
    port::write16(0x604, 0x2000);
    halt()
}

/// Resets the machine: ACPI's reset register, or the keyboard controller, or a triple fault. Paravirtual EOI is
/// switched off before, on this CPU; the others have to be offline.
pub fn reset() -> ! {
    cpu::mask();
    pv_eoi::disable();
    if let Some(reset) = platform().acpi.reset {
        port::write8(reset.port, reset.value);
    }
    port::write8(0x64, 0xfe);
    triple_fault()
}

/// Takes an exception without a table of gates: the CPU shuts down.
pub fn triple_fault() -> ! {
    cpu::load_idt(0, 0);
    // SAFETY: nothing of this program is relied on afterwards.
    unsafe { core::arch::asm!("ud2", options(noreturn)) }
}

/// Waits for nothing.
pub fn halt() -> ! {
    loop {
        // SAFETY: as above.
        unsafe { core::arch::asm!("cli", "hlt", options(nostack)) };
    }
}
