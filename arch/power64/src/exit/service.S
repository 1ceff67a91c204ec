// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Calls that a service handles (exit/service.rs): entries of VMs with services alone. R12 = this address, R1 = the frame, R3 = the
// number of the call, R4 to R10 its arguments; R2 is the guest's, and its LR is in the frame.

    .macro  service_call name, handler, timed
    .balign 32
    .global turnstile_call_\name
turnstile_call_\name:
    std     %r2, GPR + 16(%r1)
    addis   %r2, %r12, (.TOC. - turnstile_call_\name)@ha
    addi    %r2, %r2, (.TOC. - turnstile_call_\name)@l
    .if     \timed
    timed_begin
    .endif
    mr      %r3, %r1
    bl      turnstile_service_\handler
    attention %r5
    bne-    service_call_full
    .if     \timed
    account %r1
    .endif
    ld      %r2, GPR + 16(%r1)
    ld      %r5, GPR + 40(%r1)
    ld      %r6, GPR + 48(%r1)
    call_leave 7, 8, 9, 10, 11
    mtxer   %r0
    guarded_return
    .endm

    .section .text.hot, "ax"
    service_call terminal_get, terminal_get, 0
    service_call terminal_put, terminal_put, 0
    service_call timed_terminal_get, timed_terminal_get, 1
    service_call timed_terminal_put, timed_terminal_put, 1

// R3 and R4 = the answer; the rest of it is in the frame. R2 is the image's.
service_call_full:
    std     %r3, GPR + 24(%r1)
    std     %r4, GPR + 32(%r1)
    mfcr    %r0
    rlwinm  %r0, %r0, 0, 8, 19          // CR2 to CR4
    std     %r0, CR(%r1)
    addis   %r12, %r2, turnstile_service_attend@toc@ha
    addi    %r12, %r12, turnstile_service_attend@toc@l
    li      %r4, 0
    b       full_exit

// The end of the list of returns, behind the last one (calls.S).
    .section .data.rel.ro.returns, "aw"
    .global turnstile_call_returns_end
turnstile_call_returns_end:
    .section .text.hot, "ax"
