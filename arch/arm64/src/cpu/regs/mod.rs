// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System registers, one zero-sized value each, with `read` and `write`.
//!
//! On the bare machine an access is one `mrs` or `msr`. Everywhere else it goes to a [`fakes`] recorder,
//! so that host tests run the exit handlers unchanged and assert exactly which registers they touched.
//! Registers whose names the assembler does not know are written in their `S3_…` form.
//!
//! | file | what |
//! |---|---|
//! | `el2` | the hypervisor's own |
//! | `gicv3` | the CPU interfaces of a GICv3 |
//! | [`gicv2`] | a GICv2, whose registers are in memory |
//! | `el1` | the guest's |
//! | [`guest`] | the guest's by the mode's names |
//!
//! Writing a system register at EL2 can break memory safety, so `write` is `unsafe` everywhere.

#[cfg(not(target_os = "none"))]
pub use turnstile_arch_common::fakes;

/// Reads a register, whose name may come in pieces.
#[cfg(target_os = "none")]
macro_rules! mrs {
    ($($piece:literal),+) => {{
        let value: u64;
        // SAFETY: reading a system register at EL2 changes no memory; the caller knows that it exists. The asm is not
        // `pure`: hardware changes these registers, so each read must happen where it is written.
        unsafe { core::arch::asm!(concat!("mrs {}, ", $($piece),+), out(reg) value, options(nomem, nostack, preserves_flags)) };
        value
    }};
}
#[cfg(target_os = "none")]
pub(crate) use mrs;

/// Writes a register, whose name may come in pieces. Unsafe as `write` is. The asm may order with memory accesses, so it is
/// not `nomem`.
#[cfg(target_os = "none")]
macro_rules! msr {
    ($value:expr, $($piece:literal),+) => {
        core::arch::asm!(concat!("msr ", $($piece),+, ", {}"), in(reg) $value, options(nostack, preserves_flags))
    };
}
#[cfg(target_os = "none")]
pub(crate) use msr;

/// Reads one of the numbered registers; its name comes in pieces, the number among them.
macro_rules! read_numbered {
    ($($piece:literal),+) => {{
        #[cfg(target_os = "none")]
        {
            $crate::cpu::regs::mrs!($($piece),+)
        }
        #[cfg(not(target_os = "none"))]
        $crate::cpu::regs::fakes::read(concat!($($piece),+))
    }};
}
pub(crate) use read_numbered;

/// Writes one of the numbered registers; its name comes in pieces, the number among them. Unsafe as `write` is.
macro_rules! write_numbered {
    ($value:expr, $($piece:literal),+) => {{
        let value: u64 = $value;
        #[cfg(target_os = "none")]
        $crate::cpu::regs::msr!(value, $($piece),+);
        #[cfg(not(target_os = "none"))]
        $crate::cpu::regs::write_fake(concat!($($piece),+), value);
    }};
}
pub(crate) use write_numbered;

/// What [`write_numbered`] does on the host.
///
/// # Safety
/// None is needed; it is unsafe because the other one is.
#[cfg(not(target_os = "none"))]
pub(crate) unsafe fn write_fake(name: &'static str, value: u64) {
    fakes::write(name, value);
}

mod el1;
mod el2;
pub mod gicv2;
mod gicv3;
pub mod guest;

pub use el1::*;
pub use el2::*;
pub use gicv3::*;
