// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The relative relocations of a position-independent kernel (64-Bit ELF V2 ABI, 3.5.3): pointers to its own code and data, which
//! the linker leaves to the loader. Linux does this itself, and finds it done.

use alloc::vec::Vec;

use elf::ElfBytes;
use elf::abi::{DT_RELA, DT_RELAENT, DT_RELASZ, PT_DYNAMIC, R_PPC64_RELATIVE};
use elf::dynamic::DynamicTable;
use elf::endian::AnyEndian;
use elf::relocation::{Rela, RelaIterator};
use elf::segment::ProgramHeader;

use super::BootError;
use crate::FileError;

/// Bytes of an entry of the table.
const ENTRY: u64 = 24;
/// The bits of an address that the processor does not look at with translation off (Power ISA 3.0B Book III, 5.7.3). A kernel
/// that is linked for its virtual addresses has something there, and wants to find it in its pointers.
const IGNORED: u64 = 0xf << 60;

/// What is written over a kernel once it is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Relocations<'a> {
    table: &'a [u8],
    segments: Vec<Segment>,
    little_endian: bool,
}

/// Memory of the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    linked: u64,
    loaded: u64,
    size: u64,
}

impl Segment {
    /// Returns where a doubleword lies that is linked at an address, if the segment has all of it.
    fn place(&self, address: u64) -> Option<u64> {
        let offset = address.checked_sub(self.linked)?;
        let fits = offset.checked_add(8).is_some_and(|end| end <= self.size);
        fits.then(|| self.loaded.wrapping_add(offset))
    }
}

impl<'a> Relocations<'a> {
    /// Reads the table of a file with these segments to load.
    ///
    /// # Errors
    /// If the table is not in the file, or names a place that the kernel does not have.
    pub(super) fn read(
        elf: &ElfBytes<'a, AnyEndian>,
        loaded: &[ProgramHeader],
    ) -> Result<Relocations<'a>, BootError> {
        let order = elf.ehdr.endianness;
        let header = elf.segments().and_then(|all| all.iter().find(|segment| segment.p_type == PT_DYNAMIC));
        let Some(header) = header else { return Ok(Relocations::default()) };
        let table = elf.segment_data(&header).map_err(|_| FileError::Truncated)?;
        let entries = DynamicTable::new(order, elf.ehdr.class, table);
        let value = |tag| entries.iter().find(|entry| entry.d_tag == tag).map(|entry| entry.d_val());
        let (Some(address), Some(size)) = (value(DT_RELA), value(DT_RELASZ)) else {
            return Ok(Relocations::default());
        };
        if value(DT_RELAENT) != Some(ENTRY) {
            return Err(FileError::BadElf.into());
        }
        let segments = loaded.iter().map(|segment| Segment {
            linked: segment.p_vaddr,
            loaded: segment.p_paddr,
            size: segment.p_memsz,
        });
        let relocations = Relocations {
            table: bytes(elf, loaded, address, size)?,
            segments: segments.collect(),
            little_endian: order == AnyEndian::Little,
        };
        let outside = relocations.entries().find(|entry| relocations.place(entry.r_offset).is_none());
        outside.map_or(Ok(()), |entry| Err(BootError::Relocation(entry.r_offset)))?;
        Ok(relocations)
    }

    /// Returns what is written where, by the guest's real addresses; each place is the kernel's own memory.
    pub fn iter(&self) -> impl Iterator<Item = (u64, [u8; 8])> {
        self.entries().filter_map(|entry| {
            let value = self.moved(entry.r_addend as u64);
            let bytes = if self.little_endian { value.to_le_bytes() } else { value.to_be_bytes() };
            Some((self.place(entry.r_offset)?, bytes))
        })
    }

    /// Those entries that say how the kernel refers to itself. Others name symbols, which nobody here could find.
    fn entries(&self) -> impl Iterator<Item = Rela> {
        let order = if self.little_endian { AnyEndian::Little } else { AnyEndian::Big };
        RelaIterator::new(order, elf::file::Class::ELF64, self.table)
            .filter(|entry| entry.r_type == R_PPC64_RELATIVE)
    }

    fn place(&self, address: u64) -> Option<u64> {
        self.segments.iter().find_map(|segment| segment.place(address))
    }

    /// Returns what a linked address becomes: a file is moved as a whole, so the first segment says by how much.
    fn moved(&self, address: u64) -> u64 {
        let by = self.segments.first().map_or(0, |first| first.loaded.wrapping_sub(first.linked));
        address & IGNORED | address.wrapping_add(by) & !IGNORED
    }
}

/// Returns the bytes of the file that are loaded at a linked address.
fn bytes<'a>(
    elf: &ElfBytes<'a, AnyEndian>,
    loaded: &[ProgramHeader],
    address: u64,
    size: u64,
) -> Result<&'a [u8], FileError> {
    let find = |segment: &ProgramHeader| {
        let start = usize::try_from(address.checked_sub(segment.p_vaddr)?).ok()?;
        let end = start.checked_add(usize::try_from(size).ok()?)?;
        elf.segment_data(segment).ok()?.get(start..end)
    };
    loaded.iter().find_map(find).ok_or(FileError::Truncated)
}
