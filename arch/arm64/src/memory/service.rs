// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of services: the pages of one address space, which EL2 maps one to one as well, and the tables that show them to EL0.
//! With VHE those are a tree of `TTBR1_EL2`; without it stage 2 alone translates.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use spin::Mutex;
use turnstile_arch_common::demand::block;
use turnstile_arch_common::memory::Error;
use turnstile_arch_common::service::Window;
use turnstile_machine::map::IPA_BITS;
use turnstile_paging::{Memory, Permission, Stage1Attributes, Stage1El0, Stage2, Tables};
use turnstile_service::image::Header;

use crate::cpu::{self, mode};
use crate::memory::stage2;
use tables::AddressSpace;
use windows::{Shown, attributes};

mod tables;
mod windows;

/// Where a program is in the tables: not at zero, which stays unmapped.
const PLACE: u64 = 2 << 20;
/// The last ASID or VMID that is a VM's. Those of services are counted from [`LAST`] down, so that none is ever both.
const OF_VMS: u64 = 64;
/// The highest ASID and VMID that every CPU has.
const LAST: u64 = 255;

/// The next number that no service has.
static NEXT: AtomicU64 = AtomicU64::new(LAST);

/// The memory of one service, for ever.
pub struct ServiceMemory {
    start: u64,
    translation: u64,
    shown: Mutex<Shown>,
}

/// Returns VTCR_EL2 of a CPU that runs services alone: without VHE their tables are those of stage 2, as those of VMs are.
pub fn translation_control() -> u64 {
    Stage2::new(IPA_BITS).map_or(0, |format| stage2::control(&format))
}

impl ServiceMemory {
    /// Allocates cleared memory for a program, and maps it with the permissions of its parts.
    ///
    /// # Errors
    /// When there is no room, or there are too many services.
    pub fn new(header: &Header) -> Result<Self, Error> {
        let number = number(&NEXT).ok_or(Error::NoService)?;
        let (start, space) = allocate(header)?;
        let translation = space.root() | number << 48;
        Ok(Self { start, translation, shown: Mutex::new(Shown::new(space)) })
    }

    /// Returns where a program begins in its own address space.
    pub fn base() -> u64 {
        lowest() + PLACE
    }

    /// Returns what makes this its address space: `TTBR1_EL2` with its ASID, or `VTTBR_EL2` with its VMID.
    pub const fn translation(&self) -> u64 {
        self.translation
    }

    /// Shows it pieces of the memory of a member's VM, or of a device, not to be executed; fills in where. Nothing of them is shown if that fails.
    ///
    /// # Errors
    /// When there is no memory for the tables, or the pieces are more than the address space.
    pub fn show(&self, member: usize, windows: &mut [Window]) -> Result<(), Error> {
        with_pool(|pool| self.shown.lock().open(pool, member, windows))?;
        // The tables before whoever enters next, on any CPU, walks them.
        cpu::dsb_ishst();
        windows.iter_mut().for_each(|window| window.address += lowest());
        Ok(())
    }

    /// Shows it the block that is so many bytes behind the beginning of a window that is shown on demand, and that is at `host`. False if
    /// it has no place.
    ///
    /// # Safety
    /// The block is cleared. The caller is inside the service's gate.
    pub unsafe fn supply(&self, window: &Window, offset: u64, host: u64) -> bool {
        let place = (window.address - lowest()).saturating_add(offset);
        // SAFETY: the caller's promise.
        let supplied = unsafe { self.shown.lock().space.supply(place, block(host), attributes(window)) };
        // The store before the walk of the access that is repeated (Arm ARM D8.17.1); the return to EL0 is the context
        // synchronization. What was not mapped is in no TLB.
        cpu::dsb_ishst();
        supplied
    }

    /// Shows whole blocks no more that are so many bytes behind the beginning of such a window: no CPU reaches them by this address space.
    ///
    /// # Safety
    /// The caller is inside the service's gate.
    pub unsafe fn withdraw(&self, window: &Window, offsets: Range<u64>) {
        let first = window.address - lowest();
        let places = first + offsets.start..first + offsets.end;
        let _ = with_pool(|pool| {
            // SAFETY: the caller's promise.
            unsafe { self.shown.lock().withdraw(pool, places, attributes(window)) };
            Ok(())
        });
    }

    /// Takes them away: no CPU reaches them by this address space any more.
    pub fn hide(&self, member: usize) {
        // There are tables, so there is the memory that they come from.
        let _ = with_pool(|pool| {
            self.shown.lock().close(pool, member);
            Ok(())
        });
    }

    /// Returns `size` bytes at `offset`.
    ///
    /// # Safety
    /// They are the program's, the service does not run, and nobody else has them.
    #[allow(clippy::mut_from_ref, reason = "the contract makes the reference unique")]
    pub unsafe fn bytes(&self, offset: u32, size: u32) -> &mut [u8] {
        // SAFETY: allocated by `new`, for ever, and mapped; unique by the caller's promise.
        unsafe { core::slice::from_raw_parts_mut((self.start + u64::from(offset)) as *mut u8, size as usize) }
    }
}

/// Returns the lowest address of the address space of a service.
fn lowest() -> u64 {
    if mode::is_vhe() { Stage1El0::BASE } else { 0 }
}

/// Returns a number that nobody has, and none twice; `None` when there are no more.
fn number(next: &AtomicU64) -> Option<u64> {
    next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| (next > OF_VMS).then(|| next - 1)).ok()
}

/// Returns the parts of a program: offset, size, and what it may do there. Between the last two is a page that is in none.
fn parts(header: &Header) -> [(u32, u32, Permission); 4] {
    let data = header.code + header.constants;
    [
        (0, header.code, Permission::ReadExecute),
        (header.code, header.constants, Permission::ReadOnly),
        (data, header.data + header.zeros, Permission::ReadWrite),
        (header.stack_at(), header.stack, Permission::ReadWrite),
    ]
}

/// Shows the parts of a program at `start`.
fn build(
    space: &mut AddressSpace,
    tables: &mut impl Tables,
    start: u64,
    header: &Header,
) -> Result<(), Error> {
    let parts = parts(header)
        .into_iter()
        .filter(|(_, size, _)| *size != 0)
        .map(|(offset, size, permission)| (u64::from(offset), u64::from(size), permission));
    for (offset, size, permission) in parts {
        let attributes = Stage1Attributes { memory: Memory::Normal, permission };
        space.map(tables, PLACE + offset, (start + offset, size), attributes)?;
    }
    Ok(())
}

/// Allocates and maps memory; returns where it is, and the tables.
#[cfg(target_os = "none")]
fn allocate(header: &Header) -> Result<(u64, AddressSpace), Error> {
    use turnstile_arch_common::memory::PAGE;

    use super::bulk::zero;

    with_pool(|pool| {
        let size = u64::from(header.size());
        let start = pool.arena.allocate(size, PAGE).map_err(|_| Error::NoService)?.start().0;
        zero(start, size);
        let mut space = AddressSpace::new(pool, mode::is_vhe())?;
        build(&mut space, pool, start, header)?;
        // Nothing is known by a number that nobody had; what a CPU knew at power-on goes.
        pool.invalidate(0, 0);
        Ok((start, space))
    })
}

/// Does something with what tables of services come from; what changes there is invalidated on all CPUs.
#[cfg(target_os = "none")]
fn with_pool<R>(f: impl FnOnce(&mut super::el2::Pool<'_>) -> Result<R, Error>) -> Result<R, Error> {
    use super::el2::{Pool, Regime};

    let regime = if mode::is_vhe() { Regime::El2 } else { Regime::Guests };
    super::host::with(|m| f(&mut Pool { arena: &mut m.frames.arena, regime }))
}

/// Allocates memory of a test, and maps it.
#[cfg(not(target_os = "none"))]
fn allocate(header: &Header) -> Result<(u64, AddressSpace), Error> {
    let words = vec![0u64; header.size() as usize / 8].leak();
    let start = words.as_mut_ptr().expose_provenance() as u64;
    with_pool(|pool| {
        let mut space = AddressSpace::new(pool, mode::is_vhe())?;
        // Where memory of a test is, is no matter; it is not at a page.
        build(&mut space, pool, PLACE, header)?;
        Ok((start, space))
    })
}

/// Does something with tables of a test.
#[cfg(not(target_os = "none"))]
fn with_pool<R>(
    f: impl FnOnce(&mut turnstile_arch_common::heap::Heap) -> Result<R, Error>,
) -> Result<R, Error> {
    f(&mut turnstile_arch_common::heap::Heap)
}

#[cfg(test)]
mod tests {
    use super::*;
    use turnstile_service::image::PAGE;

    #[test]
    fn each_part_has_its_permission_and_the_stack_a_page_below() {
        let header = Header {
            code: 2 * PAGE,
            constants: PAGE,
            data: PAGE,
            zeros: 3 * PAGE,
            stack: 4 * PAGE,
            ..Header::default()
        };
        let [code, constants, data, stack] = parts(&header);
        assert_eq!(code, (0, 2 * PAGE, Permission::ReadExecute));
        assert_eq!(constants, (2 * PAGE, PAGE, Permission::ReadOnly));
        assert_eq!(data, (3 * PAGE, 4 * PAGE, Permission::ReadWrite));
        assert_eq!(stack, (8 * PAGE, 4 * PAGE, Permission::ReadWrite));
        assert_eq!(stack.0 - PAGE, data.0 + data.1, "a page below the stack is in no part");
        assert_eq!(stack.0 + stack.1, header.size());
    }

    #[test]
    fn numbers_of_services_are_no_vms() {
        let next = AtomicU64::new(LAST);
        let numbers: Vec<u64> = core::iter::from_fn(|| number(&next)).collect();
        assert_eq!((numbers[0], numbers.last()), (LAST, Some(&(OF_VMS + 1))));
        assert_eq!(numbers.len() as u64, LAST - OF_VMS, "none is given out twice");
    }
}
