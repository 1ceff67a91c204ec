// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The windows of a service: what it reaches of its members' memory, and of its device.

use core::ops::Range;

use turnstile_arch_common::memory::Error;
use turnstile_arch_common::service::{Mapping, Places, SLOT, SLOTS, Window};
use turnstile_machine::map::IPA_BITS;
use turnstile_paging::{BLOCK, Memory, Permission, Stage1Attributes, Tables};

use super::tables::AddressSpace;

/// Where the [`Places`] of windows begin. With VHE the last of them are beyond the address space, and refused.
const WINDOWS: u64 = 3 * SLOT;
const _: () = assert!(WINDOWS + SLOTS * SLOT <= 1 << IPA_BITS, "within stage 2");

/// The tables of a service, and where its windows are.
pub(super) struct Shown {
    pub(super) space: AddressSpace,
    places: Places,
}

impl Shown {
    /// Makes those of a service without windows.
    pub(super) const fn new(space: AddressSpace) -> Self {
        Self { space, places: Places::new() }
    }

    /// Shows pieces of the memory of a member's VM, and fills in their places in the tables. Nothing of them is shown if that fails.
    pub(super) fn open(
        &mut self,
        tables: &mut impl Tables,
        member: usize,
        windows: &mut [Window],
    ) -> Result<(), Error> {
        let Self { space, places } = self;
        places.open(member, windows, &mut Windows { space, tables })?;
        windows.iter_mut().for_each(|window| window.address += WINDOWS);
        Ok(())
    }

    /// Shows whole blocks no more, on any CPU, until they are supplied again.
    ///
    /// # Safety
    /// Nobody else changes these tables meanwhile.
    pub(super) unsafe fn withdraw(
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
    pub(super) fn close(&mut self, tables: &mut impl Tables, member: usize) {
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
pub(super) fn attributes(window: &Window) -> Stage1Attributes {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cpu::regs::fakes;
    use crate::memory::coherence;
    use turnstile_arch_common::heap::Heap;
    use turnstile_arch_common::service::DEVICE;
    use turnstile_paging::PhysAddr;

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
}
