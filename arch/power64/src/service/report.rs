// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a service was when it was left, and why.

use core::fmt;

use turnstile_arch_common::service::Left;

use super::context::{Context, Found};
use crate::cpu::regs::{ASDR, HDAR, HDSISR, HEIR, HFSCR, hfscr};
use crate::cpu::vector;

/// Why a service was left, but by a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cause {
    /// The interrupt.
    vector: u32,
    /// That of its own partition behind which it came.
    strike: Option<u64>,
    found: Found,
    /// What the CPU says of the hypervisor's interrupt.
    address: u64,
    status: u64,
    page: u64,
    instruction: u64,
}

impl Cause {
    /// Behind an interrupt.
    pub(super) fn new(vector: u32, strike: Option<u64>, found: Found) -> Self {
        Self {
            vector,
            strike,
            found,
            address: HDAR.read(),
            status: HDSISR.read(),
            page: ASDR.read(),
            instruction: HEIR.read(),
        }
    }
}

/// In HDSISR: nothing is mapped there.
const NO_ENTRY: u64 = 1 << 30;
/// In HDSISR: what was missed is the page of a table of the service's own (Power ISA 3.0B Book III, 6.5.16).
const TABLES: u64 = 1 << 17;

impl Cause {
    /// The address that was loaded or stored where nothing is mapped, if it says that.
    pub(super) fn missed(&self) -> Option<u64> {
        let Self { vector, strike, status, address, .. } = *self;
        let is_miss = vector == vector::HYPERVISOR_DATA_STORAGE
            && strike.is_none()
            && status & (NO_ENTRY | TABLES) == NO_ENTRY;
        is_miss.then_some(address)
    }
}

/// What an interrupt of the service's own partition is (Power ISA 3.0B Book III, 6.5).
fn own_name(vector: u64) -> &'static str {
    match vector {
        0x300 => "data storage interrupt",
        0x380 => "data segment interrupt",
        0x400 => "instruction storage interrupt",
        0x480 => "instruction segment interrupt",
        0x600 => "alignment interrupt",
        0x700 => "program interrupt",
        0x800 => "floating-point unavailable",
        0xc00 => "system call",
        0xf20 => "vector unavailable",
        0xf40 => "VSX unavailable",
        0xf60 => "facility unavailable",
        _ => "interrupt",
    }
}

/// The same of the hypervisor's.
fn name(vector: u32) -> &'static str {
    match vector {
        vector::SYSTEM_RESET => "system reset",
        vector::MACHINE_CHECK => "machine check",
        vector::HYPERVISOR_DECREMENTER => "hypervisor decrementer",
        vector::HYPERVISOR_DATA_STORAGE => "hypervisor data storage interrupt",
        vector::HYPERVISOR_INSTRUCTION_STORAGE => "hypervisor instruction storage interrupt",
        vector::EMULATION_ASSISTANCE => "no instruction that it has",
        vector::MAINTENANCE => "hypervisor maintenance interrupt",
        vector::HYPERVISOR_DOORBELL => "hypervisor doorbell",
        vector::VIRTUALIZATION => "hypervisor virtualization interrupt",
        vector::HYPERVISOR_FACILITY => "hypervisor facility unavailable",
        vector::SOFT_PATCH => "soft patch interrupt",
        _ => "interrupt",
    }
}

/// Some text and a register.
#[inline(never)] // Many of them make a report.
fn register(text: &str, value: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    write!(f, "{text} {value:#x}")
}

/// The line that says why.
fn why(cause: &Cause, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let Cause { vector, strike, found, address, status, page, instruction } = *cause;
    let (name, number) = strike.map_or((name(vector), vector.into()), |strike| (own_name(strike), strike));
    write!(f, "{name} ({number:#x})")?;
    let registers: &[(&str, u64)] = match (strike, vector) {
        (Some(0x300 | 0x380 | 0x600), _) => {
            &[(", SRR1", found.srr1), (", DAR", found.dar), (", DSISR", found.dsisr)]
        }
        (Some(_), _) => &[(", SRR1", found.srr1)],
        (None, vector::HYPERVISOR_DATA_STORAGE) => {
            &[(", HDAR", address), (", HDSISR", status), (", ASDR", page)]
        }
        (None, vector::EMULATION_ASSISTANCE) => &[(", HEIR", instruction)],
        (None, vector::HYPERVISOR_FACILITY) => &[(", facility", HFSCR.read() >> hfscr::CAUSE_SHIFT)],
        (None, _) => &[],
    };
    registers.iter().try_for_each(|(text, value)| register(text, *value, f))
}

/// Says where a service at `base` was and why it was left, with its registers.
pub(super) fn explain(
    context: &Context,
    cause: &Cause,
    left: Left,
    base: u64,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    write!(f, "  at {:#x} (program + {:#x}): ", context.pc, context.pc.wrapping_sub(base))?;
    match left {
        Left::Call => f.write_str("call")?,
        Left::Interrupt | Left::Fault => why(cause, f)?,
    }
    for (number, value) in context.gpr.iter().enumerate() {
        let separator = if number % 4 == 0 { "\n  " } else { " " };
        write!(f, "{separator}r{number:<2} {value:016x}")?;
    }
    for (text, value) in
        [("\n  LR", context.lr), ("  CTR", context.ctr), ("  CR", context.cr), ("  XER", context.xer)]
    {
        register(text, value, f)?;
    }
    Ok(())
}
