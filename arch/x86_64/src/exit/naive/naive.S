// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The run loop of an image for ablation whose command line takes techniques off. It does what vectors.S does, and before
// the handler what the techniques save: the functions in NAIVE_CHAIN, which naive/mod.rs fills at boot. Handlers come from
// NAIVE_HANDLERS. Follows vectors.S in the same piece of assembly.

    .macro naive_chain
    mov     [rsp + 64], rbx             // the chain's cursor lives in a register that callees preserve
    lea     rbx, [rip + NAIVE_CHAIN]
1:  mov     rax, [rbx]
    test    rax, rax
    jz      2f
    mov     rdi, rsp
    mov     rsi, [rsp + VMCB]
    call    rax
    add     rbx, 8
    jmp     1b
2:  mov     rbx, [rsp + 64]
    mov     rdi, rsp
    mov     rsi, [rsp + VMCB]
    mov     edx, [rsi + EXIT_CODE]
    .endm

    .section .text.naive, "ax"
    .balign 64
naive_resume:
    mov     rax, [rsp + VMCB]
    pop_clobberable
    vmrun   rax
    push    rcx
    push    rdx
    push_all_but_rcx_rdx
    arguments
    naive_chain
    dispatch naive, NAIVE_HANDLERS, turnstile_nested_page_fault
    test    eax, eax
    jz      naive_resume
    full_tier naive, turnstile_full_exit
    far_exits naive, turnstile_nested_page_fault
    .global turnstile_enter_naive
turnstile_enter_naive:
    mov     rsp, rdi
    jmp     naive_enter_all
