// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way into a service and out of it (service/context.rs). A service runs in problem state in a partition of its own. The
// guest's vCPU stays where it is: in the registers, but for those that are exchanged here, which are all that a service could
// change or that are not for it.
//
// Out of it lead the same vectors as out of guests, by HSPRG0, and the same guards; into it leads the return from exits, which is
// guarded, too.

    .set    HDEC, 310
    .set    DAR, 19
    .set    DSISR, 18
    .set    AMR, 29
    .set    PIDR, 48
    .set    FSCR, 153
    .set    HFSCR, 190
    .set    VRSAVE, 256
    .set    LPIDR, 319
    .set    PPR, 896
    // Context.
    .set    OWN_FRAME, 456
    .set    OWN_R1, 464
    .set    OWN_R2, 472
    .set    OWN_LR, 480
    .set    OWN_CR, 488
    .set    OWN_GPR, 496 - 8 * 13
    .set    GUEST, 648
    .set    FOUND, 736
    .set    LPID, 768
    .set    ENTRY, 776
    .set    STACK, 784
    .set    STATE, 792
    .set    SLICE, 800
    .set    ENTERED, 808
    .set    LENT, 816
    .set    USER_PLAIN, 824
    .set    USER_LENT, 832
    .set    VECTORS_GUEST, 848
    .set    VECTORS_OWN, 1904
    .set    FACILITIES, 3               // FP, vector and VSX, in HFSCR
    .set    PROCESS, 1                  // memory/service.rs

    .section .text.hot, "ax"
// Keeps R3 to R9; R0 is 0 then. The hypervisor decrementer rings after a slice of the service's time at the
// latest (service/space.rs), also behind the service, where it does no harm.
    .macro  out_of_guest context
    mflr    %r0
    mfcr    %r10
    mfspr   %r11, HSPRG0
    std     %r0, OWN_LR(\context)
    std     %r10, OWN_CR(\context)
    ld      %r12, CPU(%r11)
    std     %r11, OWN_FRAME(\context)
    std     %r1, OWN_R1(\context)
    std     %r2, OWN_R2(\context)
    std     %r12, CPU(\context)
    .irp    n, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    std     %r\n, OWN_GPR + 8 * \n(\context)
    .endr
    mfspr   %r0, SRR0
    mfspr   %r10, SRR1
    mfspr   %r11, DAR
    mfspr   %r12, DSISR
    std     %r0, GUEST(\context)
    std     %r10, GUEST + 8(\context)
    std     %r11, GUEST + 16(\context)
    std     %r12, GUEST + 24(\context)
    mfspr   %r0, VRSAVE
    mfspr   %r10, AMR
    mfspr   %r11, PPR
    mfspr   %r12, HFSCR
    std     %r0, GUEST + 32(\context)
    std     %r10, GUEST + 40(\context)
    std     %r11, GUEST + 48(\context)
    std     %r12, GUEST + 56(\context)
    mfspr   %r0, FSCR
    mfspr   %r10, LPIDR
    mfspr   %r11, PIDR
    ld      %r12, LPID(\context)
    std     %r0, GUEST + 64(\context)
    std     %r10, GUEST + 72(\context)
    std     %r11, GUEST + 80(\context)
    mfspr   %r10, HDEC
    ld      %r11, SLICE(\context)
    li      %r0, 0
    cmpw    %r10, %r11
    ble     9998f
    mtspr   HDEC, %r11
9998:
    li      %r10, PROCESS
    mtspr   LPIDR, %r12
    mtspr   PIDR, %r10
    mtspr   VRSAVE, %r0
    mtspr   AMR, %r0
    mtspr   HFSCR, %r0                  // no facility,
    mtspr   FSCR, %r0                   // also where HFSCR is not minded
    mtspr   HSPRG0, \context
    .endm

// Takes note that the service has vector registers. R1 = the context.
    .macro  lent scratch
    li      \scratch, FACILITIES
    mtspr   HFSCR, \scratch
    ld      \scratch, USER_LENT(%r1)
    std     \scratch, USER(%r1)
    li      \scratch, 1
    std     \scratch, LENT(%r1)
    .endm

// Adds FP, VEC and VSX to a machine state.
    .macro  with state
    oris    \state, \state, 0x0280
    ori     \state, \state, 0x2000
    .endm

// R3 to R8 = the event, R9 = the context.
    .balign 32
    .global turnstile_service_enter
turnstile_service_enter:
    out_of_guest %r9
    mfspr   %r10, TB
    ld      %r11, STATE(%r9)
    ld      %r12, ENTRY(%r9)
    std     %r10, ENTERED(%r9)
    ld      %r1, STACK(%r9)
    mtspr   HSRR0, %r12
    mtspr   HSRR1, %r11
    mtlr    %r0
    mtctr   %r0
    mtxer   %r0
    mtcrf   0xff, %r0
    .irp    n, 2, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    li      %r\n, 0
    .endr
    b       turnstile_return_exit

// R3 = the context.
    .balign 32
    .global turnstile_service_resume
turnstile_service_resume:
    out_of_guest %r3
    mr      %r1, %r3
    b       enter_all

// A call: R1 = the context, R3 to R8 = the call; R1 and LR of the service are in the context.
    .balign 32
    .global turnstile_service_called
turnstile_service_called:
    std     %r3, GPR + 24(%r1)
    std     %r4, GPR + 32(%r1)
    std     %r5, GPR + 40(%r1)
    std     %r6, GPR + 48(%r1)
    std     %r7, GPR + 56(%r1)
    std     %r8, GPR + 64(%r1)
    cmpdi   %r3, 0                      // abi::Call::Done
    beq+    service_left
    blt-    service_lends               // abi::VECTORS, as all that are negative
// It goes on behind the call, with all registers but R0, R12, CTR and CR0, which the call has changed.
    li      %r0, 0
    std     %r0, GPR(%r1)
    std     %r0, GPR + 96(%r1)
    std     %r0, CTR(%r1)
    .irp    n, 2, 9, 10, 11, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    std     %r\n, GPR + 8 * \n(%r1)
    .endr
    mfcr    %r4
    mfxer   %r5
    mfspr   %r6, SRR0
    std     %r4, CR(%r1)
    std     %r5, XER(%r1)
    std     %r6, PC(%r1)
    li      %r3, 0
// R1 = the context, R3 = how the service was left. Back to who has entered it.
service_left:
    ld      %r4, OWN_FRAME(%r1)
    ld      %r5, GUEST + 72(%r1)
    ld      %r6, GUEST + 80(%r1)
    ld      %r7, GUEST + 56(%r1)
    ld      %r8, GUEST + 64(%r1)
    ld      %r9, GUEST + 32(%r1)
    ld      %r10, GUEST + 40(%r1)
    ld      %r11, GUEST + 48(%r1)
    ld      %r12, GUEST(%r1)
    ld      %r0, GUEST + 8(%r1)
    mtspr   HSPRG0, %r4
    mtspr   LPIDR, %r5
    mtspr   PIDR, %r6
    mtspr   HFSCR, %r7
    mtspr   FSCR, %r8
    mtspr   VRSAVE, %r9
    mtspr   AMR, %r10
    mtspr   PPR, %r11
    mtspr   SRR0, %r12
    mtspr   SRR1, %r0
    .irp    n, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    ld      %r\n, OWN_GPR + 8 * \n(%r1)
    .endr
    ld      %r0, OWN_LR(%r1)
    ld      %r12, OWN_CR(%r1)
    ld      %r2, OWN_R2(%r1)
    ld      %r1, OWN_R1(%r1)
    mtlr    %r0
    mtcrf   0x38, %r12                  // CR2 to CR4
    blr

// The service wants vector registers: the guest's are stored, and it finds zeros. R1 = the context. It goes on behind the call. The hypervisor uses none of these registers, so what interrupts the service leaves them as they are (service/space.rs).
service_lends:
    addi    %r3, %r1, VECTORS_GUEST
    bl      turnstile_save_vectors
    bl      turnstile_clear_vectors
    lent    %r3
    mfspr   %r3, SRR0
    ld      %r4, MSR(%r1)
    with    %r4
    mtspr   HSRR0, %r3
    mtspr   HSRR1, %r4
    ld      %r0, LR(%r1)
    ld      %r4, GPR + 32(%r1)
    ld      %r5, GPR + 40(%r1)
    ld      %r1, GPR + 8(%r1)
    mtlr    %r0
    li      %r0, 0
    mtctr   %r0
    li      %r3, 0
    li      %r12, 0
    mtcrf   0x80, %r0
    b       turnstile_return_exit

// As turnstile_service_called, of a service that has vector registers: they are the guest's again, and R13 says so.
    .balign 32
    .global turnstile_service_called_lent
turnstile_service_called_lent:
    std     %r3, GPR + 24(%r1)
    std     %r4, GPR + 32(%r1)
    std     %r5, GPR + 40(%r1)
    addi    %r3, %r1, VECTORS_GUEST
    bl      turnstile_load_vectors
    li      %r13, 0
    ld      %r3, USER_PLAIN(%r1)
    std     %r13, LENT(%r1)
    std     %r3, USER(%r1)
    ld      %r3, GPR + 24(%r1)
    ld      %r4, GPR + 32(%r1)
    ld      %r5, GPR + 40(%r1)
    b       turnstile_service_called

// R3 = the context of a service that was interrupted while it had vector registers, which are in the context. So are the guest's: since the interrupt this
// CPU has done nothing but serve it, and no vCPU has been exchanged.
    .global turnstile_service_resume_lent
turnstile_service_resume_lent:
    out_of_guest %r3
    mr      %r1, %r3
    addi    %r3, %r1, VECTORS_OWN
    bl      turnstile_load_vectors
    lent    %r3
    ld      %r3, PC(%r1)
    ld      %r4, MSR(%r1)
    with    %r4
    .irp    n, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    ld      %r\n, GPR + 8 * \n(%r1)
    .endr
    b       enter_some

// The light handler of all interrupts: none is done here.
    .balign 32
    .global turnstile_service_interrupted
turnstile_service_interrupted:
    li      %r3, 1
    blr

// The full tier: R1 = the context, which has all registers of the service.
    .global turnstile_service_out
turnstile_service_out:
    mfspr   %r4, SRR0
    mfspr   %r5, SRR1
    mfspr   %r6, DAR
    mfspr   %r7, DSISR
    std     %r4, FOUND(%r1)
    std     %r5, FOUND + 8(%r1)
    std     %r6, FOUND + 16(%r1)
    std     %r7, FOUND + 24(%r1)
    ld      %r4, GUEST + 16(%r1)
    ld      %r5, GUEST + 24(%r1)
    mtspr   DAR, %r4
    mtspr   DSISR, %r5
    lwz     %r3, VECTOR(%r1)
    b       service_left
