// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Recognizes files that are not kernels.

use core::fmt;

/// What a file is that is not an arm64 `Image`, by its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A kernel in an EFI application that decompresses it (`vmlinuz.efi`).
    EfiZboot,
    /// Another EFI application.
    Efi,
    /// A PC kernel (`bzImage`).
    BzImage,
    /// A RISC-V `Image`.
    RiscvImage,
    /// gzip data.
    Gzip,
    /// Zstandard data.
    Zstd,
    /// xz data.
    Xz,
    /// LZMA data.
    Lzma,
    /// LZ4 data.
    Lz4,
    /// bzip2 data.
    Bzip2,
    /// An ELF file, such as `vmlinux`.
    Elf,
    /// A U-Boot image (`uImage`).
    UImage,
    /// A flattened device tree, or a FIT image, which has the same form.
    DeviceTree,
    /// A cpio archive, such as an initial RAM disk.
    Cpio,
    /// A script.
    Script,
    /// Other text.
    Text,
    /// None of these.
    Unknown,
}

impl FileKind {
    /// Recognizes a file by its bytes.
    #[must_use]
    pub fn of(file: &[u8]) -> FileKind {
        let at = |offset: usize, magic: &[u8]| file.get(offset..).is_some_and(|rest| rest.starts_with(magic));
        match () {
            () if at(0, b"MZ") && at(4, b"zimg") => FileKind::EfiZboot,
            () if at(0x202, b"HdrS") => FileKind::BzImage,
            () if at(0x30, b"RISCV") || at(0x38, b"RSC\x05") => FileKind::RiscvImage,
            () if at(0, b"MZ") => FileKind::Efi,
            () if at(0, &[0x1f, 0x8b]) => FileKind::Gzip,
            () if at(0, &[0x28, 0xb5, 0x2f, 0xfd]) => FileKind::Zstd,
            () if at(0, &[0xfd, b'7', b'z', b'X', b'Z', 0]) => FileKind::Xz,
            () if at(0, &[0x5d, 0, 0]) => FileKind::Lzma,
            () if at(0, &[0x02, 0x21, 0x4c, 0x18]) || at(0, &[0x04, 0x22, 0x4d, 0x18]) => FileKind::Lz4,
            () if at(0, b"BZh") => FileKind::Bzip2,
            () if at(0, b"\x7fELF") => FileKind::Elf,
            () if at(0, &[0x27, 0x05, 0x19, 0x56]) => FileKind::UImage,
            () if at(0, &[0xd0, 0x0d, 0xfe, 0xed]) => FileKind::DeviceTree,
            () if at(0, b"070701") || at(0, b"070702") => FileKind::Cpio,
            () if at(0, b"#!") => FileKind::Script,
            () if is_text(file) => FileKind::Text,
            () => FileKind::Unknown,
        }
    }

    /// Says whether it is certainly not what a CPU executes from its first byte on.
    #[must_use]
    pub const fn is_never_code(self) -> bool {
        match self {
            // The first two bytes of an EFI application may be an instruction; those of LZMA data are but a guess.
            FileKind::EfiZboot | FileKind::Efi | FileKind::Lzma | FileKind::Unknown => false,
            FileKind::BzImage | FileKind::RiscvImage | FileKind::Elf | FileKind::UImage => true,
            FileKind::Gzip | FileKind::Zstd | FileKind::Xz | FileKind::Lz4 | FileKind::Bzip2 => true,
            FileKind::DeviceTree | FileKind::Cpio | FileKind::Script | FileKind::Text => true,
        }
    }

    /// Returns what a user can do about it.
    #[must_use]
    pub const fn advice(self) -> &'static str {
        match self {
            FileKind::EfiZboot => "use the kernel's arch/arm64/boot/Image, or decompress its payload",
            FileKind::Efi => "use the kernel's arch/arm64/boot/Image",
            FileKind::BzImage | FileKind::RiscvImage => "use a kernel for arm64",
            FileKind::Gzip => "decompress it first (gunzip)",
            FileKind::Zstd => "decompress it first (unzstd)",
            FileKind::Xz | FileKind::Lzma => "decompress it first (unxz)",
            FileKind::Lz4 => "decompress it first (unlz4)",
            FileKind::Bzip2 => "decompress it first (bunzip2)",
            FileKind::Elf => "use arch/arm64/boot/Image instead, or convert it (objcopy -O binary)",
            FileKind::UImage => "take the Image out of it (dumpimage)",
            FileKind::DeviceTree => "give a kernel; the guest's device tree is generated",
            FileKind::Cpio => "give it as the initrd, and a kernel as the kernel",
            FileKind::Script | FileKind::Text | FileKind::Unknown => "use the kernel's arch/arm64/boot/Image",
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FileKind::EfiZboot => "a compressed EFI kernel (zboot, vmlinuz.efi)",
            FileKind::Efi => "an EFI application",
            FileKind::BzImage => "a PC kernel (bzImage)",
            FileKind::RiscvImage => "a RISC-V Image",
            FileKind::Gzip => "gzip-compressed data",
            FileKind::Zstd => "Zstandard-compressed data",
            FileKind::Xz => "xz-compressed data",
            FileKind::Lzma => "LZMA-compressed data",
            FileKind::Lz4 => "LZ4-compressed data",
            FileKind::Bzip2 => "bzip2-compressed data",
            FileKind::Elf => "an ELF file",
            FileKind::UImage => "a U-Boot image (uImage)",
            FileKind::DeviceTree => "a device tree blob",
            FileKind::Cpio => "a cpio archive",
            FileKind::Script => "a script",
            FileKind::Text => "a text file",
            FileKind::Unknown => "something unknown",
        })
    }
}

/// Says whether a file starts with text in UTF-8.
fn is_text(file: &[u8]) -> bool {
    const ENOUGH: usize = 512;

    let start = file.get(..ENOUGH).unwrap_or(file);
    let text = match core::str::from_utf8(start) {
        Ok(text) => text,
        // A character that was cut in two by looking at the start alone.
        Err(error) if error.error_len().is_none() => {
            let valid = start.get(..error.valid_up_to()).unwrap_or_default();
            core::str::from_utf8(valid).unwrap_or_default()
        }
        Err(_) => return false,
    };
    !text.is_empty() && text.chars().all(|c| !c.is_control() || matches!(c, '\t' | '\n' | '\r' | '\x0c'))
}
