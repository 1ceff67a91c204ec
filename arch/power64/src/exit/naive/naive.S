// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// In the place of the light handler of every call, on vCPUs that do without techniques (exit/naive/mod.rs). R0 = twice the number,
// R3 = the frame, R4 to R10 the arguments.

    .section .text.hot, "ax"
    .global turnstile_naive_call
turnstile_naive_call:
    std     %r4, GPR + 32(%r3)
    std     %r5, GPR + 40(%r3)
    std     %r6, GPR + 48(%r3)
    std     %r7, GPR + 56(%r3)
    std     %r8, GPR + 64(%r3)
    std     %r9, GPR + 72(%r3)
    std     %r10, GPR + 80(%r3)
    std     %r0, GPR(%r3)
    srdi    %r4, %r0, 1
    bcl     20, 31, 1f
1:  mflr    %r12
    addis   %r12, %r12, (turnstile_naive_chain - 1b)@ha
    addi    %r12, %r12, (turnstile_naive_chain - 1b)@l
    mtctr   %r12
    bctrl
    cmpdi   %r3, 0
    mr      %r3, %r1
    ld      %r0, GPR(%r1)
    ld      %r4, GPR + 32(%r1)
    ld      %r5, GPR + 40(%r1)
    ld      %r6, GPR + 48(%r1)
    ld      %r7, GPR + 56(%r1)
    ld      %r8, GPR + 64(%r1)
    ld      %r9, GPR + 72(%r1)
    ld      %r10, GPR + 80(%r1)
    beq     2f
    bl      turnstile_leave_call
    b       3f
2:  ld      %r11, INNER(%r1)
    ldx     %r12, %r11, %r0
    mtctr   %r12
    bctrl
3:  ld      %r6, VCPU(%r1)
    lwz     %r5, WHY(%r1)
    lwz     %r6, 0(%r6)
    or.     %r5, %r5, %r6
    beq+    4f
    b       call_full
4:  b       call_return
