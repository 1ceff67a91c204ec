// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The interrupt vectors: copied to real address 0, where every interrupt of the hypervisor begins. A vector has room for
// eight instructions.

    .set    SRR0, 26
    .set    SRR1, 27
    .set    HSPRG0, 304
    .set    HSPRG1, 305
    .set    FRAME_CPU, 376              // frame::Frame
    .set    CPU_FAULT_STACK_END, 0      // cpu::PerCpu
    .set    REPORT, 32                  // fault::Report, behind the linkage of a frame

.macro fault_vector number
    .org    turnstile_vectors + \number
    mtspr   HSPRG1, 1
    mfspr   1, HSPRG0
    ld      1, FRAME_CPU(1)
    ld      1, CPU_FAULT_STACK_END(1)
    std     0, REPORT - 512(1)
    li      0, \number
    b       vectors_fault
.endm

    .section .text.vectors, "ax"
    .balign 128
    .global turnstile_vectors
turnstile_vectors:
    .irp    number, 0x100, 0x200, 0x300, 0x380, 0x400, 0x480, 0x500, 0x600, 0x700, 0x800, 0x900, 0x980, 0xa00, 0xc00, 0xd00
    fault_vector \number
    .endr
    .irp    number, 0xe00, 0xe20, 0xe40, 0xe60, 0xe80, 0xea0, 0xf00, 0xf20, 0xf40, 0xf60, 0xf80
    fault_vector \number
    .endr
    .org    turnstile_vectors + 0x1000
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
    .text
