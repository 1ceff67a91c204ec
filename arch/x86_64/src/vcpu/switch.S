// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Changing stacks: each vCPU that shares CPUs has a stack of its own, with its exit frame at the top.
//
// A stack that is not in use has RBX, RBP and R12-R15 on it, as a called function must preserve them (System V ABI), and
// the address where it goes on, at its saved RSP. Of a vCPU that has never run, they are made up (sched/thread.rs:prepare):
// it goes on at thread_start, and RBX is the argument.

    .section .text.switch, "ax"
// RDI = where the RSP of the stack in use goes, RSI = RSP of the stack to use. Returns on that one.
    .global turnstile_switch_stack
turnstile_switch_stack:
    push    rbp
    push    r15
    push    r14
    push    r13
    push    r12
    push    rbx
    mov     [rdi], rsp
    mov     rsp, rsi
    pop     rbx
    pop     r12
    pop     r13
    pop     r14
    pop     r15
    pop     rbp
    ret

    .global turnstile_thread_start
turnstile_thread_start:
    mov     rdi, rbx
    xor     ebp, ebp
    call    turnstile_run_thread
    ud2
