// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Linux's 64-bit boot protocol (Linux, `Documentation/arch/x86/boot.rst`, "64-bit Boot Protocol").

use alloc::vec;
use alloc::vec::Vec;

use super::{
    BootError, COMMAND_LINE, DESCRIPTORS, FileError, INFORMATION, LONG, Mode, PAGE, PAGE_TABLES, Plan,
    SELECTORS, Source, Start, descriptors, room, set, u32_at,
};
use crate::pc::{acpi, regions};

/// Offsets of the setup header in the file and in the zero page.
mod field {
    pub const SETUP_SECTORS: usize = 0x1f1;
    pub const BOOT_FLAG: usize = 0x1fe;
    /// The second byte of a jump: its distance, which is the header's end.
    pub const JUMP: usize = 0x201;
    pub const VERSION: usize = 0x206;
    pub const LOADER: usize = 0x210;
    pub const LOAD_FLAGS: usize = 0x211;
    pub const INITRD: usize = 0x218;
    pub const INITRD_SIZE: usize = 0x21c;
    pub const COMMAND_LINE: usize = 0x228;
    pub const INITRD_MOST: usize = 0x22c;
    pub const ALIGNMENT: usize = 0x230;
    pub const RELOCATABLE: usize = 0x234;
    pub const XLOAD_FLAGS: usize = 0x236;
    pub const COMMAND_LINE_SIZE: usize = 0x238;
    pub const PREFERRED: usize = 0x258;
    pub const INIT_SIZE: usize = 0x260;
}

/// Offsets of the zero page alone.
mod zero_page {
    pub const RSDP: usize = 0x70;
    pub const REGIONS: usize = 0x1e8;
    pub const MAP: usize = 0x2d0;
}

/// `loadflags`: the kernel is loaded at 1 MiB and above.
const LOADED_HIGH: u8 = 1;
/// `xloadflags`: there is a 64-bit entry, 0x200 behind the beginning.
const XLF_KERNEL_64: u16 = 1;
const LONG_ENTRY: u64 = 0x200;
/// A loader without a number of its own.
const LOADER_OTHER: u8 = 0xff;
const OLDEST: u16 = 0x20c;

/// What the header of a bzImage says.
struct Header {
    /// Where the kernel behind the setup code begins in the file.
    start: usize,
    preferred: u64,
    alignment: u64,
    relocatable: bool,
    init_size: u64,
    initrd_most: u64,
    cmdline_most: usize,
}

impl Header {
    fn parse(file: &[u8]) -> Result<Self, BootError> {
        let word = |at| u32_at(file, at).ok_or(FileError::Truncated);
        let half = |at| word(at).map(|word| word as u16);
        // The last field that is read.
        word(field::INIT_SIZE)?;
        if half(field::BOOT_FLAG)? != 0xaa55 {
            return Err(FileError::Truncated.into());
        }
        let version = half(field::VERSION)?;
        if version < OLDEST {
            return Err(BootError::OldProtocol(version));
        }
        if half(field::XLOAD_FLAGS)? & XLF_KERNEL_64 == 0 {
            return Err(BootError::NotLong);
        }
        let sectors = match word(field::SETUP_SECTORS)? as u8 {
            0 => 4,
            sectors => usize::from(sectors),
        };
        Ok(Self {
            start: (sectors + 1) * 512,
            preferred: u64::from(word(field::PREFERRED)?) | u64::from(word(field::PREFERRED + 4)?) << 32,
            alignment: u64::from(word(field::ALIGNMENT)?).max(PAGE),
            relocatable: word(field::RELOCATABLE)? as u8 != 0,
            init_size: word(field::INIT_SIZE)?.into(),
            initrd_most: word(field::INITRD_MOST)?.into(),
            cmdline_most: word(field::COMMAND_LINE_SIZE)? as usize,
        })
    }

    /// Returns where the kernel goes: where it wants to, or if that is too high and it can be moved, as low as it can be.
    fn place(&self, size: u64, room: u64) -> u64 {
        let lowest = (1u64 << 20).checked_next_multiple_of(self.alignment).unwrap_or(self.preferred);
        let fits = self.preferred.checked_add(size).is_some_and(|end| end <= room);
        if fits || !self.relocatable { self.preferred } else { lowest.min(self.preferred) }
    }
}

/// Plans the start of a bzImage.
pub(super) fn plan<'a>(source: &Source<'a>) -> Result<Plan<'a>, BootError> {
    let header = Header::parse(source.kernel)?;
    let kernel =
        source.kernel.get(header.start..).filter(|kernel| !kernel.is_empty()).ok_or(FileError::Truncated)?;
    if source.cmdline.len() > header.cmdline_most {
        return Err(BootError::CommandLine(source.cmdline.len(), header.cmdline_most));
    }
    let (room, size) = (room(source.memory), header.init_size.max(kernel.len() as u64));
    let at = header.place(size, room);
    let end = at.saturating_add(size);
    let disk = source.initrd.unwrap_or(&[]);
    // As high as the kernel takes it: what is below is in the way of its own early allocations.
    let top = room.min(header.initrd_most.saturating_add(1));
    let initrd = top.checked_sub(disk.len() as u64).map(|at| at & !(PAGE - 1)).filter(|at| *at >= end);
    let (Some(initrd), true) = (initrd, end <= room) else {
        return Err(BootError::TooSmall { need: end.saturating_add(disk.len() as u64), have: room });
    };
    let mut plan = Plan::new(Start {
        mode: Mode::Long { root: PAGE_TABLES },
        rip: at + LONG_ENTRY,
        rax: 0,
        rbx: 0,
        rsi: INFORMATION,
        selectors: SELECTORS,
    });
    plan.put(INFORMATION, zero_page(source, initrd));
    plan.put(DESCRIPTORS, descriptors(LONG));
    plan.put(PAGE_TABLES, page_tables());
    plan.put_command_line(source.cmdline);
    plan.put_file(at, kernel);
    if source.initrd.is_some() {
        plan.put_file(initrd, disk);
    }
    Ok(plan)
}

/// Builds the zero page: the file's header, what the loader adds, the map of memory.
fn zero_page(source: &Source<'_>, initrd: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    let end = (0x202 + usize::from(source.kernel[field::JUMP])).min(zero_page::MAP);
    let header = &source.kernel[field::SETUP_SECTORS..end.min(source.kernel.len())];
    set(&mut page, field::SETUP_SECTORS, header);
    page[field::LOADER] = LOADER_OTHER;
    page[field::LOAD_FLAGS] |= LOADED_HIGH;
    set(&mut page, field::COMMAND_LINE, &(COMMAND_LINE as u32).to_le_bytes());
    if let Some(disk) = source.initrd {
        set(&mut page, field::INITRD, &(initrd as u32).to_le_bytes());
        set(&mut page, field::INITRD_SIZE, &(disk.len() as u32).to_le_bytes());
    }
    set(&mut page, zero_page::RSDP, &acpi::RSDP.to_le_bytes());
    let map = regions(source.memory, source.functions.count);
    page[zero_page::REGIONS] = map.len() as u8;
    for (index, region) in map.iter().enumerate() {
        let at = zero_page::MAP + 20 * index;
        set(&mut page, at, &region.base.to_le_bytes());
        set(&mut page, at + 8, &region.size.to_le_bytes());
        set(&mut page, at + 16, &(region.kind as u32).to_le_bytes());
    }
    page
}

/// Page tables that map the first 4 GiB one to one, in pages of 2 MiB (AMD APM vol. 2, 5.3).
fn page_tables() -> Vec<u8> {
    const TABLE: u64 = 0x3;
    const LARGE: u64 = 0x83;
    let mut entries = vec![0u64; 6 * 512];
    entries[0] = (PAGE_TABLES + PAGE) | TABLE;
    for index in 0..4 {
        entries[512 + index] = (PAGE_TABLES + (2 + index as u64) * PAGE) | TABLE;
    }
    for (index, entry) in entries[1024..].iter_mut().enumerate() {
        *entry = (index as u64) << 21 | LARGE;
    }
    entries.into_iter().flat_map(u64::to_le_bytes).collect()
}
