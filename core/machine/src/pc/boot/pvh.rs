// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Xen's direct boot (PVH: Xen, `docs/misc/pvh.pandoc` and `xen/include/public/arch-x86/hvm/start_info.h`): protected mode
//! without paging, EBX the address of `hvm_start_info`.

use alloc::vec;
use alloc::vec::Vec;

use super::{COMMAND_LINE, INFORMATION, PAGE, Plan, Source, plan_protected, set};
use crate::load::Piece;
use crate::pc::{acpi, regions};

const MAGIC: u32 = 0x336e_c578;
const VERSION: u32 = 1;
/// The list of modules in the page of information, and the map of memory.
const MODULES: usize = 0x100;
const MAP: usize = 0x200;

/// Plans the start of a kernel of these pieces at `entry`.
pub(super) fn plan<'a>(source: &Source<'a>, pieces: &[Piece<'a>], entry: u64) -> Plan<'a> {
    plan_protected(source, pieces, (entry, 0), start_info)
}

fn start_info(source: &Source<'_>, initrd: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE as usize];
    let map = regions(source.memory, source.functions.count);
    set(&mut page, 0, &MAGIC.to_le_bytes());
    set(&mut page, 4, &VERSION.to_le_bytes());
    set(&mut page, 24, &COMMAND_LINE.to_le_bytes());
    set(&mut page, 32, &acpi::RSDP.to_le_bytes());
    set(&mut page, 40, &(INFORMATION + MAP as u64).to_le_bytes());
    set(&mut page, 48, &(map.len() as u32).to_le_bytes());
    if let Some(disk) = source.initrd {
        set(&mut page, 12, &1u32.to_le_bytes());
        set(&mut page, 16, &(INFORMATION + MODULES as u64).to_le_bytes());
        set(&mut page, MODULES, &initrd.to_le_bytes());
        set(&mut page, MODULES + 8, &(disk.len() as u64).to_le_bytes());
    }
    for (index, region) in map.iter().enumerate() {
        let at = MAP + 24 * index;
        set(&mut page, at, &region.base.to_le_bytes());
        set(&mut page, at + 8, &region.size.to_le_bytes());
        set(&mut page, at + 16, &(region.kind as u32).to_le_bytes());
    }
    page
}
