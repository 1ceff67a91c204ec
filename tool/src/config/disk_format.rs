// SPDX-License-Identifier: Apache-2.0 OR MIT
//! What the first bytes of a disk's image tell of its format.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use turnstile_machine::FileKind;

use super::qcow2;

/// How many bytes say of which format an image is.
const HEAD: u64 = qcow2::HEADER as u64;
/// Formats of images with what marks them, and where.
const FORMATS: [(&str, usize, &[u8]); 7] = [
    ("a QED image", 0, b"QED\0"),
    ("a VMDK image", 0, b"KDMV"),
    ("a VMDK image", 0, b"COWD"),
    ("the description of a VMDK image", 0, b"# Disk DescriptorFile"),
    ("a VHDX image", 0, b"vhdxfile"),
    ("a VHD image", 0, b"conectix"),
    ("a VDI image", 0x40, b"\x7f\x10\xda\xbe"),
];

/// Reads the first bytes of a file, which say of which format it is; none of one that cannot be read, which is told who reads more.
pub fn head(path: &Path) -> Vec<u8> {
    let mut head = Vec::new();
    // A pipe is not opened: that waits for its writer.
    if let Some(file) = path.is_file().then(|| File::open(path).ok()).flatten() {
        let _ = file.take(HEAD).read_to_end(&mut head);
    }
    head
}

/// Says what a file is whose first bytes are these, if it is certainly no raw image, and what makes one that is read of it.
pub fn foreign(head: &[u8]) -> Option<(String, &'static str)> {
    let format =
        FORMATS.iter().find(|(_, at, magic)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    if let Some((what, ..)) = format {
        return Some(((*what).to_owned(), "convert it: `qemu-img convert -O qcow2 IMAGE disk.qcow2`"));
    }
    match FileKind::of(head) {
        kind @ (FileKind::Gzip
        | FileKind::Zstd
        | FileKind::Xz
        | FileKind::Lzma
        | FileKind::Lz4
        | FileKind::Bzip2) => Some((
            kind.to_string(),
            "unpack it; if it is no raw or qcow2 image then: `qemu-img convert -O qcow2 IMAGE disk.qcow2`",
        )),
        _ => None,
    }
}
