// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Image headers, other files in their place, and where the images go.

use turnstile_machine::image::{PageSize, parse};
use turnstile_machine::layout::{Layout, LayoutError, layout};
use turnstile_machine::{FileKind, ImageError};
use turnstile_machine::{GuestMachine, ImageHeader};

const MIB: u64 = 1 << 20;

/// An `Image` of `length` bytes whose header has these fields.
fn image(text_offset: u64, image_size: u64, flags: u64, length: usize) -> Vec<u8> {
    let mut file = vec![0; length.max(64)];
    file[8..16].copy_from_slice(&text_offset.to_le_bytes());
    file[16..24].copy_from_slice(&image_size.to_le_bytes());
    file[24..32].copy_from_slice(&flags.to_le_bytes());
    file[56..60].copy_from_slice(b"ARM\x64");
    file.truncate(length);
    file
}

/// An `Image` that is a PE file too: one section of 4096 bytes at 4096.
fn efi_image(length: usize) -> Vec<u8> {
    let mut file = image(0, 0x4000, 0xa, length.max(0x1000));
    file[..2].copy_from_slice(b"MZ");
    file[60..64].copy_from_slice(&64u32.to_le_bytes());
    file[64..68].copy_from_slice(b"PE\0\0");
    file[70..72].copy_from_slice(&1u16.to_le_bytes());
    file[84..86].copy_from_slice(&160u16.to_le_bytes());
    let section = 64 + 24 + 160;
    file[section + 16..section + 20].copy_from_slice(&0x1000u32.to_le_bytes());
    file[section + 20..section + 24].copy_from_slice(&0x1000u32.to_le_bytes());
    file.truncate(length);
    file
}

fn header(text_offset: u64, image_size: u64) -> ImageHeader {
    ImageHeader { text_offset, image_size, page_size: PageSize::Kib4, anywhere: true }
}

#[test]
fn a_header_is_read() {
    assert_eq!(parse(&image(0, 0x20_0000, 0xa, 4096)), Ok(header(0, 0x20_0000)));
    let old = parse(&image(0x8_0000, 0x10_0000, 0, 4096)).unwrap();
    assert_eq!((old.text_offset, old.page_size, old.anywhere), (0x8_0000, PageSize::Unspecified, false));
    assert_eq!(parse(&image(0, 64, 4, 64)).unwrap().page_size, PageSize::Kib16);
    assert_eq!(parse(&image(0, 64, 6, 64)).unwrap().page_size, PageSize::Kib64);
}

#[test]
fn bad_headers_are_refused() {
    assert_eq!(parse(&[]), Err(ImageError::Empty));
    assert_eq!(parse(&image(0, 0x1000, 1, 64)), Err(ImageError::BigEndian));
    assert_eq!(parse(&image(0, 0, 0xa, 64)), Err(ImageError::NoSize));
    assert_eq!(parse(&image(0, 63, 0xa, 64)), Err(ImageError::ImageSize(63)));
    assert_eq!(parse(&image(2 * MIB, 0x1000, 0xa, 64)), Err(ImageError::TextOffset(2 * MIB)));
}

#[test]
fn a_truncated_kernel_is_found() {
    for length in 1..64 {
        let error = Err(ImageError::Truncated { have: length as u64, need: 64 });
        assert_eq!(parse(&image(0, 0x1000, 0xa, length)), error, "{length} bytes");
    }
    assert!(parse(&efi_image(0x2000)).is_ok());
    let error = Err(ImageError::Truncated { have: 0x1fff, need: 0x2000 });
    assert_eq!(parse(&efi_image(0x1fff)), error);
    for length in 64..0x2000 {
        assert!(matches!(parse(&efi_image(length)), Err(ImageError::Truncated { .. })), "{length} bytes");
    }
}

#[test]
fn other_files_are_named() {
    let file = |offset: usize, magic: &[u8]| {
        let mut file = vec![0x55; 1024];
        file[offset..offset + magic.len()].copy_from_slice(magic);
        file
    };
    let mut zboot = file(0, b"MZ");
    zboot[4..8].copy_from_slice(b"zimg");
    let mut bzimage = file(0, b"MZ");
    bzimage[0x202..0x206].copy_from_slice(b"HdrS");
    let files = [
        (zboot, FileKind::EfiZboot),
        (bzimage, FileKind::BzImage),
        (file(0x38, b"RSC\x05"), FileKind::RiscvImage),
        (file(0, b"MZ"), FileKind::Efi),
        (file(0, &[0x1f, 0x8b, 8]), FileKind::Gzip),
        (file(0, &[0x28, 0xb5, 0x2f, 0xfd]), FileKind::Zstd),
        (file(0, b"\xfd7zXZ\0"), FileKind::Xz),
        (file(0, &[0x5d, 0, 0, 0x80]), FileKind::Lzma),
        (file(0, &[0x02, 0x21, 0x4c, 0x18]), FileKind::Lz4),
        (file(0, b"BZh9"), FileKind::Bzip2),
        (file(0, b"\x7fELF\x02\x01"), FileKind::Elf),
        (file(0, &[0x27, 0x05, 0x19, 0x56]), FileKind::UImage),
        (file(0, &[0xd0, 0x0d, 0xfe, 0xed]), FileKind::DeviceTree),
        (file(0, b"070701"), FileKind::Cpio),
        (file(0, b"#!/bin/sh\n"), FileKind::Script),
        (vec![0x55; 1024], FileKind::Text),
        (format!("x{}", "é".repeat(1024)).into(), FileKind::Text),
        (vec![0xaa; 1024], FileKind::Unknown),
    ];
    for (bytes, kind) in files {
        assert_eq!(parse(&bytes), Err(ImageError::NotImage(kind)));
        let message = ImageError::NotImage(kind).to_string();
        assert!(message.contains(&kind.to_string()) && message.contains(kind.advice()), "{message}");
    }
    assert_eq!(parse(&[0x1f, 0x8b]), Err(ImageError::NotImage(FileKind::Gzip)));
}

#[test]
fn short_files_are_named_before_they_are_truncated() {
    assert_eq!(parse(b"#!/bin/sh\n"), Err(ImageError::NotImage(FileKind::Script)));
    assert_eq!(parse(b"[[vm]]\n"), Err(ImageError::NotImage(FileKind::Text)));
    for length in 2..64 {
        let error = Err(ImageError::Truncated { have: length as u64, need: 64 });
        assert_eq!(parse(&efi_image(length)), error, "{length} bytes");
    }
}

#[test]
fn images_follow_each_other_from_the_bottom() {
    let map = GuestMachine::Virt.map();
    let placed = layout(map, 64 * MIB, &header(0, 0x123_4567), 0x100_0000, Some(0x4321)).unwrap();
    assert_eq!(
        placed,
        Layout {
            kernel: 0x4000_0000..0x4123_4567,
            entry: 0x4000_0000,
            dtb: 0x4124_0000..0x4126_0000,
            initrd: Some(0x4126_0000..0x4126_4321),
        }
    );

    // A file longer than the size in its header (a signature at its end) needs room as well.
    let signed = layout(map, 64 * MIB, &header(0x8_0000, 0x1_0000), 0x2_0000, None).unwrap();
    assert_eq!(signed.kernel, 0x4008_0000..0x400a_0000);
    assert_eq!(signed.initrd, None);
}

#[test]
fn images_that_do_not_fit_are_refused_with_their_size() {
    let map = GuestMachine::Kvmtool.map();
    // Kernel 2 MiB, device tree 128 KiB, and the rest of 4 MiB for the initial RAM disk.
    let rest = 4 * MIB - 2 * MIB - 0x2_0000;
    assert!(layout(map, 4 * MIB, &header(0, 2 * MIB), 100, Some(rest)).is_ok());
    let error = layout(map, 4 * MIB, &header(0, 2 * MIB), 100, Some(rest + 1)).unwrap_err();
    assert_eq!(error, LayoutError::TooSmall { need: 4 * MIB + 1, memory: 4 * MIB });
    assert!(error.to_string().ends_with("give the VM at least 6 MiB"), "{error}");

    for (size, initrd) in [(u64::MAX, None), (64, Some(u64::MAX)), (u64::MAX, Some(u64::MAX))] {
        let error = layout(map, 1 << 39, &header(0, size), 100, initrd).unwrap_err();
        assert!(matches!(error, LayoutError::TooSmall { .. }));
    }
    let far = layout(map, 1 << 39, &header(0, 64), 100, Some(33 << 30));
    assert_eq!(far, Err(LayoutError::InitrdTooFar));
}
