// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Changing stacks: each vCPU that shares CPUs has an EL2 stack of its own, with its exit frame at the top.
//
// A stack that is not in use has x19-x30 on it, as a called function must preserve them (AAPCS64), at its saved SP. Of a
// vCPU that has never run, they are made up (sched/thread.rs:prepare): x30 is thread_start, x19 its argument.

    .text
// x0 = where the SP of the stack in use goes, x1 = SP of the stack to use. Returns on that one.
    .global turnstile_switch_stack
turnstile_switch_stack:
    stp     x19, x20, [sp, #-96]!
    stp     x21, x22, [sp, #16]
    stp     x23, x24, [sp, #32]
    stp     x25, x26, [sp, #48]
    stp     x27, x28, [sp, #64]
    stp     x29, x30, [sp, #80]
    mov     x2, sp
    str     x2, [x0]
    mov     sp, x1
    ldp     x21, x22, [sp, #16]
    ldp     x23, x24, [sp, #32]
    ldp     x25, x26, [sp, #48]
    ldp     x27, x28, [sp, #64]
    ldp     x29, x30, [sp, #80]
    ldp     x19, x20, [sp], #96
    ret

    .global turnstile_thread_start
turnstile_thread_start:
    mov     x0, x19
    mov     x29, xzr
    mov     x30, xzr
    b       turnstile_run_thread
