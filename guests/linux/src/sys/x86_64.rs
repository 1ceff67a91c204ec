// SPDX-License-Identifier: Apache-2.0 OR MIT
//! System calls on x86-64 (Linux, arch/x86/entry/entry_64.S and arch/x86/entry/syscalls/syscall_64.tbl).

use core::arch::{asm, global_asm};

use super::error::Error;

/// The numbers of the calls.
pub mod number {
    pub const READ: usize = 0;
    pub const WRITE: usize = 1;
    pub const CLOSE: usize = 3;
    pub const PREAD64: usize = 17;
    pub const PWRITE64: usize = 18;
    pub const NANOSLEEP: usize = 35;
    pub const SOCKET: usize = 41;
    pub const CONNECT: usize = 42;
    pub const BIND: usize = 49;
    pub const LISTEN: usize = 50;
    pub const CLONE: usize = 56;
    pub const EXECVE: usize = 59;
    pub const WAIT4: usize = 61;
    pub const SCHED_SETAFFINITY: usize = 203;
    pub const IO_SETUP: usize = 206;
    pub const IO_GETEVENTS: usize = 208;
    pub const IO_SUBMIT: usize = 209;
    pub const EXIT_GROUP: usize = 231;
    pub const OPENAT: usize = 257;
    pub const ACCEPT4: usize = 288;
    pub const PIPE2: usize = 293;
}

// The stack is aligned to 16 bytes, as the ABI has it at a call.
global_asm!(".globl _start", "_start:", "xor ebp, ebp", "mov rdi, rsp", "call work_start", "ud2");

/// `O_DIRECT`: past the kernel's cache.
pub const DIRECT: usize = 0o4_0000;

/// Calls the kernel.
///
/// # Safety
/// The arguments are what the call expects; pointers point to what the kernel may read or write.
pub unsafe fn call(number: usize, arguments: [usize; 5]) -> Result<usize, Error> {
    let result: isize;
    // SAFETY: the caller's promise; SYSCALL itself changes RCX and R11, and the kernel keeps all others but RAX.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") number => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            in("r10") arguments[3],
            in("r8") arguments[4],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    usize::try_from(result).map_err(|_| Error)
}
