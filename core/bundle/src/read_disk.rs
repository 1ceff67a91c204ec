// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a disk in a bundle.

use dtoolkit::fdt::FdtNode;

use crate::disk::{DiskSpec, Drive};
use crate::error::BundleError;
use crate::fields::{double_word, fields, flag, no_children, text, word};

/// Reads the description of a disk.
pub fn read_disk<'a>(node: &FdtNode<'a>, images: &[&'a [u8]]) -> Result<DiskSpec<'a>, BundleError> {
    const MALFORMED: BundleError = BundleError::Malformed("a disk's description");
    no_children(node)?;
    let [name, index, size, read_only, writes, drive, number, partition, trusted] = fields(
        node,
        ["name", "image", "size", "read-only", "writes", "drive", "number", "partition", "trusted"],
    )?;
    let image = |index: &[u8]| {
        let index = word(index).ok_or(MALFORMED)? as usize;
        images.get(index).copied().ok_or(BundleError::Malformed("an image's index"))
    };
    Ok(DiskSpec {
        name: name.and_then(text).ok_or(MALFORMED)?,
        image: index.map(image).transpose()?,
        size: double_word(size.ok_or(MALFORMED)?)?,
        read_only: flag(read_only)?,
        writes: writes.map(double_word).transpose()?,
        drive: read_drive(drive, [number, partition], flag(trusted)?)?,
    })
}

/// Reads where a disk is that the machine has; `None` if there is nothing of that.
fn read_drive(
    kind: Option<&[u8]>,
    [number, partition]: [Option<&[u8]>; 2],
    trusted: bool,
) -> Result<Option<Drive>, BundleError> {
    const MALFORMED: BundleError = BundleError::Malformed("where a disk is");
    let Some(kind) = kind else {
        let is_empty = number.is_none() && partition.is_none() && !trusted;
        return if is_empty { Ok(None) } else { Err(MALFORMED) };
    };
    let kind = text(kind).and_then(|kind| kind.parse().ok()).ok_or(MALFORMED)?;
    let number = number.and_then(word).ok_or(MALFORMED)? as usize;
    let partition = partition.map(|number| word(number).ok_or(MALFORMED)).transpose()?;
    Ok(Some(Drive { kind, number, partition, trusted }))
}
