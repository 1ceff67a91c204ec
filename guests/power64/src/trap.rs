// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Exceptions that are expected: the code that raises one is left as by a return, with all registers that a function
//! keeps as they were, stack pointer and machine state included.

use core::arch::global_asm;
use core::fmt;
use core::mem::offset_of;

use turnstile_guests_common::call;
use turnstile_guests_common::trap::Record;

use crate::cpu::{self, Cpu, msr, spr};
use crate::frame::{Frame, vector};
use crate::mfspr;

/// An exception that was taken.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Trap {
    /// Its vector.
    pub vector: u64,
    /// DSISR of a data storage interrupt, else SRR1.
    pub status: u64,
    /// DAR of a data storage or alignment interrupt.
    pub address: u64,
    /// Where it happened.
    pub nip: u64,
}

impl fmt::Display for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { vector, status, address, nip } = self;
        write!(f, "exception {vector:#x} ({status:#x}) of {address:#x} at {nip:#x}")
    }
}

global_asm!(
    r#"
    .section .text.trap, "ax"
    .global trap_call, trap_return
    .balign 16
trap_call:                          // r3 = function, r4 = its argument; returns whether it was left by an exception
    mflr    0
    std     0, 16(1)
    mfcr    0
    std     0, 8(1)
    stdu    1, -224(1)
    .irp    n, 14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    std     \n, 48 + 8 * (\n - 14)(1)
    .endr
    std     2, 24(1)
    mfmsr   0
    std     0, 40(1)
    ld      0, {stack}(13)
    std     0, 32(1)
    std     1, {stack}(13)
    mr      12, 3
    mtctr   3
    mr      3, 4
    bctrl
    li      3, 0
trap_return:
    ld      2, 24(1)
    ld      0, 32(1)
    std     0, {stack}(13)
    ld      0, 40(1)
    mtmsrd  0
    .irp    n, 14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    ld      \n, 48 + 8 * (\n - 14)(1)
    .endr
    addi    1, 1, 224
    ld      0, 8(1)
    mtcr    0
    ld      0, 16(1)
    mtlr    0
    blr
    "#,
    stack = const offset_of!(Cpu, trap) + offset_of!(Record, stack),
);

unsafe extern "C" {
    fn trap_call(function: extern "C" fn(*mut u8), argument: *mut u8) -> u64;
    fn trap_return();
}

/// Leaves the code that expected this exception; says whether there was any.
pub fn take(frame: &mut Frame) -> bool {
    let record = &cpu::this().trap;
    let Some(stack) = record.expected() else { return false };
    let status = match frame.vector {
        vector::DATA_STORAGE | vector::ALIGNMENT => mfspr!(spr::DSISR),
        _ => frame.msr,
    };
    record.enter([frame.vector, status, mfspr!(spr::DAR), frame.nip]);
    frame.nip = trap_return as *const () as u64;
    frame.msr = msr::USUAL;
    let [_, r1, _, r3, ..] = &mut frame.registers;
    *r1 = stack;
    *r3 = 1;
    frame.registers[13] = &raw const *cpu::this() as u64;
    true
}

/// Calls a function; returns what it returned, or the exception that it was left by. What it would have dropped stays.
pub fn expect<T>(function: impl FnOnce() -> T) -> Result<T, Trap> {
    // SAFETY: `trap_call` calls the function with its argument, once.
    let result = unsafe { call::by(|function, argument| trap_call(function, argument) == 0, function) };
    result.ok_or_else(|| {
        let [vector, status, address, nip] = cpu::this().trap.came();
        Trap { vector, status, address, nip }
    })
}

/// Calls a function; returns the exception that it was left by.
pub fn caught(function: impl FnOnce()) -> Option<Trap> {
    expect(function).err()
}
