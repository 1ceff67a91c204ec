// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Where flat images go, and which are refused.

use proptest::prelude::*;
use turnstile_machine::fdt::MAX_SIZE;
use turnstile_machine::flat::{LOAD_OFFSET, check, layout};
use turnstile_machine::{FileKind, ImageError};
use turnstile_machine::{Flat, GuestMachine, Layout, LayoutError};

const MIB: u64 = 1 << 20;
const BASE: u64 = 0x4000_0000;

fn at(load: u64) -> Flat {
    Flat { load, entry: load }
}

fn place(flash: u64, flat: Flat, length: u64, initrd: Option<u64>) -> Result<Layout, LayoutError> {
    layout(GuestMachine::Virt.map(), 64 * MIB, flash, flat, length, initrd)
}

#[test]
fn the_device_tree_is_at_the_start_of_ram() {
    let usual = Flat::usual(GuestMachine::Virt.map());
    assert_eq!(usual, at(BASE + LOAD_OFFSET));
    let placed = place(0, Flat { entry: usual.load + 0x40, ..usual }, 0x1_2345, Some(5)).unwrap();
    let expected = Layout {
        kernel: 0x4020_0000..0x4021_2345,
        entry: 0x4020_0040,
        dtb: BASE..BASE + MAX_SIZE,
        initrd: Some(0x4200_0000..0x4200_0005),
    };
    assert_eq!(placed, expected);
    let kvmtool = GuestMachine::Kvmtool.map();
    let placed = layout(kvmtool, 1 << 30, 0, Flat::usual(kvmtool), 4, Some(5)).unwrap();
    assert_eq!((placed.kernel.start, placed.dtb.start), (0x8020_0000, 0x8000_0000));
    assert_eq!(placed.initrd, Some(0x8800_0000..0x8800_0005), "as with QEMU");
}

#[test]
fn an_image_may_lie_in_flash() {
    let placed = place(4 * MIB, at(0), 4 * MIB, Some(64)).unwrap();
    assert_eq!((placed.kernel, placed.entry, placed.dtb.start), (0..4 * MIB, 0, BASE));
    assert_eq!(placed.initrd, Some(0x4200_0000..0x4200_0040));
    assert!(place(4 * MIB, at(0x0400_1000), 64, None).is_ok(), "the second bank");
    let error = place(4 * MIB, at(0x1000), 4 * MIB, None);
    assert_eq!(error, Err(LayoutError::FlashTooSmall { length: 4 * MIB, left: 4 * MIB - 0x1000 }));
    for (flash, load) in [(0, 0), (4 * MIB, 4 * MIB), (4 * MIB, 0x0800_0000)] {
        let nowhere = LayoutError::Nowhere { address: load, ram: (BASE + MAX_SIZE, BASE + 64 * MIB) };
        assert_eq!(place(flash, at(load), 64, None), Err(nowhere));
    }
}

#[test]
fn what_does_not_fit_ram_is_refused() {
    let free = BASE + MAX_SIZE;
    assert!(place(0, at(free), 64, None).is_ok());
    assert_eq!(place(0, at(free - 4), 64, None), Err(LayoutError::OnDeviceTree { free }));
    assert!(place(0, at(free), 64 * MIB - MAX_SIZE, None).is_ok());
    let error = place(0, at(free), 64 * MIB - MAX_SIZE + 1, None).unwrap_err();
    assert_eq!(error, LayoutError::TooSmall { need: 64 * MIB + 1, memory: 64 * MIB });
    // The initial RAM disk goes behind an image that reaches beyond the usual place.
    let placed = place(0, at(free), 40 * MIB, Some(64)).unwrap();
    assert_eq!(placed.initrd, Some(placed.kernel.end..placed.kernel.end + 64));
    assert!(matches!(place(0, at(free), 64, Some(u64::MAX)), Err(LayoutError::TooSmall { .. })));
    let error = place(0, at(0x3fff_0000), 64, None).unwrap_err();
    assert!(error.to_string().ends_with("RAM is free from 0x40020000 to 0x44000000"), "{error}");
}

#[test]
fn it_is_entered_at_an_instruction_of_its_file() {
    let entry = |entry| place(0, Flat { load: 0x4020_0000, entry }, 64, None).map(|placed| placed.entry);
    for good in [0x4020_0000, 0x4020_003c] {
        assert_eq!(entry(good), Ok(good));
    }
    for bad in [0x4020_0002, 0x4020_0040, 0x401f_fffc, 0, u64::MAX] {
        assert_eq!(entry(bad), Err(LayoutError::Entry(bad)));
    }
}

#[test]
fn files_of_other_kinds_are_named() {
    let other = |bytes: &[u8], kind| assert_eq!(check(bytes), Err(ImageError::NotFlat(kind)), "{kind}");
    other(b"\x7fELF\x02\x01\x01\0", FileKind::Elf);
    other(&[0x1f, 0x8b, 8, 0], FileKind::Gzip);
    other(&[0xd0, 0x0d, 0xfe, 0xed], FileKind::DeviceTree);
    other(b"#!/bin/sh\n", FileKind::Script);
    assert_eq!(check(&[]), Err(ImageError::Empty));
    // A branch; and an Image with an EFI stub, whose first word is an instruction as well.
    assert_eq!(check(&[0x0a, 0, 0, 0x14, 0x1f, 0x20, 0x03, 0xd5]), Ok(()));
    assert_eq!(check(b"MZ\0\x91\0\0\0\x14"), Ok(()));
}

proptest! {
    #[test]
    fn nothing_overlaps_and_all_is_in_memory(
        load in prop_oneof![any::<u64>(), 0..0x8000_0000u64], entry in 0..0x200u64, length in 1..(80 * MIB),
        flash in prop::sample::select(vec![0, 2 * MIB, 64 * MIB]), initrd in prop::option::of(1..(64 * MIB)),
    ) {
        let map = GuestMachine::Virt.map();
        let flat = Flat { load, entry: load.saturating_add(4 * entry) };
        if let Ok(placed) = place(flash, flat, length, initrd) {
            let ram = map.ram(64 * MIB);
            let bank = map.flash_banks(flash).find(|bank| bank.contains(placed.kernel.start));
            let home = bank.unwrap_or(ram);
            prop_assert!(placed.kernel.start == load && placed.kernel.end == load + length);
            prop_assert!(placed.kernel.start >= home.base && placed.kernel.end <= home.end());
            prop_assert!(placed.kernel.contains(&placed.entry));
            prop_assert!(bank.is_some() || placed.kernel.start >= placed.dtb.end);
            if let Some(initrd) = placed.initrd {
                prop_assert!(initrd.start >= placed.dtb.end && initrd.end <= ram.end());
                prop_assert!(bank.is_some() || initrd.start >= placed.kernel.end);
            }
        }
    }
}
