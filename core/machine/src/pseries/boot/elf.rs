// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ELF files: their segments by physical address, and what is to be relocated. A Linux kernel is linked for virtual addresses,
//! its entry included.

use elf::abi::{EM_PPC64, ET_DYN, ET_EXEC};
use elf::endian::AnyEndian;
use elf::file::Class;
use elf::segment::ProgramHeader;

use super::{BootError, Kernel, Relocations};
use crate::FileError;
use crate::kernel::{loaded, parse};

/// Reads an ELF file.
pub(super) fn read(file: &[u8]) -> Result<Kernel<'_>, BootError> {
    let elf = parse(file)?;
    let header = &elf.ehdr;
    if header.e_machine != EM_PPC64 || header.class != Class::ELF64 {
        return Err(BootError::Processor(header.e_machine));
    }
    if !matches!(header.e_type, ET_EXEC | ET_DYN) {
        return Err(FileError::BadElf.into());
    }
    let (loaded, pieces) = loaded(&elf)?;
    let entry = loaded.iter().find_map(|segment| physical(segment, header.e_entry));
    let movable = header.e_type == ET_DYN;
    Ok(Kernel {
        entry: entry.ok_or(BootError::NoEntry)?,
        pieces,
        relocations: if movable { Relocations::read(&elf, &loaded)? } else { Relocations::default() },
        little_endian: header.endianness == AnyEndian::Little,
    })
}

/// Returns the physical address of a virtual one that the segment has.
fn physical(segment: &ProgramHeader, address: u64) -> Option<u64> {
    let offset = address.checked_sub(segment.p_vaddr)?;
    (offset < segment.p_memsz && address.is_multiple_of(4)).then(|| segment.p_paddr.wrapping_add(offset))
}
