// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A service's memory, and the tables that translate its addresses.
//!
//! Its own tables map one page of 2 MiB, in which it may do everything. What each page allows is in the nested tables, so that a
//! service that could write its own tables would gain nothing: it cannot reach what the nested ones do not have. There its own
//! tables are writable, because a walk of them counts as a write (APM vol. 2, 15.25.5), but at addresses that they do not map.
//!
//! Windows on the memory of the VMs that it serves are in the nested tables alone, too. Its own map all addresses where there may be
//! some, with pages of 1 GiB, once and for all. Windows on registers are uncacheable in the nested tables, which is what counts then
//! (APM vol. 2, 15.25.8).

use core::ops::Range;

use spin::Mutex;
use turnstile_arch_common::memory::{Error, PAGE};
use turnstile_arch_common::service::{Mapping, Places, SLOT, SLOTS, Window};
use turnstile_paging::{BLOCK, NestedAttributes};
use turnstile_service::image::Image;

/// Where a program is in its address space: far from where guests have code, for who looks on from outside (the meter).
pub const BASE: u64 = 0x6000_0000_0000;
/// The guest physical address of the program.
const PROGRAM: u64 = 1 << 30;
/// The guest physical address of the first of its own tables, which are [`TABLES`] pages.
pub const ROOT: u64 = PAGE;
/// The page map level 4, a page directory pointer table, a page directory, the page directory pointer table of windows.
const TABLES: u64 = 4;

/// Where windows are in its address space. Entries of the page map level 4 are 512 GiB apart.
const WINDOWS: u64 = BASE + REACH;
/// The guest physical address of the same.
const WINDOWS_AT: u64 = 2 * GIB;
/// Bytes of all windows.
const REACH: u64 = SLOTS * SLOT;
const GIB: u64 = 1 << 30;

const _: () = assert!(REACH == 512 * GIB && WINDOWS_AT.is_multiple_of(SLOT));

/// Entries of its own tables (APM vol. 2, 5.4): present, writable, for user mode, accessed.
const TABLE: u64 = 0x27;
/// The same, dirty, and a large page.
const LARGE: u64 = 0xe7;

/// A part of the guest physical addresses: where, the physical address, the size in bytes, and what is allowed.
#[cfg(not(target_os = "none"))]
type Part = (u64, u64, u64, NestedAttributes);

/// The memory of one service.
pub struct Pages {
    image: Image<'static>,
    /// The physical address of its first byte. It is one piece, with the page below the stack, which nobody uses.
    memory: u64,
    /// What maps its guest physical addresses.
    nested: Mutex<NestedTables>,
    places: Mutex<Places>,
}

impl Pages {
    /// Makes that of a program.
    ///
    /// # Errors
    /// When there is no memory for it.
    pub fn new(image: Image<'static>) -> Result<Self, Error> {
        let header = image.header();
        let memory = source::pages(u64::from(header.size()) / PAGE)?;
        let tables = source::pages(TABLES)?;
        write_tables(tables);
        let mut parts = alloc::vec![(ROOT, tables, TABLES * PAGE, NestedAttributes::DATA)];
        let mut add = |offset: u32, size: u32, attributes| {
            if size != 0 {
                parts.push((
                    PROGRAM + u64::from(offset),
                    memory + u64::from(offset),
                    size.into(),
                    attributes,
                ));
            }
        };
        add(0, header.code, NestedAttributes::ROM);
        add(header.code, header.constants, NestedAttributes::CONSTANT);
        add(header.code + header.constants, header.data + header.zeros, NestedAttributes::DATA);
        add(header.stack_at(), header.stack, NestedAttributes::DATA);
        let nested = Mutex::new(NestedTables::new(&parts)?);
        Ok(Self { image, memory, nested, places: Mutex::new(Places::new()) })
    }

    /// Returns the root of the nested tables.
    pub fn nested_root(&self) -> u64 {
        self.nested.lock().root()
    }

    /// Maps windows of a member, which has none, and says where each is.
    ///
    /// # Errors
    /// When the CPU has no pages of 1 GiB, or there is no memory for the tables, or no room for a window. None of them is mapped then.
    pub fn attach(&self, member: usize, windows: &mut [Window]) -> Result<(), Error> {
        if !source::gigabyte_pages() {
            return Err(Error::NoService);
        }
        self.places.lock().open(member, windows, &mut *self.nested.lock())?;
        for window in windows {
            window.address += WINDOWS;
        }
        Ok(())
    }

    /// Returns where in its address space a guest physical address is at which a window may be.
    pub fn address(guest: u64) -> Option<u64> {
        guest.checked_sub(WINDOWS_AT).filter(|offset| *offset < REACH).map(|offset| WINDOWS + offset)
    }

    /// Maps the block that is so many bytes behind the beginning of a window that is mapped on demand, and that is at `host`. False if it has
    /// no place.
    ///
    /// # Safety
    /// The block is cleared.
    pub unsafe fn supply(&self, window: &Window, offset: u64, host: u64) -> bool {
        let guest = (window.address - WINDOWS).saturating_add(WINDOWS_AT + offset);
        // SAFETY: the caller's promise.
        unsafe { self.nested.lock().supply(guest, host, attributes(window)) }
    }

    /// Unmaps whole blocks that are so many bytes behind the beginning of such a window, until they are supplied again. The caller sees to the
    /// TLBs.
    ///
    /// # Safety
    /// No CPU walks these tables meanwhile.
    pub unsafe fn withdraw(&self, window: &Window, offsets: Range<u64>) {
        let first = window.address - WINDOWS + WINDOWS_AT;
        for offset in offsets.step_by(BLOCK as usize) {
            // SAFETY: the caller's promise.
            unsafe { self.nested.lock().withdraw(first + offset, attributes(window)) };
        }
    }

    /// Unmaps the windows of a member. The caller sees to the TLBs.
    pub fn detach(&self, member: usize) {
        self.places.lock().close(member, &mut *self.nested.lock());
    }

    /// Returns where the program is entered.
    pub fn entry(&self) -> u64 {
        BASE + u64::from(self.image.header().entry)
    }

    /// Returns the top of its stack.
    pub fn stack_top(&self) -> u64 {
        BASE + u64::from(self.image.header().size())
    }

    /// Puts the memory back to the program, with zeros behind it; what is kept stays if `keep`.
    ///
    /// # Safety
    /// Nobody runs in it, and nobody else gets here meanwhile.
    pub unsafe fn begin(&self, keep: bool) {
        let header = self.image.header();
        // SAFETY: from `new`, for ever, and as large; the caller's promise.
        let all = unsafe { core::slice::from_raw_parts_mut(self.memory as *mut u8, header.size() as usize) };
        let (file, rest) = all.split_at_mut(header.file() as usize);
        self.image.write(file, BASE);
        let (zeros, stack) = rest.split_at_mut(header.zeros as usize);
        let kept = if keep { header.kept as usize } else { 0 };
        zeros[..header.zeros as usize - kept].fill(0);
        stack.fill(0);
    }
}

/// What the pages of a window allow.
fn attributes(window: &Window) -> NestedAttributes {
    NestedAttributes { write: !window.read_only, device: window.registers, ..NestedAttributes::DATA }
}

impl Mapping for NestedTables {
    fn map(&mut self, offset: u64, window: &Window) -> Result<(), Error> {
        let part = (WINDOWS_AT + offset, window.host, window.size, attributes(window));
        if window.on_demand { self.map_on_demand(part) } else { self.map(part) }
    }

    fn unmap(&mut self, offset: u64, size: u64) {
        self.unmap(WINDOWS_AT + offset, size);
    }
}

/// Writes a service's own tables.
fn write_tables(tables: u64) {
    let entry = |table: u64, index: u64, value: u64| {
        // SAFETY: pages that were just allocated, cleared.
        unsafe { ((tables + table * PAGE + index * 8) as *mut u64).write(value) };
    };
    entry(0, BASE >> 39, (ROOT + PAGE) | TABLE);
    entry(1, 0, (ROOT + 2 * PAGE) | TABLE);
    entry(2, 0, PROGRAM | LARGE);
    // On a CPU without them these bits would be faults, and nobody is told where windows are.
    entry(0, WINDOWS >> 39, (ROOT + 3 * PAGE) | TABLE);
    for index in 0..REACH / GIB {
        entry(3, index, (WINDOWS_AT + index * GIB) | LARGE);
    }
}

use source::NestedTables;

/// Where pages and nested tables come from.
#[cfg(target_os = "none")]
mod source {
    pub(super) use crate::memory::{NestedTables, gigabyte_pages, pages};
}

/// The same on the host, where nothing walks tables.
#[cfg(not(target_os = "none"))]
mod source {
    use turnstile_arch_common::demand::block;
    use turnstile_arch_common::memory::{Error, PAGE};
    use turnstile_paging::BLOCK;

    #[repr(align(4096))]
    #[derive(Clone)]
    struct Page(#[allow(dead_code, reason = "reached by its address")] [u8; PAGE as usize]);

    pub(super) fn pages(count: u64) -> Result<u64, Error> {
        let pages = alloc::vec![Page([0; PAGE as usize]); count as usize];
        Ok(alloc::boxed::Box::leak(pages.into_boxed_slice()).as_ptr() as u64)
    }

    pub(super) const fn gigabyte_pages() -> bool {
        true
    }

    /// What would be mapped.
    pub(super) struct NestedTables(pub alloc::vec::Vec<super::Part>);

    impl NestedTables {
        pub fn new(parts: &[super::Part]) -> Result<Self, Error> {
            Ok(Self(parts.to_vec()))
        }

        pub fn root(&self) -> u64 {
            self.0.as_ptr() as u64
        }

        pub fn map(&mut self, part: super::Part) -> Result<(), Error> {
            self.0.push(part);
            Ok(())
        }

        pub fn map_on_demand(&mut self, _: super::Part) -> Result<(), Error> {
            Ok(())
        }

        pub unsafe fn withdraw(&mut self, guest: u64, _: super::NestedAttributes) {
            self.0.retain(|part| part.0 != guest);
        }

        pub unsafe fn supply(&mut self, guest: u64, host: u64, attributes: super::NestedAttributes) -> bool {
            self.0.push((block(guest), block(host), BLOCK, attributes));
            true
        }

        pub fn unmap(&mut self, guest: u64, size: u64) {
            self.0.retain(|part| !(guest..guest + size).contains(&part.0));
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::vec::Vec;

    use super::*;
    use turnstile_service::image::{Doorbells, Header, PAGE as UNIT, X86_64};

    pub(in super::super) fn image() -> Image<'static> {
        let header = Header {
            isa: X86_64,
            entry: 64,
            code: UNIT,
            constants: UNIT,
            data: UNIT,
            zeros: 2 * UNIT,
            kept: UNIT,
            stack: 2 * UNIT,
            relocations: 1,
            doorbells: Doorbells::NONE,
        };
        let mut file = header.bytes().to_vec();
        file.resize((UNIT + header.file()) as usize, 0x11);
        file.extend(UNIT.to_le_bytes());
        Image::parse(file.leak(), X86_64).unwrap()
    }

    /// What its nested tables map.
    fn parts(pages: &Pages) -> Vec<Part> {
        pages.nested.lock().0.clone()
    }

    #[test]
    fn each_page_allows_what_it_is_for() {
        let pages = Pages::new(image()).unwrap();
        let found: std::vec::Vec<_> = parts(&pages)
            .iter()
            .map(|(at, host, size, allows)| {
                (*at, host.wrapping_sub(pages.memory), *size, allows.write, allows.execute)
            })
            .collect();
        let at = |offset| PROGRAM + offset;
        assert_eq!(
            (found[0].0, found[0].2, found[0].3, found[0].4),
            (ROOT, 0x4000, true, false),
            "its own tables"
        );
        assert_eq!(
            found[1..],
            [
                (at(0), 0, 0x1000, false, true),
                (at(0x1000), 0x1000, 0x1000, false, false),
                (at(0x2000), 0x2000, 0x3000, true, false),
                // The page at 5000h is nobody's.
                (at(0x6000), 0x6000, 0x2000, true, false),
            ]
        );
        assert_eq!((pages.entry(), pages.stack_top()), (BASE + 64, BASE + 0x8000));
    }

    #[test]
    fn a_service_cannot_reach_its_own_tables() {
        let pages = Pages::new(image()).unwrap();
        let host = parts(&pages)[0].1;
        // SAFETY: what `new` has leaked.
        let words = unsafe { core::slice::from_raw_parts(host as *const u64, 4 * 512) };
        let set: std::vec::Vec<_> = words.iter().enumerate().filter(|(_, word)| **word != 0).collect();
        // All that is mapped is the one large page at BASE, and those of windows behind it: present, writable, user, accessed, dirty.
        // The tables are below.
        assert_eq!(set[..4], [(192, &0x2027), (193, &0x4027), (512, &0x3027), (1024, &0x4000_00e7)]);
        assert_eq!(set[4..].len(), 512);
        assert!(
            set[4..]
                .iter()
                .zip(0..)
                .all(|(entry, at)| { *entry == (1536 + at, &(0x8000_00e7 + ((at as u64) << 30))) })
        );
        assert_eq!((BASE, WINDOWS), (192 << 39, 193 << 39));
    }

    fn window(host: u64, size: u64) -> Window {
        Window { host, size, ..Window::default() }
    }

    #[test]
    fn windows_come_and_go() {
        let pages = Pages::new(image()).unwrap();
        let own = parts(&pages).len();
        let mut windows = [window(0x7000_0000, 0xa_0000), window(0x7010_0000, 0x70_0000)];
        windows[1].read_only = true;
        pages.attach(0, &mut windows).unwrap();
        assert_eq!(
            windows.map(|window| window.address - WINDOWS),
            [0x3000_0000, GIB + 0x3010_0000],
            "as the memory is in its GiB"
        );
        let found: Vec<_> = parts(&pages)[own..]
            .iter()
            .map(|(at, host, size, allows)| (*at, *host, *size, allows.write, allows.execute))
            .collect();
        assert_eq!(
            found,
            [
                (WINDOWS_AT + 0x3000_0000, 0x7000_0000, 0xa_0000, true, false),
                (WINDOWS_AT + GIB + 0x3010_0000, 0x7010_0000, 0x70_0000, false, false),
            ],
            "nothing but them"
        );
        pages.detach(0);
        assert_eq!(parts(&pages).len(), own);
        let many = &mut [window(0, 0x1000), window(0, REACH)];
        assert!(matches!(pages.attach(0, many), Err(Error::NoService)));
        assert_eq!(parts(&pages).len(), own, "what was mapped is gone again");
        pages.attach(0, &mut [window(0, REACH)]).unwrap();
    }

    #[test]
    fn windows_on_registers_are_uncacheable() {
        use turnstile_arch_common::service::DEVICE;

        let pages = Pages::new(image()).unwrap();
        let own = parts(&pages).len();
        let mut windows = [window(0xfebd_4000, 0x1000), window(0x7000_0000, 0x2000)];
        windows[0].registers = true;
        pages.attach(DEVICE, &mut windows).unwrap();
        let found: Vec<_> =
            parts(&pages)[own..].iter().map(|(_, host, _, attributes)| (*host, *attributes)).collect();
        assert_eq!(
            found,
            [(0xfebd_4000, NestedAttributes::DEVICE), (0x7000_0000, NestedAttributes::DATA)],
            "and what a device reaches itself is memory"
        );
        assert!(parts(&pages)[..own].iter().all(|part| !part.3.device));
        pages.detach(DEVICE);
        assert_eq!(parts(&pages).len(), own);
    }

    #[test]
    fn a_window_on_demand_has_the_blocks_that_were_supplied() {
        let pages = Pages::new(image()).unwrap();
        let own = parts(&pages).len();
        let mut windows = [Window { on_demand: true, ..window(0x7020_0000, 4 * BLOCK) }];
        pages.attach(0, &mut windows).unwrap();
        assert_eq!(parts(&pages).len(), own, "none");
        // SAFETY: nothing translates.
        assert!(unsafe { pages.supply(&windows[0], BLOCK + 0x1234, 0x5020_0000) });
        let place = WINDOWS_AT + 0x3040_0000;
        assert_eq!(parts(&pages)[own..], [(place, 0x5020_0000, BLOCK, NestedAttributes::DATA)]);
        assert_eq!(Pages::address(place + 8), Some(windows[0].address + BLOCK + 8));
        assert_eq!([WINDOWS_AT - 1, WINDOWS_AT + REACH].map(Pages::address), [None; 2]);
        // SAFETY: as above.
        assert!(unsafe { pages.supply(&windows[0], 2 * BLOCK, 0x6020_0000) });
        // SAFETY: as above.
        unsafe { pages.withdraw(&windows[0], 0..2 * BLOCK) };
        assert_eq!(parts(&pages)[own..], [(place + BLOCK, 0x6020_0000, BLOCK, NestedAttributes::DATA)]);
        pages.detach(0);
        assert_eq!(parts(&pages).len(), own);
    }

    #[test]
    fn windows_of_the_other_members_stay() {
        let pages = Pages::new(image()).unwrap();
        let own = parts(&pages).len();
        let attach = |member, host| {
            let mut windows = [window(host, 0x1000)];
            pages.attach(member, &mut windows).unwrap();
            windows[0].address
        };
        let mapped = || parts(&pages)[own..].iter().map(|part| (part.0, part.1)).collect::<Vec<_>>();
        assert_eq!([attach(0, 0x1000), attach(5, 0x2000)], [WINDOWS + 0x1000, WINDOWS + GIB + 0x2000]);
        pages.detach(0);
        pages.detach(1);
        assert_eq!(mapped(), [(WINDOWS_AT + GIB + 0x2000, 0x2000)]);
        assert!(pages.attach(1, &mut [window(0, 0x1000), window(0, REACH)]).is_err());
        assert_eq!(mapped().len(), 1, "who finds no room takes nobody's");
        assert_eq!(attach(2, 0x3000), WINDOWS + 0x3000, "where member 0 was");
        assert_eq!(mapped().len(), 2);
    }

    #[test]
    fn memory_is_put_back() {
        let pages = Pages::new(image()).unwrap();
        // SAFETY: as large, and nobody else's.
        let all = unsafe { core::slice::from_raw_parts_mut(pages.memory as *mut u8, 0x8000) };
        for keep in [false, true] {
            all.fill(0xaa);
            // SAFETY: nobody runs in it.
            unsafe { pages.begin(keep) };
            assert_eq!(all[..0x1000], [0x11; 0x1000]);
            let relocated = u64::from_le_bytes(all[0x1000..0x1008].try_into().unwrap());
            assert_eq!(relocated, 0x1111_1111_1111_1111 + BASE);
            assert!(all[0x3000..0x4000].iter().all(|byte| *byte == 0));
            assert!(all[0x4000..0x5000].iter().all(|byte| *byte == if keep { 0xaa } else { 0 }));
            assert!(all[0x5000..].iter().all(|byte| *byte == 0), "nothing is left on the stack");
        }
    }
}
