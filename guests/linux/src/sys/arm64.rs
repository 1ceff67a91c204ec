// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls on arm64 (Linux, arch/arm64/include/asm/unistd.h and include/uapi/asm-generic/unistd.h).

use core::arch::{asm, global_asm};

use super::error::Error;

/// The numbers of the calls.
pub mod number {
    pub const IO_SETUP: usize = 0;
    pub const IO_SUBMIT: usize = 2;
    pub const IO_GETEVENTS: usize = 4;
    pub const OPENAT: usize = 56;
    pub const CLOSE: usize = 57;
    pub const PIPE2: usize = 59;
    pub const READ: usize = 63;
    pub const WRITE: usize = 64;
    pub const PREAD64: usize = 67;
    pub const PWRITE64: usize = 68;
    pub const EXIT_GROUP: usize = 94;
    pub const NANOSLEEP: usize = 101;
    pub const SCHED_SETAFFINITY: usize = 122;
    pub const SOCKET: usize = 198;
    pub const BIND: usize = 200;
    pub const LISTEN: usize = 201;
    pub const CONNECT: usize = 203;
    pub const CLONE: usize = 220;
    pub const EXECVE: usize = 221;
    pub const ACCEPT4: usize = 242;
    pub const WAIT4: usize = 260;
}

global_asm!(".globl _start", "_start:", "mov x29, #0", "mov x0, sp", "b work_start");

/// `O_DIRECT`: past the kernel's cache.
pub const DIRECT: usize = 0o20_0000;

/// Calls the kernel.
///
/// # Safety
/// The arguments are what the call expects; pointers point to what the kernel may read or write.
pub unsafe fn call(number: usize, arguments: [usize; 5]) -> Result<usize, Error> {
    let result: isize;
    // SAFETY: the caller's promise; the kernel keeps all registers but x0.
    unsafe {
        asm!(
            "svc #0",
            in("x8") number,
            inlateout("x0") arguments[0] => result,
            in("x1") arguments[1],
            in("x2") arguments[2],
            in("x3") arguments[3],
            in("x4") arguments[4],
            options(nostack),
        );
    }
    usize::try_from(result).map_err(|_| Error)
}
