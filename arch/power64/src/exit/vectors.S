// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Interrupt vectors (Power ISA 3.0B Book III, 6.5) and the tiers of an exit. All of this is copied to real address 0
// (boot::fault::install): it reaches itself by relative branches, and everything else through the frame (vcpu/frame.rs), which
// HSPRG0 points to.
//
// The hypervisor runs in real mode, so nothing of a guest's translation is in its way: LPIDR, LPCR, PIDR and all other
// registers of the guest stay as they are. MSR.EE stays 0, so nothing but a machine check or a system reset interrupts an exit.
//
// The guest's R13 to R31 and CR2 to CR4 stay in the CPU, as compiled code preserves them, or does not use them, as R13 (ELFv2
// ABI, 2.2.1.1). Full exits store them, too, but for calls. MSR.EE is 0 and errors are reported on a stack of their own, so compiled code may use what is below R1 (ELFv2 ABI, 2.2.3.4).

    .set    SRR0, 26
    .set    SRR1, 27
    .set    HSPRG0, 304
    .set    HSPRG1, 305
    .set    HSRR0, 314
    .set    HSRR1, 315
    .set    GPR, 32
    .set    LR, 288
    .set    CTR, 296
    .set    XER, 304
    .set    CR, 312
    .set    PC, 320
    .set    MSR, 328
    .set    VCPU, 336
    .set    NOTE, 4                     // in a vCPU: attention::Attention
    .set    VECTOR, 348
    .set    CALLS, 352
    .set    LIGHT, 360
    .set    FULL, 368
    .set    CPU, 376
    .set    PAGE, 384
    .set    TIMING, 392
    .set    RECORD, 400
    .set    INNER, 408
    .set    CAME_FROM, 416
    .set    LIGHT_DATA, 424
    .set    LIGHT_FACILITY, 432
    .set    FULL_CALL, 440
    .set    USER, 448
    .set    HYPERCALL, 128              // the record of calls in a page of statistics
    .set    TB, 268
    .set    CPU_FAULT_STACK_END, 0      // cpu::area::PerCpu
    .set    REPORT, 32                  // cpu::report::Report, behind the linkage of a frame
    .set    MSR_PR, 0x4000
    .set    CALL_COUNT, 0x480 / 4
    .set    H_FUNCTION, -2
    .set    H_PRIVILEGE, -3
    .set    H_RTAS, 0xf000

    // The place of a vector.
    .macro at offset
    .org    turnstile_vectors + \offset
    .endm

    // Changes R1, R12 and R0 into the hypervisor's stack, the light handler, and the vector: the beginning of every interrupt
    // that stores registers. Eight instructions have room between two vectors.
    .macro exit vector, handler=LIGHT
    at      \vector
    mtspr   HSPRG1, %r1
    mfspr   %r1, HSPRG0
    std     %r0, GPR(%r1)
    std     %r12, GPR + 96(%r1)
    ld      %r12, \handler(%r1)
    li      %r0, \vector
    b       light_exit
    .endm

    // Loads the attention word and what a handler has noted beside it, and compares both with nothing.
    .macro  attention to
    ld      \to, VCPU(%r1)
    ld      \to, 0(\to)
    cmpdi   \to, 0
    .endm

    // The end of a call: the guest's LR and R1, and nothing of the hypervisor's in R0, R12, CTR, the fields of CR that a call may
    // change, and the registers named, which its handler uses. The next instruction is RFID.
    .macro  call_leave registers:vararg
    ld      %r0, LR(%r1)
    mtlr    %r0
    ld      %r1, GPR + 8(%r1)
    li      %r0, 0
    mtctr   %r0
    .irp    n, \registers
    li      %r\n, 0
    .endr
    li      %r12, 0
    mtcrf   0xc7, %r0
    .endm

    // An interrupt that no guest causes, or none that it survives: goes on in image.S.
    .macro fault_body vector
    mtspr   HSPRG1, %r1
    mfspr   %r1, HSPRG0
    ld      %r1, CPU(%r1)
    ld      %r1, CPU_FAULT_STACK_END(%r1)
    std     %r0, REPORT - 512(%r1)
    li      %r0, \vector
    b       vectors_fault
    .endm

    .macro fault vector
    at      \vector
    fault_body \vector
    .endm

    // An interrupt that may be a fault of the hypervisor: an exit, if it comes out of a guest. `status` is where it leaves the
    // machine's state.
    .macro either vector, status
    mtspr   HSPRG1, %r1
    mfspr   %r1, HSPRG0
    std     %r0, GPR(%r1)
    std     %r2, GPR + 16(%r1)
    mfcr    %r2
    mfspr   %r0, \status
    rldicl. %r0, %r0, 4, 63             // MSR.HV
    bne     1f
    mtcr    %r2
    ld      %r2, GPR + 16(%r1)
    std     %r12, GPR + 96(%r1)
    ld      %r12, LIGHT(%r1)
    li      %r0, \vector
    b       light_exit
1:  mtcr    %r2
    ld      %r2, GPR + 16(%r1)
    ld      %r0, GPR(%r1)
    mfspr   %r1, HSPRG1
    fault_body \vector
    .endm

    .macro error vector
    at      \vector
    either  \vector, SRR1
    .endm

    .section .text.vectors, "ax"
    .balign 128
    .global turnstile_vectors
turnstile_vectors:
    error   0x100                       // system reset
    error   0x200                       // machine check
    fault   0x300                       // data storage
    fault   0x380                       // data segment
    fault   0x400                       // instruction storage
    fault   0x480                       // instruction segment
    fault   0x500                       // external
    fault   0x600                       // alignment
    fault   0x700                       // program
    fault   0x800                       // FP unavailable
    fault   0x900                       // decrementer
    exit    0x980                       // hypervisor decrementer
    fault   0xa00                       // doorbell

// A call to the hypervisor, by SC with LEV=1. PAPR lets it change R0, R3 to R12, CTR, XER and the fields of CR that compiled
// code may change, so only R1, R2 and LR have to be kept; no light handler of calls touches R2. R3 is the number of the call, and
// R4 to R10 its arguments; they are those of the handler, too. The table leads to the handler's entry (calls.S), with R0 = twice
// the number.
    at      0xc00
    mfspr   %r12, HSPRG0
    std     %r1, GPR + 8(%r12)
    mr      %r1, %r12
    mflr    %r0
    std     %r0, LR(%r1)
    .global turnstile_call_entered
turnstile_call_entered:                 // replaced where calls are guarded (guards.S)
    mfspr   %r0, SRR1
    andi.   %r0, %r0, MSR_PR
    bne-    call_of_user
    rotrdi  %r0, %r3, 2                 // what is no multiple of four becomes a number that is too large
    cmpldi  %r0, CALL_COUNT
    bge-    call_far
    .global turnstile_call_checked
turnstile_call_checked:                 // likewise
    ld      %r12, CALLS(%r1)
    sldi    %r0, %r3, 1
    ldx     %r12, %r12, %r0
    mtctr   %r12
    bctr
// Of problem state: a guest's processes make no calls, a service does.
call_of_user:
    ld      %r12, USER(%r1)
    mtctr   %r12
    bctr
// R3 and R4 are the answer of a call. All else that it may change may have something of the hypervisor's.
call_done:
    attention %r5
    bne-    call_full
call_return:
    call_leave 5, 6, 7, 8, 9, 10, 11
    mtxer   %r0
    .global turnstile_return_call
turnstile_return_call:                  // likewise
    rfid

    fault   0xd00                       // trace
    exit    0xe00, LIGHT_DATA           // hypervisor data storage
    exit    0xe20                       // hypervisor instruction storage
    at      0xe40                       // hypervisor emulation assistance
    b       assistance
    exit    0xe60                       // hypervisor maintenance
    exit    0xe80                       // directed hypervisor doorbell
    exit    0xea0                       // hypervisor virtualization
    fault   0xf00                       // performance monitor
    fault   0xf20                       // vector unavailable
    fault   0xf40                       // VSX unavailable
    fault   0xf60                       // facility unavailable
// Hypervisor facility unavailable, with the last branch that was taken (exit/illegal.rs).
    at      0xf80
    mtspr   HSPRG1, %r1
    mfspr   %r1, HSPRG0
    std     %r0, GPR(%r1)
    mfspr   %r0, 28                     // CFAR
    std     %r0, CAME_FROM(%r1)
    std     %r12, GPR + 96(%r1)
    ld      %r12, LIGHT_FACILITY(%r1)
    li      %r0, 0xf80
    b       light_exit
    at      0x1500                      // soft patch
    either  0x1500, HSRR1
    fault   0x1700                      // vector assist

    at      0x1800
assistance:
    either  0xe40, HSRR1
// R3 = the number of a call that is beyond the table.
call_far:
    ld      %r12, CALLS(%r1)
    ld      %r12, 8 * CALL_COUNT(%r12)
    mtctr   %r12
    bctr

// R3 and R4 are the answer of a call, or its number and first argument if the handler has not finished; R5 is the attention word
// and, in the upper half, what the handler has noted: why the call does not return to the guest at once. R2 and the fields CR2 to
// CR4 are the guest's.
call_full:
    std     %r2, GPR + 16(%r1)
    std     %r3, GPR + 24(%r1)
    std     %r4, GPR + 32(%r1)
    mfcr    %r0
    rlwinm  %r0, %r0, 0, 8, 19          // CR2 to CR4
    std     %r0, CR(%r1)
    ld      %r12, FULL_CALL(%r1)
    srdi    %r4, %r5, 32
    b       full_exit

// R1 = the frame, R0 = the vector, R12 = the light handler; R0 and R12 of the guest are in the frame, its R1 in HSPRG1.
light_exit:
    .global turnstile_exit_entered
turnstile_exit_entered:                 // replaced where exits are guarded (guards.S)
    std     %r2, GPR + 16(%r1)
    std     %r3, GPR + 24(%r1)
    std     %r4, GPR + 32(%r1)
    std     %r5, GPR + 40(%r1)
    std     %r6, GPR + 48(%r1)
    std     %r7, GPR + 56(%r1)
    std     %r8, GPR + 64(%r1)
    std     %r9, GPR + 72(%r1)
    std     %r10, GPR + 80(%r1)
    std     %r11, GPR + 88(%r1)
    mfcr    %r5
    mfspr   %r6, HSPRG1
    mflr    %r7
    mfctr   %r8
    mfxer   %r9
    std     %r5, CR(%r1)
    std     %r6, GPR + 8(%r1)
    std     %r7, LR(%r1)
    std     %r8, CTR(%r1)
    std     %r9, XER(%r1)
    stw     %r0, VECTOR(%r1)
    mtctr   %r12
    mr      %r3, %r1
    mr      %r4, %r0
    bctrl
    cmpwi   %r3, 0                      // a code, or the attention word
    bne-    full_store
light_return:
    ld      %r5, CR(%r1)
    ld      %r7, LR(%r1)
    ld      %r8, CTR(%r1)
    ld      %r9, XER(%r1)
    mtcr    %r5
    mtlr    %r7
    mtctr   %r8
    mtxer   %r9
    ld      %r0, GPR(%r1)
    ld      %r2, GPR + 16(%r1)
    ld      %r3, GPR + 24(%r1)
    ld      %r4, GPR + 32(%r1)
    ld      %r5, GPR + 40(%r1)
    ld      %r6, GPR + 48(%r1)
    ld      %r7, GPR + 56(%r1)
    ld      %r8, GPR + 64(%r1)
    ld      %r9, GPR + 72(%r1)
    ld      %r10, GPR + 80(%r1)
    ld      %r11, GPR + 88(%r1)
    ld      %r12, GPR + 96(%r1)
    ld      %r1, GPR + 8(%r1)
    .global turnstile_return_exit
turnstile_return_exit:                  // likewise
    hrfid

// The full tier of interrupts. R1 = the frame, R3 = why the light tier did not finish. R13 to R31 are the guest's, and compiled
// code leaves them so. They are stored, as the instruction may name one, but only loaded again if the frame has others.
full_store:
    .irp    n, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    std     %r\n, GPR + 8 * \n(%r1)
    .endr
    ld      %r12, FULL(%r1)
    mr      %r4, %r3
// R12 = the handler, R4 = why.
full_exit:
    mtctr   %r12
    mr      %r3, %r1
    bctrl
    cmplwi  %r3, 0                      // vcpu::frame::Entry
    bne-    enter_all
    ld      %r3, PC(%r1)
    ld      %r4, MSR(%r1)
enter_some:
    mtspr   HSRR0, %r3
    mtspr   HSRR1, %r4
    b       light_return

// The guest is entered with all registers from the frame.
enter_all:
    ld      %r3, PC(%r1)
    ld      %r4, MSR(%r1)
    .irp    n, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31
    ld      %r\n, GPR + 8 * \n(%r1)
    .endr
    b       enter_some

