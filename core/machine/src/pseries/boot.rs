// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a kernel of the machine `pseries` is placed and entered. Pure functions: a file's bytes go in, a list of what to put
//! where and the registers of the first vCPU come out.
//!
//! | file | how |
//! |---|---|
//! | ELF for 64-bit Power, Linux's `vmlinux` | its segments at their physical addresses; entered where its entry lies |
//! | anything else that is no file of a known other kind | flat: at address zero, entered at its first byte, little-endian |
//!
//! Behind the kernel follow the firmware, the initial RAM disk and the device tree. A kernel is entered with translation off,
//! with the address of the device tree in R3 and zero in all other registers (Linux,
//! `Documentation/arch/powerpc/booting.rst`).

mod elf;
mod error;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use turnstile_papr::rtas;

pub use error::BootError;

use super::Interrupts;
use super::fdt::{self, Platform};
use crate::image::FileKind;
use crate::load::{Load, Piece, overlap};

/// The alignment of what follows the kernel: the largest page a guest commonly uses.
const ALIGN: u64 = 0x1_0000;
/// Bytes that are kept for the firmware.
const RTAS_SIZE: u64 = 0x1_0000;
/// The firmware is entered with addresses of 32 bits, of which Linux uses 30.
const RTAS_END: u64 = 1 << 30;

/// What is to be started.
#[derive(Clone, Copy, Debug)]
pub struct Source<'a> {
    /// The kernel's file.
    pub kernel: &'a [u8],
    /// The initial RAM disk's.
    pub initrd: Option<&'a [u8]>,
    /// The command line.
    pub cmdline: &'a str,
    /// The machine's memory in bytes.
    pub memory: u64,
    /// Its vCPUs.
    pub vcpus: usize,
    /// Its interrupt controller.
    pub interrupts: Interrupts,
    /// How often the processor's time base counts in a second.
    pub timebase: u64,
}

/// How the first vCPU begins: in real mode, all other registers zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The address of its first instruction.
    pub entry: u64,
    /// The address of the device tree, for R3.
    pub tree: u64,
    /// Whether it, and its interrupts, begin little-endian.
    pub little_endian: bool,
}

/// What to put into a machine's cleared memory, and how to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    /// What goes where; nothing overlaps.
    pub loads: Vec<Load<'a>>,
    /// How the first vCPU begins.
    pub start: Start,
}

/// A kernel's file, understood.
struct Kernel<'a> {
    pieces: Vec<Piece<'a>>,
    entry: u64,
    little_endian: bool,
}

/// Plans the start of a kernel.
///
/// # Errors
///
/// Says what is wrong with the file, or what does not fit.
pub fn plan<'a>(source: &Source<'a>) -> Result<Plan<'a>, BootError> {
    let kernel = read(source.kernel)?;
    let end = check(&kernel.pieces, source.memory)?;
    let rtas = after(end, RTAS_SIZE);
    let initrd = source.initrd.map(|disk| after(rtas.end, disk.len() as u64));
    let tree = fdt::build(&Platform {
        vcpus: source.vcpus,
        memory: source.memory,
        bootargs: source.cmdline,
        initrd: initrd.clone(),
        rtas: rtas.clone(),
        interrupts: source.interrupts,
        timebase: source.timebase,
    })
    .map_err(|_| BootError::CommandLine)?;
    let place = after(initrd.as_ref().map_or(rtas.end, |disk| disk.end), tree.len() as u64);
    if place.end > source.memory {
        return Err(BootError::TooSmall { need: place.end, have: source.memory });
    }
    if rtas.end > RTAS_END {
        return Err(BootError::TooHigh { end });
    }
    let start = Start { entry: kernel.entry, tree: place.start, little_endian: kernel.little_endian };
    let mut loads: Vec<_> = kernel
        .pieces
        .iter()
        .map(|piece| Load { address: piece.address, bytes: piece.bytes.into() })
        .collect();
    loads.push(Load { address: rtas.start, bytes: firmware().into() });
    if let (Some(range), Some(disk)) = (initrd, source.initrd) {
        loads.push(Load { address: range.start, bytes: disk.into() });
    }
    loads.push(Load { address: place.start, bytes: tree.into() });
    Ok(Plan { loads, start })
}

fn read(file: &[u8]) -> Result<Kernel<'_>, BootError> {
    match FileKind::of(file) {
        FileKind::Elf => elf::read(file),
        // Text and the unknown may be code.
        FileKind::Text | FileKind::Unknown if file.is_empty() => Err(BootError::Empty),
        FileKind::Text | FileKind::Unknown => {
            Ok(Kernel { pieces: vec![Piece::whole(0, file)], entry: 0, little_endian: true })
        }
        kind => Err(BootError::Kind(kind)),
    }
}

/// Checks that a kernel's pieces are in RAM and do not overlap; returns their end.
fn check(pieces: &[Piece<'_>], memory: u64) -> Result<u64, BootError> {
    let mut ranges: Vec<(u64, u64)> = pieces.iter().map(|piece| (piece.address, piece.end())).collect();
    if let Some((start, end)) = overlap(&mut ranges) {
        return Err(BootError::Overlap { start, end });
    }
    let (start, end) = ranges.last().copied().unwrap_or_default();
    if end > memory { Err(BootError::NotRam { start, end, memory }) } else { Ok(end) }
}

/// Returns the room for `size` bytes behind `end`. Sums saturate, and are then too large for any memory.
fn after(end: u64, size: u64) -> Range<u64> {
    let start = end.saturating_add(ALIGN - 1) & !(ALIGN - 1);
    start..start.saturating_add(size)
}

/// The instructions at the firmware's entry.
fn firmware() -> Vec<u8> {
    rtas::ENTRY.into_iter().flat_map(u32::to_be_bytes).collect()
}
