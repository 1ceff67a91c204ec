// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The EL2 vector table (Arm ARM D1.3.1.6) and the two tiers of an exit.
//
// While a guest runs, SP_EL2 points at the exit frame of this physical CPU (vcpu/frame.rs), so the vector
// stores without computing an address. A light exit saves what compiled code may clobber (AAPCS64:
// x0-x18, x30), runs one Rust function and returns; every other register stays in the CPU. A full exit
// then adds x19-x29, for handlers that need to see or change any register of the guest.
//
// Slots: x0..x18 at 0..144, x30 at 152, x19..x29 at 160..240.
//
// There are two tables for each version of the GIC, and for GICv2 guests on a GICv3, which do the same. The CPUs of vCPUs whose exits are counted and
// timed use the second one; the first one knows nothing of it. The timed table's own fields of the frame: the vCPU's page at 256, and at 264 the
// counter at the exit and the offset of its reason's record in the page.

    // Registers between the CPU and their slots: \move is STP or LDP.
    .macro x4_to_x17 move
    \move   x4, x5, [sp, #32]
    \move   x6, x7, [sp, #48]
    \move   x8, x9, [sp, #64]
    \move   x10, x11, [sp, #80]
    \move   x12, x13, [sp, #96]
    \move   x14, x15, [sp, #112]
    \move   x16, x17, [sp, #128]
    .endm

    .macro x4_to_x30 move
    x4_to_x17 \move
    \move   x18, x30, [sp, #144]
    .endm

    .macro save_clobberable
    stp     x0, x1, [sp]
    save_x2_to_x30
    .endm

    .macro save_x2_to_x30
    stp     x2, x3, [sp, #16]
    x4_to_x30 stp
    .endm

    .macro restore_clobberable
    ldp     x2, x3, [sp, #16]
    x4_to_x30 ldp
    ldp     x0, x1, [sp]
    .endm

    // The same of those that compiled code preserves; \last is STR or LDR.
    .macro x19_to_x29 move, last
    \move   x19, x20, [sp, #160]
    \move   x21, x22, [sp, #176]
    \move   x23, x24, [sp, #192]
    \move   x25, x26, [sp, #208]
    \move   x27, x28, [sp, #224]
    \last   x29, [sp, #240]
    .endm

    // ERET may be speculated past (Arm ARM, speculation barriers): nothing behind it is to be executed.
    .macro enter
    eret
    dsb     nsh
    isb
    .endm

    // The handler returns zero to re-enter at once, else why not: its own code or the attention word.
    .macro light handler, full
    .balign 128
    save_clobberable
    mov     x0, sp
    bl      \handler
    cbnz    w0, \full
    restore_clobberable
    enter
    .endm

    // A synchronous exception goes to the handler of its class (ESR_EL2.EC) by one indexed load, so that no class
    // waits for another's comparison. The table lies within reach of ADR, which the linker checks.
    .macro light_sync handlers, full
    .balign 128
    save_clobberable
    mrs     x1, esr_el2
    ubfx    x2, x1, #26, #6             // ESR_EL2.EC: above it lies ISS2
    adr     x3, \handlers
    ldr     x3, [x3, x2, lsl #3]
    mov     x0, sp
    blr     x3
    cbnz    w0, \full
    restore_clobberable
    enter
    .endm

    // Takes the time of the exit, first thing: only two registers are free by then. No ISB: taking an exception
    // synchronizes the context, so the counter is not read before it, and an ISB would be part of the cost.
    .macro stamp
    stp     x0, x1, [sp]
    mrs     x0, cntpct_el0
    .endm

    // `light` with a stamp; its handler notes the reason.
    .macro light_timed handler, full
    .balign 128
    stamp
    str     x0, [sp, #264]
    save_x2_to_x30
    mov     x0, sp
    bl      \handler
    cbz     w0, light_return_timed
    b       \full
    .endm

    // `light_sync` with a stamp; the exception class is the reason.
    .macro light_sync_timed handlers, full
    .balign 128
    stamp
    save_x2_to_x30
    mrs     x1, esr_el2
    ubfx    x2, x1, #26, #6
    adr     x3, EXIT_RECORDS
    ldrh    w4, [x3, x2, lsl #1]
    adr     x3, \handlers
    ldr     x3, [x3, x2, lsl #3]
    stp     x0, x4, [sp, #264]
    mov     x0, sp
    blr     x3
    cbz     w0, light_return_timed
    b       \full
    .endm

    // Adds the time since the stamp to the record of the exit's reason (core/exitstat, page.rs), when all registers but
    // x0-x3 are the guest's again. No ISB here either: what is read a few instructions early is too little by less
    // than an ISB would cost.
    //
    // A histogram's place is the number of leading zeros, 1 to 64; the total is at 0. This CPU alone writes, so plain
    // loads and stores do; the total is released behind its exit.
    .macro account
    mrs     x0, cntpct_el0
    ldp     x1, x2, [sp, #264]
    ldr     x3, [sp, #256]
    sub     x0, x0, x1
    add     x3, x3, x2
    clz     x1, x0
    ldr     x2, [x3, x1, lsl #3]
    add     x2, x2, #1
    str     x2, [x3, x1, lsl #3]
    ldr     x2, [x3]
    add     x2, x2, x0
    stlr    x2, [x3]
    .endm

    .macro fault kind
    .balign 128
    msr     tpidr_el1, x0               // a fault of the hypervisor is final: the guest's register is scratch
    mov     x0, #\kind
    b       hypervisor_fault
    .endm

    .macro hypervisor_faults
    fault   0                           // current EL, SP_EL0: never used
    fault   1
    fault   2
    fault   3
    fault   4                           // current EL, SP_EL2: a fault of the hypervisor itself
    fault   5
    fault   6
    fault   7
    .endm

    // A table: the handlers of synchronous exceptions by class, and of physical interrupts, and where full exits go, are
    // those of the machine's interrupt controller.
    .macro plain_vectors handlers, irq, full
    hypervisor_faults
    light_sync \handlers, \full        // lower EL, AArch64
    light   \irq, \full
    light   turnstile_light_fiq, \full
    light   turnstile_light_serror, \full
    light_sync \handlers, \full        // lower EL, AArch32 (EL0 of a guest): same syndrome, same way
    light   \irq, \full
    light   turnstile_light_fiq, \full
    light   turnstile_light_serror, \full
    .balign 128
    .endm

    .macro timed_vectors handlers, irq, full
    hypervisor_faults
    light_sync_timed \handlers, \full
    light_timed \irq, \full
    light_timed turnstile_light_fiq_timed, \full
    light_timed turnstile_light_serror_timed, \full
    light_sync_timed \handlers, \full
    light_timed \irq, \full
    light_timed turnstile_light_fiq_timed, \full
    light_timed turnstile_light_serror_timed, \full
    .balign 128
    .endm

    // The full tier up to the entry. w0 = why the light tier did not re-enter: Code::PRESERVED is bit 30.
    .macro full_tier handler, preserved
    x19_to_x29 stp, str
    tbnz    w0, #30, \preserved
\preserved\()_is_full:
    mov     x29, xzr                    // the guest's frame chain is not ours to walk
    mov     w1, w0
    mov     x0, sp
    bl      \handler
    .endm

    // A light exit that is about the value of one of x19-x30, which the frame holds now. The CPU holds x19-x29, too:
    // compiled code preserves them, so only the others are loaded again.
    .macro preserved_tier label, handler, return
\label:
    mov     x0, sp
    mrs     x1, esr_el2
    bl      \handler
    cbnz    w0, \label\()_is_full
    b       \return
    .endm

    .section .text.hot, "ax"
    .balign 2048
    .global vectors
vectors:
    plain_vectors LIGHT_HANDLERS, turnstile_light_irq, full_exit

full_exit:
    full_tier turnstile_full_exit, light_preserved
enter_guest:
    x19_to_x29 ldp, ldr
light_return:
    restore_clobberable
    enter
    preserved_tier light_preserved, turnstile_light_preserved, light_return

// x0 = exit frame: first entry of a vCPU on this physical CPU.
    .global turnstile_enter
turnstile_enter:
    mov     sp, x0
    b       enter_guest

    .balign 2048
    .global vectors_gicv2
vectors_gicv2:
    plain_vectors LIGHT_HANDLERS_GICV2, turnstile_light_irq_gicv2, full_exit_gicv2

full_exit_gicv2:
    full_tier turnstile_full_exit_gicv2, light_preserved_gicv2
    b       enter_guest
    preserved_tier light_preserved_gicv2, turnstile_light_preserved_gicv2, light_return

    .balign 2048
    .global vectors_legacy
vectors_legacy:
    plain_vectors LIGHT_HANDLERS_LEGACY, turnstile_light_irq_legacy, full_exit_legacy

full_exit_legacy:
    full_tier turnstile_full_exit_legacy, light_preserved_legacy
    b       enter_guest
    preserved_tier light_preserved_legacy, turnstile_light_preserved_legacy, light_return

    .section .text.timed, "ax"
    .balign 2048
    .global vectors_timed
vectors_timed:
    timed_vectors LIGHT_HANDLERS, turnstile_light_irq_timed, full_exit_timed

full_exit_timed:
    full_tier turnstile_full_exit, light_preserved_timed
enter_guest_timed:
    x19_to_x29 ldp, ldr
light_return_timed:
    x4_to_x30 ldp
    account
    ldp     x2, x3, [sp, #16]
    ldp     x0, x1, [sp]
    enter
    preserved_tier light_preserved_timed, turnstile_light_preserved, light_return_timed

    .balign 2048
    .global vectors_gicv2_timed
vectors_gicv2_timed:
    timed_vectors LIGHT_HANDLERS_GICV2, turnstile_light_irq_gicv2_timed, full_exit_gicv2_timed

full_exit_gicv2_timed:
    full_tier turnstile_full_exit_gicv2, light_preserved_gicv2_timed
    b       enter_guest_timed
    preserved_tier light_preserved_gicv2_timed, turnstile_light_preserved_gicv2, light_return_timed

    .balign 2048
    .global vectors_legacy_timed
vectors_legacy_timed:
    timed_vectors LIGHT_HANDLERS_LEGACY, turnstile_light_irq_legacy_timed, full_exit_legacy_timed

full_exit_legacy_timed:
    full_tier turnstile_full_exit_legacy, light_preserved_legacy_timed
    b       enter_guest_timed
    preserved_tier light_preserved_legacy_timed, turnstile_light_preserved_legacy, light_return_timed

// The same for a vCPU whose start is timed.
    .global turnstile_enter_timed
turnstile_enter_timed:
    mov     sp, x0
    b       enter_guest_timed

    .section .text.hot, "ax"
// x0 = kind of vector, TPIDR_EL1 = x0 at the fault. A stack of its own, because the fault may be an
// overflow of the one in use.
hypervisor_fault:
    msr     tpidr_el0, x1
    mrs     x1, tpidr_el2
    ldr     x1, [x1, #8]                // PerCpu::fault_stack_top
    sub     x1, x1, #288
    str     x2, [x1, #16]
    mov     x2, sp
    str     x2, [x1, #248]
    mov     sp, x1
    str     x0, [sp, #256]              // kind
    mrs     x0, tpidr_el1
    mrs     x1, tpidr_el0
    stp     x0, x1, [sp, #0]
    str     x3, [sp, #24]
    x4_to_x17 stp
    stp     x18, x19, [sp, #144]
    stp     x20, x21, [sp, #160]
    stp     x22, x23, [sp, #176]
    stp     x24, x25, [sp, #192]
    stp     x26, x27, [sp, #208]
    stp     x28, x29, [sp, #224]
    str     x30, [sp, #240]
    mov     x0, sp
    bl      turnstile_fault
1:  wfe
    b       1b

// x0 = argument, x1 = stack, x2 = function that does not return.
    .text
    .global turnstile_on_stack
turnstile_on_stack:
    mov     sp, x1
    mov     x29, xzr
    mov     x30, xzr
    br      x2
