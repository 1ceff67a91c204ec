// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to files of which several are under way (Linux, include/uapi/linux/aio_abi.h).

use super::arch::{call, number};
use super::error::Error;
use super::file::File;

/// `IOCB_CMD_PREAD`
const READ: u16 = 0;

/// `struct iocb`, as of little-endian machines.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct Request {
    data: u64,
    key: u32,
    flags_of_write: i32,
    operation: u16,
    priority: i16,
    file: u32,
    memory: u64,
    bytes: u64,
    at: i64,
    reserved: u64,
    flags: u32,
    event_file: u32,
}

/// `struct io_event`
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Event {
    data: u64,
    request: u64,
    result: i64,
    more: i64,
}

impl Request {
    /// Fills this memory from a place of a file. The memory is the kernel's until the request is done.
    pub fn read(file: File, to: &mut [u8], at: u64) -> Self {
        Request {
            operation: READ,
            file: file.0 as u32,
            memory: to.as_mut_ptr().expose_provenance() as u64,
            bytes: to.len() as u64,
            at: at as i64,
            ..Request::default()
        }
    }
}

/// Where requests are made.
#[derive(Debug)]
pub struct Requests {
    context: usize,
}

impl Requests {
    /// For so many at once.
    pub fn new(most: usize) -> Result<Self, Error> {
        let mut context = 0;
        // SAFETY: the kernel writes a number.
        unsafe { call(number::IO_SETUP, [most, (&raw mut context).addr(), 0, 0, 0]) }?;
        Ok(Requests { context })
    }

    /// Makes all of these, and waits until they are done; each is to transfer so many bytes.
    pub fn make<const N: usize>(&self, all: &[Request; N], bytes: usize) -> Result<(), Error> {
        let pointers = all.each_ref().map(address);
        let mut events = [Event::default(); N];
        // SAFETY: the kernel reads `N` requests by as many pointers. What they refer to stays until all are done, which is below.
        let made = unsafe {
            call(number::IO_SUBMIT, [self.context, N, pointers.as_ptr().expose_provenance(), 0, 0])
        }?;
        let done = events.as_mut_ptr().expose_provenance();
        // SAFETY: the kernel writes at most `N` events, and waits for as many as were made, without a limit of time.
        let ended = unsafe { call(number::IO_GETEVENTS, [self.context, made, N, done, 0]) }?;
        let whole = events.iter().all(|event| event.result == bytes as i64);
        if made == N && ended == N && whole { Ok(()) } else { Err(Error) }
    }
}

/// Where the kernel finds a request.
fn address(request: &Request) -> usize {
    core::ptr::from_ref(request).expose_provenance()
}
