// SPDX-License-Identifier: Apache-2.0 OR MIT
//! General registers and flags over every kind of exit, and device loads into each register, of each size
//! and with each extension.

use turnstile_guests::gic::{self, offset};
use turnstile_guests::mmio;
use turnstile_guests::patch;
use turnstile_guests::platform::{UartKind, platform};
use turnstile_guests::probe::{self, Registers};
use turnstile_guests::psci::function;
use turnstile_guests::test::{Outcome, Test};
use turnstile_guests::timer::{self, Timer};
use turnstile_guests::{check, check_eq, skip};

pub const TESTS: &[Test] = &[
    Test { name: "registers-hypercall", run: hypercall },
    Test { name: "registers-system-read", run: system_read },
    Test { name: "registers-system-write", run: system_write },
    Test { name: "registers-wait", run: wait },
    Test { name: "registers-device-load", run: device_load },
    Test { name: "registers-device-store", run: device_store },
    Test { name: "registers-uart", run: uart },
];

const HVC: u32 = 0xd400_0002;
const WFI: u32 = 0xd503_207f;
const FLAGS: [u64; 3] = [0xf << 28, 0x5 << 28, 0];

/// Checks that all registers but those in `changed` (a bit each) are as they went in.
fn unchanged(input: &Registers, output: &Registers, changed: u32, what: &str) -> Outcome {
    for (number, (before, after)) in input.iter().zip(output).enumerate() {
        if changed >> number & 1 == 0 {
            check_eq!(*after, *before, "x{number} after {what}");
        }
    }
    Ok(())
}

fn hypercall() -> Outcome {
    for flags in FLAGS {
        let mut input = probe::pattern(flags);
        if let Some(x0) = input.first_mut() {
            *x0 = function::VERSION;
        }
        // SAFETY: HVC changes x0 to x17 at most.
        let (output, after, trap) = unsafe { probe::execute(HVC, &input, flags) };
        check!(trap.is_none(), "HVC traps");
        check!(after == flags, "flags {after:#x} after HVC, were {flags:#x}");
        // SMCCC 1.1 keeps x4 and up.
        unchanged(&input, &output, 0xf, "HVC")?;
    }
    Ok(())
}

fn with_register(input: &Registers, number: u32, value: u64) -> Registers {
    let mut registers = *input;
    if let Some(slot) = registers.get_mut(number as usize) {
        *slot = value;
    }
    registers
}

fn system_read() -> Outcome {
    let encodings = [(3, 0, 0, 6, 0), (3, 0, 0, 4, 0), (3, 0, 0, 7, 1)];
    for (op0, op1, crn, crm, op2) in encodings {
        let expected = patch::read(op0, op1, crn, crm, op2).unwrap_or(0);
        for target in 0..32 {
            let input = probe::pattern(u64::from(target));
            let flags = FLAGS[target as usize % 3];
            // SAFETY: MRS changes its target only.
            let (output, after, trap) =
                unsafe { probe::execute(patch::mrs(op0, op1, crn, crm, op2) | target, &input, flags) };
            check!(trap.is_none(), "MRS x{target} traps");
            check!(after == flags, "flags after MRS x{target}");
            unchanged(&input, &output, 1 << (target % 32) & 0x7fff_ffff, "MRS")?;
            if let Some(value) = output.get(target as usize) {
                check_eq!(*value, expected, "MRS x{target}");
            }
        }
    }
    Ok(())
}

fn system_write() -> Outcome {
    if platform().pmu.is_none() {
        skip!("no PMU");
    }
    for source in 0..32 {
        let value = u64::from(source * 7 % 31);
        let input = with_register(&probe::pattern(9), source, value);
        // SAFETY: MSR PMSELR_EL0 changes no general register.
        let (output, _, trap) = unsafe { probe::execute(patch::msr(3, 3, 9, 12, 5) | source, &input, 0) };
        check!(trap.is_none(), "MSR from x{source} traps");
        unchanged(&input, &output, 0, "MSR")?;
        let expected = if source == 31 { 0 } else { value };
        check_eq!(patch::read(3, 3, 9, 12, 5).unwrap_or(99), expected, "PMSELR_EL0 from x{source}");
    }
    Ok(())
}

/// WFI that the timer ends, and one that finds its interrupt pending.
fn wait() -> Outcome {
    gic::enable(Timer::Virtual.intid());
    for distance in [1_000, 0] {
        Timer::Virtual.set_compare(timer::now() + timer::ticks(distance));
        Timer::Virtual.set_control(timer::ENABLE);
        let input = probe::pattern(distance);
        for flags in FLAGS {
            // SAFETY: WFI changes no register; the timer ends it.
            let (output, after, trap) = unsafe { probe::execute(WFI, &input, flags) };
            check!(trap.is_none() && after == flags, "flags after WFI");
            unchanged(&input, &output, 0, "WFI")?;
        }
        Timer::Virtual.set_control(0);
    }
    Ok(())
}

/// A load: name, opcode with Rt and Rn zero, bytes, whether it extends the sign, and to how many bits.
struct Load {
    name: &'static str,
    opcode: u32,
    bytes: u32,
    signed: bool,
    bits: u32,
}

const LOADS: [Load; 9] = [
    Load { name: "LDRB", opcode: 0x3940_0000, bytes: 1, signed: false, bits: 32 },
    Load { name: "LDRH", opcode: 0x7940_0000, bytes: 2, signed: false, bits: 32 },
    Load { name: "LDR w", opcode: 0xb940_0000, bytes: 4, signed: false, bits: 32 },
    Load { name: "LDR x", opcode: 0xf940_0000, bytes: 8, signed: false, bits: 64 },
    Load { name: "LDRSB w", opcode: 0x39c0_0000, bytes: 1, signed: true, bits: 32 },
    Load { name: "LDRSB x", opcode: 0x3980_0000, bytes: 1, signed: true, bits: 64 },
    Load { name: "LDRSH w", opcode: 0x79c0_0000, bytes: 2, signed: true, bits: 32 },
    Load { name: "LDRSH x", opcode: 0x7980_0000, bytes: 2, signed: true, bits: 64 },
    Load { name: "LDRSW", opcode: 0xb980_0000, bytes: 4, signed: true, bits: 64 },
];

impl Load {
    /// What the load gives for the `bytes` at the address.
    fn extend(&self, raw: u64) -> u64 {
        let unused = 64 - 8 * self.bytes;
        let raw = raw << unused >> unused;
        let value = if self.signed { ((raw << unused) as i64 >> unused) as u64 } else { raw };
        if self.bits == 32 { value & 0xffff_ffff } else { value }
    }
}

/// Loads into each register from `address`, through a base register that changes with the target.
fn load_into_all(load: &Load, address: u64, raw: u64) -> Outcome {
    for target in 0..32u32 {
        for base in [(target + 7) % 31, target % 31] {
            let input = with_register(&probe::pattern(u64::from(target)), base, address);
            let flags = FLAGS[target as usize % 3];
            let word = load.opcode | base << 5 | target;
            // SAFETY: the load changes its target only.
            let (output, after, trap) = unsafe { probe::execute(word, &input, flags) };
            if let Some(trap) = trap {
                check!(false, "{} x{target}, [x{base}]: {trap}", load.name);
            }
            check!(after == flags, "flags after {} x{target}", load.name);
            let changed = if target == 31 { 0 } else { 1 << target };
            unchanged(&input, &output, changed, load.name)?;
            if let Some(value) = output.get(target as usize) {
                check_eq!(*value, load.extend(raw), "{} x{target}, [x{base}]", load.name);
            }
        }
    }
    Ok(())
}

/// Loads of the sizes that the distributor allows, from registers with the sign bits set.
fn device_load() -> Outcome {
    let gicd = gic::distributor();
    let priorities = gicd + offset::IPRIORITYR + 40;
    mmio::write32(priorities, 0xf8c8_88a0);
    check_eq!(mmio::read32(priorities), 0xf8c8_88a0, "priorities");
    gic::set_route(41, gic::route(41));
    let router = gicd + offset::IROUTER + 41 * 8;
    for load in &LOADS {
        match load.bytes {
            1 => {
                for byte in 0..4 {
                    load_into_all(load, priorities + byte, 0xf8c8_88a0 >> (8 * byte))?;
                }
            }
            4 => load_into_all(load, priorities, 0xf8c8_88a0)?,
            // A GICv2 has no registers of this size.
            8 if gic::version() == gic::Version::Gicv3 => load_into_all(load, router, gic::route(41))?,
            _ => {}
        }
    }
    Ok(())
}

fn device_store() -> Outcome {
    let priorities = gic::distributor() + offset::IPRIORITYR + 40;
    for source in 0..32u32 {
        let base = (source + 5) % 31;
        let value = 0x1234_5678_0000_0000 | (u64::from(source * 8) * 0x0101_0101);
        let input = with_register(&probe::pattern(3), source, value);
        let input = with_register(&input, base, priorities);
        // STR w
        // SAFETY: a store to the distributor changes no general register.
        let (output, _, trap) = unsafe { probe::execute(0xb900_0000 | base << 5 | source, &input, 0) };
        check!(trap.is_none(), "STR x{source} traps");
        unchanged(&input, &output, 0, "STR")?;
        let expected = if source == 31 { 0 } else { value as u32 };
        check_eq!(mmio::read32(priorities), expected, "STR w{source}");
        // STRB to the third byte
        let input = with_register(&input, base, priorities + 2);
        mmio::write32(priorities, 0xf8f8_f8f8);
        // SAFETY: as above.
        let (_, _, trap) = unsafe { probe::execute(0x3900_0000 | base << 5 | source, &input, 0) };
        check!(trap.is_none(), "STRB w{source} traps");
        let byte = if source == 31 { 0 } else { value as u32 & 0xff };
        check_eq!(mmio::read32(priorities), 0xf800_f8f8 | byte << 16, "STRB w{source}");
    }
    Ok(())
}

/// Byte and halfword loads from the UART; a 16550 has bytes only.
fn uart() -> Outcome {
    let Some(uart) = platform().uart else { skip!("no UART") };
    match uart.kind {
        UartKind::Pl011 => {
            // Integer baud rate: 16 bits that can be written, with both sign bits set.
            let divisor = uart.region.base + 0x24;
            mmio::write32(divisor, 0x80f1);
            let raw = u64::from(mmio::read32(divisor));
            for load in LOADS.iter().filter(|load| load.bytes <= 4) {
                load_into_all(load, divisor, raw)?;
            }
            check_eq!(raw, 0x80f1, "UARTIBRD");
        }
        UartKind::Uart16550 { shift } => {
            let scratch = uart.region.base + (7 << shift);
            mmio::write8(scratch, 0x9c);
            for load in LOADS.iter().filter(|load| load.bytes == 1) {
                load_into_all(load, scratch, 0x9c)?;
            }
        }
    }
    Ok(())
}
