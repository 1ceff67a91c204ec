// SPDX-License-Identifier: Apache-2.0 OR MIT
//! String instructions (APM vol. 3, chapter 3): one element, and what is left.
//!
//! A repeated instruction handles one element at a time, and is executed again for the others, as after an interrupt.

use crate::arithmetic::compute;
use crate::machine::{Machine, Progress, RAX, flag, get, mask, set};
use crate::operation::{Alu, Gpr, Repeat, Strings};

/// The number of ES.
const ES: u8 = 0;
/// Numbers of registers with a part of their own.
const RCX: u8 = 1;
const RSI: u8 = 6;
const RDI: u8 = 7;

/// MOVS. `write` says whether the device is where it writes.
pub(crate) fn copy<M: Machine>(
    machine: &mut M,
    strings: Strings,
    size: u8,
    write: bool,
) -> Result<Progress, M::Error> {
    if count(machine, strings) == 0 {
        return Ok(Progress::Next);
    }
    if write {
        let moved = machine.load(strings.segment, offset(machine, strings, RSI), size)?;
        machine.write(size, moved);
    } else {
        // The store may fault: nothing may have been read by then that the device would miss.
        let to = offset(machine, strings, RDI);
        machine.probe(ES, to, size, true)?;
        let moved = machine.read(size);
        machine.store(to, size, moved)?;
    }
    advance(machine, strings, size, RSI);
    advance(machine, strings, size, RDI);
    Ok(repeat(machine, strings))
}

/// STOS.
pub(crate) fn store(machine: &mut impl Machine, strings: Strings, size: u8) -> Progress {
    if count(machine, strings) == 0 {
        return Progress::Next;
    }
    let stored = machine.register(RAX) & mask(size);
    machine.write(size, stored);
    advance(machine, strings, size, RDI);
    repeat(machine, strings)
}

/// LODS.
pub(crate) fn load(machine: &mut impl Machine, strings: Strings, size: u8) -> Progress {
    if count(machine, strings) == 0 {
        return Progress::Next;
    }
    let read = machine.read(size);
    set(machine, Gpr { number: RAX, size, high: false }, read);
    advance(machine, strings, size, RSI);
    repeat(machine, strings)
}

/// CMPS. Both sides are read, and which of them is the device is not said: both are found by their addresses.
pub(crate) fn compare<M: Machine>(machine: &mut M, strings: Strings, size: u8) -> Result<Progress, M::Error> {
    if count(machine, strings) == 0 {
        return Ok(Progress::Next);
    }
    let (first, second) = (offset(machine, strings, RSI), offset(machine, strings, RDI));
    // If the second one faults, nothing may have been read by then that a device would miss.
    machine.probe(strings.segment, first, size, false)?;
    machine.probe(ES, second, size, false)?;
    let first = machine.load(strings.segment, first, size)?;
    let second = machine.load(ES, second, size)?;
    compute(machine, Alu::Sub, first & mask(size), second & mask(size), size);
    advance(machine, strings, size, RSI);
    advance(machine, strings, size, RDI);
    Ok(repeat_comparison(machine, strings))
}

/// SCAS.
pub(crate) fn scan(machine: &mut impl Machine, strings: Strings, size: u8) -> Progress {
    if count(machine, strings) == 0 {
        return Progress::Next;
    }
    let (first, second) = (machine.register(RAX) & mask(size), machine.read(size) & mask(size));
    compute(machine, Alu::Sub, first, second, size);
    advance(machine, strings, size, RDI);
    repeat_comparison(machine, strings)
}

/// The offset in an address register.
fn offset(machine: &impl Machine, strings: Strings, register: u8) -> u64 {
    machine.register(register) & mask(strings.address_size)
}

/// How many elements are left: of an instruction that is not repeated, one.
fn count(machine: &impl Machine, strings: Strings) -> u64 {
    if strings.repeat == Repeat::Once { 1 } else { offset(machine, strings, RCX) }
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
    if strings.repeat == Repeat::Once {
        return Progress::Next;
    }
    add(machine, strings, RCX, u64::MAX);
    if count(machine, strings) == 0 { Progress::Next } else { Progress::Again }
}

/// [`repeat`] of a comparison, whose result may end it, too.
fn repeat_comparison(machine: &mut impl Machine, strings: Strings) -> Progress {
    let equal = machine.flags() & flag::ZERO != 0;
    match (repeat(machine, strings), strings.repeat) {
        (Progress::Again, Repeat::Equal) if !equal => Progress::Next,
        (Progress::Again, Repeat::Different) if equal => Progress::Next,
        (progress, _) => progress,
    }
}
