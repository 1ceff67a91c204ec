// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a service was when it was left, for reports.

use core::fmt::{self, Write};

use turnstile_arch_common::service::Left;

use super::state::{State, Syndrome};
use crate::cpu::class;

/// ISS.WnR of a data abort.
const WNR: u64 = 1 << 6;

impl Syndrome {
    /// Returns what it was; whether FAR_EL2 belongs to it.
    fn name(&self) -> (&'static str, bool) {
        match class::of(self.esr) {
            0x00 => ("an instruction that it does not have", false),
            0x01 => ("a wait for an interrupt or an event", false),
            0x07 | 0x19 | 0x1d => ("an instruction of floating point or vectors", false),
            0x09 => ("an instruction of pointer authentication", false),
            0x0d => ("a jump to where no jump leads", false),
            0x0e => ("an illegal state", false),
            0x15 => ("a call", false),
            0x18 => ("an instruction or a register of the system", false),
            0x20 | 0x21 => ("a jump to where it has no code", true),
            0x22 => ("a program counter that is not aligned", true),
            0x24 | 0x25 if self.esr & WNR != 0 => ("a store to where it has no memory to write", true),
            0x24 | 0x25 => ("a load from where it has no memory", true),
            0x26 => ("a stack pointer that is not aligned", false),
            0x2f => ("an error of the memory (SError)", false),
            0x30..=0x35 | 0x3c => ("a debug exception", false),
            _ => ("an exception", false),
        }
    }
}

/// Writes where a service was left.
pub(super) fn explain(state: &State, left: Left, base: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let pc = state.own.pc;
    match left {
        Left::Fault => {
            let (name, has_address) = state.syndrome.name();
            write!(f, "{name}")?;
            if has_address {
                write!(f, ", address {:#x}", state.syndrome.far)?;
            }
            writeln!(f, " (ESR {:#x})", state.syndrome.esr)?;
        }
        Left::Call => f.write_str("in a call\n")?,
        Left::Interrupt => f.write_str("at an interrupt\n")?,
    }
    write!(f, "pc {pc:#x} (program + {:#x}) sp {:#x}", pc.wrapping_sub(base), state.own.sp)?;
    for (number, value) in state.general.iter().enumerate() {
        f.write_char(if number % 4 == 0 { '\n' } else { ' ' })?;
        write!(f, "x{number:<2} {value:016x}")?;
    }
    Ok(())
}
