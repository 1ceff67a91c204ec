// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads the image of a disk and judges it: raw and qcow2 images are read, others are named, with what makes one of these.

use std::path::Path;
use std::rc::Rc;

use turnstile_bundle::DiskSpec;

use super::disk::{Disk, DiskSource};
use super::disk_file;
use super::disk_format::{foreign, head};
use super::file::{self, Refused};
use super::problem::Problem;
use super::qcow2::{self, Contents};
use super::size::show_size;

/// The longest image that is read: the bundle holds less, as all its images together have less than 4 GiB.
const MAX_IMAGE: u64 = 4 << 30;
const SMALLER: &str = "a disk's image travels in the bundle: use a smaller one";

/// A disk's contents and its size.
#[derive(Debug)]
pub struct DiskImage {
    /// What it contains at first.
    pub image: Option<Rc<[u8]>>,
    /// Its size in bytes, whole sectors.
    pub size: u64,
}

impl DiskImage {
    /// Has an image that another disk has, too, once.
    pub fn share(&mut self, others: &[Self]) {
        if let Some(image) = &mut self.image
            && let Some(same) =
                others.iter().filter_map(|other| other.image.as_ref()).find(|other| *other == image)
        {
            *image = same.clone();
        }
    }
}

/// Reads the image of a disk in memory; of one that the machine has its file is judged. `server` is where `debian:server` is, if it has been made.
pub fn load(disk: &Disk, server: Option<&Path>) -> Result<DiskImage, Problem> {
    if let Some(device) = &disk.device {
        disk_file::judge(disk, &device.value.file)?;
        return Ok(DiskImage { image: None, size: 0 });
    }
    let written = disk.size.as_ref().map(|size| size.value);
    let file = disk.image.as_ref().and_then(|image| match &image.value {
        DiskSource::File(path) => Some((image, path.as_path())),
        DiskSource::Server => Some((image, server?)),
    });
    let Some((image, path)) = file else {
        let size = written.unwrap_or(0);
        // The image that the tool makes is not there yet.
        if disk.image.is_none() {
            check_writes(disk, size)?;
        }
        return Ok(DiskImage { image: None, size });
    };
    let Contents { bytes, size } =
        contents(path).map_err(|(what, help)| Problem::new(image.span.clone(), what, help))?;
    let length = size.next_multiple_of(DiskSpec::SECTOR);
    match &disk.size {
        Some(size) if size.value < length => {
            let what = format!("{} do not hold the image, which has {length} bytes", show_size(size.value));
            let help = format!("give at least {}, or leave `size` out", show_size(length));
            Err(Problem::new(size.span.clone(), what, help))
        }
        size => {
            let size = size.as_ref().map_or(length, |size| size.value);
            check_writes(disk, size)?;
            Ok(DiskImage { image: (!bytes.is_empty()).then(|| bytes.into()), size })
        }
    }
}

/// Checks that there is not more room for writes than a disk of so many bytes has.
fn check_writes(disk: &Disk, size: u64) -> Result<(), Problem> {
    let most = size.next_multiple_of(DiskSpec::CLUSTER);
    let Some(writes) = disk.writes.as_ref().filter(|writes| writes.value > most) else { return Ok(()) };
    let what = format!("{} for writes are more than the disk has", show_size(writes.value));
    let help = format!(
        "give at most {}, or leave `writes` out: then the disk is a copy of its image",
        show_size(most)
    );
    Err(Problem::new(writes.span.clone(), what, help))
}

/// Reads an image of any format; or says what is wrong, and what helps.
fn contents(path: &Path) -> Result<Contents, (String, String)> {
    let shown = path.display();
    let head = head(path);
    if head.starts_with(qcow2::MAGIC) {
        return qcow2::read(path, &head, DiskSpec::MAX_SIZE, MAX_IMAGE)
            .map_err(|refused| of_qcow2(refused, path));
    }
    if let Some((what, help)) = foreign(&head) {
        return Err((format!("{shown} is {what}, not a raw or qcow2 image"), help.to_owned()));
    }
    let bytes = file::read(path, MAX_IMAGE).map_err(|refused| {
        let help = match refused {
            Refused::Unreadable(ref error) => file::advice(error, "paths are relative to this file's folder"),
            Refused::NotFile(_) => "copy it into a file",
            Refused::TooLong { .. } => SMALLER,
        };
        (format!("the image {shown} {refused}"), help.to_owned())
    })?;
    if bytes.is_empty() {
        let help = "copy it again, or leave `image` out";
        return Err((format!("the image {shown} is empty"), help.to_owned()));
    }
    let size = bytes.len() as u64;
    Ok(Contents { bytes, size })
}

fn of_qcow2(refused: qcow2::Refused, path: &Path) -> (String, String) {
    let (what, help) = match refused {
        qcow2::Refused::Kind(what, help) => (what, help),
        qcow2::Refused::Broken(error) => {
            (format!("cannot be read: {error}"), "look at it: `qemu-img check IMAGE`")
        }
        qcow2::Refused::TooLarge(size) => {
            let most = show_size(DiskSpec::MAX_SIZE);
            (format!("is of a disk of {}, and a disk in memory has at most {most}", show_size(size)), SMALLER)
        }
        qcow2::Refused::TooLong(length) => (
            format!("contains {}, and at most {} are read", show_size(length), show_size(MAX_IMAGE)),
            SMALLER,
        ),
    };
    (format!("the qcow2 image {} {what}", path.display()), help.to_owned())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::At;
    use crate::config::service::Runs;

    #[test]
    fn raw_images_are_read_and_others_are_named() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("disk.img");
        let said = |bytes: &[u8], size: Option<u64>| {
            fs::write(&path, bytes).unwrap();
            let disk = Disk {
                name: At::new("root".to_owned(), 0..1),
                image: Some(At::new(DiskSource::File(path.clone()), 1..2)),
                size: size.map(|size| At::new(size, 2..3)),
                read_only: false,
                writes: None,
                device: None,
                runs: Runs { limit: 1, beside_realtime: false, cpu: None },
            };
            load(&disk, None)
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
        refused(b"QFI\xfb\0\0\0\x03", "the qcow2 image", "qemu-img check");
        refused(b"KDMV", "VMDK image, not a raw or qcow2 image", "qemu-img convert -O qcow2");
        refused(b"# Disk DescriptorFile\nversion=1\n", "description of a VMDK", "qemu-img");
        refused(b"\x1f\x8b\x08\0\0\0\0\0", "gzip", "unpack it");
        refused(&[&[0; 0x40][..], b"\x7f\x10\xda\xbe"].concat(), "VDI", "qemu-img");
        let qcow2 = qcow2::tests::image(3);
        assert_eq!([said(&qcow2, None), said(&qcow2, Some(2 << 20))], [Ok(1 << 20), Ok(2 << 20)]);
        let (place, what, _) = said(&qcow2, Some(512 << 10)).unwrap_err();
        assert!(
            place == 2 && what.contains("which has 1048576 bytes"),
            "the disk's bytes, not the file's: {what}"
        );
        fs::write(&path, &qcow2).unwrap();
        let contents = contents(&path).unwrap();
        assert_eq!((contents.bytes.len(), contents.bytes[4096]), (16 << 10, 0xda));
        fs::remove_file(&path).unwrap();
        let none = Disk {
            name: At::new("root".to_owned(), 0..1),
            image: Some(At::new(DiskSource::File(path), 1..2)),
            size: None,
            read_only: false,
            writes: None,
            device: None,
            runs: Runs { limit: 1, beside_realtime: false, cpu: None },
        };
        let problem = load(&none, None).unwrap_err();
        assert!(problem.what.contains("cannot be read") && problem.help.contains("relative"), "{problem:?}");
        let room = |size, writes| {
            let writes = Some(At::new(writes, 3..4));
            let disk = Disk { image: None, size: Some(At::new(size, 2..3)), writes, ..none.clone() };
            load(&disk, None).map(|disk| disk.size).map_err(|problem| (problem.span.start, problem.help))
        };
        assert_eq!([room(4608, 8192), room(1 << 20, 4096)], [Ok(4608), Ok(1 << 20)]);
        let (place, help) = room(8192, 12288).unwrap_err();
        assert!(place == 3 && help.contains("at most 8KiB"), "{help}");
        let zeros = Disk { image: None, size: Some(At::new(4096, 2..3)), ..none };
        assert_eq!(load(&zeros, None).map(|disk| (disk.image.is_none(), disk.size)), Ok((true, 4096)));
    }

    #[test]
    fn equal_images_are_there_once() {
        let disk = |bytes: &[u8]| DiskImage { image: Some(bytes.into()), size: 512 };
        let disks = [disk(b"one"), disk(b"two")];
        let place = |disk: &DiskImage| disk.image.as_ref().unwrap().as_ptr();
        let [mut two, mut other] = [disk(b"two"), disk(b"other")];
        two.share(&disks);
        other.share(&disks);
        assert_eq!(place(&two), place(&disks[1]));
        assert_eq!(other.image.as_deref(), Some(&b"other"[..]));
        let mut zeros = DiskImage { image: None, size: 512 };
        zeros.share(&disks);
        assert!(zeros.image.is_none());
    }
}
