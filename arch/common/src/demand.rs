// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of guests that is mapped when it is first touched: what an exit does for it.

use turnstile_paging::{BLOCK, Blocks, Format, PhysAddr};

/// The start of the block that contains an address.
#[inline(always)] // One instruction.
pub const fn block(address: u64) -> u64 {
    address & !(BLOCK - 1)
}

/// Maps the block that contains `address` and is at `host`, by one store; false if the tables have no place for it, because it is
/// mapped by smaller pages or is no memory that is mapped on demand. Another CPU may do the same meanwhile: both store the
/// same word. Nothing has to be invalidated, since what is not mapped is in no TLB.
///
/// # Safety
/// The tables belong to a VM that has not stopped, nothing but this function changes them meanwhile, and they are mapped one
/// to one. All of the block at `host` is that VM's.
#[inline] // Its caller is on an exit's path.
pub unsafe fn map_block<F: Format>(
    blocks: &Blocks<F>,
    address: u64,
    host: u64,
    attributes: F::Attributes,
) -> bool {
    // SAFETY: the walk yields tables of the tree, and indexes inside them. Volatile: hardware walkers read and other CPUs
    // write them; an aligned word is read and written at once.
    let read =
        |table: PhysAddr, index| unsafe { core::ptr::read_volatile((table.0 as *const u64).add(index)) };
    let Some(slot) = blocks.slot(address, PhysAddr(host), attributes, read) else { return false };
    // SAFETY: as above; the caller says that the block is the VM's.
    unsafe { core::ptr::write_volatile((slot.table.0 as *mut u64).add(slot.index), slot.entry) };
    true
}
