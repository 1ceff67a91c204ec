// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where kernel, device tree and initial RAM disk go in a guest's RAM.
//!
//! The rules are those of Linux (`Documentation/arch/arm64/booting.rst`): the kernel lies at a 2 MiB
//! aligned address plus its `text_offset`, with `image_size` bytes that are its own (its bss is behind
//! the file's bytes); the device tree is 8-byte aligned and crosses no 2 MiB boundary; the initial RAM
//! disk lies in the 32 GiB window, aligned to 1 GiB, that the kernel is in. They follow each other from
//! the bottom of RAM, so the rest is one piece.

use core::fmt;
use core::ops::Range;

use crate::fdt::MAX_SIZE as DTB_SIZE;
use crate::image::ImageHeader;
use crate::map::Map;

/// The alignment of the initial RAM disk in bytes: the largest page a guest can use.
pub(crate) const INITRD_ALIGN: u64 = 0x1_0000;
/// The window around the kernel that the initial RAM disk must be in, in bytes.
const INITRD_WINDOW: u64 = 32 << 30;

/// The guest physical addresses of what a guest starts with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// The kernel: its file's bytes go to the start; the whole range (with the bss) is its own. A flat image may lie in
    /// flash.
    pub kernel: Range<u64>,
    /// The address at which the guest's first vCPU starts.
    pub entry: u64,
    /// The room for the device tree, [`crate::fdt::MAX_SIZE`] bytes.
    pub dtb: Range<u64>,
    /// The initial RAM disk, exactly as long as its file.
    pub initrd: Option<Range<u64>>,
}

/// Why a guest's images do not fit its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutError {
    /// The images need more memory than there is, both in bytes.
    TooSmall {
        /// The memory that kernel, device tree and initial RAM disk take.
        need: u64,
        /// The VM's memory.
        memory: u64,
    },
    /// The initial RAM disk would end more than 32 GiB after the kernel's first gigabyte boundary.
    InitrdTooFar,
    /// A flat image is to be loaded at this address, where no memory is.
    Nowhere {
        /// The address.
        address: u64,
        /// The RAM behind the device tree.
        ram: (u64, u64),
    },
    /// A flat image is to be loaded where the device tree lies.
    OnDeviceTree {
        /// The first address behind the device tree.
        free: u64,
    },
    /// A flat image has this many bytes, more than are left of the bank of flash from its address on.
    FlashTooSmall {
        /// The bytes of the image.
        length: u64,
        /// The bytes that are left.
        left: u64,
    },
    /// A flat image is to be entered at this address, which is not an instruction of its file.
    Entry(u64),
}

impl fmt::Display for LayoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LayoutError::TooSmall { need, memory } => {
                write!(
                    f,
                    "kernel, device tree and initial RAM disk take {} KiB, more than the {} KiB of memory; \
                     give the VM at least {} MiB",
                    need.div_ceil(1 << 10),
                    memory >> 10,
                    need.div_ceil(2 << 20) * 2
                )
            }
            LayoutError::InitrdTooFar => {
                f.write_str("kernel and initial RAM disk do not fit a window of 32 GiB; use smaller ones")
            }
            LayoutError::Nowhere { address, ram: (start, end) } => {
                write!(f, "there is no memory at {address:#x}; RAM is free from {start:#x} to {end:#x}")
            }
            LayoutError::OnDeviceTree { free } => {
                write!(f, "the device tree lies at the start of RAM; load the image at {free:#x} or behind")
            }
            LayoutError::FlashTooSmall { length, left } => {
                write!(
                    f,
                    "{length} bytes are more than the {left} that are left of the flash; give larger banks"
                )
            }
            LayoutError::Entry(entry) => {
                write!(
                    f,
                    "{entry:#x} is not an instruction of the image; give a multiple of 4 between its first and \
                     its last byte"
                )
            }
        }
    }
}

impl core::error::Error for LayoutError {}

/// Places a kernel of `kernel_len` bytes with its header, the device tree, and an initial RAM disk of
/// `initrd_len` bytes (none if that is `None`) in `memory` bytes of RAM.
///
/// # Errors
///
/// Refuses images that do not fit the memory, and says how much they take.
pub fn layout(
    map: &Map,
    memory: u64,
    header: &ImageHeader,
    kernel_len: u64,
    initrd_len: Option<u64>,
) -> Result<Layout, LayoutError> {
    // Sums saturate: whatever a header claims, the result is then too large for any memory.
    let start = map.ram_base.saturating_add(header.text_offset);
    let kernel = start..start.saturating_add(header.image_size.max(kernel_len));
    let dtb = align_up(kernel.end, DTB_SIZE);
    let dtb = dtb..dtb.saturating_add(DTB_SIZE);
    let initrd = initrd_len.map(|length| {
        let start = align_up(dtb.end, INITRD_ALIGN);
        start..start.saturating_add(length)
    });

    let end = initrd.as_ref().map_or(dtb.end, |initrd| initrd.end);
    let need = end - map.ram_base;
    if need > memory {
        return Err(LayoutError::TooSmall { need, memory });
    }
    let window = kernel.start & !((1 << 30) - 1);
    if initrd.is_some() && end - window > INITRD_WINDOW {
        return Err(LayoutError::InitrdTooFar);
    }
    Ok(Layout { entry: kernel.start, kernel, dtb, initrd })
}

/// Rounds up to a multiple of `align`, a power of two; a sum that overflows stays at the top.
pub(crate) fn align_up(value: u64, align: u64) -> u64 {
    value.saturating_add(align - 1) & !(align - 1)
}
