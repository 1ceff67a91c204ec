// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Reads qcow2 images of disks. The crate `imago` knows the format; here is judged what of it may be used. An image comes from anywhere, and
//! may be made to harm: it names no other file that would be opened, and its size says nothing about how much is read.

use std::fs::File;
use std::io;
use std::path::Path;

use imago::{DenyImplicitOpenGate, FormatAccess, FormatDriverBuilder, Mapping};

/// What each of these images begins with.
pub const MAGIC: &[u8] = b"QFI\xfb";
/// How many bytes of its header are judged.
pub const HEADER: usize = 80;
/// How many bytes are read at once.
const PIECE: u64 = 1 << 20;

/// Parts of the header, all of them big-endian: offset of the name of its backing file, bits of a cluster's size, the disk's size, method of encryption; from version 3
/// on, what nobody may read who does not know it.
const BACKING: usize = 8;
const CLUSTER_BITS: usize = 20;
const SIZE: usize = 24;
const ENCRYPTION: usize = 32;
const INCOMPATIBLE: usize = 72;

/// What an image may need, each with its bit, and what helps.
const NEEDS: [(&str, &str); 5] = [
    ("was not closed in order", "mend it: `qemu-img check -r all IMAGE`"),
    CORRUPT,
    ELSEWHERE,
    ("is not compressed by zlib", CONVERT),
    ("has extended L2 entries", CONVERT),
];
const CORRUPT: (&str, &str) = ("is marked as corrupt", "mend it: `qemu-img check -r all IMAGE`");
const ELSEWHERE: (&str, &str) = ("has its data in another file", CONVERT);
const ENCRYPTED: (&str, &str) = ("is encrypted", CONVERT);
const BACKED: (&str, &str) = ("is only what differs from another image", CONVERT);
const CUT: &str = "is cut short: some of its data would be behind its end";
const CONVERT: &str = "convert it: `qemu-img convert -O qcow2 IMAGE disk.qcow2`";

/// Why an image cannot be read.
#[derive(Debug)]
pub enum Refused {
    /// It is of a kind that is not read: continues a sentence that starts with its name. And what helps.
    Kind(String, &'static str),
    /// It is broken, or reading failed.
    Broken(io::Error),
    /// It is of a disk of so many bytes.
    TooLarge(u64),
    /// It contains more than may be read: this many bytes at least, behind which are zeros only.
    TooLong(u64),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Broken(error)
    }
}

/// The contents of an image.
#[derive(Debug, PartialEq, Eq)]
pub struct Contents {
    /// What it begins with; behind that are zeros.
    pub bytes: Vec<u8>,
    /// The size of the disk in bytes.
    pub size: u64,
}

/// Reads an image whose first bytes are `head`, of a disk of at most `largest` bytes, of which no more than `most` may be needed.
///
/// # Errors
/// When it is broken, needs what is not there, or contains more.
pub fn read(path: &Path, head: &[u8], largest: u64, most: u64) -> Result<Contents, Refused> {
    judge(head)?;
    let file = File::open(path)?;
    let cluster = 1_u64.checked_shl(field(head, CLUSTER_BITS, 4) as u32).unwrap_or(1);
    let there = file.metadata()?.len().div_ceil(cluster).saturating_mul(cluster);
    let file = imago::file::File::try_from(file)?;
    let image = imago::qcow2::Qcow2::<_>::builder(file).open(DenyImplicitOpenGate::default())?;
    let image = FormatAccess::new(image);
    let size = image.size();
    // Before anything is done for each part of it.
    if size == 0 {
        return Err(Refused::Kind(
            "is of a disk without a byte".to_owned(),
            "leave `image` out, and give a `size`",
        ));
    }
    if size > largest {
        return Err(Refused::TooLarge(size));
    }
    let mut bytes = Vec::new();
    let mut at = 0;
    while at < size {
        let (mapping, length) = image.get_mapping(at, (size - at).min(PIECE))?;
        // Whatever the tables say, it comes to an end.
        let end = at + length.clamp(1, PIECE);
        if !matches!(mapping, Mapping::Zero { .. } | Mapping::Eof { .. }) {
            // What is behind the end of the file would be read as zeros. QEMU may end a file within a cluster.
            if matches!(mapping, Mapping::Raw { offset, .. } if offset.saturating_add(end - at) > there) {
                return Err(Refused::Kind(CUT.to_owned(), "copy it again, whole"));
            }
            if end > most {
                return Err(Refused::TooLong(end));
            }
            bytes.resize(end as usize, 0);
            image.read(&mut bytes[at as usize..], at)?;
        }
        at = end;
    }
    Ok(Contents { bytes, size })
}

/// Returns the number at this place of a header, of so many bytes.
fn field(head: &[u8], at: usize, size: usize) -> u64 {
    let bytes = head.get(at..at + size).unwrap_or_default();
    bytes.iter().fold(0, |value, byte| value << 8 | u64::from(*byte))
}

/// Returns what nobody may read who does not know it, a bit for each.
fn incompatible(head: &[u8]) -> u64 {
    if field(head, MAGIC.len(), 4) >= 3 { field(head, INCOMPATIBLE, 8) } else { 0 }
}

/// Returns the size of the disk of which this is the header.
pub fn size(head: &[u8]) -> u64 {
    field(head, SIZE, 8)
}

/// Says why an image cannot be a file that QEMU writes, and what helps: one that somebody else has made is not to make QEMU open other files.
pub fn unfit(head: &[u8]) -> Option<(&'static str, &'static str)> {
    let needed = incompatible(head);
    match () {
        () if field(head, BACKING, 8) != 0 => Some(BACKED),
        () if field(head, ENCRYPTION, 4) != 0 => Some(ENCRYPTED),
        () if needed & 1 << 1 != 0 => Some(CORRUPT),
        () if needed & 1 << 2 != 0 => Some(ELSEWHERE),
        () => None,
    }
}

/// Finds what an image needs that is not read.
fn judge(head: &[u8]) -> Result<(), Refused> {
    let refused = |(what, help): (&str, &'static str)| Err(Refused::Kind(what.to_owned(), help));
    if field(head, BACKING, 8) != 0 {
        return refused(BACKED);
    }
    if field(head, ENCRYPTION, 4) != 0 {
        return refused(ENCRYPTED);
    }
    let needed = incompatible(head);
    let known = NEEDS.iter().enumerate().find(|(bit, _)| needed >> bit & 1 != 0);
    match known {
        Some((_, known)) => refused(*known),
        None if needed != 0 => Err(Refused::Kind(format!("needs what is not known ({needed:#x})"), CONVERT)),
        None => Ok(()),
    }
}

#[cfg(test)]
pub(super) mod tests;
