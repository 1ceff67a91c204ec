// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The kinds of work.

use core::ffi::CStr;

use crate::disk;
use crate::network::{self, Side};
use crate::sys::{self, Direction, Error, Process};

/// How long `sleep-1ms` sleeps, in nanoseconds.
const SLEEP: u64 = 1_000_000;
/// Bytes of frames, without their checksum.
const SHORT: usize = 64;
const LONG: usize = 1514;
/// How many frames are sent at once.
const WINDOW: usize = 64;

/// Does the work of a kind as often as is said; `None` if there is no such kind.
pub fn work(program: &CStr, kind: &[u8], times: u64) -> Option<Result<(), Error>> {
    match kind {
        b"pipe-1cpu" => Some(pipe(times, 0)),
        b"pipe-2cpus" => Some(pipe(times, 1)),
        b"fork-exec" => Some(fork_exec(program, times)),
        b"sleep-1ms" => Some(sleep(times)),
        b"disk-read" => Some(disk::one_by_one(Direction::Read, times)),
        b"disk-write" => Some(disk::one_by_one(Direction::Write, times)),
        b"disk-batch" => Some(disk::at_once(times)),
        _ => match kind.strip_prefix(b"answer-") {
            None => packets(kind, Side::First, times),
            Some(kind) => packets(kind, Side::Second, times),
        },
    }
}

/// The kinds for which another virtual machine does the other side's part.
fn packets(kind: &[u8], side: Side, times: u64) -> Option<Result<(), Error>> {
    match kind {
        b"packet" => Some(network::exchange(side, SHORT, 1, times)),
        b"packet-1500" => Some(network::exchange(side, LONG, 1, times)),
        b"packet-batch" => Some(network::exchange(side, SHORT, WINDOW, times)),
        b"packet-sleeping" => Some(network::rarely(side, SHORT, false, times)),
        b"silence" => Some(network::rarely(side, SHORT, true, times)),
        b"segment" => Some(network::segments(side, times)),
        _ => None,
    }
}

/// Sends a byte to another process on CPU `other`, which sends it back.
fn pipe(times: u64, other: u32) -> Result<(), Error> {
    sys::pin(0)?;
    let (there, back) = (sys::pipe()?, sys::pipe()?);
    let child = match sys::fork()? {
        Process::Child => {
            // The end of what the parent writes must reach it.
            sys::close(there.write)?;
            let served = sys::pin(other).and_then(|()| serve(there.read, back.write));
            sys::exit(i32::from(served.is_err()))
        }
        Process::Parent(child) => child,
    };
    for round in 0..times {
        let (sent, mut received) = ([round as u8], [!(round as u8)]);
        if sys::write(there.write, &sent)? != 1
            || sys::read(back.read, &mut received)? != 1
            || sent != received
        {
            return Err(Error);
        }
    }
    sys::close(there.write)?;
    sys::wait(child)
}

/// Sends each byte back, until there are no more.
fn serve(from: sys::File, to: sys::File) -> Result<(), Error> {
    let mut byte = [0];
    while sys::read(from, &mut byte)? == 1 {
        if sys::write(to, &byte)? != 1 {
            return Err(Error);
        }
    }
    Ok(())
}

/// Starts a process that becomes this very program without arguments, and waits for its end.
fn fork_exec(program: &CStr, times: u64) -> Result<(), Error> {
    sys::pin(0)?;
    for _ in 0..times {
        match sys::fork()? {
            Process::Child => {
                let Err(Error) = sys::execute(program);
                sys::exit(1)
            }
            Process::Parent(child) => sys::wait(child)?,
        }
    }
    Ok(())
}

/// Sleeps for a millisecond.
fn sleep(times: u64) -> Result<(), Error> {
    sys::pin(0)?;
    (0..times).try_for_each(|_| sys::sleep(SLEEP))
}
