// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The few system calls of Linux that the work consists of. Their numbers and how a program calls the kernel are each
//! architecture's.

#[cfg(target_arch = "aarch64")]
#[path = "arm64.rs"]
mod arch;
#[cfg(target_arch = "powerpc64")]
#[path = "power64.rs"]
mod arch;
#[cfg(target_arch = "x86_64")]
#[path = "x86_64.rs"]
mod arch;
mod error;
mod file;
mod requests;
mod socket;

pub use error::Error;
pub use file::File;
pub use requests::{Request, Requests};
pub use socket::{Address, Kind, accept, bind, connect, listen, socket};

use core::convert::Infallible;
use core::ffi::{CStr, c_char};
use core::ptr::{null, null_mut};

use arch::{call, number};

/// SIGCHLD: what a process that ends sends its parent.
const SIGCHLD: usize = 17;

/// A pipe's two ends.
#[derive(Clone, Copy, Debug)]
pub struct Pipe {
    /// What is written to the other end comes out here.
    pub read: File,
    /// The other end.
    pub write: File,
}

/// Which process one is behind a fork.
#[derive(Clone, Copy, Debug)]
pub enum Process {
    /// The new one.
    Child,
    /// The old one, with the number of the new one.
    Parent(u32),
}

/// Ends the process.
pub fn exit(status: i32) -> ! {
    loop {
        // SAFETY: it touches no memory of ours.
        let _ = unsafe { call(number::EXIT_GROUP, [status as usize, 0, 0, 0, 0]) };
    }
}

/// Keeps the process on one CPU.
pub fn pin(cpu: u32) -> Result<(), Error> {
    let set = 1u64 << cpu;
    // SAFETY: the kernel reads as many bytes of the set as it has.
    unsafe { call(number::SCHED_SETAFFINITY, [0, size_of_val(&set), (&raw const set).addr(), 0, 0]) }
        .map(drop)
}

/// Opens a disk, past the kernel's cache.
pub fn open_disk(path: &CStr) -> Result<File, Error> {
    const READ_AND_WRITE: usize = 2;
    // Of a path that is whole the kernel asks no folder.
    let arguments = [0, path.as_ptr().expose_provenance(), READ_AND_WRITE | arch::DIRECT, 0, 0];
    // SAFETY: the path is a string.
    unsafe { call(number::OPENAT, arguments) }.map(|file| File(file as i32))
}

/// Which way bytes go between a disk and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To memory.
    Read,
    /// To the disk.
    Write,
}

/// Reads or writes at a place of a file; returns how many bytes.
pub fn transfer(file: File, direction: Direction, bytes: &mut [u8], at: u64) -> Result<usize, Error> {
    let number = match direction {
        Direction::Read => number::PREAD64,
        Direction::Write => number::PWRITE64,
    };
    let memory = bytes.as_mut_ptr().expose_provenance();
    // SAFETY: the kernel reads or writes at most as many bytes as there are.
    unsafe { call(number, [file.0 as usize, memory, bytes.len(), at as usize, 0]) }
}

/// Makes a pipe.
pub fn pipe() -> Result<Pipe, Error> {
    let mut ends = [0i32; 2];
    // SAFETY: the kernel writes two numbers.
    unsafe { call(number::PIPE2, [(&raw mut ends).addr(), 0, 0, 0, 0]) }?;
    Ok(Pipe { read: File(ends[0]), write: File(ends[1]) })
}

/// Reads; returns how many bytes, and 0 at the end.
pub fn read(file: File, to: &mut [u8]) -> Result<usize, Error> {
    // SAFETY: the kernel writes at most as many bytes as there is room for.
    unsafe { call(number::READ, [file.0 as usize, to.as_mut_ptr().expose_provenance(), to.len(), 0, 0]) }
}

/// Writes; returns how many bytes.
pub fn write(file: File, from: &[u8]) -> Result<usize, Error> {
    // SAFETY: the kernel reads at most as many bytes as there are.
    unsafe { call(number::WRITE, [file.0 as usize, from.as_ptr().expose_provenance(), from.len(), 0, 0]) }
}

/// Closes a file.
pub fn close(file: File) -> Result<(), Error> {
    // SAFETY: it touches no memory of ours.
    unsafe { call(number::CLOSE, [file.0 as usize, 0, 0, 0, 0]) }.map(drop)
}

/// Makes a copy of the process.
pub fn fork() -> Result<Process, Error> {
    // SAFETY: without flags the new process has memory and a stack of its own, which are copies.
    let child = unsafe { call(number::CLONE, [SIGCHLD, 0, 0, 0, 0]) }?;
    Ok(if child == 0 { Process::Child } else { Process::Parent(child as u32) })
}

/// Becomes another program, with its name as its only argument.
pub fn execute(program: &CStr) -> Result<Infallible, Error> {
    let arguments: [*const c_char; 2] = [program.as_ptr(), null()];
    let environment: [*const c_char; 1] = [null()];
    let pointers = [
        program.as_ptr().expose_provenance(),
        arguments.as_ptr().expose_provenance(),
        environment.as_ptr().expose_provenance(),
        0,
        0,
    ];
    // SAFETY: all are strings and lists of strings as the kernel expects them. It does not return, but for an error.
    unsafe { call(number::EXECVE, pointers) }.and(Err(Error))
}

/// Waits for a process's end, and fails if it ended otherwise than with status 0.
pub fn wait(child: u32) -> Result<(), Error> {
    let mut status = 0i32;
    let usage = null_mut::<u8>().addr();
    // SAFETY: the kernel writes the status, and nothing where there is no pointer.
    let ended = unsafe { call(number::WAIT4, [child as usize, (&raw mut status).addr(), 0, usage, 0]) }?;
    if ended == child as usize && status == 0 { Ok(()) } else { Err(Error) }
}

/// Sleeps for so many nanoseconds, less than a second.
pub fn sleep(nanoseconds: u64) -> Result<(), Error> {
    let time = [0, nanoseconds];
    // SAFETY: the kernel reads seconds and nanoseconds, and writes nothing where there is no pointer.
    unsafe { call(number::NANOSLEEP, [(&raw const time).addr(), 0, 0, 0, 0]) }.map(drop)
}
