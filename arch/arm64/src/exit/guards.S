// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// Guarded vector tables: those of CPUs on which a guest could steer the hypervisor's speculation. A CPU that needs
// nothing uses the tables of vectors.S, which know nothing of these (board/mitigation.rs chooses, at boot).
//
// A guarded vector does what the CPU needs before anything that could be predicted from what a guest left behind: it
// holds no load from an address that a guest chose, no indirect branch and no return. It then goes on behind the first
// instruction of the same vector in the unguarded table, which it has done itself; in the table that keeps statistics
// behind the first two, so that the time of the exit is taken before the guard. Follows vectors.S in the same piece of
// assembly.
//
// PerCpu::guard: the firmware's function at 16, the turns of the loop at 20.

    .macro guard_clear
    hint    #22                         // CLRBHB; its effect needs the ISB
    isb
    .endm

    // Two taken branches a turn. The barriers keep what follows from being speculated before the last turn.
    .macro guard_loop
    mrs     x0, tpidr_el2
    ldr     w0, [x0, #20]
1:  b       2f
2:  subs    w0, w0, #1
    b.ne    1b
    dsb     nsh
    isb
    .endm

    // SMCCC 1.1: the firmware may change x0-x3 and nothing else.
    .macro guard_call
    stp     x2, x3, [sp, #16]
    mrs     x0, tpidr_el2
    ldr     w0, [x0, #16]
    smc     #0
    ldp     x2, x3, [sp, #16]
    .endm

    .macro guard_loop_call
    guard_loop
    guard_call
    .endm

    .macro guarded guard, table, offset
    .balign 128
    stp     x0, x1, [sp]
    guard_\guard
    b       \table + \offset + 4
    .endm

    .macro guarded_timed guard, table, offset
    .balign 128
    stamp
    str     x0, [sp, #264]
    guard_\guard
    ldr     x0, [sp, #264]
    b       \table + \offset + 8
    .endm

    // For the vectors of services (service/entry.S), which do nothing first: what the guard has used is as it was.
    .macro guarded_service guard, table, offset
    .balign 128
    stp     x0, x1, [sp, #-32]!
    guard_\guard
    ldp     x0, x1, [sp], #32
    b       \table + \offset
    .endm

    .macro guarded_table vector, guard, table
    hypervisor_faults
    .irp    offset, 0x400, 0x480, 0x500, 0x580, 0x600, 0x680, 0x700, 0x780
    \vector \guard, \table, \offset
    .endr
    .balign 128
    .endm

    // All guarded tables of one table, each as long as a table is: in the order of cpu/guard.rs:Kind.
    .macro guarded_tables vector, table
    .balign 2048
    .global \table\()_guarded
\table\()_guarded:
    guarded_table \vector, clear, \table
    guarded_table \vector, loop, \table
    guarded_table \vector, call, \table
    guarded_table \vector, loop_call, \table
    .endm

    .section .text.guarded, "ax"
    guarded_tables guarded, vectors
    guarded_tables guarded_timed, vectors_timed
    guarded_tables guarded, vectors_gicv2
    guarded_tables guarded_timed, vectors_gicv2_timed
    guarded_tables guarded, vectors_legacy
    guarded_tables guarded_timed, vectors_legacy_timed
    guarded_tables guarded_service, vectors_service
