// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Carrying an operation out on a device (APM vol. 3, chapter 3).
//!
//! An operation with a result reads and writes the device once each. LOCK is granted: a device sees one access at a time.
//! Of a repeated string instruction one element is moved; the instruction is executed again for the others, as after an
//! interrupt.

use crate::operation::{Alu, Bit, Gpr, Kind, Operation, Source, Strings, Unary};

/// RFLAGS bits that operations change.
mod flag {
    pub const CARRY: u64 = 1;
    pub const PARITY: u64 = 1 << 2;
    pub const ADJUST: u64 = 1 << 4;
    pub const ZERO: u64 = 1 << 6;
    pub const SIGN: u64 = 1 << 7;
    pub const DIRECTION: u64 = 1 << 10;
    pub const OVERFLOW: u64 = 1 << 11;
    pub const ARITHMETIC: u64 = CARRY | PARITY | ADJUST | ZERO | SIGN | OVERFLOW;
}

/// Numbers of registers with a part of their own.
const RAX: u8 = 0;
const RCX: u8 = 1;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// The vCPU and the device that was reached.
pub trait Machine {
    /// Why the other side of a string instruction cannot be reached.
    type Error;

    /// Reads a general register.
    fn register(&self, number: u8) -> u64;
    /// Writes a general register.
    fn set_register(&mut self, number: u8, value: u64);
    /// RFLAGS.
    fn flags(&self) -> u64;
    /// Sets RFLAGS.
    fn set_flags(&mut self, flags: u64);
    /// Reads the device.
    fn read(&mut self, size: u8) -> u64;
    /// Writes the device.
    fn write(&mut self, size: u8, value: u64);
    /// Reads from an offset in a segment (0 to 5 for ES, CS, SS, DS, FS, GS).
    ///
    /// # Errors
    /// The access faults.
    fn load(&mut self, segment: u8, offset: u64, size: u8) -> Result<u64, Self::Error>;
    /// Writes to an offset in ES. Of zero bytes: only finds out whether a write faults.
    ///
    /// # Errors
    /// The access faults.
    fn store(&mut self, offset: u64, size: u8, value: u64) -> Result<(), Self::Error>;
}

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// The next instruction.
    Next,
    /// The same instruction: elements are left.
    Again,
}

fn mask(size: u8) -> u64 {
    if size >= 8 { u64::MAX } else { (1 << (u32::from(size) * 8)) - 1 }
}

fn sign_extend(value: u64, size: u8) -> u64 {
    let shift = 64 - u32::from(size.min(8)) * 8;
    ((value << shift) as i64 >> shift) as u64
}

/// Reads a register, or a part of one.
pub fn get(machine: &impl Machine, gpr: Gpr) -> u64 {
    machine.register(gpr.number) >> if gpr.high { 8 } else { 0 } & mask(gpr.size)
}

/// Writes a register, or a part of one: a part of four bytes clears the others.
pub fn set(machine: &mut impl Machine, gpr: Gpr, value: u64) {
    let old = machine.register(gpr.number);
    let new = match (gpr.size, gpr.high) {
        (1, true) => old & !0xff00 | (value & 0xff) << 8,
        (1, false) => old & !0xff | value & 0xff,
        (2, _) => old & !0xffff | value & 0xffff,
        (size, _) => value & mask(size),
    };
    machine.set_register(gpr.number, new);
}

fn value(machine: &impl Machine, source: Source, size: u8) -> u64 {
    match source {
        Source::Register(gpr) => get(machine, gpr) & mask(size),
        Source::Immediate(value) => value & mask(size),
    }
}

/// ZF, SF and PF of a result.
fn result_flags(result: u64, size: u8) -> u64 {
    let mut flags = 0;
    if result & mask(size) == 0 {
        flags |= flag::ZERO;
    }
    if result >> (u32::from(size) * 8 - 1) & 1 != 0 {
        flags |= flag::SIGN;
    }
    if (result as u8).count_ones().is_multiple_of(2) {
        flags |= flag::PARITY;
    }
    flags
}

/// Combines two operands: the result, and the arithmetic flags.
fn combine(alu: Alu, first: u64, second: u64, size: u8, carry: bool) -> (u64, u64) {
    let carry = u128::from(carry);
    let (a, b) = (u128::from(first), u128::from(second));
    let wide = match alu {
        Alu::Add => a + b,
        Alu::Adc => a + b + carry,
        Alu::Sub => a.wrapping_sub(b),
        Alu::Sbb => a.wrapping_sub(b).wrapping_sub(carry),
        Alu::And => a & b,
        Alu::Or => a | b,
        Alu::Xor => a ^ b,
    };
    let result = wide as u64 & mask(size);
    let mut flags = result_flags(result, size);
    if !matches!(alu, Alu::And | Alu::Or | Alu::Xor) {
        let top = 1 << (u32::from(size) * 8 - 1);
        let (signs, changed) = (first ^ second, first ^ result);
        let overflows = match alu {
            Alu::Add | Alu::Adc => !signs & changed & top != 0,
            _ => signs & changed & top != 0,
        };
        // A borrow reaches all bits above the operand, a carry the next one.
        if wide >> (u32::from(size) * 8) & 1 != 0 {
            flags |= flag::CARRY;
        }
        if (first ^ second ^ result) & 0x10 != 0 {
            flags |= flag::ADJUST;
        }
        if overflows {
            flags |= flag::OVERFLOW;
        }
    }
    (result, flags)
}

fn set_arithmetic(machine: &mut impl Machine, changed: u64, flags: u64) {
    let old = machine.flags();
    machine.set_flags(old & !changed | flags & changed);
}

fn compute(machine: &mut impl Machine, alu: Alu, first: u64, second: u64, size: u8) -> u64 {
    let carry = machine.flags() & flag::CARRY != 0;
    let (result, flags) = combine(alu, first, second, size, carry);
    set_arithmetic(machine, flag::ARITHMETIC, flags);
    result
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
        Kind::StringMove(strings) => return string_move(machine, strings, size, write),
        Kind::StringStore(strings) => {
            if count(machine, strings) == 0 {
                return Ok(Progress::Next);
            }
            let stored = machine.register(RAX) & mask(size);
            machine.write(size, stored);
            advance(machine, strings, size, RDI);
            return Ok(repeat(machine, strings));
        }
        Kind::StringLoad(strings) => {
            if count(machine, strings) == 0 {
                return Ok(Progress::Next);
            }
            let read = machine.read(size);
            set(machine, Gpr { number: RAX, size, high: false }, read);
            advance(machine, strings, size, RSI);
            return Ok(repeat(machine, strings));
        }
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

fn string_move<M: Machine>(
    machine: &mut M,
    strings: Strings,
    size: u8,
    write: bool,
) -> Result<Progress, M::Error> {
    if count(machine, strings) == 0 {
        return Ok(Progress::Next);
    }
    let address = |machine: &M, register| machine.register(register) & mask(strings.address_size);
    if write {
        let moved = machine.load(strings.segment, address(machine, RSI), size)?;
        machine.write(size, moved);
    } else {
        // The store may fault: nothing may have been read by then that the device would miss.
        let to = address(machine, RDI);
        machine.store(to, 0, 0)?;
        let moved = machine.read(size);
        machine.store(to, size, moved)?;
    }
    advance(machine, strings, size, RSI);
    advance(machine, strings, size, RDI);
    Ok(repeat(machine, strings))
}

/// How many elements are left: of an instruction that is not repeated, one.
fn count(machine: &impl Machine, strings: Strings) -> u64 {
    if strings.repeated { machine.register(RCX) & mask(strings.address_size) } else { 1 }
}

/// Adds to an address register, of which the address size is what changes.
fn add(machine: &mut impl Machine, strings: Strings, register: u8, difference: u64) {
    let gpr = Gpr { number: register, size: strings.address_size, high: false };
    let sum = get(machine, gpr).wrapping_add(difference);
    set(machine, gpr, sum);
}

fn advance(machine: &mut impl Machine, strings: Strings, size: u8, register: u8) {
    let down = machine.flags() & flag::DIRECTION != 0;
    let step = u64::from(size);
    add(machine, strings, register, if down { step.wrapping_neg() } else { step });
}

fn repeat(machine: &mut impl Machine, strings: Strings) -> Progress {
    if !strings.repeated {
        return Progress::Next;
    }
    add(machine, strings, RCX, u64::MAX);
    if count(machine, strings) == 0 { Progress::Next } else { Progress::Again }
}
