// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// What the vectors lead to in the image. First, still in their copy at address 0, the way to a report: R1 = the end of the stack for it, R0 = the vector; the interrupted code's R0
// is in the report (cpu::report::Report), its R1 in HSPRG1.

vectors_fault:
    addi    1, 1, -512
    .irp    n, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    std     \n, REPORT + 8 * \n(1)
    .endr
    mfspr   2, HSPRG1
    std     2, REPORT + 8(1)
    mflr    2
    std     2, REPORT + 256(1)
    mfctr   2
    std     2, REPORT + 264(1)
    mfspr   2, 1
    std     2, REPORT + 272(1)
    mfcr    2
    std     2, REPORT + 280(1)
    mfspr   2, SRR0
    std     2, REPORT + 288(1)
    mfspr   2, SRR1
    std     2, REPORT + 296(1)
    mfspr   2, 19                       // DAR
    std     2, REPORT + 304(1)
    mfspr   2, 18                       // DSISR
    std     2, REPORT + 312(1)
    mr      4, 0
    bcl     20, 31, 1f
1:  mflr    12
    ld      12, vectors_target - 1b(12)
    mtctr   12
    bctr
    .balign 8
vectors_target:
    .quad   turnstile_fault_entry
    .global turnstile_vectors_end
turnstile_vectors_end:

// Where faults of the hypervisor go on, in the image.
turnstile_fault_entry:
    bcl     20, 31, 1f
1:  mflr    12
    addis   2, 12, (.TOC. - 1b)@ha
    addi    2, 2, (.TOC. - 1b)@l
    addi    3, 1, REPORT
    bl      turnstile_fault
    trap

    .section .text.hot, "ax"
// R3 = frame: the first entry of a vCPU.
    .global turnstile_enter
turnstile_enter:
    mr      %r1, %r3
    mtspr   HSPRG0, %r1
    b       enter_all

// Adds the time since the exit's beginning to the record of its reason (core/exitstat, page.rs). R1 or another register = the
// frame. A histogram's place is the number of leading zeros, 1 to 64; the total is at 0, and is seen behind its exit. This CPU
// alone writes. Changes R5 to R9.
    .macro  account frame
    mfspr   %r5, TB
    ld      %r6, TIMING(\frame)
    ld      %r7, PAGE(\frame)
    ld      %r8, RECORD(\frame)
    subf    %r5, %r6, %r5
    add     %r7, %r7, %r8
    cntlzd  %r8, %r5
    sldi    %r8, %r8, 3
    ldx     %r9, %r7, %r8
    addi    %r9, %r9, 1
    stdx    %r9, %r7, %r8
    ld      %r9, 0(%r7)
    add     %r9, %r9, %r5
    lwsync                              // the exit is counted before its cost
    std     %r9, 0(%r7)
    .endm

    .global turnstile_account
// R3 = frame.
turnstile_account:
    account %r3
    blr

