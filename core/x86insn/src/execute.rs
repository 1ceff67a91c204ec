// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carrying an operation out on a device (APM vol. 3, chapter 3).
//!
//! An operation with a result reads and writes the device once each. LOCK is granted: a device sees one access at a time.

use crate::arithmetic::{combine, compute, set_arithmetic};
pub use crate::machine::{Machine, Progress, get, set};
use crate::machine::{RAX, flag, mask};
use crate::operation::{Alu, Bit, Gpr, Kind, Operation, Source, Unary};
use crate::strings;

fn sign_extend(value: u64, size: u8) -> u64 {
    let shift = 64 - u32::from(size.min(8)) * 8;
    ((value << shift) as i64 >> shift) as u64
}

fn value(machine: &impl Machine, source: Source, size: u8) -> u64 {
    match source {
        Source::Register(gpr) => get(machine, gpr) & mask(size),
        Source::Immediate(value) => value & mask(size),
    }
}

/// Carries an operation out. `write` says whether a write has reached the device, which tells the sides of a MOVS apart.
///
/// # Errors
/// The other side of a string instruction faults; nothing has been done then.
pub fn execute<M: Machine>(
    machine: &mut M,
    operation: &Operation,
    write: bool,
) -> Result<Progress, M::Error> {
    let size = operation.size;
    match operation.kind {
        Kind::Load { to, signed } => {
            let read = machine.read(size);
            set(machine, to, if signed { sign_extend(read, size) } else { read & mask(size) });
        }
        Kind::Store(source) => {
            let stored = value(machine, source, size);
            machine.write(size, stored);
        }
        Kind::ToMemory(alu, source) => {
            let (first, second) = (machine.read(size) & mask(size), value(machine, source, size));
            let result = compute(machine, alu, first, second, size);
            machine.write(size, result);
        }
        Kind::ToRegister(alu, to) => {
            let (first, second) = (get(machine, to), machine.read(size) & mask(size));
            let result = compute(machine, alu, first, second, size);
            set(machine, to, result);
        }
        Kind::Compare { alu, with, memory_first } => {
            let (read, other) = (machine.read(size) & mask(size), value(machine, with, size));
            let (first, second) = if memory_first { (read, other) } else { (other, read) };
            compute(machine, alu, first, second, size);
        }
        Kind::Unary(kind) => unary(machine, kind, size),
        Kind::Exchange(gpr) => {
            let (read, stored) = (machine.read(size), get(machine, gpr));
            machine.write(size, stored);
            set(machine, gpr, read);
        }
        Kind::ExchangeAdd(gpr) => {
            let (read, added) = (machine.read(size) & mask(size), get(machine, gpr));
            let result = compute(machine, Alu::Add, read, added, size);
            machine.write(size, result);
            set(machine, gpr, read);
        }
        Kind::CompareExchange(gpr) => compare_exchange(machine, gpr, size),
        Kind::Bit(kind, source) => bit(machine, kind, source, size),
        Kind::StringMove(strings) => return strings::copy(machine, strings, size, write),
        Kind::StringStore(strings) => return Ok(strings::store(machine, strings, size)),
        Kind::StringLoad(strings) => return Ok(strings::load(machine, strings, size)),
        Kind::StringCompare(strings) => return strings::compare(machine, strings, size),
        Kind::StringScan(strings) => return Ok(strings::scan(machine, strings, size)),
    }
    Ok(Progress::Next)
}

fn unary(machine: &mut impl Machine, kind: Unary, size: u8) {
    let read = machine.read(size) & mask(size);
    let (result, flags, changed) = match kind {
        // INC and DEC leave the carry alone.
        Unary::Inc => with(combine(Alu::Add, read, 1, size, false), flag::ARITHMETIC & !flag::CARRY),
        Unary::Dec => with(combine(Alu::Sub, read, 1, size, false), flag::ARITHMETIC & !flag::CARRY),
        Unary::Neg => with(combine(Alu::Sub, 0, read, size, false), flag::ARITHMETIC),
        Unary::Not => (!read & mask(size), 0, 0),
    };
    set_arithmetic(machine, changed, flags);
    machine.write(size, result);
}

fn with((result, flags): (u64, u64), changed: u64) -> (u64, u64, u64) {
    (result, flags, changed)
}

fn compare_exchange(machine: &mut impl Machine, gpr: Gpr, size: u8) {
    let accumulator = Gpr { number: RAX, size, high: false };
    let read = machine.read(size) & mask(size);
    let expected = get(machine, accumulator);
    compute(machine, Alu::Sub, expected, read, size);
    if expected == read {
        let stored = get(machine, gpr);
        machine.write(size, stored);
    } else {
        // The hardware writes what it has read.
        machine.write(size, read);
        set(machine, accumulator, read);
    }
}

/// A bit offset in a register reaches beyond the operand: the hardware has said which unit was accessed, and the rest of
/// the offset is in it.
fn bit(machine: &mut impl Machine, kind: Bit, source: Source, size: u8) {
    let selected = 1 << (value(machine, source, size) & (u64::from(size) * 8 - 1));
    let read = machine.read(size) & mask(size);
    set_arithmetic(machine, flag::CARRY, if read & selected != 0 { flag::CARRY } else { 0 });
    let result = match kind {
        Bit::Test => return,
        Bit::Set => read | selected,
        Bit::Reset => read & !selected,
        Bit::Complement => read ^ selected,
    };
    machine.write(size, result);
}
