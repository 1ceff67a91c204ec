// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Kernels, as far as several machines treat them alike: what is to be started, ELF files, and what can be wrong with any file.

use alloc::vec::Vec;
use core::fmt;

use elf::ElfBytes;
use elf::abi::PT_LOAD;
use elf::endian::AnyEndian;
use elf::segment::ProgramHeader;

use crate::functions::Functions;
use crate::load::Piece;

/// Segments of a kernel at most.
const MOST_SEGMENTS: usize = 64;

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
    /// Its PCI functions.
    pub functions: Functions,
}

/// What is wrong with a kernel's file, whatever the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileError {
    /// The file has no bytes.
    Empty,
    /// The file ends before what its headers speak of.
    Truncated,
    /// An ELF file that is no executable with segments, or is not in the byte order of the machine.
    BadElf,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the kernel is empty; build or copy it again",
            Self::Truncated => "the kernel is truncated; copy it again",
            Self::BadElf => {
                "the ELF file is no executable with segments; link it statically, as one for the bare machine"
            }
        })
    }
}

impl core::error::Error for FileError {}

/// Reads the headers of an ELF file.
pub(crate) fn parse(file: &[u8]) -> Result<ElfBytes<'_, AnyEndian>, FileError> {
    ElfBytes::minimal_parse(file).map_err(|_| FileError::BadElf)
}

/// Returns the segments of an ELF file that are loaded, and what each loads.
pub(crate) fn loaded<'a>(
    file: &ElfBytes<'a, AnyEndian>,
) -> Result<(Vec<ProgramHeader>, Vec<Piece<'a>>), FileError> {
    let (mut headers, mut pieces) = (Vec::new(), Vec::new());
    let segments = file.segments().ok_or(FileError::BadElf)?;
    for segment in segments.iter().filter(|segment| segment.p_type == PT_LOAD && segment.p_memsz > 0) {
        let bytes = file.segment_data(&segment).map_err(|_| FileError::Truncated)?;
        if segment.p_filesz > segment.p_memsz || pieces.len() == MOST_SEGMENTS {
            return Err(FileError::BadElf);
        }
        pieces.push(Piece { address: segment.p_paddr, bytes, size: segment.p_memsz });
        headers.push(segment);
    }
    Ok((headers, pieces))
}
