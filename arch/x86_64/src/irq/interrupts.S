// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Exceptions of the hypervisor, which end it, and the machine's interrupts, which are noted in the CPU's area.

    .set    STACK_MASK, 0xffff          // cpu::STACK_BLOCK - 1

// Entry of an exception; an error code is pushed where the CPU pushes none (APM vol. 2, 8.2).
    .macro  exception vector
    .balign 16
    .if \vector == 8 || (\vector >= 10 && \vector <= 14) || \vector == 17 || \vector == 21 || \vector == 29 || \vector == 30
    .else
    push    0
    .endif
    push    \vector
    jmp     exception_common
    .endm

    .section .text.interrupts, "ax"
    .balign 16
    .global turnstile_exceptions
turnstile_exceptions:
    .set    vector, 0
    .rept   32
    exception vector
    .set    vector, vector + 1
    .endr

exception_common:
    push    r15
    push    r14
    push    r13
    push    r12
    push    r11
    push    r10
    push    r9
    push    r8
    push    rbp
    push    rdi
    push    rsi
    push    rdx
    push    rcx
    push    rbx
    push    rax
    cld
    mov     rdi, rsp
    and     rsp, ~0xf
    call    turnstile_fault
    ud2

// Entry of an interrupt: notes its bit in PerCpu::arrived, ends it at the local APIC. Only its own CPU touches that word.
    .macro  arrive bit
    .balign 16
    push    rax
    mov     eax, \bit
    jmp     interrupt_common
    .endm

    .macro  interrupt name, bit
    .balign 16
    .global \name
\name:
    arrive  \bit
    .endm

    interrupt turnstile_interrupt_console, 1
    interrupt turnstile_interrupt_timer, 2
    interrupt turnstile_interrupt_kick, 4
    interrupt turnstile_interrupt_reschedule, 8
    interrupt turnstile_interrupt_apic_error, 16

    .balign 16
    .global turnstile_interrupt_devices
turnstile_interrupt_devices:
    .set    bit, 32
    .rept   8
    arrive  bit
    .set    bit, bit << 1
    .endr

interrupt_common:
    push    rcx
    push    rdx
    mov     rcx, rsp
    or      rcx, STACK_MASK
    mov     rcx, [rcx - 7]              // the CPU's area
    or      [rcx], eax                  // PerCpu::arrived
    mov     rdx, [rip + TURNSTILE_XAPIC]
    xor     eax, eax
    test    rdx, rdx
    jz      1f
    mov     [rdx + 0xb0], eax           // EOI of the xAPIC's page
    jmp     2f
1:  mov     ecx, 0x80b                  // EOI of the x2APIC
    xor     edx, edx
    wrmsr
2:  pop     rdx
    pop     rcx
    pop     rax
    iretq

// A spurious interrupt is not in service (Intel SDM vol. 3, 11.9).
    .balign 16
    .global turnstile_interrupt_spurious
turnstile_interrupt_spurious:
    iretq
