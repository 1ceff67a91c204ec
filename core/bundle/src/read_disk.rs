// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The description of a disk in a bundle.

use dtoolkit::fdt::FdtNode;

use crate::disk::DiskSpec;
use crate::error::BundleError;
use crate::fields::{double_word, fields, flag, no_children, text, word};

/// Reads the description of a disk.
pub fn read_disk<'a>(node: &FdtNode<'a>, images: &[&'a [u8]]) -> Result<DiskSpec<'a>, BundleError> {
    const MALFORMED: BundleError = BundleError::Malformed("a disk's description");
    no_children(node)?;
    let [name, index, size, read_only] = fields(node, ["name", "image", "size", "read-only"])?;
    let image = |index: &[u8]| {
        let index = word(index).ok_or(MALFORMED)? as usize;
        images.get(index).copied().ok_or(BundleError::Malformed("an image's index"))
    };
    Ok(DiskSpec {
        name: name.and_then(text).ok_or(MALFORMED)?,
        image: index.map(image).transpose()?,
        size: double_word(size.ok_or(MALFORMED)?)?,
        read_only: flag(read_only)?,
    })
}
