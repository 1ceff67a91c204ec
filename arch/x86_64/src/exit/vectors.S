// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The run loop (AMD APM vol. 2, 15.5 and 15.6) and the tiers of an exit.
//
// VMRUN takes the address of the control block in RAX, and goes on behind itself after #VMEXIT, with RAX, RSP, the host's
// segments, tables and control registers as before (from VM_HSAVE_PA). All other registers are still the guest's. RAX is
// in the control block. The loop stores RCX and RDI, which it needs itself, and calls the handler of the exit code; each
// light handler returns with all others as they were, and stores those that it needs (exit/keep.rs). A full exit stores all.
//
// No VMLOAD, VMSAVE, CLGI or STGI: FS, GS, TR, LDTR and the MSRs of SYSCALL and SYSENTER stay the guest's, since nothing
// here uses them; and GIF stays 0 from the first CLGI on (boot/boot.rs), so nothing interrupts an exit.
//
// The frame (vcpu/frame.rs): R11 at 0, R10 8, R9 16, R8 24, RDI 32, RSI 40, RDX 48, RCX 56; RBX 64, RBP 72, R12 80, R13 88,
// R14 96, R15 104; the control block at 112; for the timed loop the vCPU's page at 128, the counter at the exit at 136, the
// offset of its reason's record at 144; SPEC_CTRL of the guest at 152, of the hypervisor at 156. RSP points at it in the loop
// and while the guest runs. In the control block: the exit code at 0x70, the clean bits at 0xc0.
//
// Guarded loops are those of CPUs on which a guest could steer the hypervisor's speculation (board/mitigation.rs chooses, at
// boot). Such a loop does what the CPU needs before the first instruction that could be predicted from what a guest left
// behind: up to there is no branch, and no load but from the frame. The plain ones know nothing of it. GUARD_* are the bits of
// core/mitigation's Exit::number.

    .set    EXIT_CODE, 0x70
    .set    CLEAN, 0xc0
    .set    ALL_CLEAN, 0x7ff
    .set    RDI_SLOT, 32
    .set    RDX_SLOT, 48
    .set    RCX_SLOT, 56
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

    // All but RAX, RCX and RDI: what light handlers leave in the CPU.
    .macro store_rest
    mov     [rsp], r11
    mov     [rsp + 8], r10
    mov     [rsp + 16], r9
    mov     [rsp + 24], r8
    mov     [rsp + 40], rsi
    mov     [rsp + RDX_SLOT], rdx
    mov     [rsp + 64], rbx
    mov     [rsp + 72], rbp
    mov     [rsp + 80], r12
    mov     [rsp + 88], r13
    mov     [rsp + 96], r14
    mov     [rsp + 104], r15
    .endm

    .macro load_rest
    mov     r11, [rsp]
    mov     r10, [rsp + 8]
    mov     r9, [rsp + 16]
    mov     r8, [rsp + 24]
    mov     rsi, [rsp + 40]
    mov     rdx, [rsp + RDX_SLOT]
    mov     rbx, [rsp + 64]
    mov     rbp, [rsp + 72]
    mov     r12, [rsp + 80]
    mov     r13, [rsp + 88]
    mov     r14, [rsp + 96]
    mov     r15, [rsp + 104]
    .endm

    // Calls the handler of the exit code with the frame; it returns zero to re-enter at once, else why not: a code or the
    // attention word. The low byte is the index: of the codes beyond 0xff, only the nested page fault's (0x400) has a
    // handler, in the place of a code that is not intercepted, and each handler of two codes looks which it is. All parts of
    // the control block count as clean from here on; who writes one clears its bit.
    .macro dispatch handlers
    mov     rdi, rsp
    mov     dword ptr [rax + CLEAN], ALL_CLEAN
    call    [\handlers + rcx * 8]
    .endm

    // The full tier: all registers in the frame. EAX = why the light tier did not re-enter. And the first entry of a vCPU,
    // with RDI = frame.
    .macro full_tier name, full
\name\()_full:
    store_rest
    mov     rdi, rsp
    mov     rsi, [rsp + VMCB]
    mov     edx, eax
    xor     ebp, ebp                    // the guest's frame chain is not ours to walk
    call    \full
\name\()_enter_all:
    load_rest
    jmp     \name\()_resume
    .global turnstile_enter_\name
turnstile_enter_\name:
    mov     rsp, rdi
    jmp     \name\()_enter_all
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

    // Behind an exit, with RCX and RDI in the frame. The barrier comes first: filling has branches. LFENCE lets nothing behind
    // it begin before all is done.
    .macro guard_exit guard
    .if \guard & (GUARD_SWITCH | GUARD_BARRIER)
    mov     [rsp + RDX_SLOT], rdx
    .endif
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
    .if \guard & (GUARD_SWITCH | GUARD_BARRIER)
    mov     rdx, [rsp + RDX_SLOT]
    .endif
    .if \guard & (GUARD_SWITCH | GUARD_BARRIER | GUARD_FILL)
    lfence
    mov     rax, [rsp + VMCB]
    .endif
    .endm

    // Before an entry, while RCX and RDI are still in the frame.
    .macro guard_entry guard
    .if \guard & GUARD_SWITCH
    mov     [rsp + RDX_SLOT], rdx
    write_spec_ctrl SPEC_CTRL_GUEST
    mov     rdx, [rsp + RDX_SLOT]
    .endif
    .endm

    // As the last instruction before the entry: with an operand in memory VERW clears what could be sampled, too.
    .macro guard_clear guard
    .if \guard & GUARD_CLEAR
    verw    word ptr [rip + turnstile_data_selector]
    .endif
    .endm

    // Enters the guest, and comes back with RCX and RDI in the frame and RAX = control block.
    .macro enter guard
    mov     rax, [rsp + VMCB]
    mov     rcx, [rsp + RCX_SLOT]
    mov     rdi, [rsp + RDI_SLOT]
    guard_clear \guard
    vmrun   rax
    mov     [rsp + RCX_SLOT], rcx
    mov     [rsp + RDI_SLOT], rdi
    .endm

    // A loop whose handlers are in one table: of CPUs that name the next instruction, and of those that do not.
    .macro plain_loop name, handlers, full, guard
    .balign 64
\name\()_resume:
    guard_entry \guard
    enter   \guard
    guard_exit \guard
    movzx   ecx, byte ptr [rax + EXIT_CODE]
    dispatch \handlers
    test    eax, eax
    jz      \name\()_resume
    full_tier \name, \full
    .endm

    // Adds the time since the stamp to the record of the exit's reason (core/exitstat, page.rs). A histogram's place is
    // the number of leading zeros, 1 to 64; the total is at 0. This CPU alone writes; x86 keeps the order of stores, so
    // the total is seen behind its exit.
    .macro account
    mov     [rsp + RDX_SLOT], rdx
    rdtsc
    shl     rdx, 32
    or      rax, rdx
    sub     rax, [rsp + BEGIN]
    mov     rdx, [rsp + PAGE]
    add     rdx, [rsp + RECORD]
    mov     rdi, -1
    bsr     rcx, rax                    // 63 - leading zeros
    cmovz   rcx, rdi
    neg     rcx
    inc     qword ptr [rdx + rcx * 8 + 63 * 8]
    add     [rdx], rax
    mov     rdx, [rsp + RDX_SLOT]
    .endm

    // The same with the time of each exit: stamped first thing, as soon as the registers of RDTSC are free.
    .macro timed_loop name, handlers, full, guard
    .balign 64
\name\()_resume:
    account
    guard_entry \guard
    enter   \guard
    mov     [rsp + RDX_SLOT], rdx
    rdtsc
    shl     rdx, 32
    or      rax, rdx
    mov     [rsp + BEGIN], rax
    mov     rdx, [rsp + RDX_SLOT]
    mov     rax, [rsp + VMCB]
    guard_exit \guard
    movzx   ecx, byte ptr [rax + EXIT_CODE]
    movzx   edi, word ptr [EXIT_RECORDS + rcx * 2]
    mov     [rsp + RECORD], rdi
    dispatch \handlers
    test    eax, eax
    jz      \name\()_resume
    full_tier \name, \full
    .endm

    .section .text.hot, "ax"
    plain_loop known, LIGHT_HANDLERS, turnstile_full_exit, 0
    plain_loop named, LIGHT_HANDLERS_NAMED, turnstile_full_exit_named, 0
    timed_loop known_timed, LIGHT_HANDLERS_TIMED, turnstile_full_exit, 0
    timed_loop named_timed, LIGHT_HANDLERS_NAMED_TIMED, turnstile_full_exit_named, 0

    .section .text.guarded, "ax"
    .irp guard, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15
    plain_loop known_\guard, LIGHT_HANDLERS, turnstile_full_exit, \guard
    plain_loop named_\guard, LIGHT_HANDLERS_NAMED, turnstile_full_exit_named, \guard
    timed_loop known_timed_\guard, LIGHT_HANDLERS_TIMED, turnstile_full_exit, \guard
    timed_loop named_timed_\guard, LIGHT_HANDLERS_NAMED_TIMED, turnstile_full_exit_named, \guard
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
