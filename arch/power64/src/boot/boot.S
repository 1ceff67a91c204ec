// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way from skiboot to Rust, and from Rust to OPAL. skiboot enters in hypervisor real mode, in the byte order of its own
// choice: the boot CPU with R3 at the device tree, R8 at OPAL's data and R9 at its entry (OPAL ABI, "boot"); another CPU,
// by OPAL_START_CPU, with its PIR in R3.

    .set    SRR0, 26
    .set    SRR1, 27
    .set    HSPRG0, 304
    .set    HSRR0, 314
    .set    HSRR1, 315
    .set    PIR, 1023
    .set    MSR_LE, 1
    .set    MSR_RI, 2
    .set    MSR_EE, 0x8000
    .set    CPU_STACK_END, 16           // cpu::area::PerCpu
    .set    STACK_HEAD, 512             // cpu::area::STACK_HEAD: the exit frame at the top of a stack
    .set    FRAME_CPU, 376              // cpu::area::CPU_IN_FRAME

// Goes on in the little-endian byte order, with machine checks as interrupts: MTMSRD sets neither. The instructions are written down in the big-endian one. Changes R11, R12, HSRR0
// and HSRR1.
.macro to_little_endian
    .byte   0x7d, 0x60, 0x00, 0xa6      // mfmsr  r11
    .byte   0x61, 0x6b, 0x10, 0x01      // ori    r11, r11, MSR.LE and MSR.ME
    .byte   0x7d, 0x7b, 0x4b, 0xa6      // mtspr  HSRR1, r11
    .byte   0x42, 0x9f, 0x00, 0x05      // bcl    20, 31, .+4
    .byte   0x7d, 0x88, 0x02, 0xa6      // mflr   r12
    .byte   0x39, 0x8c, 0x00, 0x10      // addi   r12, r12, 16
    .byte   0x7d, 0x9a, 0x4b, 0xa6      // mtspr  HSRR0, r12
    .byte   0x4c, 0x00, 0x02, 0x24      // hrfid
.endm

// The same from either byte order: the first instruction is TDI without a condition in one, and a jump over the second in
// the other.
.macro from_any_endian
    .byte   0x48, 0x00, 0x00, 0x08      // b      .+8, or in little-endian order tdi 0, r0, 72
    b       88f
    to_little_endian
88:
.endm

// Points R2 to the table of contents. Changes R12 and LR.
.macro load_toc
    bcl     20, 31, 89f
89: mflr    12
    addis   2, 12, (.TOC. - 89b)@ha
    addi    2, 2, (.TOC. - 89b)@l
.endm

// No interrupt but machine checks, from which there may be a return. Changes R11 and R12.
.macro set_msr
    mfmsr   11
    ori     11, 11, MSR_RI
    lis     12, MSR_EE >> 16
    ori     12, 12, MSR_EE
    andc    11, 11, 12
    mtmsrd  11
.endm

    .section .head.text, "ax"
    .global _start
_start:
    from_any_endian
    set_msr
    load_toc
    mftb    31                          // when the hypervisor has begun
    addis   4, 2, __bss_start@toc@ha
    addi    4, 4, __bss_start@toc@l
    addis   5, 2, __bss_end@toc@ha
    addi    5, 5, __bss_end@toc@l
    li      0, 0
1:  cmpld   4, 5
    bge     2f
    std     0, 0(4)
    addi    4, 4, 8
    b       1b

    // What the linker has left of addresses is relative to the image: R_PPC64_RELATIVE alone.
2:  addis   4, 2, __rela_start@toc@ha
    addi    4, 4, __rela_start@toc@l
    addis   5, 2, __rela_end@toc@ha
    addi    5, 5, __rela_end@toc@l
    addis   6, 2, _start@toc@ha
    addi    6, 6, _start@toc@l
3:  cmpld   4, 5
    bge     5f
    ld      10, 8(4)
    cmpldi  10, 22                      // R_PPC64_RELATIVE
    bne     4f
    ld      10, 0(4)
    ld      0, 16(4)
    add     0, 0, 6
    stdx    0, 10, 6
4:  addi    4, 4, 24
    b       3b

5:  addis   1, 2, boot_stack_top@toc@ha
    addi    1, 1, boot_stack_top@toc@l
    addi    1, 1, -STACK_HEAD
    mtspr   HSPRG0, 1
    mr      4, 8
    mr      5, 9
    mr      6, 31
    // Relocations have written data only, but the image itself has just been written by somebody else.
    sync
    isync
    bl      turnstile_primary
    trap

// Where OPAL_START_CPU lets a CPU begin: several may at once. Each finds its area in the list of turnstile_arch_common::startup.
    .global turnstile_secondary_entry
turnstile_secondary_entry:
    from_any_endian
    set_msr
    load_toc
    mfspr   4, PIR
    addis   5, 2, turnstile_starting@toc@ha
    addi    5, 5, turnstile_starting@toc@l
    ld      6, 0(5)                     // number of records
    addi    5, 5, 16
1:  cmpdi   6, 0
    beq     2f
    ld      7, 0(5)                     // (PIR, per-CPU area)
    ld      3, 8(5)
    addi    5, 5, 16
    addi    6, 6, -1
    cmpd    7, 4
    bne     1b
    ld      1, CPU_STACK_END(3)
    addi    1, 1, -STACK_HEAD
    std     3, FRAME_CPU(1)
    mtspr   HSPRG0, 1
    bl      turnstile_secondary
    trap
2:  b       2b                          // not one that was to start

// turnstile_on_stack(cpu, stack_top, function): goes on as the function on another stack of this CPU, for ever.
    .global turnstile_on_stack
turnstile_on_stack:
    addi    1, 4, -STACK_HEAD
    std     3, FRAME_CPU(1)
    mtspr   HSPRG0, 1
    mr      12, 5
    mtctr   5
    bctrl
    trap

// turnstile_opal(token, arguments, base, entry): calls OPAL with eight arguments, in its own byte order. What a guest may
// have in the registers for returning from interrupts stays there.
    .global turnstile_opal
turnstile_opal:
    mflr    0
    std     0, 16(1)
    stdu    1, -112(1)
    std     2, 24(1)
    std     13, 32(1)
    mfspr   0, SRR0
    std     0, 40(1)
    mfspr   0, SRR1
    std     0, 48(1)
    mfspr   0, HSRR0
    std     0, 56(1)
    mfspr   0, HSRR1
    std     0, 64(1)
    mfspr   0, HSPRG0
    std     0, 72(1)
    bcl     20, 31, 1f
1:  mflr    12
    addi    12, 12, opal_return - 1b
    mtlr    12
    mfmsr   11
    li      12, MSR_LE
    andc    11, 11, 12
    mtspr   HSRR1, 11
    mtspr   HSRR0, 6
    mr      0, 3
    mr      2, 5
    mr      12, 4
    ld      3, 0(12)
    ld      4, 8(12)
    ld      5, 16(12)
    ld      6, 24(12)
    ld      7, 32(12)
    ld      8, 40(12)
    ld      9, 48(12)
    ld      10, 56(12)
    hrfid
opal_return:
    to_little_endian
    ld      0, 72(1)
    mtspr   HSPRG0, 0
    ld      0, 64(1)
    mtspr   HSRR1, 0
    ld      0, 56(1)
    mtspr   HSRR0, 0
    ld      0, 48(1)
    mtspr   SRR1, 0
    ld      0, 40(1)
    mtspr   SRR0, 0
    ld      13, 32(1)
    ld      2, 24(1)
    addi    1, 1, 112
    ld      0, 16(1)
    mtlr    0
    blr

    .section .bss.boot_stack, "aw", @nobits
    .balign 16
    .skip   65536
    .global boot_stack_top
boot_stack_top:
    .text
