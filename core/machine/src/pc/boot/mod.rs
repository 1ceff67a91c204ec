// SPDX-License-Identifier: Apache-2.0 OR MIT
//! How a kernel of the machine `pc` is placed and entered. Pure functions: a file's bytes go in, a list of what to put where
//! and the registers of the first vCPU come out.
//!
//! | file | protocol |
//! |---|---|
//! | bzImage | Linux's 64-bit boot protocol (Linux, `Documentation/arch/x86/boot.rst`) |
//! | ELF with a PVH note | Xen's direct boot (Xen, `docs/misc/pvh.pandoc`) |
//! | ELF or flat file with a Multiboot header | Multiboot Specification 0.6.96 |
//! | anything else that is no file of a known other kind | flat: at 1 MiB, entered at its first byte, as with PVH |
//!
//! In the first megabyte, the information for the kernel lies from [`INFORMATION`] to [`INFORMATION_END`]; the rest is free.

mod elf;
mod error;
mod linux;
mod multiboot;
mod pvh;

use alloc::borrow::Cow;
use alloc::vec::Vec;

pub use error::BootError;

use super::{FIRMWARE, HIGH_START, acpi, split};
use crate::file_kind::FileKind;
use crate::load::{Load, Piece, overlap};
use crate::{FileError, Source};

/// Where what a kernel is told begins: the protocol's structure, one page.
pub const INFORMATION: u64 = 0x1_0000;
/// The descriptor table that the protocol wants.
const DESCRIPTORS: u64 = 0x1_1000;
/// The page tables of the 64-bit protocol: six pages.
const PAGE_TABLES: u64 = 0x1_2000;
/// The command line.
const COMMAND_LINE: u64 = 0x1_8000;
/// The end of all that.
pub const INFORMATION_END: u64 = 0x2_0000;
/// The alignment of the initial RAM disk.
const PAGE: u64 = 0x1000;

/// The mode in which the first vCPU begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Protected mode without paging, flat segments of 32 bits.
    Protected,
    /// 64-bit mode, with the page tables at this address.
    Long {
        /// CR3.
        root: u64,
    },
}

/// The registers of the first vCPU; all others are zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Start {
    /// The mode.
    pub mode: Mode,
    /// RIP.
    pub rip: u64,
    /// RAX.
    pub rax: u64,
    /// RBX.
    pub rbx: u64,
    /// RSI.
    pub rsi: u64,
    /// The selectors of CS, and of DS, ES and SS, as they are in the descriptor table that the protocol speaks of.
    pub selectors: [u16; 2],
}

/// What to put into a machine's cleared memory, and how to begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan<'a> {
    /// What goes where; nothing overlaps.
    pub loads: Vec<Load<'a>>,
    /// How the first vCPU begins.
    pub start: Start,
}

/// Plans the start of a kernel, with the ACPI tables.
///
/// # Errors
///
/// Says what is wrong with the file, or what does not fit.
pub fn plan<'a>(source: &Source<'a>) -> Result<Plan<'a>, BootError> {
    let mut plan = plan_kernel(source)?;
    plan.put(acpi::RSDP, acpi::build(source.vcpus, source.functions.count));
    plan.check(source.memory)?;
    Ok(plan)
}

fn plan_kernel<'a>(source: &Source<'a>) -> Result<Plan<'a>, BootError> {
    let file = source.kernel;
    match FileKind::of(file) {
        FileKind::Elf => elf::plan(source),
        FileKind::BzImage => linux::plan(source),
        // Text and the unknown may be code.
        FileKind::Text | FileKind::Unknown if file.is_empty() => Err(FileError::Empty.into()),
        FileKind::Text | FileKind::Unknown => match multiboot::Header::find(file)? {
            Some(header) => multiboot::plan_flat(source, &header),
            None => Ok(pvh::plan(source, &[Piece::whole(HIGH_START, file)], HIGH_START)),
        },
        kind => Err(BootError::Kind(kind)),
    }
}

/// Places the initial RAM disk behind the kernel: its address. It is checked with the rest.
fn place_initrd(pieces: &[Piece<'_>]) -> u64 {
    let end = pieces.iter().map(Piece::end).max().unwrap_or(0);
    end.max(HIGH_START).saturating_add(PAGE - 1) & !(PAGE - 1)
}

/// Plans the start of a kernel of these pieces at `entry`, in protected mode; RAX says by which protocol, and `information`
/// makes what that tells the kernel, given the address of the initial RAM disk.
fn plan_protected<'a>(
    source: &Source<'a>,
    pieces: &[Piece<'a>],
    (rip, rax): (u64, u64),
    information: fn(&Source<'_>, u64) -> Vec<u8>,
) -> Plan<'a> {
    let start = Start { mode: Mode::Protected, rip, rax, rbx: INFORMATION, rsi: 0, selectors: SELECTORS };
    let mut plan = Plan::new(start);
    let initrd = place_initrd(pieces);
    plan.put(INFORMATION, information(source, initrd));
    plan.put(DESCRIPTORS, descriptors(FLAT));
    plan.put_command_line(source.cmdline);
    for piece in pieces {
        plan.put_file(piece.address, piece.bytes);
    }
    if let Some(disk) = source.initrd {
        plan.put_file(initrd, disk);
    }
    plan
}

impl<'a> Plan<'a> {
    fn new(start: Start) -> Self {
        Self { loads: Vec::new(), start }
    }

    fn put(&mut self, address: u64, bytes: Vec<u8>) {
        self.loads.push(Load { address, bytes: Cow::Owned(bytes) });
    }

    fn put_file(&mut self, address: u64, bytes: &'a [u8]) {
        self.loads.push(Load { address, bytes: Cow::Borrowed(bytes) });
    }

    /// Puts the command line, with the zero byte that ends it.
    fn put_command_line(&mut self, line: &str) {
        self.put(COMMAND_LINE, [line.as_bytes(), &[0]].concat());
    }

    /// Checks that all is in RAM and nothing overlaps.
    fn check(&self, memory: u64) -> Result<(), BootError> {
        let mut ranges: Vec<(u64, u64)> = Vec::with_capacity(self.loads.len());
        for load in self.loads.iter().filter(|load| !load.bytes.is_empty()) {
            let end = load.address.saturating_add(load.bytes.len() as u64);
            if !is_ram(load.address, end, memory) {
                return Err(BootError::NotRam { start: load.address, end, memory });
            }
            ranges.push((load.address, end));
        }
        overlap(&mut ranges).map_or(Ok(()), |(start, end)| Err(BootError::Overlap { start, end }))
    }
}

/// Says whether a range lies in one piece of RAM.
fn is_ram(start: u64, end: u64, memory: u64) -> bool {
    super::ram(memory).iter().any(|(base, size)| start >= *base && end <= base + size)
}

/// The bytes of memory below the hole that a kernel of a given start can use.
fn room(memory: u64) -> u64 {
    split(memory)[0]
}

/// The segments of 32 bits as a table of descriptors: null, null, code, data (Linux `__BOOT_CS` and `__BOOT_DS`).
const FLAT: [u64; 4] = [0, 0, 0x00cf_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
/// The same, code of 64 bits.
const LONG: [u64; 4] = [0, 0, 0x00af_9b00_0000_ffff, 0x00cf_9300_0000_ffff];
const SELECTORS: [u16; 2] = [0x10, 0x18];

/// Returns a table of descriptors as bytes.
fn descriptors(table: [u64; 4]) -> Vec<u8> {
    table.into_iter().flat_map(u64::to_le_bytes).collect()
}

/// Returns a number of a file.
fn u32_at(file: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(file.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Writes bytes into a structure.
fn set(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

const _: () =
    assert!(COMMAND_LINE + (crate::fdt::MAX_BOOTARGS as u64) < INFORMATION_END && INFORMATION_END < FIRMWARE);
