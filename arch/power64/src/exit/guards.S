// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Guards: what exits and entries do in addition on a machine where a guest could steer the hypervisor's speculation, or read by
// its own what others have left. A machine that needs nothing executes none of this. On the others board/mitigation.rs replaces four
// instructions of vectors.S at boot, before those are copied to address 0, and every return of calls.S, by branches to a guard
// each; the guard carries the replaced instruction out, too. Part of what is copied, so that it is reached from there and from the image alike.
//
// A guard of an exit comes before any indirect branch and any return, and uses nothing of the guest's for an address.
// Each guard begins with a barrier; who needs none begins behind it.
//
// LR and CTR are free where a call is guarded: LR is in the frame, and PAPR lets a call change CTR. On other exits they are
// kept in the frame, where light_exit stores them, too.

    .set    TRIG2, 882
    .set    LINKS, 64                   // entries of the link stack of POWER9 and POWER10
    .set    TARGETS, 278                // branches that fill the count cache, as Linux counts them
    .set    FLUSH_BYTES, 0x10000        // twice the first-level data cache of POWER9 and POWER10
    .set    LINE, 128

// Where the memory is that is loaded to flush the data cache: found from anywhere, at its place in the copy at address 0.
    .balign 8
turnstile_flush_pointer:
    .quad   turnstile_flush_area

// Between the stores of one side and the loads of the other: EIEIO with a hint for the processor (POWER9 User's Manual).
    .macro  barrier
    .long   0x7e0006ac
    .endm

    .macro  forget_links
    .rept   LINKS
    bl      . + 4
    .endr
    .endm

// BCCTR 2,0,0 never branches while CTR is above one: it counts down. With firmware's assistance one flushes the count cache;
// without, so many of them fill it, one in each aligned 32 bytes.
    .macro  forget_targets_nothing scratch
    .endm
    .macro  forget_targets_assisted scratch
    li      \scratch, 0x7fff
    mtctr   \scratch
    .long   0x4c400420                  // bcctr 2, 0, 0
    .endm
    .macro  forget_targets_software scratch
    li      \scratch, 0x7fff
    mtctr   \scratch
    .balign 32
    .rept   TARGETS
    .long   0x4c400420                  // bcctr 2, 0, 0
    nop
    nop
    nop
    nop
    nop
    nop
    nop
    .endr
    .endm

// In the place of `mfspr r0, SRR1`, behind which R0 is used.
    .macro  guard_call name, targets
    .balign 128                         // so that what aligns its branches is the same in every image
    .global turnstile_guard_call_\name
turnstile_guard_call_\name:
    barrier
    forget_links
    forget_targets_\targets %r0
    mfspr   %r0, SRR1
    b       turnstile_call_entered + 4
    .endm

// In the place of `std r2, GPR + 16(r1)`. R0 is the vector.
    .macro  guard_exit name, targets
    .balign 128
    .global turnstile_guard_exit_\name
turnstile_guard_exit_\name:
    barrier
    std     %r2, GPR + 16(%r1)
    mflr    %r2
    std     %r2, LR(%r1)
    mfctr   %r2
    std     %r2, CTR(%r1)
    forget_links
    forget_targets_\targets %r2
    ld      %r2, CTR(%r1)
    mtctr   %r2
    ld      %r2, LR(%r1)
    mtlr    %r2
    b       turnstile_exit_entered + 4
    .endm

    .global turnstile_guard_call_barrier
turnstile_guard_call_barrier:
    barrier
    mfspr   %r0, SRR1
    b       turnstile_call_entered + 4
    guard_call links, nothing
    guard_call assisted, assisted
    guard_call software, software

    .global turnstile_guard_exit_barrier
turnstile_guard_exit_barrier:
    barrier
    std     %r2, GPR + 16(%r1)
    b       turnstile_exit_entered + 4
    guard_exit links, nothing
    guard_exit assisted, assisted
    guard_exit software, software

// In the place of `ld r12, CALLS(r1)`: the number of a call has been compared with the size of the table.
    .global turnstile_guard_checked
turnstile_guard_checked:
    ori     %r31, %r31, 0               // no speculation past it
    ld      %r12, CALLS(%r1)
    b       turnstile_call_checked + 4

// Flushes of the data cache. All registers are the guest's already.
    .macro  flush_barrier
    .endm
    .macro  flush_instruction
    ori     %r31, %r31, 0               // no speculation past it
    ori     %r30, %r30, 0
    .endm
    .macro  flush_register
    mtspr   TRIG2, %r0                  // whatever is written
    .endm
// Loads of the hypervisor's own zeros, twice as many as the cache holds, at staggered offsets. What is kept in the frame is what
// the guest is about to have.
    .macro  flush_loads
    mtspr   HSPRG1, %r1
    mfspr   %r1, HSPRG0
    std     %r10, GPR + 80(%r1)
    std     %r11, GPR + 88(%r1)
    mfctr   %r10
    std     %r10, CTR(%r1)
    ld      %r10, turnstile_flush_pointer - turnstile_vectors(0)
    lis     %r11, 0x6000
    .long   0x7d405a2c                  // dcbt 0, r11, 10: ends all prefetched streams
    li      %r11, FLUSH_BYTES / (8 * LINE)
    mtctr   %r11
    sync                                // the streams have ended
1:  ld      %r11, 0(%r10)
    ld      %r11, LINE + 8(%r10)
    ld      %r11, 2 * (LINE + 8)(%r10)
    ld      %r11, 3 * (LINE + 8)(%r10)
    ld      %r11, 4 * (LINE + 8)(%r10)
    ld      %r11, 5 * (LINE + 8)(%r10)
    ld      %r11, 6 * (LINE + 8)(%r10)
    ld      %r11, 7 * (LINE + 8)(%r10)
    addi    %r10, %r10, 8 * LINE
    bdnz    1b
    ld      %r10, CTR(%r1)
    mtctr   %r10
    ld      %r10, GPR + 80(%r1)
    ld      %r11, GPR + 88(%r1)
    mfspr   %r1, HSPRG1
    .endm

// In the place of the instruction by which a guest is entered.
    .macro  guard_return name
    .global turnstile_guard_return_call_\name
turnstile_guard_return_call_\name:
    barrier
    flush_\name
    rfid
    .global turnstile_guard_return_exit_\name
turnstile_guard_return_exit_\name:
    barrier
    flush_\name
    hrfid
    .endm

    guard_return barrier
    guard_return instruction
    guard_return register
    guard_return loads

// All guards, in the order of board/mitigation.rs: of calls and of other exits by what they forget, of the returns behind them by
// what they flush, and that of a call's number.
    .section .data.rel.ro.guards, "aw"
    .balign 8
    .global turnstile_guards
turnstile_guards:
    .irp    name, barrier, links, assisted, software
    .quad   turnstile_guard_call_\name
    .endr
    .irp    name, barrier, links, assisted, software
    .quad   turnstile_guard_exit_\name
    .endr
    .irp    name, barrier, instruction, register, loads
    .quad   turnstile_guard_return_call_\name
    .endr
    .irp    name, barrier, instruction, register, loads
    .quad   turnstile_guard_return_exit_\name
    .endr
    .quad   turnstile_guard_checked

    .section .bss.flush_area, "aw", @nobits
    .balign 128
turnstile_flush_area:
    .skip   FLUSH_BYTES

    .section .text.vectors, "ax"
