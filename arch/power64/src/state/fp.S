// SPDX-License-Identifier: Apache-2.0 OR MIT
//
// The registers that compiled code does not use.

    .section .text.switch, "ax"
// R3 = where all VSRs, FPSCR and VSCR go (state/fp.rs). MSR.FP, MSR.VEC and MSR.VSX are on meanwhile.
    .macro  with_vectors
    mfmsr   %r4
    lis     %r5, 0x0280                 // MSR.VEC, MSR.VSX
    ori     %r5, %r5, 0x2000            // MSR.FP
    or      %r5, %r5, %r4
    mtmsrd  %r5
    isync                               // what follows is executed with them on
    .endm

    // One instruction for a VSR: STXV and LXV have a displacement (Power ISA 3.0B Book I, 7.6.3).
    .macro  store n
    stxv    \n, 16 * \n(%r3)
    .endm
    .macro  load n
    lxv     \n, 16 * \n(%r3)
    .endm
    .macro  clear n
    xxlxor  \n, \n, \n
    .endm

    // The same for all VSRs.
    .macro  each_vector operation
    .irp    n, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63
    \operation \n
    .endr
    .endm

    .global turnstile_save_vectors
turnstile_save_vectors:
    with_vectors
    each_vector store
    mffs    0
    stfd    0, 1024(%r3)
    mfvscr  0
    stxv    32, 1040(%r3)
    // What was changed meanwhile is as it was: others may look at it.
    lxv     0, 0(%r3)
    lxv     32, 512(%r3)
    mtmsrd  %r4
    blr

    .global turnstile_load_vectors
turnstile_load_vectors:
    with_vectors
    lfd     0, 1024(%r3)
    mtfsf   255, 0, 1, 0
    lxv     32, 1040(%r3)
    mtvscr  0
    each_vector load
    mtmsrd  %r4
    blr

// What `Vectors::new` has, whose zeros are read from nowhere.
    .global turnstile_clear_vectors
turnstile_clear_vectors:
    with_vectors
    each_vector clear
    mtfsf   255, 0, 1, 0
    mtvscr  0
    mtmsrd  %r4
    blr
    .text
