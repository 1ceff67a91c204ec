// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures a read of 32 bits where there is neither memory nor a device. Where that is an external abort, the guest's handler
//! steps over the load; it is part of the operation, but its instructions are the guest's.
#![no_std]
#![no_main]

use core::arch::global_asm;

use turnstile_guests::platform::platform;
use turnstile_guests::{bench, cpu, entry, measured_loop, mmu, println, read_sysreg, write_sysreg};

entry!(main);

/// So far behind the end of the memory there is nothing.
const BEHIND: u64 = 1 << 30;

// X1 is the interrupted code's to lose. This program runs with SP_EL0, so the first vector is the one of its synchronous
// exceptions; Xen takes the one for SP_EL1, 0x200 behind it. Any other exception ends here.
global_asm!(
    r#"
    .macro  skip
    .p2align 7
    mrs     x1, elr_el1
    add     x1, x1, #4
    msr     elr_el1, x1
    eret
    .endm

    .section .text.absent, "ax"
    .p2align 11
    .global absent_vectors
absent_vectors:
    skip
    .rept   3
    .p2align 7
    wfi
    b       . - 4
    .endr
    skip
    .rept   11
    .p2align 7
    wfi
    b       . - 4
    .endr
    "#
);

unsafe extern "C" {
    fn absent_vectors();
}

fn main() {
    let Some(address) = platform().memory.as_slice().iter().map(|region| region.end() + BEHIND).max() else {
        println!("@error the device tree has no memory");
        return;
    };
    mmu::enable();
    let vectors = read_sysreg!("vbar_el1");
    write_sysreg!("vbar_el1", absent_vectors as *const () as u64);
    cpu::synchronize();
    bench::measure("absent", |iterations| reads(iterations, address), empty);
    write_sysreg!("vbar_el1", vectors);
    cpu::synchronize();
}

fn reads(iterations: u64, address: u64) {
    measured_loop!(iterations, ["ldr w0, [{a}]"], a = in(reg) address, out("x0") _, out("x1") _,);
}

/// The load and its handler.
fn empty(iterations: u64) {
    measured_loop!(iterations, [".rept 5", "nop", ".endr"], out("x0") _,);
}
