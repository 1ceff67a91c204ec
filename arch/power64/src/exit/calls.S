// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Where the table of calls leads to (exit/hcall.rs). R1 = the frame, R3 = the number of the call, R0 = twice that, R4 to R10 its
// arguments; R2 and LR are the guest's, and LR is in the frame.

    // The entry of a light handler, which uses R3, R4, the registers named of those that a call may change, and XER if `xer` is 1.
    // The image is checked for that (suite/src/registers_power.rs).
    .macro  light_call name, xer, registers:vararg
    .balign 32
    .global turnstile_call_\name
turnstile_call_\name:
    ld      %r3, VCPU(%r1)
    bl      turnstile_light_\name
    attention %r5
    bne-    call_full
    call_leave \registers
    .if     \xer
    mtxer   %r0
    .endif
    guarded_return
    .endm

    // The return from a call, which is replaced where entries are guarded (guards.S): its address is in a list.
    .macro  guarded_return
9999:
    .pushsection .data.rel.ro.returns, "aw"
    .quad   9999b
    .popsection
    rfid
    .endm

    .section .data.rel.ro.returns, "aw"
    .balign 8
    .global turnstile_call_returns
turnstile_call_returns:
    .quad   turnstile_return_call

    .section .text.hot, "ax"
    light_call set_sprg0, 0, 5
    light_call confer, 0, 5, 6, 7
    light_call cede, 0, 5
    light_call prod, 0, 5, 6, 7
    light_call eoi, 1, 5, 6, 7, 8, 9, 10, 11
    light_call cppr, 1, 5, 6, 7, 8, 9, 10, 11
    light_call ipi, 1, 5, 6, 7, 8, 9, 10, 11
    light_call xirr, 0, 5, 6, 7, 8

// A number beyond the table: the firmware's functions, or none.
    .balign 32
    .global turnstile_call_far
turnstile_call_far:
    cmpldi  %r3, H_RTAS
    beq     turnstile_call_leave
// A number that is no call's.
    .global turnstile_call_unknown
turnstile_call_unknown:
    li      %r3, H_FUNCTION
    li      %r4, 0
    attention %r5
    bne-    call_full
    call_leave 5
    guarded_return

// A call of a process of the guest.
    .balign 32
    .global turnstile_user_called
turnstile_user_called:
    li      %r3, H_PRIVILEGE
    li      %r4, 0
    b       call_done

    .section .text.hot, "ax"
// Leaves a call to the full tier.
    .global turnstile_call_leave
turnstile_call_leave:
    std     %r5, GPR + 40(%r1)
    std     %r6, GPR + 48(%r1)
    std     %r7, GPR + 56(%r1)
    std     %r8, GPR + 64(%r1)
    std     %r9, GPR + 72(%r1)
    std     %r10, GPR + 80(%r1)
    lis     %r5, 0x8000                 // exit::Code::FULL, noted nowhere
    sldi    %r5, %r5, 32
    b       call_full

// The same in the place of a handler: R3 = the vCPU, R0 = twice the number. Answers with the number and the first argument.
    .global turnstile_leave_call
turnstile_leave_call:
    std     %r5, GPR + 40(%r1)
    std     %r6, GPR + 48(%r1)
    std     %r7, GPR + 56(%r1)
    std     %r8, GPR + 64(%r1)
    std     %r9, GPR + 72(%r1)
    std     %r10, GPR + 80(%r1)
    lis     %r5, 0x8000                 // exit::Code::FULL
    stw     %r5, NOTE(%r3)
    srdi    %r3, %r0, 1
    blr

// Notes when the exit of a vCPU with statistics has begun, and its reason. Changes R11 and R12.
    .macro  timed_begin
    mfspr   %r11, TB
    std     %r11, TIMING(%r1)
    li      %r12, HYPERCALL
    std     %r12, RECORD(%r1)
    .endm

// The call of a vCPU with statistics: notes the time, calls the handler, adds the time.
    .balign 32
    .global turnstile_timed_call
turnstile_timed_call:
    timed_begin
    ld      %r11, INNER(%r1)
    ldx     %r12, %r11, %r0
timed_handler:
    mtctr   %r12
    ld      %r3, VCPU(%r1)
    bctrl
timed_done:
    attention %r5
    beq+    1f
    b       call_full
1:  account %r1
    b       call_return

    .global turnstile_timed_far
turnstile_timed_far:
    timed_begin
    cmpldi  %r3, H_RTAS
    beq     turnstile_call_leave
    li      %r3, H_FUNCTION
    li      %r4, 0
    b       timed_done
