// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ELF files: their segments by physical address, and which protocol they speak. A PVH note goes before a Multiboot header,
//! because it leads to the ACPI tables.

use alloc::vec::Vec;

use elf::ElfBytes;
use elf::abi::{EM_386, EM_X86_64, ET_EXEC, PT_LOAD, PT_NOTE};
use elf::endian::AnyEndian;
use elf::note::Note;

use super::{BootError, Plan, Source, multiboot, pvh};
use crate::load::Piece;

/// `XEN_ELFNOTE_PHYS32_ENTRY` (Xen, `xen/include/public/elfnote.h`).
const PHYS32_ENTRY: u64 = 18;
/// Segments of a kernel at most.
const MOST_SEGMENTS: usize = 64;

/// Plans the start of an ELF file.
pub(super) fn plan<'a>(source: &Source<'a>) -> Result<Plan<'a>, BootError> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(source.kernel).map_err(|_| BootError::BadElf)?;
    let header = &file.ehdr;
    if header.endianness != AnyEndian::Little || header.e_type != ET_EXEC {
        return Err(BootError::BadElf);
    }
    if !matches!(header.e_machine, EM_386 | EM_X86_64) {
        return Err(BootError::Processor(header.e_machine));
    }
    let pieces = pieces(&file)?;
    if let Some(entry) = pvh_entry(&file) {
        return Ok(pvh::plan(source, &pieces, entry.into()));
    }
    match multiboot::Header::find(source.kernel)? {
        Some(_) => Ok(multiboot::plan(source, &pieces, header.e_entry as u32)),
        None => Err(BootError::NoProtocol),
    }
}

/// Returns the parts that are loaded.
fn pieces<'a>(file: &ElfBytes<'a, AnyEndian>) -> Result<Vec<Piece<'a>>, BootError> {
    let segments = file.segments().ok_or(BootError::BadElf)?;
    let mut pieces = Vec::new();
    for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD && segment.p_memsz > 0) {
        let bytes = file.segment_data(&segment).map_err(|_| BootError::Truncated)?;
        if segment.p_filesz > segment.p_memsz || pieces.len() == MOST_SEGMENTS {
            return Err(BootError::BadElf);
        }
        pieces.push(Piece { address: segment.p_paddr, bytes, size: segment.p_memsz });
    }
    if pieces.is_empty() { Err(BootError::BadElf) } else { Ok(pieces) }
}

/// Returns the 32-bit entry that a PVH note names.
fn pvh_entry(file: &ElfBytes<'_, AnyEndian>) -> Option<u32> {
    let notes = file.segments()?.iter().filter(|segment| segment.p_type == PT_NOTE);
    notes.filter_map(|segment| file.segment_data_as_notes(&segment).ok()).flatten().find_map(
        |note| match note {
            Note::Unknown(note)
                if note.n_type == PHYS32_ENTRY && note.name_str().is_ok_and(|name| name == "Xen") =>
            {
                note.desc.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
            }
            _ => None,
        },
    )
}
