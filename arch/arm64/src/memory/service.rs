// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Memory of services: the pages of one address space, which EL2 maps one to one as well, and the tables that show them to EL0.
//! With VHE those are a tree of `TTBR1_EL2`; without it stage 2 alone translates.

use core::ops::Range;
use core::sync::atomic::{AtomicU64, Ordering};

use spin::Mutex;
use turnstile_arch_common::demand::{self, block};
use turnstile_arch_common::memory::Error;
use turnstile_arch_common::service::{Mapping, Places, SLOT, SLOTS, Window};
use turnstile_machine::map::IPA_BITS;
use turnstile_paging::{
    BLOCK, Memory, PageTable, Permission, PhysAddr, Stage1Attributes, Stage1El0, Stage2, Stage2Attributes,
    Tables,
};
use turnstile_service::image::Header;

use super::{coherence, stage2 as tables, window};
use crate::cpu::{self, mode};

/// Where a program is in the tables: not at zero, which stays unmapped.
const PLACE: u64 = 2 << 20;
/// Where the [`Places`] of windows begin. With VHE the last of them are beyond the address space, and refused.
const WINDOWS: u64 = 3 * SLOT;
const _: () = assert!(WINDOWS + SLOTS * SLOT <= 1 << IPA_BITS, "within stage 2");
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
    Stage2::new(IPA_BITS).map_or(0, |format| tables::control(&format))
}

/// The tables of a service, and where its windows are.
struct Shown {
    space: AddressSpace,
    places: Places,
}

/// The tables of a service.
enum AddressSpace {
    /// Those of the upper address range, with VHE.
    Upper(PageTable<Stage1El0>),
    /// Those of stage 2, without.
    Stage2(PageTable<Stage2>),
}

impl AddressSpace {
    /// Makes empty ones.
    fn new(tables: &mut impl Tables, is_vhe: bool) -> Result<Self, Error> {
        Ok(match is_vhe {
            true => Self::Upper(PageTable::new(Stage1El0::new(), tables)?),
            false => Self::Stage2(PageTable::new(Stage2::new(IPA_BITS).ok_or(Error::NoService)?, tables)?),
        })
    }

    /// Returns the address of the root.
    fn root(&self) -> u64 {
        match self {
            Self::Upper(table) => table.root().0,
            Self::Stage2(table) => table.root().0,
        }
    }

    /// Shows `size` bytes of the machine's at `host`, as `attributes` say.
    fn map(
        &mut self,
        tables: &mut impl Tables,
        place: u64,
        (host, size): (u64, u64),
        attributes: Stage1Attributes,
    ) -> Result<(), Error> {
        let host = PhysAddr(host);
        match self {
            Self::Upper(table) => table.map(tables, place, host, size, attributes)?,
            Self::Stage2(table) => table.map(tables, place, host, size, stage2(attributes))?,
        }
        Ok(())
    }

    /// Prepares for that, block by block, when each is [supplied](Self::supply).
    fn map_on_demand(
        &mut self,
        tables: &mut impl Tables,
        place: u64,
        (host, size): (u64, u64),
        attributes: Stage1Attributes,
    ) -> Result<(), Error> {
        let host = PhysAddr(host);
        match self {
            Self::Upper(table) => table.map_on_demand(tables, place, host, size, attributes)?,
            Self::Stage2(table) => table.map_on_demand(tables, place, host, size, stage2(attributes))?,
        }
        Ok(())
    }

    /// Shows the block that contains `place` and is at `host`. False if that was not prepared.
    ///
    /// # Safety
    /// The block is cleared, and nobody else gets here meanwhile.
    unsafe fn supply(&self, place: u64, host: u64, attributes: Stage1Attributes) -> bool {
        // SAFETY: the caller's promise; EL2 maps its arena one to one.
        unsafe {
            match self {
                Self::Upper(table) => {
                    demand::supply::<_, window::Window>(&table.blocks(), place, host, attributes)
                }
                Self::Stage2(table) => {
                    demand::supply::<_, window::Window>(&table.blocks(), place, host, stage2(attributes))
                }
            }
        }
    }

    /// Shows the block that contains `place` no more, until it is supplied again. The caller invalidates.
    ///
    /// # Safety
    /// Nobody else gets here meanwhile.
    unsafe fn withdraw(&self, place: u64, attributes: Stage1Attributes) {
        // SAFETY: the caller's promise; EL2 maps its arena one to one.
        unsafe {
            match self {
                Self::Upper(table) => {
                    demand::vacate::<_, window::Window>(&table.blocks(), place, attributes);
                }
                Self::Stage2(table) => {
                    demand::vacate::<_, window::Window>(&table.blocks(), place, stage2(attributes));
                }
            }
        }
    }

    /// Shows nothing there any more, on any CPU.
    fn unmap(&mut self, tables: &mut impl Tables, place: u64, size: u64) -> Result<(), Error> {
        match self {
            Self::Upper(table) => table.unmap(tables, place, size)?,
            Self::Stage2(table) => table.unmap(tables, place, size)?,
        };
        Ok(())
    }
}

/// Returns what stage 2 says of a piece. Stage 1 is off, and all that it says is Normal and cacheable (HCR_EL2.DC): device
/// registers are those of a device because stage 2 can make it stricter (Arm ARM D8.6).
fn stage2(attributes: Stage1Attributes) -> Stage2Attributes {
    let permission = attributes.permission;
    let of = |kind| Stage2Attributes {
        write: permission == Permission::ReadWrite,
        execute: permission == Permission::ReadExecute,
        ..kind
    };
    match attributes.memory {
        Memory::Device => of(Stage2Attributes::DEVICE),
        _ => coherence::ram(of(Stage2Attributes::RAM)),
    }
}

impl Shown {
    /// Makes those of a service without windows.
    const fn new(space: AddressSpace) -> Self {
        Self { space, places: Places::new() }
    }

    /// Shows pieces of the memory of a member's VM, and fills in their places in the tables. Nothing of them is shown if that fails.
    fn open(&mut self, tables: &mut impl Tables, member: usize, windows: &mut [Window]) -> Result<(), Error> {
        let Self { space, places } = self;
        places.open(member, windows, &mut Windows { space, tables })?;
        windows.iter_mut().for_each(|window| window.address += WINDOWS);
        Ok(())
    }

    /// Shows whole blocks no more, on any CPU, until they are supplied again.
    ///
    /// # Safety
    /// Nobody else changes these tables meanwhile.
    unsafe fn withdraw(
        &mut self,
        tables: &mut impl Tables,
        places: Range<u64>,
        attributes: Stage1Attributes,
    ) {
        for place in places.clone().step_by(BLOCK as usize) {
            // SAFETY: the caller's promise.
            unsafe { self.space.withdraw(place, attributes) };
        }
        // Before anybody else gets one of them.
        tables.invalidate(places.start, places.end - places.start);
    }

    /// Takes a member's away.
    fn close(&mut self, tables: &mut impl Tables, member: usize) {
        let Self { space, places } = self;
        places.close(member, &mut Windows { space, tables });
    }
}

/// The tables of a service, and what they come from, as far as its windows are in them.
struct Windows<'a, T> {
    space: &'a mut AddressSpace,
    tables: &'a mut T,
}

/// What the pages of a window are for.
fn attributes(window: &Window) -> Stage1Attributes {
    Stage1Attributes {
        memory: if window.registers { Memory::Device } else { Memory::Normal },
        permission: if window.read_only { Permission::ReadOnly } else { Permission::ReadWrite },
    }
}

impl<T: Tables> Mapping for Windows<'_, T> {
    fn map(&mut self, offset: u64, window: &Window) -> Result<(), Error> {
        let (place, piece, attributes) = (WINDOWS + offset, (window.host, window.size), attributes(window));
        match window.on_demand {
            true => self.space.map_on_demand(self.tables, place, piece, attributes),
            false => self.space.map(self.tables, place, piece, attributes),
        }
    }

    fn unmap(&mut self, offset: u64, size: u64) {
        // Whole blocks that were mapped: none is split, so it needs no memory.
        let _ = self.space.unmap(self.tables, WINDOWS + offset, size);
    }
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
    use crate::cpu::regs::fakes;
    use turnstile_arch_common::heap::Heap;
    use turnstile_arch_common::service::DEVICE;
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

    const MIB: u64 = 1 << 20;

    /// Where an address of a window leads, and how large the block is.
    fn block(shown: &Shown, place: u64) -> Option<(u64, u64, Permission)> {
        match &shown.space {
            AddressSpace::Upper(table) => table.translate(&Heap, place).map(|found| {
                assert_eq!(found.attributes.memory, Memory::Normal);
                (found.address.0, found.size, found.attributes.permission)
            }),
            AddressSpace::Stage2(table) => table.translate(&Heap, place).map(|found| {
                assert!(found.attributes.write && !found.attributes.execute);
                (found.address.0, found.size, Permission::ReadWrite)
            }),
        }
    }

    /// Shows memory to a member.
    fn open(shown: &mut Shown, member: usize, windows: &mut [Window]) -> Result<(), Error> {
        shown.open(&mut Heap, member, windows)
    }

    #[test]
    fn windows_are_in_the_largest_blocks_and_go_again() {
        for is_vhe in [true, false] {
            let mut shown = Shown::new(AddressSpace::new(&mut Heap, is_vhe).unwrap());
            let pieces = [(0x8000_0000, 3 * SLOT), (0x1_4620_0000, 16 * MIB), (0x1_0000_1000, 0x3000)];
            let mut windows = pieces.map(|(host, size)| Window { host, size, ..Window::default() });
            open(&mut shown, 0, &mut windows).unwrap();
            let blocks = [SLOT, 2 * MIB, 0x1000];
            for (window, size) in windows.into_iter().zip(blocks) {
                assert!(window.address >= WINDOWS);
                let found = |offset| block(&shown, window.address + offset);
                assert_eq!(found(0), Some((window.host, size, Permission::ReadWrite)));
                let last = window.size - 8;
                assert_eq!(found(last), Some((window.host + last, size, Permission::ReadWrite)));
                assert_eq!(found(window.size), None, "behind it is nothing");
            }
            shown.close(&mut Heap, 0);
            shown.close(&mut Heap, 0);
            assert!(windows.iter().all(|window| block(&shown, window.address).is_none()));
            let too_large = [Window { size: 1024 * SLOT, ..Window::default() }];
            let mut with_too_large = [windows[0], too_large[0]];
            assert!(open(&mut shown, 0, &mut with_too_large).is_err());
            assert_eq!(block(&shown, windows[0].address), None, "all or nothing");
        }
    }

    /// Tables that note what is invalidated.
    struct Noting(Vec<(u64, u64)>);

    impl Tables for Noting {
        fn allocate(&mut self, bytes: u64) -> Option<PhysAddr> {
            Heap.allocate(bytes)
        }

        fn free(&mut self, table: PhysAddr, bytes: u64) {
            Heap.free(table, bytes);
        }

        fn read(&self, table: PhysAddr, index: usize) -> u64 {
            Heap.read(table, index)
        }

        fn write(&mut self, table: PhysAddr, index: usize, entry: u64) {
            Heap.write(table, index, entry);
        }

        fn invalidate(&mut self, address: u64, size: u64) {
            self.0.push((address, size));
        }
    }

    #[test]
    fn a_window_on_demand_has_the_blocks_that_were_supplied() {
        for is_vhe in [true, false] {
            let mut shown = Shown::new(AddressSpace::new(&mut Heap, is_vhe).unwrap());
            let host = 0x8020_0000;
            let mut windows =
                [Window { host, size: 8 * MIB, on_demand: true, read_only: is_vhe, ..Window::default() }];
            open(&mut shown, 0, &mut windows).unwrap();
            let [window] = windows;
            let blocks = |shown: &Shown| [0, 2, 4, 6].map(|mib| block(shown, window.address + mib * MIB));
            assert_eq!(blocks(&shown), [None; 4]);
            // SAFETY: tables of the test, and nobody uses what they map.
            let supplied = |place, host| unsafe { shown.space.supply(place, host, attributes(&window)) };
            assert!(supplied(window.address + 3 * MIB, host + 2 * MIB));
            assert!(!supplied(window.address + SLOT, host), "no window is there");
            let allowed = if is_vhe { Permission::ReadOnly } else { Permission::ReadWrite };
            let there = Some((host + 2 * MIB, 2 * MIB, allowed));
            assert_eq!(blocks(&shown), [None, there, None, None]);
            let mut noting = Noting(Vec::new());
            let places = window.address..window.address + 4 * MIB;
            // SAFETY: as above.
            unsafe { shown.withdraw(&mut noting, places, attributes(&window)) };
            assert_eq!(blocks(&shown), [None; 4], "until it is supplied again");
            assert_eq!(noting.0, [(window.address, 4 * MIB)], "and no CPU knows it any more");
            // SAFETY: as above.
            let again =
                unsafe { shown.space.supply(window.address + 2 * MIB, host + 6 * MIB, attributes(&window)) };
            let there = Some((host + 6 * MIB, 2 * MIB, allowed));
            assert_eq!((again, blocks(&shown)), (true, [None, there, None, None]), "at another place");
            shown.close(&mut Heap, 0);
            assert_eq!(blocks(&shown), [None; 4]);
        }
    }

    #[test]
    fn a_member_that_leaves_takes_its_own_windows_alone() {
        for is_vhe in [true, false] {
            let mut shown = Shown::new(AddressSpace::new(&mut Heap, is_vhe).unwrap());
            let window = |host| Window { host, size: 2 * MIB, ..Window::default() };
            let mut members =
                [[window(0x8000_0000), window(0xc000_0000)], [window(0x9000_0000), window(0xd000_0000)]];
            for (member, windows) in members.iter_mut().enumerate() {
                open(&mut shown, member, windows).unwrap();
            }
            let host = |shown: &Shown, window: Window| block(shown, window.address).map(|(host, ..)| host);
            shown.close(&mut Heap, 0);
            assert!(members[0].iter().all(|window| host(&shown, *window).is_none()));
            assert!(members[1].iter().all(|window| host(&shown, *window) == Some(window.host)));
            let mut again = [window(0xa000_0000)];
            open(&mut shown, 0, &mut again).unwrap();
            assert_eq!(again[0].address / SLOT, members[0][0].address / SLOT, "the place is free");
            assert_eq!(host(&shown, again[0]), Some(0xa000_0000));
        }
    }

    #[test]
    fn registers_are_device_memory_whatever_else_is_shown() {
        fakes::reset();
        let registers =
            |host, size, read_only| Window { host, size, read_only, registers: true, ..Window::default() };
        for (is_vhe, forced) in [(true, false), (false, false), (false, true)] {
            if forced {
                coherence::force();
            }
            let mut shown = Shown::new(AddressSpace::new(&mut Heap, is_vhe).unwrap());
            let memory = Window { host: 0x8000_0000, size: 0x1000, ..Window::default() };
            let mut windows =
                [registers(0x80_0020_0000, 2 * MIB, false), registers(0x1000_3000, 0x1000, true), memory];
            open(&mut shown, DEVICE, &mut windows).unwrap();
            let kind = |window: Window| match &shown.space {
                AddressSpace::Upper(table) => {
                    let found = table.translate(&Heap, window.address).unwrap();
                    assert_eq!((found.address.0, found.size), (window.host, window.size));
                    assert_ne!(found.attributes.permission, Permission::ReadExecute);
                    (found.attributes.memory, found.attributes.permission == Permission::ReadWrite)
                }
                AddressSpace::Stage2(table) => {
                    let found = table.translate(&Heap, window.address).unwrap();
                    assert_eq!((found.address.0, found.size), (window.host, window.size));
                    assert!(found.attributes.read && !found.attributes.execute);
                    (found.attributes.memory, found.attributes.write)
                }
            };
            let normal = if forced { Memory::Forced } else { Memory::Normal };
            assert_eq!(windows.map(kind), [(Memory::Device, true), (Memory::Device, false), (normal, true)]);
            shown.close(&mut Heap, DEVICE);
            assert!(windows.iter().all(|window| match &shown.space {
                AddressSpace::Upper(table) => table.translate(&Heap, window.address).is_none(),
                AddressSpace::Stage2(table) => table.translate(&Heap, window.address).is_none(),
            }));
        }
        fakes::reset();
        coherence::choose();
    }

    #[test]
    fn numbers_of_services_are_no_vms() {
        let next = AtomicU64::new(LAST);
        let numbers: Vec<u64> = core::iter::from_fn(|| number(&next)).collect();
        assert_eq!((numbers[0], numbers.last()), (LAST, Some(&(OF_VMS + 1))));
        assert_eq!(numbers.len() as u64, LAST - OF_VMS, "none is given out twice");
    }
}
