// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the image of a disk and judges it: what is no raw image is named, with what makes one of it.

use std::fs::File;
use std::io::Read;
use std::rc::Rc;

use turnstile_bundle::DiskSpec;
use turnstile_machine::FileKind;

use super::disk::Disk;
use super::file::{self, Refused};
use super::problem::Problem;
use super::size::show_size;

/// The longest image that is read: the bundle holds less, as all its images together have less than 4 GiB.
const MAX_IMAGE: u64 = 4 << 30;
/// Where the last magic number that is looked for ends.
const HEAD: u64 = 0x44;

/// A disk's contents and its size.
#[derive(Debug)]
pub struct DiskImage {
    /// What it contains at first.
    pub image: Option<Rc<[u8]>>,
    /// Its size in bytes, whole sectors.
    pub size: u64,
}

/// Formats of images with what marks them, and where.
const FORMATS: [(&str, usize, &[u8]); 8] = [
    ("a qcow2 image", 0, b"QFI\xfb"),
    ("a QED image", 0, b"QED\0"),
    ("a VMDK image", 0, b"KDMV"),
    ("a VMDK image", 0, b"COWD"),
    ("the description of a VMDK image", 0, b"# Disk DescriptorFile"),
    ("a VHDX image", 0, b"vhdxfile"),
    ("a VHD image", 0, b"conectix"),
    ("a VDI image", 0x40, b"\x7f\x10\xda\xbe"),
];

/// Reads the image of a disk.
pub fn load(disk: &Disk) -> Result<DiskImage, Problem> {
    let written = disk.size.as_ref().map(|size| size.value);
    let Some(image) = &disk.image else {
        return Ok(DiskImage { image: None, size: written.unwrap_or(0) });
    };
    let path = image.value.display();
    let at_image = |what: String, help: &str| Problem::new(image.span.clone(), what, help);
    let unreadable = |refused: Refused| {
        let help = match refused {
            Refused::Unreadable(_) => "paths are relative to this file's folder",
            Refused::NotFile(_) => "copy it into a file",
            Refused::TooLong { .. } => "a disk's image travels in the bundle: use a smaller one",
        };
        at_image(format!("the image {path} {refused}"), help)
    };
    let foreign = File::open(&image.value).ok().filter(|_| image.value.is_file()).and_then(|file| {
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head).ok()?;
        foreign(&head)
    });
    if let Some((what, help)) = foreign {
        return Err(at_image(format!("{path} is {what}, not a raw image"), help));
    }
    let bytes = file::read(&image.value, MAX_IMAGE).map_err(unreadable)?;
    if bytes.is_empty() {
        return Err(at_image(format!("the image {path} is empty"), "copy it again, or leave `image` out"));
    }
    let length = (bytes.len() as u64).next_multiple_of(DiskSpec::SECTOR);
    match &disk.size {
        Some(size) if size.value < length => {
            let what = format!("{} do not hold the image, which has {length} bytes", show_size(size.value));
            let help = format!("give at least {}, or leave `size` out", show_size(length));
            Err(Problem::new(size.span.clone(), what, help))
        }
        size => {
            let size = size.as_ref().map_or(length, |size| size.value);
            Ok(DiskImage { image: Some(bytes.into()), size })
        }
    }
}

/// Says what a file is whose first bytes are these, if it is certainly no raw image, and what makes one of it.
fn foreign(head: &[u8]) -> Option<(String, &'static str)> {
    let format =
        FORMATS.iter().find(|(_, at, magic)| head.get(*at..).is_some_and(|rest| rest.starts_with(magic)));
    if let Some((what, ..)) = format {
        return Some(((*what).to_owned(), "convert it: `qemu-img convert -O raw IMAGE disk.img`"));
    }
    match FileKind::of(head) {
        kind @ (FileKind::Gzip
        | FileKind::Zstd
        | FileKind::Xz
        | FileKind::Lzma
        | FileKind::Lz4
        | FileKind::Bzip2) => Some((
            kind.to_string(),
            "unpack it; what is then no raw image, `qemu-img convert -O raw IMAGE disk.img` converts",
        )),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::At;

    #[test]
    fn raw_images_are_read_and_others_are_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("disk.img");
        let said = |bytes: &[u8], size: Option<u64>| {
            fs::write(&path, bytes).unwrap();
            let disk = Disk {
                name: At::new("root".to_owned(), 0..1),
                image: Some(At::new(path.clone(), 1..2)),
                size: size.map(|size| At::new(size, 2..3)),
                read_only: false,
                limit: 1,
                beside_realtime: false,
            };
            load(&disk)
                .map(|disk| disk.size)
                .map_err(|problem| (problem.span.start, problem.what, problem.help))
        };
        assert_eq!(said(&[7; 512], None), Ok(512));
        assert_eq!(said(&[7; 513], None), Ok(1024), "whole sectors");
        assert_eq!(said(&[7; 513], Some(1 << 20)), Ok(1 << 20));
        let (place, what, help) = said(&[7; 1025], Some(1024)).unwrap_err();
        assert!(
            place == 2 && what.contains("do not hold the image") && help.contains("2KiB"),
            "{what}{help}"
        );
        let refused = |bytes: &[u8], part: &str, advice: &str| {
            let (place, what, help) = said(bytes, None).unwrap_err();
            assert!(place == 1 && what.contains(part) && help.contains(advice), "{what}; {help}");
        };
        refused(b"", "is empty", "leave `image` out");
        refused(b"QFI\xfb\0\0\0\x03", "is a qcow2 image, not a raw image", "qemu-img convert -O raw");
        refused(b"KDMV", "VMDK", "qemu-img convert -O raw");
        refused(b"# Disk DescriptorFile\nversion=1\n", "description of a VMDK", "qemu-img");
        refused(b"\x1f\x8b\x08\0\0\0\0\0", "gzip", "unpack it");
        refused(&[&[0; 0x40][..], b"\x7f\x10\xda\xbe"].concat(), "VDI", "qemu-img");
        fs::remove_file(&path).unwrap();
        let none = Disk {
            name: At::new("root".to_owned(), 0..1),
            image: Some(At::new(path, 1..2)),
            size: None,
            read_only: false,
            limit: 1,
            beside_realtime: false,
        };
        let problem = load(&none).unwrap_err();
        assert!(problem.what.contains("cannot be read") && problem.help.contains("relative"), "{problem:?}");
        let zeros = Disk { image: None, size: Some(At::new(4096, 2..3)), ..none };
        assert_eq!(load(&zeros).map(|disk| (disk.image.is_none(), disk.size)), Ok((true, 4096)));
    }
}
