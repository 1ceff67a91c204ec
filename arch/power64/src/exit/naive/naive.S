// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The entry of every call, on vCPUs that do without techniques (exit/naive/mod.rs). R1 = the frame, R3 = the number, R0 = twice
// that, R4 to R10 the arguments; R2 is the guest's.

    .section .text.hot, "ax"
    .balign 32
    .global turnstile_naive_call
turnstile_naive_call:
    std     %r2, GPR + 16(%r1)
    std     %r3, GPR + 24(%r1)
    std     %r4, GPR + 32(%r1)
    std     %r5, GPR + 40(%r1)
    std     %r6, GPR + 48(%r1)
    std     %r7, GPR + 56(%r1)
    std     %r8, GPR + 64(%r1)
    std     %r9, GPR + 72(%r1)
    std     %r10, GPR + 80(%r1)
    std     %r0, GPR(%r1)
    mr      %r4, %r3
    mr      %r3, %r1
    bcl     20, 31, 1f
1:  mflr    %r12
    addis   %r12, %r12, (turnstile_naive_chain - 1b)@ha
    addi    %r12, %r12, (turnstile_naive_chain - 1b)@l
    mtctr   %r12
    bctrl
    cmpdi   %r3, 0
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
    beq     2f
    b       turnstile_call_leave
2:  ld      %r11, INNER(%r1)
    ldx     %r12, %r11, %r0
    mtctr   %r12
    ld      %r3, VCPU(%r1)
    bctrl
    attention %r5
    beq+    3f
    b       call_full
3:  b       call_return
