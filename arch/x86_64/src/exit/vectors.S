// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The run loop (AMD APM vol. 2, 15.5 and 15.6) and the tiers of an exit.
//
// VMRUN takes the address of the control block in RAX, and goes on behind itself after #VMEXIT, with RAX, RSP, the host's
// segments, tables and control registers as before (from VM_HSAVE_PA). All other registers are still the guest's. RAX is
// in the control block; a light exit pushes what compiled code may clobber besides, runs one Rust function, and pops.
// RBX, RBP and R12-R15 stay in the CPU, as compiled code preserves them; a full exit stores them, too.
//
// No VMLOAD, VMSAVE, CLGI or STGI: FS, GS, TR, LDTR and the MSRs of SYSCALL and SYSENTER stay the guest's, since nothing
// here uses them; and GIF stays 0 from the first CLGI on (boot/boot.rs), so nothing interrupts an exit.
//
// The frame (vcpu/frame.rs): R11 at 0, R10 8, R9 16, R8 24, RDI 32, RSI 40, RDX 48, RCX 56; RBX 64, RBP 72, R12 80, R13 88,
// R14 96, R15 104; the control block at 112; for the timed loop the vCPU's page at 128, the counter at the exit at 136, the
// offset of its reason's record at 144; SPEC_CTRL of the guest at 152, of the hypervisor at 156. While the guest runs, RSP
// points at 64. In the control block: the exit code at 0x70, the clean bits at 0xc0.
//
// Guarded loops are those of CPUs on which a guest could steer the hypervisor's speculation (board/mitigation.rs chooses, at
// boot). Such a loop does what the CPU needs before the first instruction that could be predicted from what a guest left
// behind: up to there is no branch, and no load but from the frame. The plain ones know nothing of it. GUARD_* are the bits of
// core/mitigation's Exit::number.

    .set    EXIT_CODE, 0x70
    .set    CLEAN, 0xc0
    .set    ALL_CLEAN, 0x7ff
    .set    VMCB, 112
    .set    PAGE, 128
    .set    BEGIN, 136
    .set    RECORD, 144
    .set    SPEC_CTRL_GUEST, 152
    .set    SPEC_CTRL_HOST, 156

    .set    GUARD_BARRIER, 1
    .set    GUARD_FILL, 2
    .set    GUARD_CLEAR, 4
    .set    GUARD_SWITCH, 8

    .set    MSR_SPEC_CTRL, 0x48
    .set    MSR_PRED_CMD, 0x49
    .set    IBPB, 1
    .set    RETURN_STACK, 32            // entries, as many as any CPU has that has to fill it
    .set    DATA, 0x10                  // the selector of the hypervisor's data

    .macro push_all_but_rcx_rdx
    push    rsi
    push    rdi
    push    r8
    push    r9
    push    r10
    push    r11
    .endm

    .macro pop_clobberable
    pop     r11
    pop     r10
    pop     r9
    pop     r8
    pop     rdi
    pop     rsi
    pop     rdx
    pop     rcx
    .endm

    .macro store_preserved
    mov     [rsp + 64], rbx
    mov     [rsp + 72], rbp
    mov     [rsp + 80], r12
    mov     [rsp + 88], r13
    mov     [rsp + 96], r14
    mov     [rsp + 104], r15
    .endm

    .macro load_preserved
    mov     rbx, [rsp + 64]
    mov     rbp, [rsp + 72]
    mov     r12, [rsp + 80]
    mov     r13, [rsp + 88]
    mov     r14, [rsp + 96]
    mov     r15, [rsp + 104]
    .endm

    // What handlers get: the frame, the control block, the exit code. All parts count as clean from here on; who
    // writes one clears its bit.
    .macro arguments
    mov     rdi, rsp
    mov     rsi, rax
    mov     edx, [rax + EXIT_CODE]
    mov     dword ptr [rax + CLEAN], ALL_CLEAN
    .endm

    // Calls the handler of the exit code, which returns zero to re-enter at once, else why not: its own code or the
    // attention word. Codes up to 0xff have a table; the nested page fault (0x400) is beyond.
    .macro dispatch name, handlers, npf
    cmp     edx, 0xff
    ja      \name\()_far
    call    [\handlers + rdx * 8]
    .endm

    .macro far_exits name, npf
\name\()_far:
    call    \npf
    test    eax, eax
    jz      \name\()_resume
    jmp     \name\()_full
    .endm

    // The full tier: all registers in the frame. EAX = why the light tier did not re-enter.
    .macro full_tier name, full
\name\()_full:
    store_preserved
    mov     rdi, rsp
    mov     rsi, [rsp + VMCB]
    mov     edx, eax
    xor     ebp, ebp                    // the guest's frame chain is not ours to walk
    call    \full
\name\()_enter_all:
    load_preserved
    jmp     \name\()_resume
    .endm

    .macro write_spec_ctrl place
    mov     ecx, MSR_SPEC_CTRL
    mov     eax, [rsp + \place]
    xor     edx, edx
    wrmsr
    .endm

    // Calls whose returns, if they are predicted, lead to a trap; the stack forgets them. Behind each call is an instruction
    // that ends speculation.
    .macro fill_return_stack
    mov     ecx, RETURN_STACK / 2
1:  call    2f
    int3
2:  call    3f
    int3
3:  dec     ecx
    jnz     1b
    add     rsp, RETURN_STACK * 8
    .endm

    // Behind an exit, with all registers in the frame that are used here. The barrier comes first: filling has branches. LFENCE
    // lets nothing behind it begin before all is done.
    .macro guard_exit guard
    .if \guard & GUARD_SWITCH
    write_spec_ctrl SPEC_CTRL_HOST
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
    .if \guard & (GUARD_SWITCH | GUARD_BARRIER | GUARD_FILL)
    lfence
    mov     rax, [rsp + VMCB]
    .endif
    .endm

    // Before an entry, while the registers are still in the frame.
    .macro guard_entry guard
    .if \guard & GUARD_SWITCH
    write_spec_ctrl SPEC_CTRL_GUEST
    .endif
    .endm

    // As the last instruction before the entry: with an operand in memory VERW clears what could be sampled, too.
    .macro guard_clear guard
    .if \guard & GUARD_CLEAR
    verw    word ptr [rip + turnstile_data_selector]
    .endif
    .endm

    // A loop whose handlers are in one table: of CPUs that name the next instruction, and of those that do not.
    .macro plain_loop name, handlers, npf, full, guard
    .balign 64
\name\()_resume:
    guard_entry \guard
    mov     rax, [rsp + VMCB]
    pop_clobberable
    guard_clear \guard
    vmrun   rax
    push    rcx
    push    rdx
    push_all_but_rcx_rdx
    guard_exit \guard
    arguments
    dispatch \name, \handlers, \npf
    test    eax, eax
    jz      \name\()_resume
    full_tier \name, \full
    far_exits \name, \npf
    .global turnstile_enter_\name
// RDI = frame: the first entry of a vCPU.
turnstile_enter_\name:
    mov     rsp, rdi
    jmp     \name\()_enter_all
    .endm

    // Adds the time since the stamp to the record of the exit's reason (core/exitstat, page.rs). A histogram's place is
    // the number of leading zeros, 1 to 64; the total is at 0. This CPU alone writes; x86 keeps the order of stores, so
    // the total is seen behind its exit.
    .macro account
    rdtsc
    shl     rdx, 32
    or      rax, rdx
    sub     rax, [rsp + BEGIN]
    mov     rdx, [rsp + PAGE]
    add     rdx, [rsp + RECORD]
    mov     rsi, -1
    bsr     rcx, rax                    // 63 - leading zeros
    cmovz   rcx, rsi
    neg     rcx
    inc     qword ptr [rdx + rcx * 8 + 63 * 8]
    add     [rdx], rax
    .endm

    // The same with the time of each exit: stamped first thing, as soon as the registers of RDTSC are free.
    .macro timed_loop name, handlers, npf, full, guard
    .balign 64
\name\()_resume:
    account
    guard_entry \guard
    mov     rax, [rsp + VMCB]
    pop_clobberable
    guard_clear \guard
    vmrun   rax
    push    rcx
    push    rdx
    rdtsc
    push_all_but_rcx_rdx
    shl     rdx, 32
    or      rax, rdx
    mov     [rsp + BEGIN], rax
    mov     rax, [rsp + VMCB]
    guard_exit \guard
    arguments
    mov     ecx, edx
    and     ecx, 0xff
    movzx   ecx, word ptr [EXIT_RECORDS + rcx * 2]
    mov     [rsp + RECORD], rcx
    dispatch \name, \handlers, \npf
    test    eax, eax
    jz      \name\()_resume
    full_tier \name, \full
    far_exits \name, \npf
    .global turnstile_enter_\name
turnstile_enter_\name:
    mov     rsp, rdi
    jmp     \name\()_enter_all
    .endm

    .section .text.hot, "ax"
    plain_loop known, LIGHT_HANDLERS, turnstile_nested_page_fault, turnstile_full_exit, 0
    plain_loop named, LIGHT_HANDLERS_NAMED, turnstile_nested_page_fault, turnstile_full_exit_named, 0
    timed_loop known_timed, LIGHT_HANDLERS_TIMED, turnstile_nested_page_fault_timed, turnstile_full_exit, 0
    timed_loop named_timed, LIGHT_HANDLERS_NAMED_TIMED, turnstile_nested_page_fault_timed, turnstile_full_exit_named, 0

    .section .text.guarded, "ax"
    .irp guard, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    plain_loop known_\guard, LIGHT_HANDLERS, turnstile_nested_page_fault, turnstile_full_exit, \guard
    plain_loop named_\guard, LIGHT_HANDLERS_NAMED, turnstile_nested_page_fault, turnstile_full_exit_named, \guard
    timed_loop known_timed_\guard, LIGHT_HANDLERS_TIMED, turnstile_nested_page_fault_timed, turnstile_full_exit, \guard
    timed_loop named_timed_\guard, LIGHT_HANDLERS_NAMED_TIMED, turnstile_nested_page_fault_timed, turnstile_full_exit_named, \guard
    .endr

    // Where a vCPU first enters its guest: exit/wait.rs.
    .section .rodata.loops, "a"
    .balign 8
    .global turnstile_loops
turnstile_loops:
    .quad   turnstile_enter_known, turnstile_enter_named, turnstile_enter_known_timed, turnstile_enter_named_timed
    .irp guard, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    .quad   turnstile_enter_known_\guard, turnstile_enter_named_\guard
    .quad   turnstile_enter_known_timed_\guard, turnstile_enter_named_timed_\guard
    .endr
turnstile_data_selector:
    .short  DATA

    .section .text.hot, "ax"

// CPUID writes RBX, which compiled code preserves: the handler finds and leaves it in the frame.
    .macro with_rbx name, handler
    .global \name
\name:
    mov     [rdi + 64], rbx
    push    rdi
    call    \handler
    pop     rdi
    mov     rbx, [rdi + 64]
    ret
    .endm

    with_rbx turnstile_light_cpuid, turnstile_light_cpuid_rbx
    with_rbx turnstile_light_cpuid_named, turnstile_light_cpuid_rbx_named
