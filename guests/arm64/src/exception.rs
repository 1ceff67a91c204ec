// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The exception vectors of EL1 (Arm ARM D1.3) and the report of an exception that nobody expected.

use core::arch::global_asm;
use core::sync::atomic::Ordering::Relaxed;

use turnstile_guests_common::image::image;

use crate::frame::{Frame, load_x2_to_x29};
use crate::{cpu, irq, platform, println, psci, trap};

global_asm!(
    r#"
    .macro  VECTOR kind
    .p2align 7
    sub     sp, sp, #{size}
    stp     x0, x1, [sp]
    mov     x0, #\kind
    b       exception_common
    .endm

    .section .text.vectors, "ax"
    .p2align 11
    .global exception_vectors
exception_vectors:
    VECTOR 0
    VECTOR 1
    VECTOR 2
    VECTOR 3
    VECTOR 4
    VECTOR 5
    VECTOR 6
    VECTOR 7
    VECTOR 8
    VECTOR 9
    VECTOR 10
    VECTOR 11
    VECTOR 12
    VECTOR 13
    VECTOR 14
    VECTOR 15

exception_common:
    stp     x2, x3, [sp, #16]
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    mrs     x2, sp_el0
    mrs     x3, elr_el1
    mrs     x4, spsr_el1
    mrs     x5, esr_el1
    mrs     x6, far_el1
    stp     x30, x2, [sp, #240]
    stp     x3, x4, [sp, #256]
    stp     x5, x6, [sp, #272]
    mov     x1, x0
    mov     x0, sp
    bl      exception_taken
    ldp     x30, x2, [sp, #240]
    ldp     x3, x4, [sp, #256]
    msr     sp_el0, x2
    msr     elr_el1, x3
    msr     spsr_el1, x4
    ldp     x0, x1, [sp]
    "#,
    load_x2_to_x29!(),
    r#"
    add     sp, sp, #{size}
    eret
    "#,
    size = const size_of::<Frame>(),
);

#[unsafe(no_mangle)]
extern "C" fn exception_taken(frame: &mut Frame, vector: u64) {
    match vector % 4 {
        0 if trap::on_synchronous(frame) => {}
        1 => irq::on_irq(),
        2 => irq::on_fiq(),
        3 if trap::on_serror(frame) => {}
        _ => fatal(frame, vector),
    }
}

fn fatal(frame: &Frame, vector: u64) -> ! {
    const KINDS: [&str; 4] = ["synchronous exception", "IRQ", "FIQ", "SError"];
    let cpu = cpu::this();
    let depth = cpu.fatal.load(Relaxed);
    cpu.fatal.store(depth + 1, Relaxed);
    if depth == 0 {
        let (start, end) = image();
        println!(
            "@error unexpected {} (vector {vector}) on cpu {}: ec={:#04x} esr={:#x} far={:#x}",
            KINDS[vector as usize % 4],
            cpu.index(),
            frame.esr >> 26 & 0x3f,
            frame.esr,
            frame.far
        );
        println!("  pc={:#x} spsr={:#x} sp={:#x} image={start:#x}-{end:#x}", frame.elr, frame.spsr, frame.sp);
        for (number, value) in frame.x.iter().enumerate() {
            println!("  x{number}={value:#x}");
        }
    }
    if depth < 2 && platform::is_known() {
        psci::system_off();
    }
    loop {
        cpu::wfi();
    }
}
