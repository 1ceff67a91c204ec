// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The run loop of an image for ablation whose command line takes techniques off. It does what vectors.S does, and before
// the handler what the techniques save: the functions in NAIVE_CHAIN, which naive/mod.rs fills at boot. Handlers come from
// NAIVE_HANDLERS. Follows vectors.S in the same piece of assembly.

    // The chain is ordinary functions: all registers are in the frame meanwhile.
    .macro naive_chain
    store_rest
    mov     dword ptr [rax + CLEAN], ALL_CLEAN
    lea     rbx, [rip + NAIVE_CHAIN]    // the chain's cursor lives in a register that callees preserve
1:  mov     rax, [rbx]
    test    rax, rax
    jz      2f
    mov     rdi, rsp
    mov     rsi, [rsp + VMCB]
    call    rax
    add     rbx, 8
    jmp     1b
2:  load_rest
    mov     rax, [rsp + VMCB]
    .endm

    .section .text.naive, "ax"
    .balign 64
naive_resume:
    enter   0
    naive_chain
    movzx   ecx, byte ptr [rax + EXIT_CODE]
    mov     rdi, rsp
    call    [NAIVE_HANDLERS + rcx * 8]
    test    eax, eax
    jz      naive_resume
    full_tier naive, turnstile_full_exit
