// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where a flat image goes: bytes without a header, at the address that the user names, in RAM or in flash.
//!
//! Firmware for QEMU's `virt` looks for the device tree at the start of RAM, so that is where it is here. Its address is in X0,
//! as in Linux's protocol. Nobody knows what an image needs after its last byte, so an initial RAM disk goes into the middle of
//! RAM, or to 128 MiB if that is less, as with QEMU.

use core::ops::Range;

use crate::fdt::MAX_SIZE as DTB_SIZE;
use crate::file_kind::FileKind;
use crate::image::ImageError;
use crate::layout::{INITRD_ALIGN, Layout, LayoutError, align_up};
use crate::map::{Map, Region};

/// How far from the start of RAM a flat image is loaded unless the user says otherwise.
pub const LOAD_OFFSET: u64 = 2 << 20;
/// The farthest that an initial RAM disk lies from the start of RAM, unless the image lies there.
const INITRD_OFFSET: u64 = 128 << 20;

/// Where a flat image is loaded and entered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flat {
    /// The address of its first byte.
    pub load: u64,
    /// The address at which the first vCPU starts.
    pub entry: u64,
}

impl Flat {
    /// Returns where a flat image goes of which the user says nothing.
    #[must_use]
    pub const fn usual(map: &Map) -> Flat {
        let load = map.ram_base + LOAD_OFFSET;
        Flat { load, entry: load }
    }
}

/// Checks that a file can be a flat image.
///
/// # Errors
///
/// Says what it is instead, if that is known.
pub fn check(file: &[u8]) -> Result<(), ImageError> {
    match FileKind::of(file) {
        _ if file.is_empty() => Err(ImageError::Empty),
        kind if kind.is_never_code() => Err(ImageError::NotFlat(kind)),
        _ => Ok(()),
    }
}

/// Places a flat image of `length` bytes, the device tree, and an initial RAM disk of `initrd_len` bytes (none if that is
/// `None`) in `memory` bytes of RAM and banks of `flash` bytes.
///
/// # Errors
///
/// Refuses what does not fit, and says what would.
pub fn layout(
    map: &Map,
    memory: u64,
    flash: u64,
    flat: Flat,
    length: u64,
    initrd_len: Option<u64>,
) -> Result<Layout, LayoutError> {
    let ram = map.ram(memory);
    let dtb = ram.base..ram.base + DTB_SIZE;
    let kernel = flat.load..flat.load.saturating_add(length);
    check_place(map, ram, flash, &kernel)?;
    if !kernel.contains(&flat.entry) || !flat.entry.is_multiple_of(4) {
        return Err(LayoutError::Entry(flat.entry));
    }
    let behind = if ram.contains(kernel.start) { kernel.end } else { dtb.end };
    let initrd = initrd_len.map(|length| {
        let usual = align_up(ram.base + INITRD_OFFSET.min(memory / 2), INITRD_ALIGN);
        let start = usual.max(align_up(behind, INITRD_ALIGN));
        start..start.saturating_add(length)
    });
    match initrd.as_ref().map_or(behind, |initrd| initrd.end) - ram.base {
        need if need > memory => Err(LayoutError::TooSmall { need, memory }),
        _ => Ok(Layout { kernel, entry: flat.entry, dtb, initrd }),
    }
}

/// Checks that there is memory for all of an image, where nothing else lies; RAM's end is checked later.
fn check_place(map: &Map, ram: Region, flash: u64, kernel: &Range<u64>) -> Result<(), LayoutError> {
    let length = kernel.end - kernel.start;
    if let Some(bank) = map.flash_banks(flash).find(|bank| bank.contains(kernel.start)) {
        let left = bank.end() - kernel.start;
        return if length > left { Err(LayoutError::FlashTooSmall { length, left }) } else { Ok(()) };
    }
    let free = ram.base + DTB_SIZE;
    match kernel.start {
        start if !ram.contains(start) => Err(LayoutError::Nowhere { address: start, ram: (free, ram.end()) }),
        start if start < free => Err(LayoutError::OnDeviceTree { free }),
        _ => Ok(()),
    }
}
