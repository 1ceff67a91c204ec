// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The machine's I/O APICs (82093AA data sheet) and 8259s: all interrupts are off but that of the serial port.

use turnstile_arch_common::mmio::Registers;
use turnstile_firmware::{IoApic, Line};

use crate::cpu::ports;

const SELECT: usize = 0x00;
const WINDOW: usize = 0x10;
const VERSION: u32 = 1;
/// Bytes of the register block.
pub const SIZE: u64 = 0x20;

const MASKED: u32 = 1 << 16;
const LEVEL: u32 = 1 << 15;
const ACTIVE_LOW: u32 = 1 << 13;

fn read(apic: &Registers, register: u32) -> u32 {
    apic.write32(SELECT, register);
    apic.read32(WINDOW)
}

fn write(apic: &Registers, register: u32, value: u32) {
    apic.write32(SELECT, register);
    apic.write32(WINDOW, value);
}

/// The lower half of an input's redirection entry.
const fn entry(input: u32) -> u32 {
    0x10 + 2 * input
}

fn inputs(apic: &Registers) -> u32 {
    (read(apic, VERSION) >> 16 & 0xff) + 1
}

/// Takes the registers of an I/O APIC.
fn registers(apic: &IoApic) -> Registers {
    // SAFETY: `memory::init` has mapped them as device memory, for ever.
    unsafe { Registers::new(apic.address) }
}

/// Masks all interrupts of all I/O APICs and of both 8259s.
pub fn mask_all(apics: &[IoApic]) {
    for apic in apics {
        let apic = registers(apic);
        for input in 0..inputs(&apic) {
            write(&apic, entry(input), MASKED);
        }
    }
    // SAFETY: the interrupt masks of the 8259s, which the hypervisor does not use; ports that read as ones elsewhere.
    unsafe {
        ports::write8(0x21, 0xff);
        ports::write8(0xa1, 0xff);
    }
}

/// Sends an interrupt line to a CPU as `vector`. False if no I/O APIC has the line, or the CPU cannot be named.
pub fn route(apics: &[IoApic], line: Line, vector: u8, apic_id: u32) -> bool {
    let Ok(destination) = u8::try_from(apic_id) else { return false };
    for apic in apics {
        let block = registers(apic);
        let Some(input) = line.number.checked_sub(apic.first).filter(|input| *input < inputs(&block)) else {
            continue;
        };
        let trigger = if line.level { LEVEL } else { 0 };
        let polarity = if line.active_low { ACTIVE_LOW } else { 0 };
        write(&block, entry(input) + 1, u32::from(destination) << 24);
        write(&block, entry(input), u32::from(vector) | trigger | polarity);
        return true;
    }
    false
}
