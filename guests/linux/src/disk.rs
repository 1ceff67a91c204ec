// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Requests to the first disk, past the kernel's cache: each is of 4 KiB, and they go over the disk's first 64 pieces of that size in
//! turn. No two that are under way together are neighbours: a kernel, or a monitor, would make one of them.

use core::ffi::CStr;

use crate::sys::{self, Direction, Error, File, Request, Requests};

/// The disk.
const DISK: &CStr = c"/dev/vda";
/// Bytes of a request.
const PIECE: usize = 4096;
/// How many pieces of the disk are used.
const PIECES: u64 = 64;
/// How many requests are made at once.
const DEPTH: usize = 16;

/// Memory that a disk can reach by itself.
#[repr(C, align(4096))]
struct Pieces<const N: usize>([[u8; PIECE]; N]);

/// Reads or writes a piece, and waits for it, as often as is said.
pub fn one_by_one(direction: Direction, times: u64) -> Result<(), Error> {
    sys::pin(0)?;
    let disk = open()?;
    let Pieces([piece]) = &mut Pieces([[0; PIECE]]);
    (0..times).try_for_each(|number| transfer(disk, direction, piece, number))
}

/// Opens the disk, and writes all of its pieces that are used: a disk in memory may have none where nothing was written.
fn open() -> Result<File, Error> {
    let disk = sys::open_disk(DISK)?;
    let Pieces([piece]) = &mut Pieces([[1; PIECE]]);
    (0..PIECES).try_for_each(|number| transfer(disk, Direction::Write, piece, number))?;
    Ok(disk)
}

/// Makes one request, and waits for it.
fn transfer(disk: File, direction: Direction, piece: &mut [u8; PIECE], number: u64) -> Result<(), Error> {
    match sys::transfer(disk, direction, piece, place(number))? {
        PIECE => Ok(()),
        _ => Err(Error),
    }
}

/// Reads 16 pieces at once, and waits for all, as often as is said.
pub fn at_once(times: u64) -> Result<(), Error> {
    sys::pin(0)?;
    let disk = open()?;
    let requests = Requests::new(DEPTH)?;
    let Pieces(pieces) = &mut Pieces([[0; PIECE]; DEPTH]);
    for round in 0..times {
        let first = round * DEPTH as u64;
        let mut numbers = first..;
        let all: [Request; DEPTH] = pieces.each_mut().map(|piece| {
            let number = numbers.next().unwrap_or(first);
            Request::read(disk, piece, place(number))
        });
        requests.make(&all, PIECE)?;
    }
    Ok(())
}

/// Where on the disk a request is.
fn place(number: u64) -> u64 {
    let depth = DEPTH as u64;
    // As many passes over the disk as there are pieces from one request to the next.
    let apart = PIECES / depth;
    let piece = number % depth * apart + number / depth % apart;
    piece * PIECE as u64
}
