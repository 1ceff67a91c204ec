// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Changing stacks.
//
// Each vCPU that shares CPUs has a stack of its own, with its exit frame at the top. A stack that is not in use has R14 to
// R31, CR, R2 and LR on it, as a called function must preserve them (ELFv2 ABI, 2.2.1.1), and the guest's R13, which it does not
// use. Of a vCPU that has never run, they
// are made up (sched/thread.rs): it goes on at turnstile_thread_start, and R14 is the argument.

    .set    SAVED, 32
    .set    SAVED_BYTES, 32 + 18 * 8 + 16

    .section .text.switch, "ax"
// R3 = where the R1 of the stack in use goes, R4 = R1 of the stack to use, R5 = its frame. Returns on that one.
    .global turnstile_switch_stack
turnstile_switch_stack:
    mflr    %r0
    std     %r0, 16(%r1)
    mfcr    %r0
    std     %r0, 8(%r1)
    stdu    %r1, -SAVED_BYTES(%r1)
    .irp    n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    std     %r\n, SAVED + 8 * (\n - 14)(%r1)
    .endr
    std     %r2, SAVED + 144(%r1)
    std     %r13, SAVED + 152(%r1)
    std     %r1, 0(%r3)
    mtspr   HSPRG0, %r5
    mr      %r1, %r4
    .irp    n, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    ld      %r\n, SAVED + 8 * (\n - 14)(%r1)
    .endr
    ld      %r2, SAVED + 144(%r1)
    ld      %r13, SAVED + 152(%r1)
    addi    %r1, %r1, SAVED_BYTES
    ld      %r0, 8(%r1)
    mtcrf   0x38, %r0                   // CR2 to CR4
    ld      %r0, 16(%r1)
    mtlr    %r0
    blr

    .global turnstile_thread_start
turnstile_thread_start:
    mr      %r3, %r14
    mr      %r12, %r15
    mtctr   %r15
    bctrl
    trap
    .text
