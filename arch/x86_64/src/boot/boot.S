// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The way from the boot protocols to Rust: PVH (Xen's public/arch-x86/hvm/start_info.h) by a note, and multiboot2 by a
// header. Both enter in 32-bit protected mode without paging, with EBX at what the boot loader says. A multiboot-1
// header must not be here: QEMU would prefer it to PVH, and refuse the file, because it is a 64-bit one.
//
// The image is linked where it runs, below 2 GiB, one to one.

    .set    MULTIBOOT2_HEADER, 0xe85250d6
    .set    MULTIBOOT2_LOADED, 0x36d76289
    .set    PVH_LOADED, 0x336ec578
    .set    XEN_ELFNOTE_PHYS32_ENTRY, 18
    .set    COM1, 0x3f8
    .set    STACK_BLOCK, 65536
    .set    STACK_HEAD, 256             // cpu::STACK_HEAD: the end of a stack, which is not used as one

    .section .note.pvh, "a", @note
    .balign 4
    .long   4, 4, XEN_ELFNOTE_PHYS32_ENTRY
    .asciz  "Xen"
    .long   turnstile_pvh_entry

    .section .head.text, "ax"
    .balign 8
multiboot2_header:
    .long   MULTIBOOT2_HEADER
    .long   0                           // i386
    .long   multiboot2_header_end - multiboot2_header
    .long   -(MULTIBOOT2_HEADER + (multiboot2_header_end - multiboot2_header))
    .balign 8
    .short  6, 0                        // modules begin at page boundaries
    .long   8
    .short  0, 0                        // end of the tags
    .long   8
multiboot2_header_end:

    .code32
    .global turnstile_pvh_entry
turnstile_pvh_entry:
    mov     eax, PVH_LOADED             // PVH leaves EAX to chance
    .global turnstile_multiboot_entry
turnstile_multiboot_entry:
    cli
    cld
    mov     ebp, eax                    // the boot protocol
    rdtsc                               // when the hypervisor has begun
    mov     [boot_begin], eax
    mov     [boot_begin + 4], edx
    mov     edi, offset __bss_start
    mov     ecx, offset __bss_end
    sub     ecx, edi
    shr     ecx, 2
    xor     eax, eax
    rep stosd
    mov     esp, offset boot_stack_end - 16
    mov     esi, ebx                    // what the boot loader says; CPUID changes EBX

    mov     eax, 0x80000000
    cpuid
    cmp     eax, 0x80000001
    jb      refuse
    mov     eax, 0x80000001
    cpuid
    and     edx, (1 << 29) | (1 << 20)  // long mode, no-execute pages
    cmp     edx, (1 << 29) | (1 << 20)
    jne     refuse

    // Boot-time identity map of 4 GiB in 2 MiB pages. It lives on for CPUs that start, which load the final tables as
    // soon as they are in 64-bit mode.
    mov     edi, offset early_pml4
    mov     dword ptr [edi], offset early_pdpt + 3
    mov     edi, offset early_pdpt
    mov     eax, offset early_pd + 3
    mov     ecx, 4
1:  mov     [edi], eax
    add     eax, 4096
    add     edi, 8
    loop    1b
    mov     edi, offset early_pd
    mov     eax, 0x83                   // present, writable, 2 MiB
    mov     ecx, 2048
2:  mov     [edi], eax
    add     eax, 0x200000
    add     edi, 8
    loop    2b

    lgdt    early_gdtr
    mov     edi, offset primary_in_long_mode
    jmp     enter_long_mode
primary_in_long_mode:
    ljmp    0x18, offset primary64

// Turns paging on with the boot-time tables, and goes on at EDI; still in 32-bit code. Changes EAX, ECX, EDX.
enter_long_mode:
    mov     eax, cr4
    or      eax, 1 << 5                 // PAE
    mov     cr4, eax
    mov     eax, offset early_pml4
    mov     cr3, eax
    mov     ecx, 0xc0000080             // EFER
    rdmsr
    or      eax, (1 << 8) | (1 << 11)   // LME, NXE
    wrmsr
    mov     eax, cr0
    and     eax, ~((1 << 29) | (1 << 30)) // caches on
    or      eax, (1 << 31) | (1 << 16) | 1 // PG, WP, PE
    mov     cr0, eax
    jmp     edi

// Says on COM1, which is not set up yet, why the CPU cannot be used, and stops.
refuse:
    mov     dx, COM1 + 3                // LCR: 8 bits, no parity
    mov     al, 3
    out     dx, al
    mov     esi, offset refusal
1:  lodsb
    test    al, al
    jz      3f
    mov     ah, al
    mov     dx, COM1 + 5                // LSR
    mov     ecx, 1000000
2:  in      al, dx
    test    al, 0x20                    // the transmitter takes a byte
    loopz   2b
    mov     dx, COM1
    mov     al, ah
    out     dx, al
    jmp     1b
3:  hlt
    jmp     3b
refusal:
    .ascii  "turnstile: cannot run here: the CPU has no 64-bit mode, or no no-execute pages.\r\n"
    .asciz  "Use a newer one: under QEMU, -cpu max or -cpu EPYC.\r\n"

    .code64
primary64:
    mov     ax, 0x10
    mov     ds, ax
    mov     es, ax
    mov     ss, ax
    mov     fs, ax
    mov     gs, ax
    mov     rsp, offset boot_stack_end - 16
    lea     rax, [rip + boot_cpu]
    mov     [rsp + 8], rax              // where cpu::this finds it
    mov     edi, ebp
    mov     esi, esi
    mov     rdx, [rip + boot_begin]
    xor     ebp, ebp
    call    turnstile_primary
    ud2

// turnstile_on_stack(argument, stack_end, function): goes on as the function on another stack, for ever.
    .global turnstile_on_stack
turnstile_on_stack:
    lea     rsp, [rsi - STACK_HEAD]
    xor     ebp, ebp
    call    rdx
    ud2

// CPUs that were started by startup IPIs, in 64-bit mode on the boot-time tables, several at once and without a stack. Each
// finds its own in the list of turnstile_arch_common::startup, by the identification of its local APIC: the one that an
// x2APIC has (CPUID Fn0000_000B_EDX), also where it is still in the other mode, or the one of eight bits.
secondary64:
    mov     ax, 0x10
    mov     ds, ax
    mov     es, ax
    mov     ss, ax
    mov     fs, ax
    mov     gs, ax
    xor     eax, eax
    cpuid
    cmp     eax, 0xb
    jb      1f
    mov     eax, 0xb
    xor     ecx, ecx
    cpuid
    test    ebx, ebx                    // no levels: the leaf means nothing
    jnz     2f
1:  mov     eax, 1
    cpuid
    mov     edx, ebx
    shr     edx, 24
2:  lea     rsi, [rip + turnstile_starting]
    mov     rcx, [rsi]                  // number of records
    mov     rax, [rsi + 8]              // root of the final tables
3:  test    rcx, rcx
    jz      4f
    dec     rcx
    add     rsi, 16
    cmp     rdx, [rsi]                  // (identification, end of the stack's block)
    jne     3b
    mov     rsp, [rsi + 8]
    mov     cr3, rax
    mov     rdi, [rsp - 8]              // the CPU's area
    sub     rsp, STACK_HEAD
    xor     ebp, ebp
    call    turnstile_secondary
    ud2
4:  hlt                                 // not one that was to start
    jmp     4b

    .balign 8
early_gdt:
    .quad   0
    .quad   0x00cf9b000000ffff          // 0x08: 32-bit code
    .quad   0x00cf93000000ffff          // 0x10: data
    .quad   0x00af9b000000ffff          // 0x18: 64-bit code
early_gdt_end:
early_gdtr:
    .short  early_gdt_end - early_gdt - 1
    .quad   early_gdt

// Where other CPUs start, in real mode: copied to a page below 1 MiB, where CS points. Everything is addressed relative
// to it.
    .section .rodata.trampoline, "a"
    .balign 16
    .code16
    .global turnstile_trampoline
turnstile_trampoline:
    cli
    cld
    mov     ax, cs
    mov     ds, ax
    lgdtd   [TRAMPOLINE_GDTR]
    mov     eax, cr0
    or      al, 1
    mov     cr0, eax
    .byte   0x66                        // to a 32-bit offset, which the assembler has no word for here
    ljmp    fword ptr [TRAMPOLINE_FAR32]
    .balign 8
trampoline_gdtr:
    .short  early_gdt_end - early_gdt - 1
    .long   early_gdt
    .balign 4
trampoline_far32:
    .long   secondary32
    .short  0x08
    .global turnstile_trampoline_end
turnstile_trampoline_end:
    .set    TRAMPOLINE_GDTR, trampoline_gdtr - turnstile_trampoline
    .set    TRAMPOLINE_FAR32, trampoline_far32 - turnstile_trampoline

    .section .text.secondary32, "ax"
    .code32
secondary32:
    mov     ax, 0x10
    mov     ds, ax
    mov     ss, ax
    mov     es, ax
    mov     edi, offset secondary_in_long_mode
    jmp     enter_long_mode
secondary_in_long_mode:
    ljmp    0x18, offset secondary64
    .code64

    .section .data.early, "aw", @progbits
    .balign 8
boot_begin:
    .quad   0

    .section .bss.early, "aw", @nobits
    .balign 4096
early_pml4:
    .skip   4096
early_pdpt:
    .skip   4096
early_pd:
    .skip   4 * 4096
    .balign STACK_BLOCK
    .skip   STACK_BLOCK
    .global boot_stack_end
boot_stack_end:
    .skip   STACK_BLOCK
    .global boot_fault_stack_end
boot_fault_stack_end:
