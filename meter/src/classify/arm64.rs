// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A64 instructions by class, from the top-level encodings of the Arm ARM (chapter C4).
//!
//! Not told apart: SME's loads and stores (none), and SVE's prefetches (loads).

use turnstile_trapmap::SysReg;

use super::{Class, Effect, arm64_names};

/// The stack pointer as a base register.
const SP: u32 = 31;

/// Says what an instruction does.
pub fn classify(word: u32) -> Effect {
    match word >> 25 & 0xf {
        0b1010 | 0b1011 => branch_or_system(word),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory(word),
        0b0010 if word >> 31 == 1 => scalable_memory(word),
        _ => Effect::default(),
    }
}

const fn bit(word: u32, at: u32) -> bool {
    word >> at & 1 != 0
}

const fn is(word: u32, mask: u32, value: u32) -> bool {
    word & mask == value
}

fn branch_or_system(word: u32) -> Effect {
    if word >> 22 == 0b11_0101_0100 {
        return system(word);
    }
    // MRRS, MSRR: pairs of general registers to and from 128-bit registers.
    if word >> 22 == 0b11_0101_0101 && bit(word, 20) {
        return register(word);
    }
    // ERET, ERETAA, ERETAB; DRPS is 0xd6bf_03e0.
    if is(word, 0xffff_f3ff, 0xd69f_03e0) || is(word, 0xffff_fbff, 0xd69f_0bff) {
        return Effect::of(Class::ExceptionReturns);
    }
    let is_branch = is(word, 0x7c00_0000, 0x1400_0000) // B, BL
        || is(word, 0xff00_0000, 0x5400_0000) // B.cond, BC.cond
        || is(word, 0x7e00_0000, 0x3400_0000) // CBZ, CBNZ
        || is(word, 0x7e00_0000, 0x3600_0000) // TBZ, TBNZ
        || is(word, 0xfe80_0000, 0xd600_0000) && word >> 21 & 3 != 3; // BR, BLR, RET and their authenticating forms
    if is_branch { Effect::of(Class::Branches) } else { Effect::default() }
}

/// The system instruction class: hints, barriers, PSTATE, SYS, MRS and MSR.
fn system(word: u32) -> Effect {
    let (op1, crn, op2) = ((word >> 16 & 7) as u8, word >> 12 & 15, (word >> 5 & 7) as u8);
    match (word >> 19 & 3, crn) {
        (0, 3) => match op2 {
            1 | 4 => Effect::of(Class::Dsb),
            5 => Effect::of(Class::Dmb),
            6 => Effect::of(Class::Isb),
            _ => Effect::default(),
        },
        (0, 4) => match arm64_names::immediate(op1, op2) {
            Some(name) => Effect::register(true, name, !arm64_names::is_scratch(name)),
            None => Effect::default(),
        },
        (1, 7) => match word >> 8 & 15 {
            1 | 4..=6 | 10..=14 => Effect::of(Class::Cache),
            8 | 9 => Effect::of(Class::At),
            _ => Effect::default(),
        },
        (1, 8 | 9) => Effect::of(Class::Tlbi),
        (2 | 3, _) => register(word),
        _ => Effect::default(),
    }
}

/// MRS, MSR (register), MRRS, MSRR.
fn register(word: u32) -> Effect {
    let field = |at: u32, bits: u32| (word >> at & ((1 << bits) - 1)) as u8;
    let encoding = SysReg::new(2 + field(19, 1), field(16, 3), field(12, 4), field(8, 4), field(5, 3));
    let name = arm64_names::register(encoding);
    let is_irqchip = ["ICC_", "ICH_", "ICV_"].iter().any(|prefix| name.starts_with(prefix));
    let hardware = !arm64_names::is_scratch(&name);
    let write = !bit(word, 21);
    let effect = Effect::register(write, name, hardware);
    match (is_irqchip, write) {
        (true, false) => effect.and(Class::IrqchipReads),
        (true, true) => effect.and(Class::IrqchipWrites),
        (false, _) => effect,
    }
}

/// Loads and stores. What is on the stack is no device, and so are literals.
fn memory(word: u32) -> Effect {
    let mut effect = match (word >> 28 & 3, word >> 24 & 3) {
        (0, 0..=1) if bit(word, 26) => structures(word),
        (0, 0 | 1) => exclusive(word),
        (1, 0) => Effect::memory(!is(word, 0xff00_0000, 0xd800_0000), false), // literals but PRFM
        (1, 1) => ordered_or_tagged(word),
        (2, _) => Effect::memory(bit(word, 22), !bit(word, 22)), // pairs
        (3, 0) if bit(word, 21) && word >> 10 & 3 == 0 => atomic(word),
        // Loads with pointer authentication.
        (3, 0) if bit(word, 21) && bit(word, 10) => Effect::memory(true, false),
        (3, 0 | 1) => single(word),
        _ => Effect::default(),
    };
    effect.may_be_device &= word >> 5 & 31 != SP && !is(word, 0x3b00_0000, 0x1800_0000);
    effect
}

/// One register, in all its addressing modes.
fn single(word: u32) -> Effect {
    let (size, vector, opc) = (word >> 30, bit(word, 26), word >> 22 & 3);
    match (opc, vector) {
        (2, false) if size == 3 => Effect::default(), // PRFM, PRFUM
        (0, _) | (2, true) => Effect::memory(false, true),
        _ => Effect::memory(true, false),
    }
}

/// Exclusives, load-acquire, store-release, compare and swap.
fn exclusive(word: u32) -> Effect {
    let (load, ordered, swap) = (bit(word, 22), bit(word, 23), bit(word, 21));
    let unprivileged_swap = ordered && bit(word, 24);
    let pair_swap = !ordered && swap && !bit(word, 31);
    if pair_swap || unprivileged_swap || ordered && swap {
        return Effect::memory(true, true).and(Class::Atomics);
    }
    let effect = Effect::memory(load, !load);
    if !ordered && !load { effect.and(Class::Atomics) } else { effect }
}

/// LDAPUR and STLUR, LDIAPP and STILP, memory tags, memory copy and set, and the atomics of 128 bits and of
/// unprivileged accesses.
fn ordered_or_tagged(word: u32) -> Effect {
    if word >> 10 & 3 == 1 && !bit(word, 21) {
        // op1 3 is SET; the others copy.
        return Effect::memory(word >> 22 & 3 != 3, true);
    }
    if !bit(word, 21) {
        let load = if word >> 10 & 3 == 0 { word >> 22 & 3 != 0 } else { bit(word, 22) };
        return Effect::memory(load, !load);
    }
    if word >> 24 != 0xd9 {
        return Effect::memory(true, true).and(Class::Atomics);
    }
    // LDG and LDGM load tags; the others store them.
    let (opc, mode) = (word >> 22 & 3, word >> 10 & 3);
    let load = mode == 0 && matches!(opc, 1 | 3);
    Effect::memory(load, !load)
}

/// Atomic memory operations, and what shares their encodings: LDAPR, LD64B, ST64B.
fn atomic(word: u32) -> Effect {
    let (acquire, release, o3, opc) = (bit(word, 23), bit(word, 22), bit(word, 15), word >> 12 & 7);
    match (o3, opc, acquire || release) {
        _ if bit(word, 26) => Effect::memory(true, true).and(Class::Atomics), // on floating-point numbers
        (true, 4, _) if acquire && !release => Effect::memory(true, false),   // LDAPR
        (true, 5, false) => Effect::memory(true, false),                      // LD64B
        (true, 1..=3, false) if word >> 30 == 3 => Effect::memory(false, true), // ST64B, ST64BV, ST64BV0
        _ => Effect::memory(true, true).and(Class::Atomics),
    }
}

/// Advanced SIMD structures.
fn structures(word: u32) -> Effect {
    if bit(word, 31) {
        return Effect::default();
    }
    Effect::memory(bit(word, 22), !bit(word, 22))
}

/// SVE's loads and stores: bits 31 to 29 are 100, 101, 110 for loads and 111 for stores.
fn scalable_memory(word: u32) -> Effect {
    let store = word >> 29 == 7;
    let mut effect = Effect::memory(!store, store);
    effect.may_be_device = false;
    effect
}

#[cfg(test)]
mod tests;
