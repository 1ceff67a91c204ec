// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Powering the machine off, and resetting it: by the registers that ACPI names (ACPI Specification 6.5, 4.8.3), or in the
//! ways that PCs have without it.

use spin::Once;
use turnstile_firmware::{Power, Register, Space};

use crate::cpu::ports;

static POWER: Once<Power> = Once::new();

/// Takes what the firmware's tables say. Registers in memory have to be mapped as device memory.
pub fn set(power: Power) {
    POWER.call_once(|| power);
}

/// Registers in memory that powering off and resetting need, for whoever maps them.
pub fn registers(power: &Power) -> impl Iterator<Item = u64> {
    let all = [power.sleep, power.reset];
    all.into_iter()
        .flatten()
        .filter(|(register, _)| register.space == Space::Memory)
        .map(|(register, _)| register.address)
}

fn write(register: Register, value: u8) {
    match (register.space, u16::try_from(register.address)) {
        // SAFETY: `memory::init` has mapped it as device memory, as `registers` says.
        (Space::Memory, _) => unsafe { core::ptr::write_volatile(register.address as *mut u8, value) },
        // SAFETY: the firmware's tables say that the port does this.
        (Space::Io, Ok(port)) => unsafe { ports::write8(port, value) },
        _ => {}
    }
}

/// Powers the machine off. Returns, at once if nothing can do that.
pub fn off() {
    /// SLP_EN of the PM1 control registers, and of the sleep control register.
    const PM1_ENABLE: u16 = 1 << 13;
    const SLEEP_ENABLE: u8 = 1 << 5;
    /// Where QEMU's debug exit usually is; elsewhere a port that nothing answers.
    const DEBUG_EXIT: u16 = 0xf4;
    if let Some(power) = POWER.get() {
        for (port, kind) in power.pm1.into_iter().flatten() {
            // SAFETY: the firmware's tables say that the port does this.
            unsafe { ports::write16(port, PM1_ENABLE | u16::from(kind) << 10) };
        }
        if let Some((register, kind)) = power.sleep {
            write(register, SLEEP_ENABLE | kind << 2);
        }
    }
    // SAFETY: ends an emulator that has it; no device of a PC is there.
    unsafe { ports::write8(DEBUG_EXIT, 0) };
}

/// Resets the machine.
pub fn reset() {
    /// The reset control register of PC chipsets: a hard reset of the CPUs.
    const RESET_CONTROL: u16 = 0xcf9;
    const HARD_RESET: u8 = 0b110;
    /// The keyboard controller's command register, and its command that pulses the reset line.
    const KEYBOARD: u16 = 0x64;
    const PULSE_RESET: u8 = 0xfe;
    if let Some((register, value)) = POWER.get().and_then(|power| power.reset) {
        write(register, value);
    }
    // SAFETY: what these ports of a PC do is what is wanted.
    unsafe {
        ports::write8(RESET_CONTROL, HARD_RESET);
        ports::write8(KEYBOARD, PULSE_RESET);
    }
}
