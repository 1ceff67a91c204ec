// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the file that QEMU has behind the controller of a disk. It stays what it is: QEMU reads and writes it.

use std::fs::{self, OpenOptions};
use std::path::Path;

use super::disk::{Disk, DiskSource};
use super::disk_format;
use super::file;
use super::problem::Problem;
use super::qcow2;
use super::read::At;
use super::size::show_size;

/// How QEMU reads a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Its bytes are the disk's.
    Raw,
    /// As a qcow2 image.
    Qcow2,
}

/// Says of what format the file of a disk is; `None` if it is not there and can be made. One beside the configuration is raw, whatever a guest
/// has written there.
pub fn judge(disk: &Disk, file: &Path) -> Result<Option<Format>, Problem> {
    let named = disk.image.as_ref().filter(|image| matches!(image.value, DiskSource::File(_)));
    let place = named.map_or(&disk.name.span, |image| &image.span);
    let problem = |what, help: &str| Problem::new(place.clone(), what, help);
    let shown = file.display();
    let metadata = match fs::metadata(file) {
        Ok(metadata) => metadata,
        Err(error) if named.is_none() && error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let help = match named {
                Some(_) => {
                    "paths are relative to this file's folder; with a `size` and no `image` the tool makes a file"
                }
                None => "look at its folder",
            };
            let help = file::advice(&error, help);
            return Err(problem(format!("the disk's file {shown} cannot be read: {error}"), help));
        }
    };
    if !metadata.is_file() {
        let what = format!("the disk's file {shown} is not a file but {}", file::kind(metadata.file_type()));
        return Err(problem(what, "copy it into a file"));
    }
    if let Err((what, help)) = open(disk, file) {
        return Err(problem(format!("the disk's file {shown} {what}"), help));
    }
    let Some(image) = named else { return Ok(Some(Format::Raw)) };
    if metadata.len() == 0 && disk.size.is_none() {
        return Err(problem(format!("the disk's file {shown} is empty"), "give a `size`, to which it grows"));
    }
    judge_image(disk, image, file)
}

/// Opens a file as QEMU will; otherwise says why not, and what helps.
fn open(disk: &Disk, file: &Path) -> Result<(), (String, &'static str)> {
    if let Err(error) = OpenOptions::new().read(true).open(file) {
        return Err((format!("cannot be read: {error}"), file::advice(&error, "copy it to another disk")));
    }
    if disk.read_only {
        return Ok(());
    }
    let help = "let this user write it, or write read-only = true";
    let opened = OpenOptions::new().write(true).open(file);
    opened.map(drop).map_err(|error| (format!("cannot be written: {error}"), help))
}

/// Says of what format a file is that the configuration names.
fn judge_image(disk: &Disk, image: &At<DiskSource>, file: &Path) -> Result<Option<Format>, Problem> {
    let problem = |what, help: &str| Problem::new(image.span.clone(), what, help);
    let shown = file.display();
    let head = disk_format::head(file);
    if head.starts_with(qcow2::MAGIC) {
        if let Some((what, help)) = qcow2::unfit(&head) {
            return Err(problem(format!("the qcow2 image {shown} {what}"), help));
        }
        let has = qcow2::size(&head);
        if let Some(size) = disk.size.as_ref().filter(|size| size.value > has) {
            let what = format!("the qcow2 image {shown} is of a disk of {}", show_size(has));
            let help = "leave `size` out, or enlarge the image: `qemu-img resize IMAGE SIZE`";
            return Err(Problem::new(size.span.clone(), what, help));
        }
        return Ok(Some(Format::Qcow2));
    }
    match disk_format::foreign(&head) {
        Some((what, help)) => Err(problem(format!("{shown} is {what}, not a raw or qcow2 image"), help)),
        None => Ok(Some(Format::Raw)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::config::service::Runs;

    /// A disk behind a controller, whose image is this file, or none.
    fn disk(image: Option<PathBuf>, size: Option<u64>) -> Disk {
        Disk {
            name: At::new("root".to_owned(), 0..1),
            image: image.map(|path| At::new(DiskSource::File(path), 1..2)),
            size: size.map(|size| At::new(size, 2..3)),
            read_only: false,
            writes: None,
            device: None,
            runs: Runs { limit: 1, beside_realtime: false, cpu: None },
        }
    }

    #[test]
    fn files_are_used_as_they_are() {
        let folder = tempfile::TempDir::new().unwrap();
        let path = folder.path().join("disk.img");
        let named = |bytes: &[u8], size| {
            fs::write(&path, bytes).unwrap();
            judge(&disk(Some(path.clone()), size), &path)
        };
        let qcow2 = qcow2::tests::image(3);
        assert_eq!(named(&[7; 512], None), Ok(Some(Format::Raw)));
        assert_eq!(named(b"", Some(512)), Ok(Some(Format::Raw)));
        assert_eq!(named(&qcow2, Some(1 << 20)), Ok(Some(Format::Qcow2)));
        assert_eq!(judge(&disk(None, None), &path), Ok(Some(Format::Raw)), "whatever a guest writes there");
        let refused = |bytes: &[u8], size, place: usize, part: &str, advice: &str| {
            let problem = named(bytes, size).unwrap_err();
            assert!(problem.span.start == place && problem.what.contains(part), "{problem:?}");
            assert!(problem.help.contains(advice), "{problem:?}");
        };
        refused(b"", None, 1, "is empty", "give a `size`");
        refused(b"KDMV", None, 1, "VMDK image, not a raw or qcow2 image", "qemu-img convert");
        refused(&qcow2, Some((1 << 20) + 1), 2, "is of a disk of 1MiB", "qemu-img resize");
        let changed = |at: usize, byte: u8| {
            let mut image = qcow2.clone();
            image[at] = byte;
            image
        };
        refused(&changed(15, 1), None, 1, "what differs from another image", "qemu-img convert");
        refused(&changed(35, 1), None, 1, "is encrypted", "qemu-img convert");
        refused(&changed(79, 1 << 2), None, 1, "has its data in another file", "qemu-img convert");
        refused(&changed(79, 1 << 1), None, 1, "is marked as corrupt", "qemu-img check");
        assert_eq!(named(&changed(79, 1), None), Ok(Some(Format::Qcow2)), "QEMU mends it");
        let problem = judge(&disk(None, None), folder.path()).unwrap_err();
        assert!(
            problem.span.start == 0 && problem.what.contains("is not a file but a folder"),
            "{problem:?}"
        );
    }

    #[test]
    fn who_writes_must_be_able_to() {
        // Not even root may write a program that runs.
        let running = std::env::current_exe().unwrap();
        let mut disk = disk(Some(running.clone()), None);
        let problem = judge(&disk, &running).unwrap_err();
        assert!(
            problem.what.contains("cannot be written") && problem.help.contains("read-only"),
            "{problem:?}"
        );
        disk.read_only = true;
        assert_eq!(judge(&disk, &running), Ok(Some(Format::Raw)));
    }

    #[test]
    fn what_is_not_there_is_made_unless_it_is_named() {
        let path = tempfile::TempDir::new().unwrap().path().join("disk.img");
        assert_eq!(judge(&disk(None, Some(512)), &path), Ok(None));
        let problem = judge(&disk(Some(path.clone()), Some(512)), &path).unwrap_err();
        assert!(problem.what.contains("cannot be read") && problem.help.contains("relative"), "{problem:?}");
        let inside = path.join("inside");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, b"a file").unwrap();
        let problem = judge(&disk(None, Some(512)), &inside).unwrap_err();
        assert!(problem.what.contains("cannot be read") && problem.help.contains("folder"), "{problem:?}");
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
}
