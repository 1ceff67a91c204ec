// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Which general registers an A64 instruction changes, as far as hypervisor code without FP has such instructions.

/// The bit of the stack pointer in a set of registers; those of x0 to x30 are their numbers.
pub(super) const SP: u32 = 1 << 31;

/// The registers that an instruction changes, as a set; `None` if this does not know it.
///
/// By the main encoding table of the Arm ARM (C4.1). A branch with link changes x30; where it leads is the caller's business.
pub(super) fn changed(word: u32) -> Option<u32> {
    match word >> 25 & 15 {
        0b1000 | 0b1001 => Some(immediate(word)),
        0b1010 | 0b1011 => branch_or_system(word),
        0b0100 | 0b0110 | 0b1100 | 0b1110 => memory(word),
        0b0101 | 0b1101 => register(word),
        _ => None,
    }
}

/// A register where 31 is the zero register.
const fn or_zero(n: u32) -> u32 {
    if n & 31 == 31 { 0 } else { 1 << (n & 31) }
}

/// A register where 31 is the stack pointer.
const fn or_sp(n: u32) -> u32 {
    1 << (n & 31)
}

/// Data processing with an immediate: the destination is in the lowest bits.
fn immediate(word: u32) -> u32 {
    let sets_flags = match word >> 23 & 7 {
        // Add and subtract, with and without tags: bit 29.
        0b010 | 0b011 => word >> 29 & 1 != 0,
        // Logical: ANDS alone.
        0b100 => word >> 29 & 3 == 3,
        // Addresses, moves, bit fields, extracts.
        _ => true,
    };
    if sets_flags { or_zero(word) } else { or_sp(word) }
}

/// Branches, exceptions, hints, barriers, PSTATE and system registers.
fn branch_or_system(word: u32) -> Option<u32> {
    let is = |mask: u32, value: u32| word & mask == value;
    if is(0xfc00_0000, 0x9400_0000) || is(0xffff_fc1f, 0xd63f_0000) {
        return Some(1 << 30); // BL, BLR
    }
    let plain = is(0xfc00_0000, 0x1400_0000) // B
        || is(0xff00_0000, 0x5400_0000) // B.cond
        || is(0x7e00_0000, 0x3400_0000) // CBZ, CBNZ
        || is(0x7e00_0000, 0x3600_0000) // TBZ, TBNZ
        || is(0xffff_fc1f, 0xd61f_0000) // BR
        || is(0xffff_fc1f, 0xd65f_0000) // RET
        || is(0xffff_ffff, 0xd69f_03e0) // ERET
        || is(0xffe0_001f, 0xd420_0000) // BRK
        || is(0xffff_ffff, 0xd503_201f) // NOP
        || is(0xffff_f01f, 0xd503_301f) // CLREX, DSB, DMB, ISB
        || is(0xfff0_0000, 0xd510_0000) // MSR (register)
        || is(0xfff8_f01f, 0xd500_401f); // MSR (immediate)
    match plain {
        true => Some(0),
        false if is(0xfff0_0000, 0xd530_0000) => Some(or_zero(word)), // MRS
        false => None,
    }
}

/// Loads and stores of general registers.
fn memory(word: u32) -> Option<u32> {
    let is_vector = word >> 26 & 1 != 0;
    let (rt, rn, rt2, rs) = (or_zero(word), or_sp(word >> 5), or_zero(word >> 10), or_zero(word >> 16));
    if is_vector {
        return None;
    }
    match word >> 28 & 3 {
        // Exclusives and ordered accesses; bit 22 says that it loads, bit 23 that it is not exclusive.
        0b00 if word >> 24 & 1 == 0 => {
            let (loads, exclusive, pair) = (word >> 22 & 1 != 0, word >> 23 & 1 == 0, word >> 21 & 1 != 0);
            match (loads, exclusive, pair) {
                (true, _, false) => Some(rt),
                (true, true, true) => Some(rt | rt2),
                (false, true, _) => Some(rs),
                (false, false, false) => Some(0),
                // Compare and swap.
                _ => None,
            }
        }
        // Literals; the highest two bits say that it is a prefetch.
        0b01 if word >> 24 & 1 == 0 => Some(if word >> 30 == 3 { 0 } else { rt }),
        // Pairs: bits 24:23 say where the address comes from, odd with write-back.
        0b10 => {
            let back = if word >> 23 & 1 != 0 { rn } else { 0 };
            Some(if word >> 22 & 1 != 0 { rt | rt2 } else { 0 } | back)
        }
        // One register: with an unsigned offset, or by bits 11:10.
        0b11 => {
            let prefetch = word >> 22 == 0b11_1110_0110 || word >> 22 == 0b11_1110_0010;
            let loaded = if word >> 22 & 3 == 0 || prefetch { 0 } else { rt };
            match (word >> 24 & 1, word >> 21 & 1, word >> 10 & 3) {
                (1, ..) | (0, 0, 0) | (0, 1, 2) => Some(loaded),
                (0, 0, 1 | 3) => Some(loaded | rn),
                // Atomic operations: what was there.
                (0, 1, 0) => Some(rt),
                _ => None,
            }
        }
        _ => None,
    }
}

/// Data processing of registers: the destination is in the lowest bits, but for conditional comparisons.
fn register(word: u32) -> Option<u32> {
    match word >> 21 & 0xff {
        // CCMP, CCMN.
        0b1101_0010 => Some(0),
        // Add and subtract of an extended register: without flags, to the stack pointer.
        0b0101_1001 if word >> 29 & 1 == 0 => Some(or_sp(word)),
        // RMIF, SETF8, SETF16, which are beside the additions with carry.
        0b1101_0000 if word >> 10 & 0x3f != 0 => None,
        _ => Some(or_zero(word)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sets of some instructions, as an assembler makes them.
    #[test]
    fn destinations_are_found() {
        let set = |registers: &[u32]| registers.iter().fold(0, |set, n| set | 1 << n);
        for (word, expected, what) in [
            (0x9100_43ff, vec![31], "add sp, sp, #16"),
            (0xb100_105f, vec![], "cmn x2, #4"),
            (0x1000_004b, vec![11], "adr x11"),
            (0xd280_0028, vec![8], "mov x8, #1"),
            (0x5319_7d08, vec![8], "lsr w8, w8, #25"),
            (0xf240_0c1f, vec![], "tst x0, #15"),
            (0x9240_0c08, vec![8], "and x8, x0, #15"),
            (0xd503_3bbf, vec![], "dmb ish"),
            (0xd538_4028, vec![8], "mrs x8, elr_el1"),
            (0xd518_4028, vec![], "msr elr_el1, x8"),
            (0x9400_0004, vec![30], "bl"),
            (0xd63f_0060, vec![30], "blr x3"),
            (0xd65f_03c0, vec![], "ret"),
            (0x3600_0028, vec![], "tbz w8, #0"),
            (0xf940_7c08, vec![8], "ldr x8, [x0, #248]"),
            (0xf900_0008, vec![], "str x8, [x0]"),
            (0xf840_8d69, vec![9, 11], "ldr x9, [x11, #8]!"),
            (0x7878_7808, vec![8], "ldrh w8, [x0, x24, lsl #1]"),
            (0x2940_250a, vec![9, 10], "ldp w10, w9, [x8]"),
            (0xa901_0801, vec![], "stp x1, x2, [x0, #16]"),
            (0xa9bf_7bfd, vec![31], "stp x29, x30, [sp, #-16]!"),
            (0x885f_7d6c, vec![12], "ldxr w12, [x11]"),
            (0x880e_fd6d, vec![14], "stlxr w14, w13, [x11]"),
            (0x88df_fd6d, vec![13], "ldar w13, [x11]"),
            (0x889f_fd6d, vec![], "stlr w13, [x11]"),
            (0xb868_0029, vec![9], "ldadd w8, w9, [x1]"),
            (0xfa49_0104, vec![], "ccmp x8, x9, #4, eq"),
            (0x8b29_6bff, vec![31], "add sp, sp, x9, uxtx #2"),
            (0xeb0a_019f, vec![], "cmp x12, x10"),
            (0x9b2d_7d0a, vec![10], "smull x10, w8, w13"),
            (0x5ac0_016b, vec![11], "rbit w11, w11"),
            (0xda9f_0128, vec![8], "csinv x8, x9, xzr, eq"),
        ] {
            assert_eq!(changed(word), Some(set(&expected)), "{what}");
        }
        for (word, what) in [
            (0xd503_233f, "paciasp"),
            (0xd508_711f, "ic ialluis"),
            (0x3dc0_0000, "ldr q0, [x0]"),
            (0x9e66_0000, "fmov x0, d0"),
        ] {
            assert_eq!(changed(word), None, "{what}");
        }
    }
}
