// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls on POWER (Linux, Documentation/arch/powerpc/syscall64-abi.rst and
//! arch/powerpc/kernel/syscalls/syscall.tbl).

use core::arch::{asm, global_asm};

use super::error::Error;

/// The numbers of the calls.
pub mod number {
    pub const READ: usize = 3;
    pub const WRITE: usize = 4;
    pub const CLOSE: usize = 6;
    pub const EXECVE: usize = 11;
    pub const WAIT4: usize = 114;
    pub const CLONE: usize = 120;
    pub const NANOSLEEP: usize = 162;
    pub const PREAD64: usize = 179;
    pub const PWRITE64: usize = 180;
    pub const SCHED_SETAFFINITY: usize = 222;
    pub const IO_SETUP: usize = 227;
    pub const IO_GETEVENTS: usize = 229;
    pub const IO_SUBMIT: usize = 230;
    pub const EXIT_GROUP: usize = 234;
    pub const OPENAT: usize = 286;
    pub const PIPE2: usize = 317;
    pub const SOCKET: usize = 326;
    pub const BIND: usize = 327;
    pub const CONNECT: usize = 328;
    pub const LISTEN: usize = 329;
    pub const ACCEPT4: usize = 344;
}

// The kernel's stack begins with the arguments, where the ABI wants a frame to begin: one is put below. The table of
// contents is at a fixed address, as the program is.
global_asm!(
    ".globl _start",
    "_start:",
    "lis 2, .TOC.@ha",
    "addi 2, 2, .TOC.@l",
    "mr 3, 1",
    "li 0, 0",
    "stdu 0, -64(1)",
    "bl work_start",
    "trap",
);

/// `O_DIRECT`: past the kernel's cache.
pub const DIRECT: usize = 0o40_0000;

/// Calls the kernel.
///
/// # Safety
/// The arguments are what the call expects; pointers point to what the kernel may read or write.
pub unsafe fn call(number: usize, arguments: [usize; 5]) -> Result<usize, Error> {
    let result: usize;
    let failed: usize;
    // SAFETY: the caller's promise. As at a function's call the kernel changes r0, r3 to r13 but for r13, CTR, XER and CR0, CR1,
    // CR5 to CR7; CR0.SO tells of an error.
    unsafe {
        asm!(
            "sc",
            "mfcr {failed}",
            failed = lateout(reg) failed,
            inlateout("r0") number => _,
            inlateout("r3") arguments[0] => result,
            inlateout("r4") arguments[1] => _,
            inlateout("r5") arguments[2] => _,
            inlateout("r6") arguments[3] => _,
            inlateout("r7") arguments[4] => _,
            lateout("r8") _,
            lateout("r9") _,
            lateout("r10") _,
            lateout("r11") _,
            lateout("r12") _,
            lateout("ctr") _,
            lateout("xer") _,
            lateout("cr0") _,
            lateout("cr1") _,
            lateout("cr5") _,
            lateout("cr6") _,
            lateout("cr7") _,
            options(nostack),
        );
    }
    const SUMMARY_OVERFLOW: usize = 1 << 28;
    if failed & SUMMARY_OVERFLOW == 0 { Ok(result) } else { Err(Error) }
}
