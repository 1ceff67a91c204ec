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
    // What starts a PC by PVH or multiboot may be of 32 bits.
    if let Some(what) = foreign_elf(bytes, &[Architecture::X86_64, Architecture::I386], "a PC") {
        return Some((what, HELP));
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
    if let Some(what) = foreign_elf(bytes, &[Architecture::PowerPc64], "64-bit POWER") {
        return Some((what, HELP));
    }
    match (FileKind::of(bytes), object::File::parse(bytes)) {
        (FileKind::Elf, Ok(_)) => None,
        (FileKind::Elf, Err(_)) => Some(("the kernel is a damaged ELF file".to_owned(), HELP)),
        (kind, _) => Some((format!("the kernel is {kind}"), HELP)),
    }
}

/// Says why a file is certainly no kernel for arm64: an ELF file of another architecture. What else may be wrong is seen when the
/// kernel is placed.
pub fn bad_arm64_kernel(bytes: &[u8]) -> Option<(String, &'static str)> {
    let what = foreign_elf(bytes, &[Architecture::Aarch64], "arm64")?;
    Some((what, "use one for arm64, or a machine for that architecture: `isa` in [machine]"))
}

/// Says that a kernel is an ELF file of an architecture other than these, which are those of `name`.
fn foreign_elf(bytes: &[u8], own: &[Architecture], name: &str) -> Option<String> {
    let file = object::File::parse(bytes).ok().filter(|_| FileKind::of(bytes) == FileKind::Elf)?;
    let foreign = !own.contains(&file.architecture());
    foreign.then(|| format!("the kernel is an ELF file for {}, not for {name}", elf_architecture(&file)))
}

/// Names the architecture of an ELF file.
pub fn elf_architecture(file: &object::File<'_>) -> String {
    match file.architecture() {
        Architecture::Aarch64 => "arm64".to_owned(),
        Architecture::Arm => "32-bit Arm".to_owned(),
        Architecture::I386 => "32-bit x86".to_owned(),
        Architecture::PowerPc => "32-bit POWER".to_owned(),
        Architecture::PowerPc64 => "64-bit POWER".to_owned(),
        Architecture::Riscv64 => "64-bit RISC-V".to_owned(),
        Architecture::X86_64 => "x86-64".to_owned(),
        Architecture::Unknown => "an unknown architecture".to_owned(),
        other => format!("{other:?}"),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The header of an ELF file of 64 bits, least significant byte first, for a machine of this number (the generic ABI's `e_machine`).
    fn elf(machine: u16) -> Vec<u8> {
        let mut header = vec![0; 64];
        header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        header[16] = 2;
        header[18..20].copy_from_slice(&machine.to_le_bytes());
        header[20] = 1;
        header[52] = 64;
        header
    }

    #[test]
    fn architecture_of_a_wrong_elf_is_named() {
        let [x86_64, aarch64, power, riscv] = [62, 183, 21, 243];
        let said = |bad: fn(&[u8]) -> Option<(String, &'static str)>, machine| {
            bad(&elf(machine)).map(|(what, _)| what)
        };
        let is = |what: &str| Some(format!("the kernel is an ELF file for {what}"));
        assert_eq!(said(bad_pc_kernel, aarch64), is("arm64, not for a PC"));
        assert_eq!(said(bad_power_kernel, x86_64), is("x86-64, not for 64-bit POWER"));
        assert_eq!(said(bad_arm64_kernel, power), is("64-bit POWER, not for arm64"));
        assert_eq!(said(bad_arm64_kernel, riscv), is("64-bit RISC-V, not for arm64"));
        for (bad, own) in [
            (bad_pc_kernel as fn(&[u8]) -> _, x86_64),
            (bad_power_kernel, power),
            (bad_arm64_kernel, aarch64),
        ] {
            assert_eq!(said(bad, own), None);
        }
    }
}
