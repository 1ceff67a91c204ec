// SPDX-License-Identifier: Apache-2.0 OR MIT
//! A function's configuration space: against a table of what the specification lets software write, and by hand.

mod common;

use common::{device, identity};
use proptest::prelude::*;
use turnstile_pci::bar::{Bar, Space};
use turnstile_pci::function::{Changed, Function, MsixPlaces, Unfit};
use turnstile_pci::msix::Control;
use turnstile_pci::register::{Command, Status};

/// The dwords of [`device`] that are not zero: offset, value after a reset, bits that can be written.
const DWORDS: [(usize, u32, u32); 16] = [
    (0x00, 0x1041_1af4, 0),
    (0x04, 0x0010_0000, 0x0000_0547),
    (0x08, 0x0200_0001, 0),
    (0x0c, 0, 0x0000_00ff),
    (0x10, 0x0000_000c, 0xffff_c000),
    (0x14, 0, 0xffff_ffff),
    (0x18, 0x0000_0001, 0xffff_ffe0),
    (0x1c, 0, 0xffff_f000),
    (0x2c, 0x1100_1af5, 0),
    (0x34, 0x0000_0040, 0),
    (0x3c, 0x0000_0100, 0x0000_00ff),
    (0x40, 0xaa0c_4c09, 0),
    (0x44, 0x5500_0000, 0x00ff_ffff),
    (0x48, 0x0403_0201, 0),
    (0x4c, 0x0020_0011, 0xc000_0000),
    (0x50, 0x0000_0003, 0),
];
const PENDING_DWORD: (usize, u32, u32) = (0x54, 0x0000_0803, 0);

/// The same space as bytes, without any knowledge of what they mean.
struct Table {
    bytes: [u8; 4096],
    mask: [u8; 4096],
}

impl Table {
    fn new() -> Self {
        let mut table = Self { bytes: [0; 4096], mask: [0; 4096] };
        for (at, value, mask) in DWORDS.into_iter().chain([PENDING_DWORD]) {
            table.bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
            table.mask[at..at + 4].copy_from_slice(&mask.to_le_bytes());
        }
        table
    }

    fn write(&mut self, at: usize, size: usize, value: u32) {
        for (index, byte) in value.to_le_bytes().into_iter().enumerate().take(size) {
            if let Some(old) = self.bytes.get_mut(at + index) {
                *old = *old & !self.mask[at + index] | byte & self.mask[at + index];
            }
        }
    }

    fn read(&self, at: usize, size: usize) -> u32 {
        let byte = |index| self.bytes.get(at + index).copied().unwrap_or(0);
        (0..size).map(|index| u32::from(byte(index)) << (8 * index)).sum()
    }
}

fn access() -> impl Strategy<Value = (u16, u8, u32)> {
    // Most accesses hit what is implemented.
    let offset = prop_oneof![6 => 0u16..0x60, 1 => any::<u16>(), 1 => 4080u16..4100];
    let value = prop_oneof![any::<u32>(), Just(u32::MAX), Just(0)];
    (offset, prop_oneof![Just(1), Just(2), Just(4)], value)
}

proptest! {
    /// Whatever is written, of any size at any offset: bits that cannot be written stay, and the others are as written.
    #[test]
    fn writes_change_what_can_be_written_and_nothing_else(accesses in prop::collection::vec(access(), 1..60)) {
        let (mut function, mut table) = (device(), Table::new());
        for (offset, size, value) in accesses {
            let before: Vec<u32> = (0..64).map(|at| function.read(4 * at, 4)).collect();
            let changed = function.write(offset, size, value);
            table.write(offset.into(), size.into(), value);
            prop_assert_eq!(function.read(offset, size), table.read(offset.into(), size.into()));
            for at in (0..66).chain([1023]) {
                prop_assert_eq!(function.read(4 * at, 4), table.read(4 * usize::from(at), 4), "{:#x}", 4 * at);
            }
            let differs = |range: core::ops::Range<usize>| range.clone().any(|at| {
                before[at] != function.read(4 * at as u16, 4)
            });
            prop_assert_eq!(changed.contains(Changed::COMMAND), differs(1..2));
            prop_assert_eq!(changed.contains(Changed::BARS), differs(4..10));
            prop_assert_eq!(changed.contains(Changed::CAPABILITIES), differs(16..64));
            for index in 0..6 {
                let Some(range) = function.decodes(index) else { continue };
                let size = function.bar(index).unwrap().size();
                prop_assert_eq!((range.start % size, range.end - range.start), (0, size));
            }
        }
        function.reset();
        for at in 0..64 {
            prop_assert_eq!(function.read(4 * at, 4), Table::new().read(4 * usize::from(at), 4));
        }
    }

    /// Accesses of sizes that no bus has are answered, too.
    #[test]
    fn any_access_is_answered(offset: u16, size: u8, value: u32) {
        let mut function = device();
        function.read(offset, size);
        function.write(offset, size, value);
        prop_assert_eq!(function.read(0, 4), 0x1041_1af4);
    }
}

#[test]
fn sizes_are_found_by_writing_ones() {
    let mut function = device();
    for (at, ones) in [(0x10, 0xffff_c00c), (0x14, 0xffff_ffff), (0x18, 0xffff_ffe1), (0x1c, 0xffff_f000)] {
        function.write(at, 4, 0xffff_ffff);
        assert_eq!(function.read(at, 4), ones, "{at:#x}");
    }
    // Registers that are not there, and the ROM, have no size.
    for at in [0x20, 0x24, 0x30] {
        function.write(at, 4, 0xffff_ffff);
        assert_eq!(function.read(at, 4), 0, "{at:#x}");
    }
    function.write(4, 2, 3);
    assert!((0..6).all(|index| function.decodes(index).is_none()), "all ones are no addresses");
}

#[test]
fn a_register_decodes_what_it_says_while_its_space_is_enabled() {
    let mut function = device();
    function.place(0, 0x80_0000_4abc);
    function.place(2, 0xc0e0);
    function.place(3, 0x1000_1000);
    function.place(1, 7);
    assert_eq!((function.base(0), function.base(1)), (Some(0x80_0000_4000), None));
    assert!((0..6).all(|index| function.decodes(index).is_none()));
    function.write(4, 2, Command::MEMORY.bits().into());
    assert_eq!(function.decodes(0), Some(0x80_0000_4000..0x80_0000_8000));
    assert_eq!(function.decodes(3), Some(0x1000_1000..0x1000_2000));
    assert_eq!(function.decodes(2), None);
    assert_eq!(function.find(Space::Memory, 0x1000_1ffc), Some((3, 0xffc)));
    assert_eq!(function.find(Space::Memory, 0x1000_2000), None);
    assert_eq!(function.find(Space::Memory, 0xc0e4), None);
    function.write(4, 2, Command::IO.bits().into());
    assert_eq!(function.find(Space::Io, 0xc0e4), Some((2, 4)));
    // Ports end at 64 Ki, whatever the upper half of the register says.
    function.place(2, 0x1_c0e0);
    assert_eq!(function.decodes(2), None);
}

#[test]
fn messages_wait_for_the_right_to_master_the_bus() {
    let mut function = device();
    assert_eq!(function.msix(), Control { enabled: false, masked: true });
    function.write(0x4e, 2, 0x8000);
    assert_eq!(function.msix(), Control { enabled: true, masked: true });
    function.write(4, 2, Command::BUS_MASTER.bits().into());
    assert_eq!(function.msix(), Control { enabled: true, masked: false });
    function.write(0x4f, 1, 0xc0);
    assert_eq!(function.msix(), Control { enabled: true, masked: true });
    assert_eq!(Function::new(&identity(1, 0)).msix(), Control::default());
}

#[test]
fn intx_is_asserted_unless_it_is_disabled_or_messages_are_sent() {
    let status = |function: &Function| Status::from_bits_retain(function.read(6, 2) as u16);
    let mut function = device();
    assert!(function.interrupt(true));
    assert!(status(&function).contains(Status::INTERRUPT));
    function.write(4, 2, Command::INTX_DISABLE.bits().into());
    assert!(!function.interrupt(true));
    assert!(status(&function).contains(Status::INTERRUPT), "the status shows it all the same");
    function.write(4, 2, 0);
    function.write(0x4e, 2, 0x8000);
    assert!(!function.interrupt(true));
    assert!(!function.interrupt(false) && !status(&function).contains(Status::INTERRUPT));
    let mut without =
        Function::new(&turnstile_pci::function::Identity { interrupt_pin: false, ..identity(1, 0) });
    assert!(!without.interrupt(true));
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut function = Function::new(&identity(0x1041, 0));
    let memory = |size| Bar::Memory32 { size, prefetchable: false };
    let wide = |size| Bar::Memory64 { size, prefetchable: false };
    for bar in
        [memory(0), memory(8), memory(24), wide(0), wide(3 << 40), Bar::Io { size: 2 }, Bar::Io { size: 512 }]
    {
        assert_eq!(function.add_bar(0, bar), Err(Unfit::BarSize(bar.size())), "{bar:?}");
    }
    assert_eq!(function.add_bar(5, wide(16)), Err(Unfit::BarNumber(5)));
    assert_eq!(function.add_bar(255, wide(16)), Err(Unfit::BarNumber(255)));
    function.add_bar(1, wide(1 << 63)).unwrap();
    for index in [0, 1] {
        assert_eq!(function.add_bar(index, wide(16)), Err(Unfit::BarNumber(index)));
    }
    assert_eq!(function.add_bar(2, memory(16)), Err(Unfit::BarNumber(2)), "the upper half is taken");
    function.add_bar(3, memory(1 << 31)).unwrap();
    function.add_bar(4, Bar::Io { size: 256 }).unwrap();
    let places = MsixPlaces { vectors: 2048, table: (3, 0), pending: (3, 0x8000) };
    for wrong in [
        MsixPlaces { vectors: 0, ..places },
        MsixPlaces { vectors: 2049, ..places },
        MsixPlaces { table: (4, 0), ..places },
        MsixPlaces { table: (0, 0), ..places },
        MsixPlaces { table: (3, 4), ..places },
        MsixPlaces { pending: (3, (1 << 31) - 0xf8), ..places },
    ] {
        assert_eq!(function.clone().add_msix(wrong), Err(Unfit::Msix), "{wrong:?}");
    }
    function.add_msix(places).unwrap();
    assert_eq!(function.add_msix(places), Err(Unfit::Msix), "one is enough");
    assert_eq!(function.add_capability(9, &[0; 0xb3], &[]), Err(Unfit::Full));
    assert_eq!(function.add_capability(9, &[0xff; 0xb2], &[]), Ok(0x4c));
    assert_eq!(function.read(0xff, 1), 0xff);
    assert_eq!(function.add_capability(9, &[], &[]), Err(Unfit::Full));
}

proptest! {
    /// Who is restored into a function that was built anew goes on; and nothing but what can be written comes from words.
    #[test]
    fn what_software_wrote_is_saved(
        accesses in prop::collection::vec(access(), 0..40),
        words in prop::collection::vec(any::<u64>(), 0..8),
    ) {
        let (mut function, mut other) = (device(), device());
        for (offset, size, value) in accesses {
            function.write(offset, size, value);
            let saved: Vec<u64> = function.save().collect();
            prop_assert_eq!(saved.len(), 3, "22 bytes can be written");
            other = device();
            other.restore(saved);
            prop_assert_eq!(format!("{function:?}"), format!("{other:?}"));
        }
        other.restore(words.iter().copied());
        let mut table = Table::new();
        let open: Vec<usize> = (0..256).filter(|&at| table.mask[at] != 0).collect();
        let bytes = words.into_iter().flat_map(u64::to_le_bytes).chain(std::iter::repeat(0));
        for (at, byte) in open.into_iter().zip(bytes) {
            table.write(at, 1, byte.into());
        }
        for at in 0..64 {
            prop_assert_eq!(other.read(4 * at, 4), table.read(4 * usize::from(at), 4), "{:#x}", 4 * at);
        }
    }
}
