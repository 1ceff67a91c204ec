// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The vector table of an image for ablation whose command line takes techniques off. It does what vectors.S does,
// and before the handler what the techniques save: the functions in NAIVE_CHAIN, which naive/mod.rs fills at boot.
// Handlers come from NAIVE_HANDLERS and NAIVE_IRQ. Follows vectors.S in the same piece of assembly.

    // Calls the chain: functions of the C ABI that take the frame, up to a zero.
    .macro naive_chain
    x0_x1   stp
    x2_x3   stp
    x8_x9   stp
    x10_x30 stp
    x4_to_x18 stp
    x19_to_x29 stp, str                 // handlers of these tables find every register in the frame
    adrp    x19, NAIVE_CHAIN            // the cursor lives in a register that callees preserve
    add     x19, x19, :lo12:NAIVE_CHAIN
1:  ldr     x1, [x19], #8
    cbz     x1, 2f
    mov     x0, sp
    blr     x1
    b       1b
2:
    .endm

    .macro naive_return
    x19_to_x29 ldp, ldr                 // with what the handler has delivered; the full tier stores them again
    cbnz    w0, full_gicv3
    b       wide_return_gicv3
    .endm

    .macro naive_vector target
    .balign 128
    b       \target
    .endm

    .text
    .balign 2048
    .global naive_vectors
naive_vectors:
    hypervisor_faults
    naive_vector naive_sync
    naive_vector naive_irq
    naive_vector naive_fiq
    naive_vector naive_serror
    naive_vector naive_sync
    naive_vector naive_irq
    naive_vector naive_fiq
    naive_vector naive_serror
    .balign 128

naive_sync:
    naive_chain
    mrs     x1, esr_el2
    ubfx    x2, x1, #26, #6
    adrp    x3, NAIVE_HANDLERS
    add     x3, x3, :lo12:NAIVE_HANDLERS
    ldr     x3, [x3, x2, lsl #3]
    mov     x0, sp
    blr     x3
    naive_return

naive_irq:
    naive_chain
    adrp    x3, NAIVE_IRQ
    ldr     x3, [x3, :lo12:NAIVE_IRQ]
    mov     x0, sp
    blr     x3
    naive_return

naive_fiq:
    naive_chain
    mov     x0, sp
    bl      turnstile_light_fiq
    naive_return

naive_serror:
    naive_chain
    mov     x0, sp
    bl      turnstile_light_serror
    naive_return

// Makes this CPU use the table.
    .global turnstile_use_naive_vectors
turnstile_use_naive_vectors:
    adrp    x0, naive_vectors
    add     x0, x0, :lo12:naive_vectors
    msr     vbar_el2, x0
    isb
    ret
