// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Judges the file that QEMU has behind the controller of a disk. It stays what it is: QEMU reads and writes it.

use std::fs;
use std::path::Path;

use super::disk::{Disk, DiskSource};
use super::disk_image;
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
            return Err(problem(format!("the disk's file {shown} cannot be read: {error}"), help));
        }
    };
    if !metadata.is_file() {
        let what = format!("the disk's file {shown} is not a file but {}", file::kind(metadata.file_type()));
        return Err(problem(what, "copy it into a file"));
    }
    let Some(image) = named else { return Ok(Some(Format::Raw)) };
    if metadata.len() == 0 && disk.size.is_none() {
        return Err(problem(format!("the disk's file {shown} is empty"), "give a `size`, to which it grows"));
    }
    judge_image(disk, image, file)
}

/// The same of a file that the configuration names.
fn judge_image(disk: &Disk, image: &At<DiskSource>, file: &Path) -> Result<Option<Format>, Problem> {
    let problem = |what, help: &str| Problem::new(image.span.clone(), what, help);
    let shown = file.display();
    let head = disk_image::head(file);
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
    match disk_image::foreign(&head) {
        Some((what, help)) => Err(problem(format!("{shown} is {what}, not a raw or qcow2 image"), help)),
        None => Ok(Some(Format::Raw)),
    }
}
