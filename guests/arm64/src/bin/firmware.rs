// SPDX-License-Identifier: Apache-2.0 OR MIT
//! No guest: firmware at EL3 for one test, of a CPU whose predictors it clears (SMCCC, DEN0028; PSCI, DEN0022).
//!
//! QEMU runs it from its flash memory (`-bios`, `-machine virt,secure=on`), with the device tree at the base of RAM and
//! a hypervisor loaded 4 MiB above. It makes the interrupt controller the non-secure world's, enters the hypervisor at
//! EL2, and answers its calls: the workarounds, and what finds them. It has no memory: TPIDR_EL3 counts the calls of
//! SMCCC_ARCH_WORKAROUND_3, and its bit 63 says that bypass was stopped. A call leaves rubbish in x0 to x3, as it may.
//! SYSTEM_OFF says what was counted, and ends QEMU.
#![no_std]
#![no_main]

core::arch::global_asm!(
    r#"
    .section .head.text, "ax"
    .global _start
_start:
    adr     x0, firmware_vectors
    msr     vbar_el3, x0
    msr     tpidr_el3, xzr
    movz    x1, #0x0800, lsl #16
    mov     w2, #(1 << 6)               // GICD_CTLR.DS: one security state
    str     w2, [x1]
    mov     x0, #0xf
    msr     S3_6_C12_C12_5, x0          // ICC_SRE_EL3
    msr     cptr_el3, xzr
    mov     x0, #0x531                  // SCR_EL3: NS, RES1, HCE, RW
    msr     scr_el3, x0
    isb
    ldr     x0, =0x30c50830             // SCTLR_EL2: RES1 bits
    msr     sctlr_el2, x0
    mov     x0, #0x3c9                  // EL2h, everything masked
    msr     spsr_el3, x0
    movz    x0, #0x4040, lsl #16
    msr     elr_el3, x0
    movz    x0, #0x4000, lsl #16        // the device tree
    mov     x1, xzr
    mov     x2, xzr
    mov     x3, xzr
    eret
    .ltorg

    .macro  answer function, label
    ldr     w3, =\function
    cmp     w0, w3
    b.eq    \label
    .endm

// A call: w0 its function, x1 its argument; it may change x0 to x3.
call:
    answer  0x80003fff, workaround_3
    answer  0x80000001, features
    answer  0x80000000, version
    answer  0x84000000, psci_version
    answer  0x8400000a, psci_features
    answer  0x80007fff, workaround_2
    answer  0x84000008, system_off
unknown:
    mov     x0, #-1
    eret
workaround_3:
    mrs     x3, tpidr_el3
    add     x3, x3, #1
    msr     tpidr_el3, x3
    mvn     x0, x3
    mvn     x1, x3
    mvn     x2, x3
    eret
workaround_2:
    cbz     w1, done
    mrs     x3, tpidr_el3
    orr     x3, x3, #(1 << 63)
    msr     tpidr_el3, x3
done:
    mov     x0, #0
    eret
features:
    mov     w0, w1
    answer  0x80008000, done
    answer  0x80007fff, done
    answer  0x80003fff, done
    b       unknown
version:
    ldr     x0, =0x10002
    eret
psci_version:
    ldr     x0, =0x10001
    eret
psci_features:
    mov     w0, w1
    answer  0x80000000, done
    b       unknown
system_off:
    movz    x1, #0x0900, lsl #16        // PL011
    adr     x0, said
1:  ldrb    w2, [x0], #1
    cbz     w2, 2f
    str     w2, [x1]
    b       1b
2:  mrs     x0, tpidr_el3
    mov     w3, #16
3:  ror     x0, x0, #60                 // the highest digit first
    and     w2, w0, #15
    cmp     w2, #10
    add     w2, w2, #'0'
    b.lo    4f
    add     w2, w2, #('a' - '0' - 10)
4:  str     w2, [x1]
    subs    w3, w3, #1
    b.ne    3b
    mov     w2, #10
    str     w2, [x1]
    movz    x1, #0x090b, lsl #16        // the secure PL061: line 0 is the power
    mov     w2, #1
    str     w2, [x1, #0x400]
    str     w2, [x1, #0x4]
5:  wfi
    b       5b
    .ltorg
said:
    .asciz  "firmware: "

    .balign 2048
firmware_vectors:
    .skip   0x400                       // of its own it has none
    b       call
    .skip   0x3fc
"#
);

/// There is no Rust in it that could panic.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    loop {}
}
