// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The vectors' way to a report, behind vectors.S: R1 = the end of the stack for it, R0 = the vector; the interrupted code's R0
// is in the report (fault::Report), its R1 in HSPRG1.

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

// In the place of a light handler: leaves a call to the full tier. R0 = twice its number, R3 = the frame, R4 to R10 its
// arguments.
    .global turnstile_leave_call
turnstile_leave_call:
    std     %r5, GPR + 40(%r3)
    std     %r6, GPR + 48(%r3)
    std     %r7, GPR + 56(%r3)
    std     %r8, GPR + 64(%r3)
    std     %r9, GPR + 72(%r3)
    std     %r10, GPR + 80(%r3)
    lis     %r5, 0x8000                 // exit::Code::FULL
    stw     %r5, WHY(%r3)
    srdi    %r3, %r0, 1
    blr
