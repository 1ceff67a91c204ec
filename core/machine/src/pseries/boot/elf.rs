// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ELF files: their segments by physical address. A Linux kernel is linked for virtual addresses, its entry included.

use alloc::vec::Vec;

use elf::ElfBytes;
use elf::abi::{EM_PPC64, ET_DYN, ET_EXEC, PT_LOAD};
use elf::endian::AnyEndian;
use elf::file::Class;
use elf::segment::ProgramHeader;

use super::{BootError, Kernel};
use crate::load::Piece;

/// Segments of a kernel at most.
const MOST_SEGMENTS: usize = 64;

/// Reads an ELF file.
pub(super) fn read(file: &[u8]) -> Result<Kernel<'_>, BootError> {
    let elf = ElfBytes::<AnyEndian>::minimal_parse(file).map_err(|_| BootError::BadElf)?;
    let header = &elf.ehdr;
    if header.e_machine != EM_PPC64 || header.class != Class::ELF64 {
        return Err(BootError::Processor(header.e_machine));
    }
    if !matches!(header.e_type, ET_EXEC | ET_DYN) {
        return Err(BootError::BadElf);
    }
    let mut pieces = Vec::new();
    let mut entry = None;
    let segments = elf.segments().ok_or(BootError::BadElf)?;
    for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD && segment.p_memsz > 0) {
        let bytes = elf.segment_data(&segment).map_err(|_| BootError::Truncated)?;
        if segment.p_filesz > segment.p_memsz || pieces.len() == MOST_SEGMENTS {
            return Err(BootError::BadElf);
        }
        entry = entry.or_else(|| physical(&segment, header.e_entry));
        pieces.push(Piece { address: segment.p_paddr, bytes, size: segment.p_memsz });
    }
    Ok(Kernel {
        entry: entry.ok_or(BootError::NoEntry)?,
        pieces,
        little_endian: header.endianness == AnyEndian::Little,
    })
}

/// Returns the physical address of a virtual one that the segment has.
fn physical(segment: &ProgramHeader, address: u64) -> Option<u64> {
    let offset = address.checked_sub(segment.p_vaddr)?;
    (offset < segment.p_memsz && address.is_multiple_of(4)).then(|| segment.p_paddr.wrapping_add(offset))
}
