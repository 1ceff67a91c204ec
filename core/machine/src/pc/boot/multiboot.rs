// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Multiboot Specification 0.6.96: the header, and the information for the kernel. Protected mode without paging, EAX the
//! magic number, EBX the address of the information.

use alloc::vec;
use alloc::vec::Vec;

use super::{
    BootError, COMMAND_LINE, FileError, INFORMATION, PAGE, Plan, Source, plan_protected, set, u32_at,
};
use crate::load::Piece;
use crate::pc::{HIGH_START, LOW_END, regions, split};

/// The header lies in the first bytes of the file.
const SEARCHED: usize = 8192;
const HEADER_MAGIC: u32 = 0x1bad_b002;
const LOADER_MAGIC: u32 = 0x2bad_b002;
/// Header flags: modules at pages, memory information: both are always so.
const UNDERSTOOD: u32 = 0b11;
/// Header flags that a loader must understand.
const REQUIRED: u32 = 0xffff;
/// Header flags: addresses follow.
const ADDRESSES: u32 = 1 << 16;

/// Information flags: memory, command line, modules, map, loader's name.
const HAS_MEMORY: u32 = 1 << 0;
const HAS_COMMAND_LINE: u32 = 1 << 2;
const HAS_MODULES: u32 = 1 << 3;
const HAS_MAP: u32 = 1 << 6;
const HAS_NAME: u32 = 1 << 9;
/// Places in the page of information.
const MODULES: usize = 0x100;
const MAP: usize = 0x200;
const NAME: usize = 0x400;

/// The addresses of a header: how a flat file is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Addresses {
    header: u32,
    load: u32,
    load_end: u32,
    bss_end: u32,
    entry: u32,
}

/// A Multiboot header.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Where it lies in the file.
    offset: usize,
    addresses: Option<Addresses>,
}

impl Header {
    /// Looks for the header of a file.
    pub(super) fn find(file: &[u8]) -> Result<Option<Self>, BootError> {
        let last = file.len().min(SEARCHED).saturating_sub(12);
        let valid = |at: usize| {
            let (magic, flags, sum) = (u32_at(file, at)?, u32_at(file, at + 4)?, u32_at(file, at + 8)?);
            let sum = magic.wrapping_add(flags).wrapping_add(sum);
            (magic == HEADER_MAGIC && sum == 0).then_some((at, flags))
        };
        let Some((offset, flags)) = (0..=last).step_by(4).find_map(valid) else { return Ok(None) };
        if flags & REQUIRED & !UNDERSTOOD != 0 {
            return Err(BootError::Wanted(flags));
        }
        if flags & ADDRESSES == 0 {
            return Ok(Some(Self { offset, addresses: None }));
        }
        let word = |index: usize| u32_at(file, offset + 12 + 4 * index).ok_or(FileError::Truncated);
        let addresses = Addresses {
            header: word(0)?,
            load: word(1)?,
            load_end: word(2)?,
            bss_end: word(3)?,
            entry: word(4)?,
        };
        Ok(Some(Self { offset, addresses: Some(addresses) }))
    }
}

/// Plans the start of a flat file whose header says where it goes.
pub(super) fn plan_flat<'a>(source: &Source<'a>, header: &Header) -> Result<Plan<'a>, BootError> {
    let addresses = header.addresses.ok_or(BootError::BadAddresses)?;
    let before = addresses.header.checked_sub(addresses.load).ok_or(BootError::BadAddresses)? as usize;
    let start = header.offset.checked_sub(before).ok_or(BootError::BadAddresses)?;
    let file = &source.kernel[start..];
    let bytes = match addresses.load_end {
        0 => file,
        end => {
            let length = end.checked_sub(addresses.load).ok_or(BootError::BadAddresses)?;
            file.get(..length as usize).ok_or(FileError::Truncated)?
        }
    };
    let size = match addresses.bss_end {
        0 => bytes.len() as u64,
        end => u64::from(end).saturating_sub(addresses.load.into()).max(bytes.len() as u64),
    };
    let piece = Piece { address: addresses.load.into(), bytes, size };
    Ok(plan(source, &[piece], addresses.entry))
}

/// Plans the start of a kernel of these pieces at `entry`.
pub(super) fn plan<'a>(source: &Source<'a>, pieces: &[Piece<'a>], entry: u32) -> Plan<'a> {
    plan_protected(source, pieces, (entry.into(), LOADER_MAGIC.into()), information)
}

fn information(source: &Source<'_>, initrd: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    let address = |offset: usize| (INFORMATION as u32 + offset as u32).to_le_bytes();
    let map = regions(source.memory, source.functions.count);
    let mut flags = HAS_MEMORY | HAS_COMMAND_LINE | HAS_MAP | HAS_NAME;
    let upper = split(source.memory)[0].saturating_sub(HIGH_START);
    set(&mut page, 4, &((LOW_END >> 10) as u32).to_le_bytes());
    set(&mut page, 8, &((upper >> 10) as u32).to_le_bytes());
    set(&mut page, 16, &(COMMAND_LINE as u32).to_le_bytes());
    if let Some(disk) = source.initrd {
        flags |= HAS_MODULES;
        set(&mut page, 20, &1u32.to_le_bytes());
        set(&mut page, 24, &address(MODULES));
        let end = initrd.saturating_add(disk.len() as u64);
        set(&mut page, MODULES, &(initrd as u32).to_le_bytes());
        set(&mut page, MODULES + 4, &(end as u32).to_le_bytes());
        // Modules have strings of their own; this one's is empty.
        set(&mut page, MODULES + 8, &address(MODULES + 16));
    }
    set(&mut page, 44, &(24 * map.len() as u32).to_le_bytes());
    set(&mut page, 48, &address(MAP));
    set(&mut page, 64, &address(NAME));
    set(&mut page, NAME, b"turnstile");
    for (index, region) in map.iter().enumerate() {
        let at = MAP + 24 * index;
        // The size does not count itself.
        set(&mut page, at, &20u32.to_le_bytes());
        set(&mut page, at + 4, &region.base.to_le_bytes());
        set(&mut page, at + 12, &region.size.to_le_bytes());
        set(&mut page, at + 20, &(region.kind as u32).to_le_bytes());
    }
    set(&mut page, 0, &flags.to_le_bytes());
    page
}
