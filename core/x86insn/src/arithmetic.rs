// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Results and flags of two operands (APM vol. 1, 3.1.4).

use crate::machine::{Machine, flag, mask};
use crate::operation::Alu;

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
pub(crate) fn combine(alu: Alu, first: u64, second: u64, size: u8, carry: bool) -> (u64, u64) {
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

pub(crate) fn set_arithmetic(machine: &mut impl Machine, changed: u64, flags: u64) {
    let old = machine.flags();
    machine.set_flags(old & !changed | flags & changed);
}

pub(crate) fn compute(machine: &mut impl Machine, alu: Alu, first: u64, second: u64, size: u8) -> u64 {
    let carry = machine.flags() & flag::CARRY != 0;
    let (result, flags) = combine(alu, first, second, size, carry);
    set_arithmetic(machine, flag::ARITHMETIC, flags);
    result
}
