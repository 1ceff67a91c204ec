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

// X1 is the interrupted code's to lose. Exceptions of the current level with SP_EL0 are the first four vectors; any but the
// synchronous one ends here.
global_asm!(
    r#"
    .section .text.absent, "ax"
    .p2align 11
    .global absent_vectors
absent_vectors:
    mrs     x1, elr_el1
    add     x1, x1, #4
    msr     elr_el1, x1
    eret
    .p2align 7
1:  wfi
    b       1b
    .p2align 11
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
