// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way to a service and back: general registers, and the vectors by which a service is left. All other registers are in
// exchange.rs. Follows vectors.S in the same piece of assembly, before guards.S.
//
// A C function that returns when the service is left. The stack meanwhile, from SP up:
//   0   x29, x30, x19-x28 of the caller
//   96  the address of what is kept of the service (State in state.rs), which begins with its registers
//   112 x0 and x1 on an uncommon way
//
// It returns 0 after a call, 1 at an interrupt, 2 at anything else. After call 0 (Done), from which the service does not go on, its
// x0-x5 are stored; otherwise x0-x30, and state.rs:turnstile_service_note has stored the rest.

    .equ    SERVICE_FRAME, 128
    .equ    CLASS_SVC, 0x15             // ESR_EL2.EC: SVC from AArch64

    .macro service_callers move
    \move   x19, x20, [sp, #16]
    \move   x21, x22, [sp, #32]
    \move   x23, x24, [sp, #48]
    \move   x25, x26, [sp, #64]
    \move   x27, x28, [sp, #80]
    .endm

    // x2 to x30 of the service; x0 = the address of its registers.
    .macro service_others move, last
    \move   x2, x3, [x0, #16]
    \move   x4, x5, [x0, #32]
    \move   x6, x7, [x0, #48]
    \move   x8, x9, [x0, #64]
    \move   x10, x11, [x0, #80]
    \move   x12, x13, [x0, #96]
    \move   x14, x15, [x0, #112]
    \move   x16, x17, [x0, #128]
    \move   x18, x19, [x0, #144]
    \move   x20, x21, [x0, #160]
    \move   x22, x23, [x0, #176]
    \move   x24, x25, [x0, #192]
    \move   x26, x27, [x0, #208]
    \move   x28, x29, [x0, #224]
    \last   x30, [x0, #240]
    .endm

    .macro service_begin state
    stp     x29, x30, [sp, #-SERVICE_FRAME]!
    service_callers stp
    str     x\state, [sp, #96]
    .endm

    .macro service_end
    service_callers ldp
    ldp     x29, x30, [sp], #SERVICE_FRAME
    ret
    .endm

    .section .text.service, "ax"
// x0-x5 = the event, x6 = its registers
    .global turnstile_service_enter
turnstile_service_enter:
    service_begin 6
    .irp    n, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30
    mov     x\n, xzr
    .endr
    enter

// x0 = its registers
    .global turnstile_service_resume
turnstile_service_resume:
    service_begin 0
    service_others ldp, ldr
    ldp     x0, x1, [x0]
    enter

    // Stores all registers of the service; then x0 is their address, and x1-x30 are free.
    .macro service_store
    stp     x0, x1, [sp, #112]
    ldr     x0, [sp, #96]
    service_others stp, str
    ldp     x2, x3, [sp, #112]
    stp     x2, x3, [x0]
    .endm

    .macro service_left how
    .balign 128
    service_store
    mov     w19, #\how
    b       service_return
    .endm

    // An exception of the service itself. Usually it is the call that says that it is done, whose number is zero: so x0 is free.
    .macro service_exception
    .balign 128
    cbnz    x0, service_other
    mrs     x0, esr_el2
    lsr     w0, w0, #26
    cmp     w0, #CLASS_SVC
    b.ne    service_other_zero
    ldr     x0, [sp, #96]
    stp     xzr, x1, [x0]
    stp     x2, x3, [x0, #16]
    stp     x4, x5, [x0, #32]
    mov     x0, xzr
    service_end
    .endm

    .balign 2048
    .global vectors_service
vectors_service:
    hypervisor_faults
    .rept   2                           // AArch64; and AArch32, which a service never is
    service_exception
    service_left 1
    service_left 1
    service_left 2                      // SError
    .endr
    .balign 128

service_other_zero:
    mov     x0, xzr
service_other:
    service_store
    mrs     x1, esr_el2
    lsr     w1, w1, #26
    cmp     w1, #CLASS_SVC
    mov     w19, #2
    csel    w19, wzr, w19, eq
service_return:                         // w19 = what it returns, x0 = the service's registers
    bl      turnstile_service_note
    mov     w0, w19
    service_end
