// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a kernel of the machine `pseries` is placed and entered. Pure functions: a file's bytes go in, a list of what to put
//! where and the registers of the first vCPU come out.
//!
//! | file | how |
//! |---|---|
//! | ELF for 64-bit Power, Linux's `vmlinux` | its segments at their physical addresses, relative relocations applied; entered where its entry lies |
//! | anything else that is no file of a known other kind | flat: at address zero, entered at its first byte, little-endian |
//!
//! The initial RAM disk and the device tree follow the kernel. The firmware lies at the end of the first 256 MiB, or of a smaller
//! memory. Other partitions have it there, and it is far from the memory after the kernel, which a kernel may use that does not
//! read the tree's reserve map. If the kernel reaches that far, or a RAM disk finds no room beside it, the firmware lies directly
//! after the kernel. The kernel is entered with translation off, with the address of the device tree in R3 and zero in all other
//! registers (Linux, `Documentation/arch/powerpc/booting.rst`).

mod elf;
mod error;
mod relocations;

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

use turnstile_papr::rtas;

pub use error::BootError;
pub use relocations::Relocations;

use super::Interrupts;
use super::fdt::{self, Platform};
use crate::file_kind::FileKind;
use crate::load::{Load, Piece, overlap};
use crate::{FileError, Source};

/// The alignment of what follows the kernel: the largest page a guest commonly uses.
const ALIGN: u64 = 0x1_0000;
/// Bytes that are kept for the firmware.
const RTAS_SIZE: u64 = 0x1_0000;
/// Where they end, if the memory is as large and the kernel is not.
const RTAS_TOP: u64 = 256 << 20;
/// The firmware is entered with addresses of 32 bits, of which Linux uses 30.
const RTAS_END: u64 = 1 << 30;

/// The machine on which a kernel is started, as far as the kernel's source does not say it.
#[derive(Clone, Copy, Debug)]
pub struct Partition {
    /// How many vCPUs are the threads of a core.
    pub threads: usize,
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
    /// What is written over the kernel once it is loaded.
    pub relocations: Relocations<'a>,
    /// How the first vCPU begins.
    pub start: Start,
}

/// A kernel's file, understood.
struct Kernel<'a> {
    pieces: Vec<Piece<'a>>,
    relocations: Relocations<'a>,
    entry: u64,
    little_endian: bool,
}

/// Plans the start of a kernel.
///
/// # Errors
///
/// Says what is wrong with the file, or what does not fit.
pub fn plan<'a>(source: &Source<'a>, partition: &Partition) -> Result<Plan<'a>, BootError> {
    let kernel = read(source.kernel)?;
    let end = check(&kernel.pieces, source.memory)?;
    let (places, tree) = place(source, partition, end)?;
    let start = Start { entry: kernel.entry, tree: places.tree.start, little_endian: kernel.little_endian };
    let mut loads: Vec<_> = kernel
        .pieces
        .iter()
        .map(|piece| Load { address: piece.address, bytes: piece.bytes.into() })
        .collect();
    loads.push(Load { address: places.rtas.start, bytes: firmware().into() });
    if let (Some(range), Some(disk)) = (places.initrd, source.initrd) {
        loads.push(Load { address: range.start, bytes: disk.into() });
    }
    loads.push(Load { address: places.tree.start, bytes: tree.into() });
    Ok(Plan { loads, relocations: kernel.relocations, start })
}

/// Where what belongs to a kernel lies.
struct Places {
    rtas: Range<u64>,
    initrd: Option<Range<u64>>,
    tree: Range<u64>,
}

impl Places {
    /// Those with the firmware at `rtas`, for a kernel that ends at `end`: one behind the other, as low as there is room.
    fn new(end: u64, rtas: Range<u64>, disk: Option<&[u8]>, tree: u64) -> Self {
        let initrd = disk.map(|disk| beside(end, disk.len() as u64, &rtas));
        let tree = beside(initrd.as_ref().map_or(end, |disk| disk.end), tree, &rtas);
        Self { rtas, initrd, tree }
    }

    /// The first address behind all of them.
    fn end(&self) -> u64 {
        self.tree.end.max(self.rtas.end)
    }
}

/// Finds places behind a kernel that ends at `end`, and makes the device tree, whose size depends on none of them.
fn place(source: &Source<'_>, partition: &Partition, end: u64) -> Result<(Places, Vec<u8>), BootError> {
    let top = source.memory.min(RTAS_TOP).saturating_sub(RTAS_SIZE) & !(ALIGN - 1);
    let far = Places::new(end, top..top + RTAS_SIZE, source.initrd, 0);
    let tree = tree(source, partition, &far)?;
    let far = Places::new(end, far.rtas, source.initrd, tree.len() as u64);
    if end <= far.rtas.start && far.end() <= source.memory {
        return Ok((far, tree));
    }
    let near = Places::new(end, after(end, RTAS_SIZE), source.initrd, tree.len() as u64);
    if near.end() > source.memory {
        return Err(BootError::TooSmall { need: near.end(), have: source.memory });
    }
    if near.rtas.end > RTAS_END {
        return Err(BootError::TooHigh { end });
    }
    let tree = self::tree(source, partition, &near)?;
    Ok((near, tree))
}

fn tree(source: &Source<'_>, partition: &Partition, places: &Places) -> Result<Vec<u8>, BootError> {
    fdt::build(&Platform {
        vcpus: source.vcpus,
        threads: partition.threads,
        memory: source.memory,
        bootargs: source.cmdline,
        initrd: places.initrd.clone(),
        rtas: places.rtas.clone(),
        interrupts: partition.interrupts,
        timebase: partition.timebase,
        functions: source.functions,
    })
    .map_err(|_| BootError::CommandLine)
}

fn read(file: &[u8]) -> Result<Kernel<'_>, BootError> {
    match FileKind::of(file) {
        FileKind::Elf => elf::read(file),
        // Text and the unknown may be code.
        FileKind::Text | FileKind::Unknown if file.is_empty() => Err(FileError::Empty.into()),
        FileKind::Text | FileKind::Unknown => {
            let pieces = vec![Piece::whole(0, file)];
            Ok(Kernel { pieces, relocations: Relocations::default(), entry: 0, little_endian: true })
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

/// The same, but behind the firmware if it would run into that.
fn beside(end: u64, size: u64, rtas: &Range<u64>) -> Range<u64> {
    let room = after(end, size);
    if room.end <= rtas.start || room.start >= rtas.end { room } else { after(rtas.end, size) }
}

/// The instructions at the firmware's entry.
fn firmware() -> Vec<u8> {
    rtas::ENTRY.into_iter().flat_map(u32::to_be_bytes).collect()
}
