// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Keys of pointer authentication, and what they make of a value.

use core::arch::asm;

use super::{field, word};
use crate::{read_sysreg, write_sysreg};

/// Calls a macro with the register of each half of each key, and a number.
macro_rules! each_half {
    ($do:ident) => {
        $do! {
            "S3_0_C2_C1_0" 0, "S3_0_C2_C1_1" 1, "S3_0_C2_C1_2" 2, "S3_0_C2_C1_3" 3, "S3_0_C2_C2_0" 4,
            "S3_0_C2_C2_1" 5, "S3_0_C2_C2_2" 6, "S3_0_C2_C2_3" 7, "S3_0_C2_C3_0" 8, "S3_0_C2_C3_1" 9
        }
    };
}

/// Says whether this machine has pointer authentication.
pub fn exists() -> bool {
    let (isar1, isar2) = (read_sysreg!("id_aa64isar1_el1"), read_sysreg!("S3_0_C0_C6_2"));
    [4, 8].iter().any(|shift| field(isar1, *shift) != 0) || field(isar2, 12) != 0
}

/// Says whether it has the generic code, PACGA.
pub fn has_generic() -> bool {
    let (isar1, isar2) = (read_sysreg!("id_aa64isar1_el1"), read_sysreg!("S3_0_C0_C6_2"));
    [24, 28].iter().any(|shift| field(isar1, *shift) != 0) || field(isar2, 8) != 0
}

/// Lets this CPU sign and check addresses by all keys (SCTLR_EL1.EnIA, EnIB, EnDA, EnDB), as Linux does.
pub fn enable() {
    const ALL: u64 = 1 << 31 | 1 << 30 | 1 << 27 | 1 << 13;
    write_sysreg!("sctlr_el1", read_sysreg!("sctlr_el1") | ALL);
    crate::cpu::synchronize();
}

/// Fills the registers.
pub fn fill(seed: u64) {
    macro_rules! write {
        ($($register:literal $n:literal),*) => { $(write_sysreg!($register, word(seed, $n));)* };
    }
    each_half!(write);
}

/// Says whether the registers are as filled.
pub fn holds(seed: u64) -> bool {
    macro_rules! compare {
        ($($register:literal $n:literal),*) => { true $(&& read_sysreg!($register) == word(seed, $n))* };
    }
    each_half!(compare)
}

/// Returns the code that the generic key gives for two values.
pub fn code(value: u64, modifier: u64) -> u64 {
    let code: u64;
    // SAFETY: PACGA x2, x0, x1: computes a number.
    unsafe {
        asm!(".inst 0x9ac13002", in("x0") value, in("x1") modifier, out("x2") code, options(nomem, nostack));
    }
    code
}
