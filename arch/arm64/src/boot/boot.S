// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The arm64 Image header and the way from the boot protocol to Rust.
//
// The image is linked at 0 and runs wherever it was loaded: every address is formed by adrp, and the
// R_AARCH64_RELATIVE relocations are applied here before the first line of Rust runs.

    .section .head.text, "ax"
    .global _start
_start:
    b       primary_entry               // code0
    .long   0                           // code1
    .quad   0                           // text_offset: any 2 MiB-aligned address
    .quad   __image_size                // image_size, .bss and boot stacks included
    .quad   0xa                         // flags: little-endian, 4 KiB pages, anywhere in memory
    .quad   0
    .quad   0
    .quad   0
    .ascii  "ARM\x64"
    .long   0

// x0 = physical address of the device tree; MMU off, caches may hold clean stale lines of the image.
primary_entry:
    msr     daifset, #0xf
    mrs     x21, cntpct_el0             // when the hypervisor has begun
    mov     x20, x0
    bl      relocate_and_clear
    adrp    x1, boot_stack_top
    add     sp, x1, :lo12:boot_stack_top

    mrs     x0, CurrentEL
    mov     x1, #1                      // refusal 1: not at EL2
    cmp     x0, #(2 << 2)
    b.ne    refuse
    mov     x0, x20
    bl      turnstile_choose_mode
    mov     x1, x0                      // refusals from 2 on: the mode cannot be had
    cbnz    x0, refuse

    bl      early_tables
    adrp    x0, early_l1
    add     x0, x0, :lo12:early_l1
    bl      enable_el2_mmu

    adrp    x0, boot_cpu
    add     x0, x0, :lo12:boot_cpu
    msr     tpidr_el2, x0
    mov     x0, x20
    mov     x1, x21
    mov     x29, xzr
    mov     x30, xzr
    b       turnstile_primary

// Says why the machine cannot be used; the MMU stays off.
refuse:
    mov     x0, x20
    bl      turnstile_refuse
1:  wfe
    b       1b

// Secondary CPUs, released by PSCI CPU_ON or by a spin table, MMU off. The CPU's own record is found by
// its MPIDR, because a spin table passes no argument.
    .global secondary_entry
secondary_entry:
    msr     daifset, #0xf
    adrp    x1, TURNSTILE_NVHE
    ldrb    w1, [x1, :lo12:TURNSTILE_NVHE]
    cbnz    w1, 1f
    mrs     x0, id_aa64mmfr1_el1
    tst     x0, #(0xf << 8)
    b.eq    4f                          // no VHE, which the boot CPU has: not used
1:  mrs     x0, mpidr_el1
    ldr     x1, =0xff00ffffff           // Aff3, Aff2, Aff1, Aff0
    and     x0, x0, x1
    adrp    x1, SECONDARY_BOOT
    add     x1, x1, :lo12:SECONDARY_BOOT
    ldr     x2, [x1]                    // number of records
    add     x1, x1, #16
2:  cbz     x2, 4f
    ldp     x3, x4, [x1], #16           // (affinity, per-CPU area)
    sub     x2, x2, #1
    cmp     x3, x0
    b.ne    2b
    mov     x19, x4
    adrp    x1, SECONDARY_BOOT
    add     x1, x1, :lo12:SECONDARY_BOOT
    ldr     x0, [x1, #8]                // root of the final EL2 tables
    bl      enable_el2_mmu
    msr     tpidr_el2, x19
    ldr     x1, [x19, #0]               // PerCpu::stack_top
    mov     sp, x1
    mov     x0, x19
    mov     x29, xzr
    mov     x30, xzr
    b       turnstile_secondary
4:  wfe
    b       4b

// Applies the relocations and clears .bss. The MMU is off, so these stores bypass the caches: lines that
// the boot loader left clean in the cache must go, or they would hide the stores once the MMU is on
// (Arm ARM D7.5, the boot protocol's "cleaned to the PoC").
relocate_and_clear:
    adrp    x0, _start
    add     x0, x0, :lo12:_start        // load address = relocation base (linked at 0)
    adrp    x1, __rela_start
    add     x1, x1, :lo12:__rela_start
    adrp    x2, __rela_end
    add     x2, x2, :lo12:__rela_end
1:  cmp     x1, x2
    b.hs    2f
    ldp     x3, x4, [x1], #16           // r_offset, r_info
    ldr     x5, [x1], #8                // r_addend
    cmp     w4, #1027                   // R_AARCH64_RELATIVE
    b.ne    1b
    add     x5, x5, x0
    str     x5, [x0, x3]
    b       1b
2:  adrp    x1, __bss_start
    add     x1, x1, :lo12:__bss_start
    adrp    x2, __bss_end
    add     x2, x2, :lo12:__bss_end
3:  cmp     x1, x2
    b.hs    4f
    stp     xzr, xzr, [x1], #16
    b       3b
4:  dmb     sy                          // the stores before the cache maintenance
    mrs     x3, ctr_el0
    ubfx    x3, x3, #16, #4             // DminLine
    mov     x4, #4
    lsl     x3, x4, x3
    adrp    x1, __relro_start
    add     x1, x1, :lo12:__relro_start
5:  cmp     x1, x2
    b.hs    6f
    dc      ivac, x1
    add     x1, x1, x3
    b       5b
6:  dsb     sy
    ic      iallu
    dsb     nsh
    isb
    ret

// Boot-time identity map of 512 GiB: device memory, except the gigabytes that hold the image and the
// device tree. It lives only until Rust has built the final tables. The regime without VHE has one privilege level:
// AP[1] is RES1, bit 54 is XN, and bit 53 is RES0 (Arm ARM D8.4).
early_tables:
    adrp    x5, TURNSTILE_NVHE
    ldrb    w5, [x5, :lo12:TURNSTILE_NVHE]
    mov     x6, #0x0060000000000000     // UXN, PXN
    bic     x6, x6, x5, lsl #53
    lsl     x5, x5, #6                  // AP[1]
    adrp    x0, early_l1
    add     x0, x0, :lo12:early_l1
    mov     x1, #0
    mov     x2, #0x401                  // block, AttrIndx 0 (Device-nGnRE), AF
    orr     x2, x2, x5
    orr     x2, x2, x6
1:  orr     x3, x2, x1, lsl #30
    str     x3, [x0, x1, lsl #3]
    add     x1, x1, #1
    cmp     x1, #512
    b.ne    1b
    mov     x2, #0x709                  // block, AttrIndx 2 (Normal), inner shareable, AF
    orr     x2, x2, x5
    orr     x3, x2, x6
    lsr     x1, x20, #30                // the device tree's gigabyte: readable, never executed
    and     x1, x1, #511
    orr     x3, x3, x1, lsl #30
    str     x3, [x0, x1, lsl #3]
    adrp    x1, _start                  // the image's gigabyte: executable until the final tables
    lsr     x1, x1, #30
    and     x1, x1, #511
    orr     x3, x2, x1, lsl #30
    str     x3, [x0, x1, lsl #3]
    dmb     sy
    add     x2, x0, #4096
    mrs     x3, ctr_el0
    ubfx    x3, x3, #16, #4
    mov     x4, #4
    lsl     x3, x4, x3
2:  dc      ivac, x0
    add     x0, x0, x3
    cmp     x0, x2
    b.lo    2b
    dsb     sy
    ret

// Enters the translation regime of the mode, EL2&0 with VHE and EL2 without, with the tables at x0. Also used to
// change tables: the MMU is off in between, so that no two descriptions of one address are ever live together
// (Arm ARM D8.16.1). E2H gives SCTLR_EL2, TCR_EL2 and CPTR_EL2 the formats of EL1.
    .global enable_el2_mmu
enable_el2_mmu:
    adrp    x5, TURNSTILE_NVHE
    ldrb    w5, [x5, :lo12:TURNSTILE_NVHE]
    mov     x2, #(1 << 31)              // RW: EL1 is AArch64
    mrs     x1, id_aa64mmfr0_el1
    and     x1, x1, #0xf
    cmp     x1, #5
    mov     x3, #5
    csel    x1, x1, x3, lo              // physical addresses have at most 48 bits
    cbnz    w5, 1f
    orr     x2, x2, #(1 << 34)          // E2H
    ldr     x3, =0x30d00800             // SCTLR: RES1 bits, M=C=I=0
    ldr     x4, =0x803519               // TCR: T0SZ 25, WB, inner shareable, 4 KiB, EPD1
    orr     x4, x4, x1, lsl #32         // IPS
    mov     x5, #(3 << 20)              // CPTR: FPEN = 3, the guest owns FP; SVE, SME trap
    b       2f
1:  ldr     x3, =0x30c50830             // SCTLR: RES1 bits, M=C=I=0
    ldr     x4, =0x80803519             // TCR: RES1 bits, T0SZ 25, WB, inner shareable, 4 KiB
    orr     x4, x4, x1, lsl #16         // PS
    mov     x5, #0x33ff                 // CPTR: RES1 bits, TZ, TSM; FP does not trap
2:  msr     hcr_el2, x2
    isb
    msr     sctlr_el2, x3
    isb
    mov     x1, #0x4404                 // MAIR_EL2 of turnstile_paging: Device-nGnRE, Normal NC, Normal WB
    movk    x1, #0x00ff, lsl #16
    msr     mair_el2, x1
    msr     tcr_el2, x4
    msr     ttbr0_el2, x0
    msr     cptr_el2, x5
    adrp    x1, vectors
    add     x1, x1, :lo12:vectors
    msr     vbar_el2, x1
    msr     spsel, #1
    isb
    tlbi    alle2
    dsb     nsh
    isb
    mov     x1, #0x100d                 // M, C, SA, I
    orr     x3, x3, x1
    msr     sctlr_el2, x3
    isb
    ret
    .ltorg

    .section .bss.early, "aw", @nobits
    .balign 4096
    .global early_l1
early_l1:
    .skip   4096
    .balign 16
    .skip   98304
    .global boot_stack_top
boot_stack_top:
