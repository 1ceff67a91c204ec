// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The header of an arm64 Linux `Image`.
//!
//! Header: Linux, `Documentation/arch/arm64/booting.rst`, section 4. A kernel with an EFI stub is also a PE file. Its section
//! table (PE format, section "Section Table") says how long the file must be, which reveals a truncated kernel.

use core::fmt;

use crate::file_kind::FileKind;

/// The number of bytes of the header.
pub const HEADER_SIZE: usize = 64;
/// The largest `text_offset`: it is counted from a 2 MiB boundary.
const TEXT_OFFSET_LIMIT: u64 = 2 << 20;

/// What an arm64 `Image` says about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageHeader {
    /// Where the image starts, in bytes after a 2 MiB boundary.
    pub text_offset: u64,
    /// How many bytes from its start are the image's own, with its bss; at least [`HEADER_SIZE`].
    pub image_size: u64,
    /// The page size that the kernel was built for.
    pub page_size: PageSize,
    /// Whether the kernel may lie anywhere in RAM, not only near its bottom.
    pub anywhere: bool,
}

/// The page size a kernel was built for (flags, bits 2:1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PageSize {
    /// The header does not say.
    Unspecified,
    /// 4 KiB pages.
    Kib4,
    /// 16 KiB pages.
    Kib16,
    /// 64 KiB pages.
    Kib64,
}

/// Why a file is no kernel that can be started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageError {
    /// The file has no bytes.
    Empty,
    /// The file is not an arm64 `Image` but this.
    NotImage(FileKind),
    /// The file was said to be a flat image and is this.
    NotFlat(FileKind),
    /// The file ends early.
    Truncated {
        /// How many bytes it has.
        have: u64,
        /// How many bytes it must have at least.
        need: u64,
    },
    /// The kernel is big-endian.
    BigEndian,
    /// The header says that the image has no size: a kernel older than Linux 3.17.
    NoSize,
    /// The header's `text_offset`, in bytes, is 2 MiB or more.
    TextOffset(u64),
    /// The header's `image_size`, in bytes, is less than the header itself.
    ImageSize(u64),
}

impl fmt::Display for ImageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ImageError::Empty => f.write_str("the kernel is empty; build or copy it again"),
            ImageError::NotImage(kind) => write!(f, "not an arm64 Image but {kind}; {}", kind.advice()),
            ImageError::NotFlat(kind) => {
                write!(
                    f,
                    "not a flat image but {kind}; give the bytes that are to be executed (objcopy -O binary)"
                )
            }
            ImageError::Truncated { have, need } => {
                write!(f, "the kernel is truncated: {have} bytes of at least {need} are there; copy it again")
            }
            ImageError::BigEndian => f.write_str("the kernel is big-endian; use a little-endian one"),
            ImageError::NoSize => {
                f.write_str("the kernel's header has no image size; use Linux 3.17 or newer")
            }
            ImageError::TextOffset(offset) => {
                write!(f, "the kernel's text offset {offset:#x} is not below 2 MiB; the header is damaged")
            }
            ImageError::ImageSize(size) => {
                write!(f, "the kernel's image size {size} is less than its header; the header is damaged")
            }
        }
    }
}

impl core::error::Error for ImageError {}

/// Reads the header of an arm64 `Image`, given the whole file, and checks it.
///
/// # Errors
///
/// Says what the file is instead, or what is wrong with it.
pub fn parse(file: &[u8]) -> Result<ImageHeader, ImageError> {
    if file.is_empty() {
        return Err(ImageError::Empty);
    }
    if read_u32(file, 56) != Some(u32::from_le_bytes(*b"ARM\x64")) {
        let kind = FileKind::of(file);
        let have = file.len() as u64;
        return Err(match kind {
            // What an `Image` starts with, too, so the missing magic may have been cut off.
            FileKind::Efi | FileKind::Unknown if file.len() < HEADER_SIZE => {
                ImageError::Truncated { have, need: HEADER_SIZE as u64 }
            }
            _ => ImageError::NotImage(kind),
        });
    }
    let field = |offset| {
        let truncated = ImageError::Truncated { have: file.len() as u64, need: HEADER_SIZE as u64 };
        read_u64(file, offset).ok_or(truncated)
    };
    let (text_offset, image_size, flags) = (field(8)?, field(16)?, field(24)?);
    // The header's last word; without it the file is too short.
    let pe = field(56)? >> 32;
    if flags & 1 != 0 {
        return Err(ImageError::BigEndian);
    }
    if image_size == 0 {
        return Err(ImageError::NoSize);
    }
    if image_size < HEADER_SIZE as u64 {
        return Err(ImageError::ImageSize(image_size));
    }
    if text_offset >= TEXT_OFFSET_LIMIT {
        return Err(ImageError::TextOffset(text_offset));
    }
    match pe_length(file, pe) {
        Some(need) if need > file.len() as u64 => {
            return Err(ImageError::Truncated { have: file.len() as u64, need });
        }
        _ => {}
    }
    let page_size = match (flags >> 1) & 3 {
        0 => PageSize::Unspecified,
        1 => PageSize::Kib4,
        2 => PageSize::Kib16,
        _ => PageSize::Kib64,
    };
    Ok(ImageHeader { text_offset, image_size, page_size, anywhere: flags & 8 != 0 })
}

/// Returns how long the file must be by its PE section table, or `None` when it has no PE header.
fn pe_length(file: &[u8], offset: u64) -> Option<u64> {
    const FILE_HEADER: usize = 24;
    const SECTION: usize = 40;

    if file.get(..2)? != b"MZ" || offset == 0 {
        return None;
    }
    // A PE offset behind the end means that the PE header itself was cut off.
    let Some(header) = usize::try_from(offset).ok().and_then(|offset| file.get(offset..)) else {
        return Some(offset + FILE_HEADER as u64);
    };
    if header.len() < FILE_HEADER {
        return Some(offset + FILE_HEADER as u64);
    }
    if header.get(..4)? != b"PE\0\0" {
        return None;
    }
    let sections = usize::from(read_u16(header, 6)?);
    let table = FILE_HEADER + usize::from(read_u16(header, 20)?);
    let mut length = offset + (table + sections * SECTION) as u64;
    for section in 0..sections {
        let entry = table + section * SECTION;
        if let (Some(size), Some(pointer)) = (read_u32(header, entry + 16), read_u32(header, entry + 20)) {
            length = length.max(u64::from(size) + u64::from(pointer));
        }
    }
    Some(length)
}

fn read<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

fn read_u16(bytes: &[u8], offset: usize) -> Option<u16> {
    read(bytes, offset).map(u16::from_le_bytes)
}

fn read_u32(bytes: &[u8], offset: usize) -> Option<u32> {
    read(bytes, offset).map(u32::from_le_bytes)
}

fn read_u64(bytes: &[u8], offset: usize) -> Option<u64> {
    read(bytes, offset).map(u64::from_le_bytes)
}
