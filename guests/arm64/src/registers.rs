// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Access to system registers by name (Arm ARM chapter D23).

/// Reads a system register; the name is a literal, by name or as `S<op0>_<op1>_C<n>_C<m>_<op2>`.
#[macro_export]
macro_rules! read_sysreg {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reading a system register changes no memory; if it traps, the exception vectors report it.
        unsafe { core::arch::asm!(concat!("mrs {}, ", $name), out(reg) value, options(nostack)) };
        value
    }};
}

/// Writes a system register, followed by an ISB. Not for the registers of the translation regime, which
/// belong to [`crate::mmu`].
#[macro_export]
macro_rules! write_sysreg {
    ($name:literal, $value:expr) => {{
        let value: u64 = $value;
        // SAFETY: by the rule above, the register does not decide what an address means; the compiler keeps
        // memory accesses on their side of the block.
        unsafe {
            core::arch::asm!(concat!("msr ", $name, ", {}"), "isb", in(reg) value, options(nostack));
        }
    }};
}
