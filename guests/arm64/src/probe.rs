// SPDX-License-Identifier: Apache-2.0 OR MIT
//! All general registers before and after one instruction.

use core::arch::global_asm;

use turnstile_guests_common::random;

use crate::cpu;
use crate::frame::load_x2_to_x29;
use crate::trap::{self, Trap};

/// x0 to x30.
pub type Registers = [u64; 31];

/// What went in and what came out; NZCV as in PSTATE.
#[repr(C)]
struct Block {
    input: Registers,
    flags_in: u64,
    output: Registers,
    flags_out: u64,
}

global_asm!(
    r#"
    .section .text.probe, "ax"
    .global register_probe
register_probe:                     // x0 = block
    stp     x29, x30, [sp, #-112]!
    stp     x19, x20, [sp, #16]
    stp     x21, x22, [sp, #32]
    stp     x23, x24, [sp, #48]
    stp     x25, x26, [sp, #64]
    stp     x27, x28, [sp, #80]
    mov     x1, sp
    str     x1, [sp, #96]
    mov     x1, sp
    sub     x1, x1, #1024
    and     x1, x1, #~15
    ldr     x2, [sp, #96]
    mov     sp, x1                  // sp: 31 in, flags, 31 out, flags, old sp, block
    str     x2, [sp, #512]
    str     x0, [sp, #520]
    mov     x3, #0
1:  ldr     x4, [x0, x3]
    str     x4, [x1, x3]
    add     x3, x3, #8
    cmp     x3, #256
    b.ne    1b
    ldr     x4, [sp, #248]
    msr     nzcv, x4
    ldp     x0, x1, [sp]
    "#,
    load_x2_to_x29!(),
    r#"
    ldr     x30, [sp, #240]
    .global register_probe_slot
register_probe_slot:
    nop
    str     x0, [sp, #256]
    str     x1, [sp, #264]
    mrs     x0, nzcv
    str     x0, [sp, #504]
    str     x2, [sp, #272]
    str     x3, [sp, #280]
    stp     x4, x5, [sp, #288]
    stp     x6, x7, [sp, #304]
    stp     x8, x9, [sp, #320]
    stp     x10, x11, [sp, #336]
    stp     x12, x13, [sp, #352]
    stp     x14, x15, [sp, #368]
    stp     x16, x17, [sp, #384]
    stp     x18, x19, [sp, #400]
    stp     x20, x21, [sp, #416]
    stp     x22, x23, [sp, #432]
    stp     x24, x25, [sp, #448]
    stp     x26, x27, [sp, #464]
    stp     x28, x29, [sp, #480]
    str     x30, [sp, #496]
    ldr     x0, [sp, #520]
    mov     x1, sp
    mov     x3, #256
2:  ldr     x4, [x1, x3]
    str     x4, [x0, x3]
    add     x3, x3, #8
    cmp     x3, #512
    b.ne    2b
    ldr     x1, [sp, #512]
    mov     sp, x1
    ldp     x19, x20, [sp, #16]
    ldp     x21, x22, [sp, #32]
    ldp     x23, x24, [sp, #48]
    ldp     x25, x26, [sp, #64]
    ldp     x27, x28, [sp, #80]
    ldp     x29, x30, [sp], #112
    ret
    "#
);

unsafe extern "C" {
    fn register_probe(block: *mut Block);
    static register_probe_slot: u32;
}

/// Executes one instruction with these general registers and flags; returns registers and flags afterwards, and
/// the exception if there was one. Only for the boot CPU.
///
/// # Safety
/// The instruction changes no memory of this program, may change any general register but SP, and lets
/// the program go on at the next instruction.
pub unsafe fn execute(word: u32, input: &Registers, flags: u64) -> (Registers, u64, Option<Trap>) {
    let slot = (&raw const register_probe_slot).cast_mut();
    // SAFETY: the text is writable (see `mmu`), and only this function patches the slot.
    unsafe { slot.write_volatile(word) };
    cpu::synchronize_instructions(slot as u64, 4);
    let mut block = Block { input: *input, flags_in: flags, output: [0; 31], flags_out: 0 };
    // SAFETY: the probe saves what the C ABI wants kept; the rest is the caller's promise.
    let trap = trap::caught(|| unsafe { register_probe(&raw mut block) });
    (block.output, block.flags_out, trap)
}

/// Returns 31 different values that a careless copy (truncation, sign, neighbour) would change.
pub fn pattern(seed: u64) -> Registers {
    random::pattern(seed)
}
