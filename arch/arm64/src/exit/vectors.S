// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The EL2 vector table (Arm ARM D1.3.1.6) and the tiers of an exit.
//
// While a guest runs, SP_EL2 points at the exit frame of this physical CPU (vcpu/frame.rs), so the vector
// stores without computing an address. What an exit stores depends on what it leads to:
//
// - A light handler is a leaf without a stack frame that changes few registers. Its way stores those, and passes by the others:
//   x0, x1, x8, x9, x10 and x30 for all, x2, x3 and x11-x18 for some. What the compiler made of a handler is followed by
//   `images/hot-path`, which fails if it changes a register that was not stored on its way.
// - A wide handler is any function that preserves x19-x29 (AAPCS64): the rest of x0-x18 is stored before it.
// - A full exit then adds x19-x29, for handlers that need to see or change any register of the guest.
//
// Slots: x0..x10 at 0..80, x30 at 88, x11..x18 at 96..152, x19..x29 at 160..240.
//
// There are two tables for each version of the GIC, and for GICv2 guests on a GICv3, which do the same. The CPUs of vCPUs whose exits are counted and
// timed use the second one; the first one knows nothing of it. The timed table's own fields of the frame: the vCPU's page at 256, and at 264 the
// counter at the exit and the offset of its reason's record in the page. It stores x2 and x3 first thing, because the entry needs them.

    .equ    SYNC, 1 << 31               // light.rs:Code
    .equ    WIDE_BIT, 30
    .equ    SERVICE_BIT, 24
    .equ    ABORTS, 296                 // frame.rs: Frame::aborts

    // Registers between the CPU and their slots: \move is STP or LDP.
    .macro x0_x1 move
    \move   x0, x1, [sp]
    .endm
    .macro x2_x3 move
    \move   x2, x3, [sp, #16]
    .endm
    .macro x8_x9 move
    \move   x8, x9, [sp, #64]
    .endm
    .macro x10_x30 move
    \move   x10, x30, [sp, #80]
    .endm
    .macro x11_x12 move
    \move   x11, x12, [sp, #96]
    .endm
    .macro x13_x14 move
    \move   x13, x14, [sp, #112]
    .endm
    .macro x15_to_x18 move
    \move   x15, x16, [sp, #128]
    \move   x17, x18, [sp, #144]
    .endm
    // Those of x0-x18 that no light handler changes.
    .macro others move
    \move   x4, x5, [sp, #32]
    \move   x6, x7, [sp, #48]
    .endm

    // What interrupts store besides x0, x1, x8-x10 and x30, and what they do not; the same of light writes. The handlers of a
    // GICv2 guest's change more.
    .macro of_interrupts set, move
    x11_x12 \move
    if_gicv2 \set, x13_to_x18, \move
    .endm
    .macro not_of_interrupts set, move
    if_gicv3 \set, x13_to_x18, \move
    others  \move
    .endm
    .macro of_writes set, move
    x11_x12 \move
    x13_x14 \move
    if_gicv2 \set, x15_to_x18, \move
    .endm
    .macro not_of_writes set, move
    if_gicv3 \set, x15_to_x18, \move
    others  \move
    .endm
    .macro x13_to_x18 move
    x13_x14 \move
    x15_to_x18 \move
    .endm
    // x11 to x18 and the others.
    .macro x4_to_x18 move
    x11_x12 \move
    x13_to_x18 \move
    others  \move
    .endm
    .macro if_gicv3 set, macro, move
    .ifc \set, gicv3
    \macro  \move
    .endif
    .ifc \set, gicv3_timed
    \macro  \move
    .endif
    .endm
    .macro if_gicv2 set, macro, move
    .ifnc \set, gicv3
    .ifnc \set, gicv3_timed
    \macro  \move
    .endif
    .endif
    .endm
    // Those that compiled code preserves; \last is STR or LDR.
    .macro x19_to_x29 move, last
    \move   x19, x20, [sp, #160]
    \move   x21, x22, [sp, #176]
    \move   x23, x24, [sp, #192]
    \move   x25, x26, [sp, #208]
    \move   x27, x28, [sp, #224]
    \last   x29, [sp, #240]
    .endm

    // x2 and x3, which a timed vector has stored already and its return loads.
    .macro x2_x3_unless timed, move
    .if \timed == 0
    x2_x3   \move
    .endif
    .endm

    // ERET may be speculated past (Arm ARM, speculation barriers): nothing behind it is to be executed.
    .macro enter
    eret
    dsb     nsh
    isb
    .endm

    // Takes the time of the exit, first thing: only two registers are free by then. No ISB: taking an exception
    // synchronizes the context, so the counter is not read before it, and an ISB would be part of the cost.
    .macro stamp
    stp     x0, x1, [sp]
    mrs     x0, cntpct_el0
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

    // What begins each exit: x0 and x1 are stored, and in a timed table x0 is the time.
    .macro begin timed
    .balign 128
    .if \timed
    stamp
    .else
    x0_x1   stp
    .endif
    .endm

    // A synchronous exception goes to the slot of its class (ESR_EL2.EC) by one indexed branch, so that no class
    // waits for another's comparison, and no memory is read. The slots lie within reach of ADR, which the linker checks.
    .macro synchronous set, timed
    begin   \timed
    x8_x9   stp
    mrs     x1, esr_el2
    lsr     w8, w1, #26                 // ESR_EL2.EC: above it, in the other half, lies ISS2
    .if \timed
    x2_x3   stp
    adr     x9, EXIT_RECORDS
    ldrh    w9, [x9, x8, lsl #1]
    stp     x0, x9, [sp, #264]
    .endif
    adr     x9, classes_\set
    add     x9, x9, x8, lsl #6
    br      x9
    .endm

    // The handler returns zero to re-enter at once, else why not: its own code or the attention word.
    .macro interrupt handler, set, timed
    begin   \timed
    .if \timed
    str     x0, [sp, #264]              // its handler notes the reason
    x2_x3   stp
    .endif
    x8_x9   stp
    x10_x30 stp
    of_interrupts \set, stp
    mov     x0, sp
    bl      \handler
    cbnz    w0, interrupt_left_\set
    of_interrupts \set, ldp
    return_to_guest \timed
    .endm

    // Ends a light exit whose way stored x10 and x30.
    .macro return_to_guest timed
    .if \timed
    b       light_return_timed
    .else
    x10_x30 ldp
    x8_x9   ldp
    x0_x1   ldp
    enter
    .endif
    .endm

    // Ends an exit when x0-x18 and x30 are stored.
    .macro wide_return timed
    x4_to_x18 ldp
    x2_x3_unless \timed, ldp
    return_to_guest \timed
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

    .macro lower_level irq, fiq, serror, set, timed
    synchronous \set, \timed
    interrupt \irq, \set, \timed
    interrupt \fiq, \set, \timed
    interrupt \serror, \set, \timed
    .endm

    // Slots of \count classes that are left to the full tier.
    .macro left count, set
    .rept   \count
    .balign 64
    mov     w0, #SYNC
    b       left_\set
    .endr
    .endm

    // HVC64: all that it is about is in x0-x3.
    .macro class_hvc set, timed
    .balign 64
    x10_x30 stp
    mov     x0, sp
    bl      turnstile_light_hvc
    cbnz    w0, hvc_left_\set
    return_to_guest \timed
    .endm

    // MSR, MRS: bit 0 says that it reads.
    .macro class_sysreg set
    .balign 64
    x10_x30 stp
    tbz     w1, #0, sysreg_write_\set
    mov     x0, sp
    bl      turnstile_light_sysreg_read
    tbnz    w1, #31, sysreg_read_left_\set
    ubfx    x8, x1, #32 + 5, #5         // ISS.Rt
    deliver \set
    .endm

    // Data aborts: bit 6 (WnR) says that it writes.
    .macro class_data_abort set
    .balign 64
    x10_x30 stp
    tbnz    w1, #6, store_\set
    x11_x12 stp
    mov     x0, sp
    bl      turnstile_light_load
    tbnz    w1, #31, load_left_\set
    x11_x12 ldp
    ubfx    x8, x1, #32 + 16, #5        // ISS.SRT
    deliver \set
    .endm

    // A light read is done: its value (x0) goes to the transfer register x8, wherever that is now, by one indexed branch.
    .macro deliver set
    adr     x9, deliver_\set
    add     x9, x9, x8, lsl #3
    br      x9
    .endm
    .macro deliver_to_frame slot, set
    str     x0, [sp, #\slot]
    b       delivered_\set
    .endm
    .macro deliver_to_register n, set
    mov     x\n, x0
    b       delivered_\set
    .endm
    .macro deliver_table set, timed
deliver_\set:
    deliver_to_frame 0, \set
    deliver_to_frame 8, \set
    .if \timed
    deliver_to_frame 16, \set
    deliver_to_frame 24, \set
    .else
    deliver_to_register 2, \set
    deliver_to_register 3, \set
    .endif
    .irp    n, 4, 5, 6, 7
    deliver_to_register \n, \set
    .endr
    deliver_to_frame 64, \set
    deliver_to_frame 72, \set
    deliver_to_frame 80, \set
    .irp    n, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29
    deliver_to_register \n, \set
    .endr
    deliver_to_frame 88, \set
delivered_\set:                         // x31 is the zero register: nothing is to be done
    cbnz    w1, delivered_\set\()_to_full
    return_to_guest \timed
delivered_\set\()_to_full:
    x2_x3_unless \timed, stp
    x4_to_x18 stp
    mov     w0, w1
    b       full_\set
    .endm

    // Before a light write: x2 becomes the value of the transfer register x8, wherever that is now. What follows are 32 pairs of
    // instructions, and behind them the call of the handler.
    .macro fetch label
    adr     x9, \label
    add     x9, x9, x8, lsl #3
    br      x9
\label:
    fetch_from_frame 0, \label
    fetch_from_frame 8, \label
    .irp    n, 2, 3, 4, 5, 6, 7
    fetch_from_register \n, \label
    .endr
    fetch_from_frame 64, \label
    fetch_from_frame 72, \label
    .irp    n, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, zr
    fetch_from_register \n, \label
    .endr
\label\()_done:
    .endm
    .macro fetch_from_frame slot, label
    ldr     x2, [sp, #\slot]
    b       \label\()_done
    .endm
    .macro fetch_from_register n, label
    mov     x2, x\n
    b       \label\()_done
    .endm

    // A light write of the transfer register x8, behind x10 and x30.
    .macro write handler, label, set, timed
    x2_x3_unless \timed, stp
    of_writes \set, stp
    fetch   fetch_\label
    mov     x0, sp
    bl      \handler
    cbnz    w0, \label\()_left
    of_writes \set, ldp
    x2_x3_unless \timed, ldp
    return_to_guest \timed
    .endm

    // A light handler has not done all, or there is more to do: w0 says which. x0-x18 and x30 are stored now.
    .macro wide handler, set, timed
    tbz     w0, #WIDE_BIT, full_\set
    mov     w1, w0
    mov     x0, sp
    bl      \handler
    cbnz    w0, full_\set
    b       wide_return_\set
    .endm

    // The tables of one set, from the vectors to the full tier. \store: whether stores are light, and their handlers.
    .macro exits set, timed, irq, fiq, serror, wide_irq, sysreg_write, full, service_load, service_store, store, wide_store
    hypervisor_faults
    lower_level \irq, \fiq, \serror, \set, \timed     // AArch64
    lower_level \irq, \fiq, \serror, \set, \timed     // AArch32 (EL0 of a guest): same syndromes, same way
    .balign 128
classes_\set:
    left    0x16, \set
    class_hvc \set, \timed
    left    1, \set
    class_sysreg \set
    left    0x0b, \set
    class_data_abort \set
    left    0x1b, \set
    .balign 64

    deliver_table \set, \timed

sysreg_write_\set:
    ubfx    x8, x1, #5, #5              // ISS.Rt
    write   \sysreg_write, sysreg_write_\set, \set, \timed
sysreg_write_\set\()_left:
    not_of_writes \set, stp
    wide    turnstile_wide_sysreg_write, \set, \timed

store_\set:
    .ifnb \store
    ubfx    x8, x1, #16, #5             // ISS.SRT
    write   \store, store_\set, \set, \timed
store_\set\()_left:
    not_of_writes \set, stp
    tbz     w0, #WIDE_BIT, full_\set
    tbnz    w0, #SERVICE_BIT, service_store_\set
    mov     w1, w0
    mov     x0, sp
    bl      \wide_store
    cbnz    w0, full_\set
    wide_return \timed
    .else
    ldr     w1, [sp, #ABORTS]
    x2_x3_unless \timed, stp
    x4_to_x18 stp
    tbz     w1, #SERVICE_BIT, full_w1_\set
    .endif

    // A data abort that may be an access of a service's device.
service_store_\set:
    mov     x0, sp
    bl      \service_store
    cbnz    w0, full_\set
    wide_return \timed
service_load_\set:
    mov     x1, x0                      // the address
    mov     x0, sp
    bl      \service_load
    cbnz    w0, full_\set
    wide_return \timed

hvc_left_\set:
    x2_x3_unless \timed, stp
    x4_to_x18 stp
    wide    turnstile_wide_hvc, \set, \timed

interrupt_left_\set:
    x2_x3_unless \timed, stp
    not_of_interrupts \set, stp
    wide    \wide_irq, \set, \timed

load_left_\set:
    x2_x3_unless \timed, stp
    x13_to_x18 stp
    others  stp
    tbz     w1, #WIDE_BIT, full_w1_\set
    tbnz    w1, #SERVICE_BIT, service_load_\set
    mov     x0, sp
    bl      turnstile_wide_load
    cbnz    w0, full_\set
    b       wide_return_\set

left_\set:
    x10_x30 stp
left_with_x10_\set:
    x2_x3_unless \timed, stp
    x4_to_x18 stp
    b       full_\set
sysreg_read_left_\set:
    mov     w0, w1
    b       left_with_x10_\set

    // The full tier up to the entry. w0 = why the light tier did not re-enter.
full_\set:
    mov     w1, w0
full_w1_\set:                          // the same where w1 says why
    x19_to_x29 stp, str
    mov     x29, xzr                    // the guest's frame chain is not ours to walk
    mov     x0, sp
    bl      \full
enter_guest_\set:
    x19_to_x29 ldp, ldr
wide_return_\set:
    wide_return \timed
    .endm

    .section .text.hot, "ax"
    .balign 2048
    .global vectors
vectors:
    exits   gicv3, 0, turnstile_light_irq, turnstile_light_fiq, turnstile_light_serror, turnstile_wide_irq, turnstile_light_sysreg_write, turnstile_full_exit, turnstile_service_load, turnstile_service_store

// x0 = exit frame: first entry of a vCPU on this physical CPU.
    .global turnstile_enter
turnstile_enter:
    mov     sp, x0
    b       enter_guest_gicv3

    .balign 2048
    .global vectors_gicv2
vectors_gicv2:
    exits   gicv2, 0, turnstile_light_irq_gicv2, turnstile_light_fiq, turnstile_light_serror, turnstile_wide_irq_gicv2, turnstile_light_sysreg_write_gicv2, turnstile_full_exit_gicv2, turnstile_service_load_gicv2, turnstile_service_store_gicv2, turnstile_light_store_gicv2, turnstile_wide_store_gicv2

    .balign 2048
    .global vectors_legacy
vectors_legacy:
    exits   legacy, 0, turnstile_light_irq_legacy, turnstile_light_fiq, turnstile_light_serror, turnstile_wide_irq_legacy, turnstile_light_sysreg_write_gicv2, turnstile_full_exit_legacy, turnstile_service_load_legacy, turnstile_service_store_legacy, turnstile_light_store_legacy, turnstile_wide_store_legacy

    .section .text.timed, "ax"
light_return_timed:
    x10_x30 ldp
    x8_x9   ldp
    account
    x2_x3   ldp
    x0_x1   ldp
    enter

    .balign 2048
    .global vectors_timed
vectors_timed:
    exits   gicv3_timed, 1, turnstile_light_irq_timed, turnstile_light_fiq_timed, turnstile_light_serror_timed, turnstile_wide_irq, turnstile_light_sysreg_write, turnstile_full_exit, turnstile_service_load_timed, turnstile_service_store_timed

    .balign 2048
    .global vectors_gicv2_timed
vectors_gicv2_timed:
    exits   gicv2_timed, 1, turnstile_light_irq_gicv2_timed, turnstile_light_fiq_timed, turnstile_light_serror_timed, turnstile_wide_irq_gicv2, turnstile_light_sysreg_write_gicv2, turnstile_full_exit_gicv2, turnstile_service_load_gicv2_timed, turnstile_service_store_gicv2_timed, turnstile_light_store_gicv2, turnstile_wide_store_gicv2

    .balign 2048
    .global vectors_legacy_timed
vectors_legacy_timed:
    exits   legacy_timed, 1, turnstile_light_irq_legacy_timed, turnstile_light_fiq_timed, turnstile_light_serror_timed, turnstile_wide_irq_legacy, turnstile_light_sysreg_write_gicv2, turnstile_full_exit_legacy, turnstile_service_load_legacy_timed, turnstile_service_store_legacy_timed, turnstile_light_store_legacy, turnstile_wide_store_legacy

// The same for a vCPU whose start is timed.
    .global turnstile_enter_timed
turnstile_enter_timed:
    mov     sp, x0
    b       enter_guest_gicv3_timed

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
    stp     x4, x5, [sp, #32]
    stp     x6, x7, [sp, #48]
    stp     x8, x9, [sp, #64]
    stp     x10, x11, [sp, #80]
    stp     x12, x13, [sp, #96]
    stp     x14, x15, [sp, #112]
    stp     x16, x17, [sp, #128]
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
