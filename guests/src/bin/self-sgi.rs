// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Measures an SGI to the CPU itself through the GICv3 system registers: send, acknowledge by polling with
//! WFI while IRQs are masked, end (seed 000).
#![no_std]
#![no_main]

use turnstile_guests::platform::platform;
use turnstile_guests::{bench, cpu, entry, gic, measured_loop, println, read_sysreg};

entry!(main);

fn main() {
    if platform().gicd.is_none() || read_sysreg!("id_aa64pfr0_el1") >> 24 & 0xf == 0 {
        println!("@error this machine has no GICv3");
        return;
    }
    gic::init();
    gic::enable(0);
    let value = gic::sgi_value(0, cpu::affinity());
    bench::measure("self-sgi", |iterations| sgis(iterations, value), |iterations| empty(iterations, value));
    if gic::acknowledge() != 1023 {
        println!("@error an interrupt is left over");
    }
}

fn sgis(iterations: u64, value: u64) {
    measured_loop!(iterations, [
            "mov x2, {value}",
            "msr S3_0_C12_C11_5, x2",       // ICC_SGI1R_EL1
            "2:",
            "mrs x2, S3_0_C12_C12_0",       // ICC_IAR1_EL1
            "cmp w2, #0x3ff",
            "b.ne 3f",
            "wfi",
            "b 2b",
            "3:",
            "msr S3_0_C12_C12_1, x2",       // ICC_EOIR1_EL1
        ], value = in(reg) value, out("x2") _,);
}

fn empty(iterations: u64, value: u64) {
    measured_loop!(iterations, [
            "mov x2, {value}",
            "nop",
            "2:",
            "nop",
            "cmp w2, #0x3ff",
            "b.ne 3f",
            "wfi",
            "b 2b",
            "3:",
            "nop",
        ], value = in(reg) value, out("x2") _,);
}
