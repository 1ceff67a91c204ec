// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The first instructions. The stack pointer is at the top of the stack, and the event in the argument registers of the C ABI. On
//! arm64 that is all that a function expects.

#[cfg(target_arch = "x86_64")]
core::arch::global_asm!(
    r#"
    .section .text._start, "ax"
    .global _start
    .type   _start, @function
_start:
    call    turnstile_service_event // The stack is aligned as behind a call.
    .size   _start, . - _start
"#
);

// r12 has this address. r2 is the table of contents, which is found from there. A function stores into the frame of its caller.
#[cfg(target_arch = "powerpc64")]
core::arch::global_asm!(
    r#"
    .section .text._start, "ax"
    .global _start
    .type   _start, @function
_start:
    addis   2, 12, (.TOC.-_start)@ha
    addi    2, 2, (.TOC.-_start)@l
    addi    1, 1, -32
    b       turnstile_service_event
    .size   _start, . - _start
"#
);
