// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the boot loader passes: PVH's `hvm_start_info` (Xen, public/arch-x86/hvm/start_info.h), and the boot information
//! of the Multiboot2 Specification 2.0.

use core::fmt;

use arrayvec::ArrayVec;

use crate::bytes::{u32, u64};
use crate::{Physical, Range};

/// What EAX holds when entered by multiboot2.
pub const MULTIBOOT2: u32 = 0x36d7_6289;
/// The magic number of PVH's start information.
pub const PVH: u32 = 0x336e_c578;

/// The most ranges of the memory map that are remembered.
pub const MAX_REGIONS: usize = 64;
/// The longest command line that is looked at, in bytes.
pub const MAX_COMMAND_LINE: usize = 4096;
/// The most modules of PVH that are counted, and the most tags of multiboot2.
const MAX_STEPS: usize = 1024;
/// The largest multiboot2 information that is looked at, in bytes.
const MAX_INFORMATION: usize = 1 << 20;

/// A range of the memory map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The range.
    pub range: Range,
    /// It is RAM that may be used; otherwise it belongs to somebody.
    pub usable: bool,
}

/// What the boot loader says.
#[derive(Clone, Debug)]
pub struct BootInfo<'a> {
    /// The memory map.
    pub memory: ArrayVec<Region, MAX_REGIONS>,
    /// The first module: the bundle.
    pub module: Option<Range>,
    /// The hypervisor's command line.
    pub command_line: &'a str,
    /// Where the ACPI tables begin, if the boot loader knows.
    pub rsdp: Option<u64>,
}

/// Why what the boot loader passed cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Error {
    /// Neither PVH nor multiboot2.
    Protocol(u32),
    /// Damaged.
    Damaged,
    /// No memory map.
    NoMemory,
    /// More ranges than there is room for: what is not remembered would be given to guests.
    TooManyRegions,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(magic) => {
                write!(
                    f,
                    "the boot loader (magic {magic:#x}) speaks neither PVH nor multiboot2: use one that does"
                )
            }
            Self::Damaged => f.write_str("the boot loader's information is damaged"),
            Self::NoMemory => f.write_str(
                "the boot loader passed no memory map: use one that does (PVH version 1, multiboot2)",
            ),
            Self::TooManyRegions => write!(f, "the memory map has more than {MAX_REGIONS} ranges"),
        }
    }
}

/// Reads what the boot loader of the protocol `magic` left at `address`.
///
/// # Errors
/// When it is not there, or cannot be used.
pub fn read(memory: &impl Physical, magic: u32, address: u64) -> Result<BootInfo<'_>, Error> {
    let info = match magic {
        PVH => pvh(memory, address),
        MULTIBOOT2 => multiboot2(memory, address),
        _ => Err(Error::Protocol(magic)),
    }?;
    if info.memory.iter().any(|region| region.usable) { Ok(info) } else { Err(Error::NoMemory) }
}

impl<'a> BootInfo<'a> {
    fn new() -> Self {
        Self { memory: ArrayVec::new(), module: None, command_line: "", rsdp: None }
    }

    /// Adds an entry of an E820 map: type 1 is RAM.
    fn add(&mut self, base: u64, size: u64, kind: u32) -> Result<(), Error> {
        if size == 0 {
            return Ok(());
        }
        let region = Region { range: Range { base, size }, usable: kind == 1 };
        self.memory.try_push(region).map_err(|_| Error::TooManyRegions)
    }
}

/// The string that begins a piece of memory; what is not UTF-8 ends it, too.
fn text(bytes: &[u8]) -> &str {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    let bytes = bytes.get(..end).unwrap_or(&[]);
    match core::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            bytes.get(..error.valid_up_to()).and_then(|valid| core::str::from_utf8(valid).ok()).unwrap_or("")
        }
    }
}

/// The string at an address, as far as it can be read.
fn string(memory: &impl Physical, address: u64) -> &str {
    (0..=12).rev().find_map(|bits| memory.bytes(address, MAX_COMMAND_LINE >> (12 - bits))).map_or("", text)
}

fn pvh(memory: &impl Physical, address: u64) -> Result<BootInfo<'_>, Error> {
    /// Bytes of version 0; version 1 adds the memory map.
    const VERSION_0: usize = 40;
    const VERSION_1: usize = 56;
    let header = memory.bytes(address, VERSION_0).ok_or(Error::Damaged)?;
    let field32 = |at| u32(header, at).ok_or(Error::Damaged);
    let field64 = |at| u64(header, at).ok_or(Error::Damaged);
    if field32(0)? != PVH {
        return Err(Error::Damaged);
    }
    let mut info = BootInfo::new();
    if field32(12)? > 0 {
        let module = memory.bytes(field64(16)?, 32).ok_or(Error::Damaged)?;
        let (base, size) = (u64(module, 0).ok_or(Error::Damaged)?, u64(module, 8).ok_or(Error::Damaged)?);
        info.module = Some(Range { base, size }).filter(|module| module.size > 0);
    }
    if field64(24)? != 0 {
        info.command_line = string(memory, field64(24)?);
    }
    info.rsdp = Some(field64(32)?).filter(|address| *address != 0);
    if field32(4)? == 0 {
        return Err(Error::NoMemory);
    }
    let header = memory.bytes(address, VERSION_1).ok_or(Error::Damaged)?;
    let map = u64(header, 40).ok_or(Error::Damaged)?;
    let entries = u32(header, 48).ok_or(Error::Damaged)?;
    for entry in 0..u64::from(entries).min(MAX_STEPS as u64) {
        let at = map.checked_add(entry * 24).ok_or(Error::Damaged)?;
        let entry = memory.bytes(at, 24).ok_or(Error::Damaged)?;
        add_entry(&mut info, entry)?;
    }
    Ok(info)
}

/// Adds an entry of a memory map as both protocols have it: base, size, type.
fn add_entry(info: &mut BootInfo<'_>, entry: &[u8]) -> Result<(), Error> {
    match (u64(entry, 0), u64(entry, 8), u32(entry, 16)) {
        (Some(base), Some(size), Some(kind)) => info.add(base, size, kind),
        _ => Err(Error::Damaged),
    }
}

fn multiboot2(memory: &impl Physical, address: u64) -> Result<BootInfo<'_>, Error> {
    const HEADER: usize = 8;
    let header = memory.bytes(address, HEADER).ok_or(Error::Damaged)?;
    let total = u32(header, 0).ok_or(Error::Damaged)? as usize;
    if !(HEADER..=MAX_INFORMATION).contains(&total) {
        return Err(Error::Damaged);
    }
    let all = memory.bytes(address, total).ok_or(Error::Damaged)?;
    let mut info = BootInfo::new();
    let mut at = HEADER;
    for _ in 0..MAX_STEPS {
        let (kind, size) =
            (u32(all, at).ok_or(Error::Damaged)?, u32(all, at + 4).ok_or(Error::Damaged)? as usize);
        if kind == 0 {
            return Ok(info);
        }
        if size < HEADER {
            return Err(Error::Damaged);
        }
        let tag = all.get(at..).and_then(|rest| rest.get(..size)).ok_or(Error::Damaged)?;
        take_tag(&mut info, kind, tag, address + at as u64)?;
        at += size.next_multiple_of(8);
    }
    Err(Error::Damaged)
}

/// Takes from a tag, header included, what is needed of it (Multiboot2 Specification 3.6).
fn take_tag<'a>(info: &mut BootInfo<'a>, kind: u32, tag: &'a [u8], address: u64) -> Result<(), Error> {
    const COMMAND_LINE: u32 = 1;
    const MODULE: u32 = 3;
    const MEMORY_MAP: u32 = 6;
    const OLD_RSDP: u32 = 14;
    const NEW_RSDP: u32 = 15;
    match kind {
        COMMAND_LINE => info.command_line = text(tag.get(8..).unwrap_or(&[])),
        MODULE if info.module.is_none() => {
            let (start, end) = (u32(tag, 8).ok_or(Error::Damaged)?, u32(tag, 12).ok_or(Error::Damaged)?);
            info.module = end
                .checked_sub(start)
                .filter(|size| *size > 0)
                .map(|size| Range { base: start.into(), size: size.into() });
        }
        MEMORY_MAP => {
            let entry_size = u32(tag, 8).ok_or(Error::Damaged)? as usize;
            if entry_size < 20 {
                return Err(Error::Damaged);
            }
            for entry in tag.get(16..).unwrap_or(&[]).chunks_exact(entry_size) {
                add_entry(info, entry)?;
            }
        }
        // The tag holds a copy.
        NEW_RSDP => info.rsdp = Some(address + 8),
        OLD_RSDP if info.rsdp.is_none() => info.rsdp = Some(address + 8),
        _ => {}
    }
    Ok(())
}
