// SPDX-License-Identifier: Apache-2.0 OR MIT
//! ELF files: their segments by physical address, and which protocol they speak. A PVH note goes before a Multiboot header,
//! because it leads to the ACPI tables.

use elf::ElfBytes;
use elf::abi::{EM_386, EM_X86_64, ET_EXEC, PT_NOTE};
use elf::endian::AnyEndian;
use elf::note::Note;

use super::{BootError, Plan, multiboot, pvh};
use crate::kernel::{loaded, parse};
use crate::{FileError, Source};

/// `XEN_ELFNOTE_PHYS32_ENTRY` (Xen, `xen/include/public/elfnote.h`).
const PHYS32_ENTRY: u64 = 18;

/// Plans the start of an ELF file.
pub(super) fn plan<'a>(source: &Source<'a>) -> Result<Plan<'a>, BootError> {
    let file = parse(source.kernel)?;
    let header = &file.ehdr;
    if header.endianness != AnyEndian::Little || header.e_type != ET_EXEC {
        return Err(FileError::BadElf.into());
    }
    if !matches!(header.e_machine, EM_386 | EM_X86_64) {
        return Err(BootError::Processor(header.e_machine));
    }
    let (_, pieces) = loaded(&file)?;
    if pieces.is_empty() {
        return Err(FileError::BadElf.into());
    }
    if let Some(entry) = pvh_entry(&file) {
        return Ok(pvh::plan(source, &pieces, entry.into()));
    }
    match multiboot::Header::find(source.kernel)? {
        Some(_) => Ok(multiboot::plan(source, &pieces, header.e_entry as u32)),
        None => Err(BootError::NoProtocol),
    }
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
