// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way into a service and out of it (AMD APM vol. 2, 15.5): as into a guest and out, with a control block of its own.
//
// What VMRUN does not exchange (FS, GS, TR, LDTR, the registers of SYSCALL and SYSENTER) is the guest's, in the CPU. A service could
// change FS and GS, and no intercept would see it (a null selector is loaded without a descriptor); and what a guest has made of
// them, of its LDT and of its TSS would act on the service. So they are exchanged, too: VMSAVE, VMLOAD, and VMLOAD behind it. FP
// registers stay the guest's: no instruction reaches them (service/block.rs).
//
// space.rs has the way of an event that is answered at once. It is left with the service's registers in the CPU, or stored here if
// something else has happened (service/space.rs, Registers): RDI, RSI, RDX, RCX, R8, R9 from 0 on, RBX, RBP, R10 to R15 from 48 on; the
// service's control block at 112, one for the guest's hidden state at 120, the way in at 128, SPEC_CTRL of the hypervisor at 136.
//
// Guarded ways are those of CPUs on which a guest, and so a service, could steer the hypervisor's speculation, as guarded loops are
// (exit/vectors.S): no branch between the exit and the guard, and no load but from the stack. SPEC_CTRL is the hypervisor's in the
// service, too; it is written again because some CPUs take that as the moment in which privileged code begins.

    .set    SERVICE_VMCB, 112
    .set    SERVICE_HIDDEN, 120
    .set    SERVICE_WAY, 128
    .set    SERVICE_SPEC_CTRL, 136

    // The ways: RAX = the service's registers; returns with RAX = its control block, and all others as the service has left them.
    // The registers' address is on the stack, above the return address.
    .macro service_guarded guard
    .balign 16
service_way_\guard:
    .if \guard & GUARD_SWITCH
    push    qword ptr [rax + SERVICE_SPEC_CTRL]
    .endif
    mov     rax, [rax + SERVICE_VMCB]
    guard_clear \guard
    vmrun   rax
    .if \guard & (GUARD_SWITCH | GUARD_BARRIER | GUARD_FILL)
    push    rcx
    push    rdx
    .if \guard & GUARD_SWITCH
    mov     ecx, MSR_SPEC_CTRL
    mov     eax, [rsp + 16]
    xor     edx, edx
    wrmsr
    .endif
    .if \guard & GUARD_BARRIER
    mov     ecx, MSR_PRED_CMD
    mov     eax, IBPB
    xor     edx, edx
    wrmsr
    .endif
    .if \guard & GUARD_FILL
    fill_return_stack
    .endif
    lfence
    pop     rdx
    pop     rcx
    .if \guard & GUARD_SWITCH
    pop     rax
    .endif
    mov     rax, [rsp + 8]
    mov     rax, [rax + SERVICE_VMCB]
    .endif
    ret
    .endm

    .section .text.hot, "ax"
    .balign 16
service_way_0:
    mov     rax, [rax + SERVICE_VMCB]
    vmrun   rax
    ret

    // Stores the service's registers. RAX = where.
    .balign 16
    .global turnstile_service_store
turnstile_service_store:
    mov     [rax], rdi
    mov     [rax + 8], rsi
    mov     [rax + 16], rdx
    mov     [rax + 24], rcx
    mov     [rax + 32], r8
    mov     [rax + 40], r9
    mov     [rax + 48], rbx
    mov     [rax + 56], rbp
    mov     [rax + 64], r10
    mov     [rax + 72], r11
    mov     [rax + 80], r12
    mov     [rax + 88], r13
    mov     [rax + 96], r14
    mov     [rax + 104], r15
    ret

    .section .text.guarded, "ax"
    .irp guard, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    service_guarded \guard
    .endr

    // Enters a service with the registers that are stored, and stores them again. RDI = where.
    .balign 16
    .global turnstile_service_resume
turnstile_service_resume:
    push    rbx
    push    rbp
    push    r12
    push    r13
    push    r14
    push    r15
    push    rdi
    mov     rax, [rdi + SERVICE_HIDDEN]
    vmsave  rax
    mov     rax, [rdi + SERVICE_VMCB]
    vmload  rax
    mov     rax, rdi
    mov     rdi, [rax]
    mov     rsi, [rax + 8]
    mov     rdx, [rax + 16]
    mov     rcx, [rax + 24]
    mov     r8, [rax + 32]
    mov     r9, [rax + 40]
    mov     rbx, [rax + 48]
    mov     rbp, [rax + 56]
    mov     r10, [rax + 64]
    mov     r11, [rax + 72]
    mov     r12, [rax + 80]
    mov     r13, [rax + 88]
    mov     r14, [rax + 96]
    mov     r15, [rax + 104]
    call    [rax + SERVICE_WAY]
    mov     rax, [rsp]
    call    turnstile_service_store
    mov     rax, [rax + SERVICE_HIDDEN]
    vmload  rax
    pop     rdi
    pop     r15
    pop     r14
    pop     r13
    pop     r12
    pop     rbp
    pop     rbx
    ret

    .section .rodata.loops, "a"
    .balign 8
    .global turnstile_service_ways
turnstile_service_ways:
    .irp guard, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    .quad   service_way_\guard
    .endr
