// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the bytes of a kernel or an initrd show to be wrong.

use object::{Architecture, Object};
use turnstile_machine::{FileKind, image};

/// Says why a file is certainly no kernel of a PC; the hypervisor judges the others when it loads them.
pub fn bad_pc_kernel(bytes: &[u8]) -> Option<(String, &'static str)> {
    const HELP: &str = "give a bzImage, an ELF file with a PVH note or a multiboot header, or a flat image";
    if bytes.is_empty() {
        return Some(("the kernel is empty".to_owned(), "build or copy it again"));
    }
    if image::parse(bytes).is_ok() {
        return Some((
            "the kernel is an arm64 Image".to_owned(),
            "use one for x86-64, or a machine for arm64",
        ));
    }
    match FileKind::of(bytes) {
        kind @ (FileKind::DeviceTree
        | FileKind::Cpio
        | FileKind::Script
        | FileKind::Text
        | FileKind::RiscvImage) => Some((format!("the kernel is {kind}"), HELP)),
        kind @ (FileKind::Gzip
        | FileKind::Zstd
        | FileKind::Xz
        | FileKind::Lzma
        | FileKind::Lz4
        | FileKind::Bzip2) => Some((format!("the kernel is {kind}"), "unpack it; a bzImage unpacks itself")),
        _ => None,
    }
}

/// Says why a file is certainly no kernel for POWER.
pub fn bad_power_kernel(bytes: &[u8]) -> Option<(String, &'static str)> {
    const HELP: &str = "give an ELF file for 64-bit POWER: Linux's vmlinux, or a program of its own";
    if image::parse(bytes).is_ok() {
        return Some(("the kernel is an arm64 Image".to_owned(), HELP));
    }
    match (FileKind::of(bytes), object::File::parse(bytes)) {
        (FileKind::Elf, Ok(file)) if file.architecture() == Architecture::PowerPc64 => None,
        (FileKind::Elf, Ok(_)) => {
            Some(("the kernel is an ELF file, but not for 64-bit POWER".to_owned(), HELP))
        }
        (FileKind::Elf, Err(_)) => Some(("the kernel is a damaged ELF file".to_owned(), HELP)),
        (kind, _) => Some((format!("the kernel is {kind}"), HELP)),
    }
}

/// Recognizes files that are certainly no initial RAM disk.
pub fn bad_initrd(bytes: &[u8]) -> Option<(String, &'static str)> {
    let is_kernel = image::parse(bytes).is_ok();
    match FileKind::of(bytes) {
        _ if bytes.is_empty() => {
            Some(("the initrd is empty".to_owned(), "build it again, or leave `initrd` out"))
        }
        _ if is_kernel => Some(("the initrd is an arm64 kernel".to_owned(), "give it as `kernel`")),
        kind @ (FileKind::Elf | FileKind::BzImage | FileKind::DeviceTree | FileKind::Efi) => {
            Some((format!("the initrd is {kind}"), "give a cpio archive, compressed or not"))
        }
        _ => None,
    }
}
